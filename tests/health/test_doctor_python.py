"""The doctor's checks of a Python and its torch, of packages, and of environment variables."""

from dataclasses import replace
from typing import Any

import pytest

from gpumon.core.model import Frame
from gpumon.core.problems import Problem, ProblemCode
from gpumon.health.checks import Check, Status
from gpumon.health.doctor.compatibility import package_conflicts
from gpumon.health.doctor.environment import ENVIRONMENT_CHECKS, allocator_faults
from gpumon.health.doctor.facts import Environment, Python, Pythons, Steps
from gpumon.health.doctor.python import python_checks
from tests.health.doctor_facts import ENVIRONMENT, TORCH, died, environment, facts, gpu, machine, python, without_driver


def judged(which: Python, frame: Frame | Problem | None = None) -> dict[str, Check]:
    """The checks of a Python by their name."""
    result = python_checks(facts(frame, Pythons=Pythons((which,))))
    return {check.id.partition(".")[2]: check for check in result}


def test_a_torch_that_is_well() -> None:
    result = judged(python())
    assert {name for name, check in result.items() if check.status is not Status.OK} == {"allocator"}
    assert result["architectures"].detail == "sm_90"
    assert result["kernel"].detail == "correct on 2 GPUs"


@pytest.mark.parametrize(
    ("name", "changes", "status", "words"),
    [
        ("torch", {"import": "OSError: libcudart.so.13: cannot open"}, Status.FAIL, "libcudart.so.13"),
        ("cuda", {"import": {"version": "2.13.0+cpu", "cuda": None}}, Status.FAIL, "CPU only"),
        ("cuda", {"import": {"version": "2.13.0+rocm6", "cuda": None, "hip": "6.3"}}, Status.FAIL, "AMD"),
        ("driver", {"import": {"cuda": "14.0"}}, Status.FAIL, "only up to 13.0"),
        ("driver", {"import": {"cuda": "13.2"}}, Status.WARN, "may fail"),
        ("driver", {"import": {"cuda": "12.8"}}, Status.OK, "12.8"),
        ("architectures", {"build": {"architectures": ["sm_100", "sm_120"]}}, Status.FAIL, "GPUs 0-1"),
        ("architectures", {"build": {"architectures": ["sm_80", "compute_80"]}}, Status.WARN, "compiled"),
        ("architectures", {"build": {"architectures": ["sm_90a"]}}, Status.OK, "sm_90a"),
        ("available", {"available": {"available": False}, "start": "RuntimeError: Error 802"}, Status.FAIL, "802"),
        ("devices", {"devices": {"devices": TORCH["devices"]["devices"][:1]}}, Status.FAIL, "1 GPU, but 2"),
        ("kernel", {"kernel__1": "AcceleratorError: no kernel image"}, Status.FAIL, "cuda:1"),
        ("kernel", {"kernel__0": {"is_right": False}}, Status.FAIL, "Wrong results on cuda:0"),
        ("kernel", {"kernel__1": None}, Status.OK, "1 GPU not tested"),
        ("cublas", {"cublas": {"is_right": False}}, Status.FAIL, "wrong"),
        ("cudnn", {"cudnn": "RuntimeError: cuDNN error"}, Status.FAIL, "cuDNN error"),
        ("cudnn", {"cudnn": {"is_right": True, "is_there": False}}, Status.WARN, "no cuDNN"),
        ("nccl", {"nccl": {"is_there": False}}, Status.WARN, "without NCCL"),
        ("allocator", {"allocator": {"said": {"PYTORCH_ALLOC_CONF": "Expected"}}}, Status.FAIL, "_CONF: Expected."),
    ],
)  # fmt: skip
def test_one_thing_that_is_not_well(name: str, changes: dict[str, Any], status: Status, words: str) -> None:
    check = judged(python(**changes))[name]
    assert check.status is status
    assert words in check.detail
    assert bool(check.fix) == (status is not Status.OK)


def test_a_torch_for_the_cpu_is_in_its_place_where_no_gpu_is() -> None:
    no: dict[str, Any] = {"available": False, "count": 0, "warnings": []}
    imported: dict[str, Any] = {"version": "2.13.0+cpu", "cuda": None}
    changes: dict[str, dict[str, Any] | None] = {"import": imported, "available": no, "devices": None}
    which = python(**changes)
    result = judged(which, without_driver())
    assert result["cuda"].status is Status.SKIP
    assert {result[name].detail for name in ("driver", "kernel", "nccl", "devices")} == {"This torch has no CUDA."}


