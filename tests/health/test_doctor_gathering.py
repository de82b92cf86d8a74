"""The doctor's facts: read from a host laid out in a folder, and from children that hang or crash."""

import os
import sys
import time
from pathlib import Path

import pytest

from gpumon.core.model import DeviceState
from gpumon.core.problems import CommandError, Problem, ProblemCode
from gpumon.health.doctor.facts import Python, Steps
from gpumon.operations.doctor import files
from gpumon.operations.doctor.children import Children, examine_pythons
from gpumon.operations.doctor.files import driver_files, host_limits, kernel_errors, pci_topology
from gpumon.workload_runs.interpreter import Interpreter, every_interpreter
from tests.core.test_ownership import needs_root
from tests.health.doctor_facts import gpu, machine, program
from tests.processes import wait_gone

PATIENCE_SECONDS = 60.0
KERNEL_LOG = """\
6,1,2,-;usb 1-1: new device
4,2,3,-;NVRM: Xid (PCI:0000:1B:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.
4,3,4,-;NVRM: Xid (PCI:0000:1c:00): 31, pid=1896, name=python, Ch 00000010
"""
REDIRECTS = 0b1101


def write(root: Path, **files: str | bytes) -> Path:
    """A host in a folder, from paths in which ``__`` stands for a slash."""
    for name, content in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            path.write_text(content)
    return root


def config(control: int, length: int = 4096) -> bytes:
    """The configuration space of a bridge whose second extended capability is access control services."""
    space = bytearray(length)
    if length > 0x200:
        space[0x100:0x104] = (0x0001 | 1 << 16 | 0x140 << 20).to_bytes(4, "little")
        space[0x140:0x144] = (0x000D | 1 << 16).to_bytes(4, "little")
        space[0x146:0x148] = control.to_bytes(2, "little")
    return bytes(space)


def pci_device(root: Path, place: str, kind: str = "0x030200", vendor: str = "0x10de", **files: str) -> Path:
    """A device on the bus below its bridges, listed with all others."""
    folder = root / "sys/devices/pci0000:00" / place
    folder.mkdir(parents=True)
    write(folder, class_=kind, vendor=vendor, **files)
    (folder / "class_").rename(folder / "class")
    listed = root / "sys/bus/pci/devices"
    listed.mkdir(parents=True, exist_ok=True)
    (listed / folder.name).symlink_to(folder)
    return folder


# Files


def test_a_driver_in_the_file_system(tmp_path: Path) -> None:
    root = write(
        tmp_path,
        proc__driver__nvidia__version="NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release\n",
        proc__modules="nvidia_uvm 1 0 - Live\nnvidia 2 1 - Live\next4 3 0 - Live\n",
        proc__77__comm="nv-fabricmanage\n",
        proc__78__comm="nvidia-persiste\n",
        dev__nvidiactl="",
        dev__nvidia0="",
        dev__nvidia_uvm="",
    )
    (root / "dev/nvidia_uvm").rename(root / "dev/nvidia-uvm")
    pci_device(root, "0000:05:00.0", "0x068000")
    result = driver_files(root)
    assert result.version == "580.95.05"
    assert result.modules == ("nvidia_uvm", "nvidia")
    assert [node.path for node in result.nodes] == ["/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia0"]
    assert all(node.is_usable and node.mode.startswith("rw-") for node in result.nodes)
    assert (result.switches, result.has_fabric_manager, result.has_persistence_daemon) == (1, True, True)
    assert not result.is_container


def test_an_empty_machine(tmp_path: Path) -> None:
    assert driver_files(tmp_path).version is None
    assert driver_files(tmp_path).nodes == ()
    assert pci_topology(tmp_path).devices == ()
    limits = host_limits(tmp_path)
    assert (limits.shared_bytes, limits.memory_bytes, limits.open_files) == (None, None, None)
    with pytest.raises(CommandError, match="kernel log"):
        kernel_errors(tmp_path)


def test_a_container(tmp_path: Path) -> None:
    assert driver_files(write(tmp_path, proc__self__cgroup="0::/kubepods/x\n")).is_container


def test_errors_in_the_kernel_log(tmp_path: Path) -> None:
    assert kernel_errors(write(tmp_path, dev__kmsg=KERNEL_LOG)).xids == (("0000:1b:00", 79), ("0000:1c:00", 31))


