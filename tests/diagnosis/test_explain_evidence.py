"""What a machine says to an error beside what the log says."""

import json
import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from gpumon.core.model import Frame, MigInstance
from gpumon.core.problems import Problem, ProblemCode
from gpumon.diagnosis.catalogue import BY_ID
from gpumon.diagnosis.explain import explain_source, explain_text
from gpumon.operations.evidence import WITNESSES, Machine, with_evidence
from tests import builders
from tests.cli.running import run
from tests.diagnosis.oom_documents import FULL
from tests.diagnosis.texts import WORDINGS
from tests.nvml_mock import NvmlMock

TEXT = dict(reversed(WORDINGS))


def machine(**known: object) -> Machine:
    """A machine of which everything is known beforehand."""
    made = Machine()
    made.__dict__.update({"frame": builders.frame(), "torch": "", "xids": (), "shared_memory": None} | known)
    return made


def evidence(error_id: str, on: Machine) -> Mapping[str, str]:
    match = with_evidence(explain_text(TEXT[error_id]), on).cause
    assert match is not None
    return match.evidence


def test_every_witness_is_asked_about_errors_that_there_are() -> None:
    assert {error_id for ids, _ in WITNESSES for error_id in ids} <= set(BY_ID)


def test_who_holds_the_memory() -> None:
    said = evidence("oom", machine())
    assert said["GPU 0 memory"] == "69.3 GiB of 140 GiB used; by process: 4000 69.3 GiB"
    assert "GPU 1 memory" in said


@pytest.mark.parametrize(
    ("uuid", "told"),
    [
        ("GPU-AB-1", "GPU 0"),
        ("GPU-ab-2", "GPU 0:1"),
        ("GPU-ab", "no GPU of this machine"),
        ("GPU-", "no GPU of this machine"),
    ],
)
def test_which_gpu_or_instance_it_was(uuid: str, told: str) -> None:
    instance = MigInstance("GPU-ab-1", position=1)
    lost, whole = builders.device(1, uuid=None), builders.device(0, uuid="GPU-ab-1")
    devices = (lost, whole, builders.device(0, uuid="MIG-ab-2", instance=instance))
    raw = json.dumps({**FULL, "device": {**FULL["device"], "uuid": uuid}}).encode()
    match = with_evidence(explain_source(iter([raw]), "oom"), machine(frame=builders.frame(devices=devices))).cause
    assert match is not None
    assert match.evidence["cuda:0"] == told


def test_what_the_gpus_can_do_and_what_torch_has_code_for() -> None:
    frame = builders.frame(devices=(builders.device(0, compute_capability="12.0"),))
    said = evidence("no-kernel-image", machine(frame=frame, torch="2.6.0 for CUDA 12.4 has code for sm_90"))
    assert said == {
        "GPU 0": "NVIDIA H200, compute capability 12.0",
        "torch": "2.6.0 for CUDA 12.4 has code for sm_90",
    }


def test_which_cuda_the_driver_runs() -> None:
    assert evidence("driver-old", machine())["driver"] == "580.95.05, runs CUDA up to 13.0"
    problem = Problem(ProblemCode.DRIVER_NOT_LOADED, "No driver is loaded.")
    gone = Frame(0.0, 0.0, 1.0, problems={"driver": problem})
    assert evidence("no-driver", machine(frame=gone))["driver"] == "No driver is loaded."


@pytest.mark.parametrize(
    ("visible", "told"),
    [(None, "not set"), ("", "empty: no GPU can be seen"), ("0,9", "0,9"), ("\x1b[2J", "\ufffd[2J")],
)
def test_which_gpus_a_program_would_see(monkeypatch: pytest.MonkeyPatch, visible: str | None, told: str) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert evidence("no-gpus", machine()) == {"GPUs": "2", "CUDA_VISIBLE_DEVICES": told}


def test_how_large_the_shared_memory_is() -> None:
    assert evidence("shm", machine(shared_memory=(64 << 20, 1 << 20))) == {
        "size of /dev/shm": "64.0 MiB, 1.00 MiB free"
    }


@pytest.mark.parametrize(
    ("xids", "told"),
    [
        (None, "this user may not read it"),
        ((), "no Xid since boot"),
        ((("0000:1b:00", 79),), "1 since boot, the latest: Xid 79: GPU has fallen off the bus on 0000:1b:00"),
    ],
)
@pytest.mark.parametrize("error_id", ["launch-failure", "xid-79"])
def test_what_the_kernel_log_has(error_id: str, xids: tuple[tuple[str, int], ...] | None, told: str) -> None:
    assert evidence(error_id, machine(xids=xids))["kernel log"].startswith(told)


@pytest.mark.parametrize("error_id", ["shape", "device-mismatch"])
def test_a_machine_has_nothing_to_say_to_an_error_of_the_program(error_id: str) -> None:
    assert evidence(error_id, machine()) == {}


@pytest.mark.parametrize("error_id", ["oom", "no-kernel-image", "driver-old", "shm", "xid-79", "no-gpus"])
def test_a_machine_that_cannot_be_asked_does_no_harm(error_id: str) -> None:
    silent = machine(frame=None, xids=None)
    assert all(isinstance(each, str) for each in evidence(error_id, silent).values())


def test_this_machine_can_be_asked(nvml_mock: NvmlMock, tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text(TEXT["oom"])
    environment = {**nvml_mock.environment(gpus=2), "PATH": os.environ["PATH"]}
    live = run("explain", str(log), "--live", env=environment)
    assert (live.returncode, live.stderr) == (0, "")
    assert "What this machine says now\n  GPU 0 memory" in live.stdout
    blind = run("explain", str(log), "--no-live", env=environment)
    assert "What this machine says now" not in blind.stdout