@pytest.mark.parametrize("step", ["import", "available", "devices", "kernel 0", "cublas", "cudnn", "nccl"])
def test_a_crash_fails_the_check_it_was_in_and_skips_those_behind(step: str) -> None:
    result = judged(died(step))
    name = {"import": "torch", "kernel 0": "kernel"}.get(step, step)
    assert result[name].status is Status.FAIL
    assert "SIGSEGV" in result[name].detail
    names = list(result)
    behind = [check for check in names[names.index(name) + 1 :] if check not in {"packages", "allocator"}]
    assert all(result[check].status is not Status.OK for check in behind), behind


def test_the_order_of_cuda_against_that_of_nvml() -> None:
    backwards = {"devices": list(reversed(TORCH["devices"]["devices"]))}
    assert judged(python(devices=backwards))["devices"].status is Status.WARN
    meant = machine(devices=(gpu(0, cuda_index=1), gpu(1, cuda_index=0)))
    check = judged(python(devices=backwards), meant)["devices"]
    assert (check.status, "cuda:0 is GPU 1" in check.detail) == (Status.OK, True)


def test_a_name_that_differs() -> None:
    renamed = {"devices": [{**device, "name": "NVIDIA H100"} for device in TORCH["devices"]["devices"]]}
    assert judged(python(devices=renamed))["devices"].status is Status.WARN


def test_each_python_has_its_own_checks_and_those_without_torch_none() -> None:
    bare = replace(python(python={"version": "3.11.1", "has_torch": False}), path="/usr/bin/python3")
    other = replace(python(), path="/opt/other/bin/python")
    result = [check.id for check in python_checks(facts(Pythons=Pythons((bare, python(), other))))]
    assert {check_id.partition(".")[0] for check_id in result} == {"python", "python1", "python2"}


def test_a_named_python_that_has_no_torch_or_is_none() -> None:
    bare = python(python={"version": "3.11.1", "has_torch": False})
    assert judged_found(Pythons((bare,), was_named=True)).status is Status.FAIL
    assert judged_found(Pythons((bare,))).status is Status.WARN
    crashed = Python("/opt/x", "--python", Steps(ended_by="killed by SIGSEGV"))
    assert "SIGSEGV" in judged_found(Pythons((crashed,), was_named=True)).detail


@pytest.mark.parametrize("others", [(), (python(),)], ids=["alone", "next to one that was run"])
def test_a_python_that_was_not_run_has_its_reason(others: tuple[Python, ...]) -> None:
    refusal = Problem(ProblemCode.NO_PERMISSION, "The folder /other belongs to another user (UID 1).")
    check = judged_found(Pythons((*others, Python("/other/bin/python", "VIRTUAL_ENV", Steps(), refusal))))
    assert check.status is Status.WARN
    assert f"/other/bin/python (VIRTUAL_ENV) was not run. {refusal.reason}" in check.detail
    assert "--python" in check.fix


def judged_found(pythons: Pythons | Problem) -> Check:
    return next(iter(python_checks(facts(Pythons=pythons))))


def test_pythons_that_could_not_be_asked() -> None:
    late = Problem(ProblemCode.UNRESPONSIVE, "Python did not answer within 27 s.")
    assert judged_found(late) == Check("python.found", Status.FAIL, late.reason, judged_found(late).fix)


# Packages


@pytest.mark.parametrize(
    ("installed", "pins", "cuda", "words"),
    [
        ([["torch", "2.13.0"], ["torch", "2.11.0"]], [], "13.0", "torch is installed twice"),
        ([["torch", "2.11.0+cu130"]], [["torchvision", "torch", "2.13.0"]], "13.0", "requires torch==2.13.0"),
        ([["torch", "2.13.0+cu130"], ["torchvision", "0.28+cpu"]], [], "13.0", "different targets"),
        ([["torch", "2.13.0"], ["nvidia_cublas_cu12", "12.8.4.1"]], [], "13.0", "for CUDA 12 "),
        ([["torch", "2.13.0"]], [["torch", "nvidia-nccl-cu13", "2.29.7"]], "13.0", "not installed"),
    ],
)  # fmt: skip
def test_mixed_packages(installed: list[list[str]], pins: list[list[str]], cuda: str, words: str) -> None:
    assert words in " ".join(package_conflicts(installed, pins, cuda))
    which = python(packages={"installed": installed, "pins": pins})
    assert judged(which)["packages"].status is Status.WARN


def test_packages_that_fit() -> None:
    installed = [["torch", "2.13.0+cu130"], ["torchvision", "0.28.0+cu130"], ["nvidia-cudnn-cu13", "9.13.0.50"]]
    pins = [["torchvision", "torch", "2.13.0"], ["torch", "nvidia_cudnn_cu13", "9.13.*"]]
    assert list(package_conflicts(installed, pins, "13.0")) == []


# The allocator's configuration