def test_limits_of_control_groups_of_both_versions(tmp_path: Path) -> None:
    limits = "Max open files            1024                 4096                 files\n"
    limits += "Max locked memory         unlimited            unlimited            bytes\n"
    second = write(
        tmp_path / "second",
        proc__self__limits=limits,
        proc__self__cgroup="0::/a/b\n",
        proc__meminfo="MemTotal:       1000000 kB\n",
        **{"sys__fs__cgroup__a__memory.max": "500000\n", "sys__fs__cgroup__a__b__memory.max": "max\n"},
        **{"sys__fs__cgroup__a__b__cpu.max": "150000 100000\n"},
    )
    result = host_limits(second)
    assert (result.open_files, result.locked_bytes) == (1024, None)
    assert (result.memory_bytes, result.memory_total_bytes, result.cpus_quota) == (500000, 1024000000, 1.5)
    first = write(
        tmp_path / "first",
        proc__self__cgroup="5:cpu,cpuacct:/x\n4:memory:/x\n",
        proc__meminfo="MemTotal:       1000000 kB\n",
        **{"sys__fs__cgroup__memory__x__memory.limit_in_bytes": "9223372036854771712\n"},
        **{
            "sys__fs__cgroup__cpu__x__cpu.cfs_quota_us": "-1\n",
            "sys__fs__cgroup__cpu__x__cpu.cfs_period_us": "100000\n",
        },
    )
    assert (host_limits(first).memory_bytes, host_limits(first).cpus_quota) == (None, None)


def test_gpus_bridges_and_their_iommu(tmp_path: Path) -> None:
    group = tmp_path / "sys/kernel/iommu_groups/7"
    write(group, type="DMA-FQ\n")
    first = pci_device(tmp_path, "0000:00:01.0/0000:1b:00.0", numa_node="1\n", local_cpulist="0-2,8\n")
    (first / "iommu_group").symlink_to(group)
    pci_device(tmp_path, "0000:00:02.0/0000:1c:00.0", numa_node="-1\n")
    pci_device(tmp_path, "0000:00:03.0/0000:1d:00.0", vendor="0x8086")
    (first.parent / "config").write_bytes(config(REDIRECTS))
    (tmp_path / "sys/devices/pci0000:00/0000:00:02.0/config").write_bytes(config(0))
    result = pci_topology(tmp_path)
    assert [device.bus_id for device in result.devices] == ["0000:1b:00.0", "0000:1c:00.0"]
    assert (result.devices[0].node, result.devices[0].cpus) == (1, frozenset({0, 1, 2, 8}))
    assert (result.devices[0].iommu, result.devices[1].node) == ("DMA-FQ", None)
    assert result.redirecting == ("0000:00:01.0",)
    assert result.acs_problem is None
    (first.parent / "config").write_bytes(config(REDIRECTS, 64))
    assert "root" in str(pci_topology(tmp_path).acs_problem)


# Children


def asked(python: Path, seconds: float = PATIENCE_SECONDS) -> Steps:
    return Children().run(python, ["torch"], seconds)


def test_a_child_that_comes_to_its_end(tmp_path: Path) -> None:
    body = """
emit(begin="a")
emit(step="a", answer={"x": [1, "\\x1b[2J"]}, seconds=0.5)
emit(step="b", error="bad")
emit(end=True)
"""
    result = asked(program(tmp_path / "python", body))
    assert (result.ended_in, result.ended_by) == ("", "")
    assert result.value("a", "x") == [1, "\ufffd[2J"]
    assert result.error("b") == "bad"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ('emit(begin="a"); os.kill(os.getpid(), signal.SIGSEGV)', "SIGSEGV"),
        ('emit(begin="a"); print("no room", file=sys.stderr); sys.exit(3)', "exit code 3: no room"),
        ('emit(begin="a"); os.abort()', "SIGABRT"),
    ],
)
def test_a_child_that_ends_before_its_time(tmp_path: Path, body: str, words: str) -> None:
    result = asked(program(tmp_path / "python", body))
    assert result.ended_in == "a"
    assert words in result.ended_by
    assert words in result.error("a")


def test_a_child_that_hangs_is_ended_with_all_that_it_has_started(tmp_path: Path) -> None:
    body = """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
emit(step="started", answer={"pid": os.spawnvp(os.P_NOWAIT, "sleep", ["sleep", "1000"])})
emit(begin="a")
time.sleep(1000)
"""
    began = time.monotonic()
    result = asked(program(tmp_path / "python", body), seconds=2.0)
    assert time.monotonic() - began < PATIENCE_SECONDS
    assert (result.ended_in, result.ended_by) == ("a", "no answer within 2 s")
    assert wait_gone(result.value("started", "pid"), PATIENCE_SECONDS)


def test_children_are_ended_at_once_and_none_comes_after(tmp_path: Path) -> None:
    children = Children()
    children.close()
    assert "was closed" in children.run(Path(sys.executable), ["driver"], 5.0).ended_by


