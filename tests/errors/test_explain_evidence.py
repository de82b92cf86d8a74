"""The evidence that a host adds to an explanation."""

import json
import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from gpumon.core.model import Frame, MigInstance
from gpumon.core.problems import Problem, ProblemCode
from gpumon.errors.explain import explain_source, explain_text
from gpumon.errors.load import ERRORS
from gpumon.operations.evidence import EVIDENCE_QUERIES, LiveEvidence, with_evidence
from tests import builders
from tests.cli.running import run
from tests.errors.texts import WORDINGS
from tests.insight.oom_documents import FULL
from tests.nvml_mock import NvmlMock

TEXT = dict(reversed(WORDINGS))


def live_evidence(**known: object) -> LiveEvidence:
    """The state of a host, known in advance."""
    live = LiveEvidence()
    live.__dict__.update({"frame": builders.frame(), "torch": "", "xids": (), "shared_memory": None} | known)
    return live


def evidence(error_id: str, live: LiveEvidence) -> Mapping[str, str]:
    match = with_evidence(explain_text(TEXT[error_id]), live).cause
    assert match is not None
    return match.evidence


def test_evidence_queries_name_existing_errors() -> None:
    assert {name for error in ERRORS.values() for name in error.host} == set(EVIDENCE_QUERIES)


def test_processes_that_hold_the_memory() -> None:
    rows = evidence("oom", live_evidence())
    assert rows["GPU 0 memory"] == "69.3 of 140 GiB used; by process: 4000 69.3 GiB"
    assert "GPU 1 memory" in rows


@pytest.mark.parametrize(
    ("uuid", "expected"),
    [
        ("GPU-AB-1", "GPU 0"),
        ("GPU-ab-2", "GPU 0:1"),
        ("GPU-ab", "not a GPU of this host"),
        ("GPU-", "not a GPU of this host"),
    ],
)
def test_the_gpu_or_instance_of_a_report(uuid: str, expected: str) -> None:
    instance = MigInstance("GPU-ab-1", position=1)
    lost, whole = builders.device(1, uuid=None), builders.device(0, uuid="GPU-ab-1")
    devices = (lost, whole, builders.device(0, uuid="MIG-ab-2", instance=instance))
    raw = json.dumps({**FULL, "device": {**FULL["device"], "uuid": uuid}}).encode()
    match = with_evidence(
        explain_source(iter([raw]), "oom"), live_evidence(frame=builders.frame(devices=devices))
    ).cause
    assert match is not None
    assert match.evidence["cuda:0"] == expected


def test_compute_capability_and_architectures_of_torch() -> None:
    frame = builders.frame(devices=(builders.device(0, compute_capability="12.0"),))
    rows = evidence("no-kernel-image", live_evidence(frame=frame, torch="2.6.0 for CUDA 12.4 has code for sm_90"))
    assert rows == {
        "GPU 0": "NVIDIA H200, compute capability 12.0; wheels of cu130 have code for it",
        "torch": "2.6.0 for CUDA 12.4 has code for sm_90",
    }


def test_the_newest_cuda_version_of_the_driver() -> None:
    assert evidence("driver-old", live_evidence())["driver"] == "580.95.05, supports CUDA up to 13.0"
    problem = Problem(ProblemCode.DRIVER_NOT_LOADED, "No driver is loaded.")
    without_driver = Frame(0.0, 0.0, 1.0, problems={"driver": problem})
    assert evidence("no-driver", live_evidence(frame=without_driver))["driver"] == "No driver is loaded."


@pytest.mark.parametrize(
    ("visible", "expected"),
    [(None, "not set"), ("", "empty: no GPU is visible"), ("0,9", "0,9"), ("\x1b[2J", "\ufffd[2J")],
)
def test_the_visible_gpus(monkeypatch: pytest.MonkeyPatch, visible: str | None, expected: str) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert evidence("no-gpus", live_evidence()) == {"GPUs": "2", "CUDA_VISIBLE_DEVICES": expected}


def test_the_size_of_the_shared_memory() -> None:
    assert evidence("shm", live_evidence(shared_memory=(64 << 20, 1 << 20))) == {
        "size of /dev/shm": "64.0 MiB, 1.00 MiB free"
    }


@pytest.mark.parametrize(
    ("xids", "expected"),
    [
        (None, "not readable by this user"),
        ((), "no Xid since boot"),
        ((("0000:1b:00", 79),), "1 since boot, latest: Xid 79: GPU has fallen off the bus on 0000:1b:00"),
    ],
)
@pytest.mark.parametrize("error_id", ["launch-failure", "xid-79"])
def test_xids_of_the_kernel_log(error_id: str, xids: tuple[tuple[str, int], ...] | None, expected: str) -> None:
    assert evidence(error_id, live_evidence(xids=xids))["kernel log"].startswith(expected)


@pytest.mark.parametrize("error_id", ["shape", "device-mismatch"])
def test_an_error_of_the_program_has_no_evidence(error_id: str) -> None:
    assert evidence(error_id, live_evidence()) == {}


@pytest.mark.parametrize("error_id", ["oom", "no-kernel-image", "driver-old", "shm", "xid-79", "no-gpus"])
def test_a_host_that_cannot_be_queried(error_id: str) -> None:
    unknown = live_evidence(frame=None, xids=None)
    assert all(isinstance(text, str) for text in evidence(error_id, unknown).values())


def test_this_host_can_be_queried(nvml_mock: NvmlMock, tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text(TEXT["oom"])
    environment = {**nvml_mock.environment(gpus=2), "PATH": os.environ["PATH"]}
    live = run("explain", "--more", str(log), "--live", env=environment)
    assert (live.returncode, live.stderr) == (0, "")
    assert "This host now\n  GPU 0 memory" in live.stdout
    log_only = run("explain", "--more", str(log), "--no-live", env=environment)
    assert "This host now" not in log_only.stdout