@pytest.mark.parametrize(
    "text",
    [
        "expandable_segments:True",
        "max_split_size_mb:128,garbage_collection_threshold:0.8",
        " max_split_size_mb : 128 , ",
        "roundup_power2_divisions:[256:1,512:2,>:4]",
        "roundup_power2_divisions:4",
        "roundup_power2_divisions:[64:0,128:2,>:4]",
        "backend:cudaMallocAsync",
        "per_process_memory_fraction:0.5,throw_on_cudamalloc_oom:True",
    ],
)
def test_configurations_that_torch_takes(text: str) -> None:
    assert list(allocator_faults(text)) == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("expandable_segments:true", "True or False"),
        ("max_split_size_mb:10", "20 (MiB) or more"),
        ("max_split_size_mb:abc", "whole number"),
        ("max_split_size_mb=128", "not a key:value"),
        ("garbage_collection_threshold:1.0", "greater than 0 and less than 1"),
        ("roundup_power2_divisions:3", "power of two"),
        ("roundup_power2_divisions:0", "power of two"),
        ("roundup_power2_divisions:[64:3]", "power of two"),
        ("max_splitsize_mb:128", "did you mean max_split_size_mb?"),
        ("backend:async", "cudaMallocAsync"),
        ("per_process_memory_fraction:nan", "from 0 to 1"),
    ],
)
def test_configurations_that_torch_refuses(text: str, words: str) -> None:
    (said,) = allocator_faults(text)
    assert words in said


# Variables


def variables(**given: str) -> dict[str, Check]:
    known = facts(Environment=environment(**given))
    return {rule.id.partition(".")[2]: rule.run(known) for rule in ENVIRONMENT_CHECKS}


@pytest.mark.parametrize(
    ("name", "given", "status", "words"),
    [
        ("cuda", {"CUDA_LAUNCH_BLOCKING": "1"}, Status.WARN, "every kernel launch synchronous"),
        ("cuda", {"CUDA_LAUNCH_BLOCKING": "0"}, Status.OK, ""),
        ("cuda", {"CUDA_DEVICE_ORDER": "PCI"}, Status.WARN, "PCI_BUS_ID and FASTEST_FIRST"),
        ("cuda", {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}, Status.OK, ""),
        ("cuda", {"CUDA_DEVICE_MAX_CONNECTIONS": "many"}, Status.WARN, "1 to 32"),
        ("cuda", {"NVIDIA_DRIVER_CAPABILITIES": "utility"}, Status.WARN, "lacks compute"),
        ("nccl", {"NCCL_P2P_DISABLE": "1"}, Status.WARN, "through the host"),
        ("nccl", {"NCCL_SOCKET_IFNAME": "eth"}, Status.OK, ""),
        ("nccl", {"NCCL_SOCKET_IFNAME": "=eth"}, Status.FAIL, "no network interface"),
        ("nccl", {"NCCL_SOCKET_IFNAME": "^eth0,lo"}, Status.FAIL, "no network interface"),
        ("nccl", {"NCCL_SOCKET_IFNAME": "^lo"}, Status.OK, ""),
        ("nccl", {"NCCL_ASYNC_ERROR_HANDLING": "1"}, Status.WARN, "renamed"),
        ("allocator", {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:yes"}, Status.FAIL, "PYTORCH_CUDA_ALLOC_CONF"),
        ("allocator", {"PYTORCH_ALLOC_CONF": "a:1", "PYTORCH_CUDA_ALLOC_CONF": ""}, Status.FAIL, "no key 'a'"),
        ("threads", {"OMP_NUM_THREADS": "4,2"}, Status.OK, "OMP_NUM_THREADS=4"),
        ("threads", {"OMP_NUM_THREADS": "all"}, Status.WARN, "not a valid number"),
        ("threads", {"OMP_NUM_THREADS": "4096"}, Status.WARN, "8 CPUs"),
        ("libraries", {"LD_LIBRARY_PATH": "/usr/local/cuda-12/lib64"}, Status.WARN, "precedence"),
        ("libraries", {"LD_LIBRARY_PATH": "/opt/mine"}, Status.OK, ""),
        ("libraries", {"LD_PRELOAD": "/opt/x.so"}, Status.WARN, "/opt/x.so"),
    ],
)
def test_variables(name: str, given: dict[str, str], status: Status, words: str) -> None:
    check = variables(**given)[name]
    assert check.status is status, check
    assert words in check.detail


def test_two_configurations_that_differ() -> None:
    both = {"PYTORCH_ALLOC_CONF": "max_split_size_mb:64", "PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:128"}
    assert variables(**both)["allocator"].status is Status.WARN


def test_no_variables_are_well() -> None:
    assert isinstance(ENVIRONMENT, Environment)
    assert {check.status for check in variables().values()} == {Status.OK}