@pytest.mark.parametrize("said", ["[]", "{", "null", '{"step": 5}', '{"begin": []}', "x" * 100])
def test_what_makes_no_sense_is_passed_over(tmp_path: Path, said: str) -> None:
    body = f"os.write(int(sys.argv[sys.argv.index('--fd') + 1]), {said.encode()!r} + b'\\n'); emit(end=True)"
    assert asked(program(tmp_path / "python", body)) == Steps()


def test_what_is_no_program(tmp_path: Path) -> None:
    assert "cannot be started" in asked(tmp_path / "none").ended_by


def test_this_very_python_is_asked_about_the_driver() -> None:
    result = Children().run(Path(sys.executable), ["driver"], PATIENCE_SECONDS)
    assert (result.ended_in, result.ended_by) == ("", "")
    assert result.value("libraries", "libraries").keys() == {"libcuda.so.1", "libnvidia-ml.so.1"}
    assert "/dev/nvidiactl" in result.value("nodes", "opened")


# Pythons


def answering(path: Path, prefix: str) -> Interpreter:
    body = f'emit(step="python", answer={{"prefix": {prefix!r}, "version": "3.12", "words": sys.argv}}); emit(end=True)'
    return Interpreter(program(path, body), "PATH")


def test_two_names_of_one_environment_count_as_one(tmp_path: Path) -> None:
    result = [answering(tmp_path / name, prefix) for name, prefix in (("a", "/x"), ("b", "/x"), ("c", "/y"))]
    asked = examine_pythons(Children(), result, machine(), PATIENCE_SECONDS, was_named=False).asked
    assert [python.path for python in asked] == [str(tmp_path / "a"), str(tmp_path / "c")]


def test_a_full_gpu_and_a_lost_one_are_left_out(tmp_path: Path) -> None:
    full = gpu(0, readings={"memory_free_bytes": 1 << 30})
    lost = gpu(1, state=DeviceState.LOST)
    frame = machine(devices=(full, lost, gpu(2)))
    (result,) = examine_pythons(
        Children(), [answering(tmp_path / "a", "/x")], frame, PATIENCE_SECONDS, was_named=True
    ).asked
    assert isinstance(result, Python)
    words = result.steps.value("python", "words")
    assert words[words.index("--exclude") + 1] == f"{full.uuid},{lost.uuid}"


def test_no_gpu_is_touched_where_none_may_be(tmp_path: Path) -> None:
    result = [answering(tmp_path / "a", "/x")]
    frame = machine(devices=(gpu(0), gpu(1)))
    (asked,) = examine_pythons(Children(), result, frame, PATIENCE_SECONDS, was_named=True, tests_gpus=False).asked
    words = asked.steps.value("python", "words")
    assert words[words.index("--exclude") + 1] == "all"


def test_none_is_touched_either_where_nvml_does_not_tell_them(tmp_path: Path) -> None:
    result = [answering(tmp_path / "a", "/x")]
    silent = Problem(ProblemCode.UNRESPONSIVE, "NVML did not answer.")
    (asked,) = examine_pythons(Children(), result, silent, PATIENCE_SECONDS, was_named=True, tests_gpus=False).asked
    words = asked.steps.value("python", "words")
    assert words[words.index("--exclude") + 1] == "all"


def test_a_journal_that_shows_nothing_of_the_kernel_was_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hint = "No journal files were opened due to insufficient permissions."
    script = tmp_path / "journalctl"
    script.write_text(f'#!/bin/sh\ncase "$*" in *quiet*) ;; *) echo "{hint}" >&2 ;; esac\nexit 1\n')
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert files._journal() is None


def test_every_place_is_looked_at_and_a_program_once(tmp_path: Path) -> None:
    real = program(tmp_path / "python3", "")
    (tmp_path / "python").symlink_to(real)
    result = every_interpreter(environment={"PATH": str(tmp_path)})
    assert [python.path for python in result] == [Path(sys.executable), real]
    assert [python.path for python in every_interpreter(str(real))] == [real]
    with pytest.raises(CommandError, match="no program"):
        every_interpreter(str(tmp_path / "none"))


@needs_root
def test_root_does_not_run_the_python_of_another_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    venv, ran = tmp_path / "venv", tmp_path / "ran"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "python").write_text(f"#!/bin/sh\ntouch {ran}\n")
    (venv / "bin" / "python").chmod(0o755)
    os.chown(venv, 4242, 4242)
    candidates = every_interpreter(environment={"VIRTUAL_ENV": str(venv), "PATH": ""})
    refused = [candidate for candidate in candidates if candidate.found_in == "VIRTUAL_ENV"]
    (result,) = examine_pythons(Children(), refused, machine(), PATIENCE_SECONDS, was_named=False).asked
    assert result.refusal is not None
    assert not ran.exists()
