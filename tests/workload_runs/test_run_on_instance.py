"""Runs on a host with MIG instances: what CUDA shows the workload, and which device the run is matched with."""

from dataclasses import replace

import pytest

from gpumon.core.model import MigInstance
from gpumon.core.problems import CommandError
from gpumon.core.units import MISSING
from gpumon.operations.device_selection import RunTarget, gpu_target
from gpumon.operations.runs import expand_devices
from gpumon.operations.workload import WorkloadRun
from gpumon.present.entries import device_entries
from gpumon.workload_runs.catalogue import RunRequest
from gpumon.workload_runs.protocol import RunEventKind
from tests import builders, runs
from tests.present.split import NOT_REPORTED, split_frame

SECOND = split_frame().devices[3]
PARENT = split_frame().devices[1].key


def test_cuda_shows_an_instance_alone_and_a_gpu_without_split_ones() -> None:
    frame = split_frame()
    instance = frame.devices[2]
    target = gpu_target(instance, frame.devices)
    assert target == RunTarget(instance.key, "GPU 1:0", "cuda:0", {"CUDA_VISIBLE_DEVICES": instance.uuid or ""})
    gpu = gpu_target(frame.devices[0], frame.devices)
    assert gpu is not None
    assert gpu.environment == {"CUDA_VISIBLE_DEVICES": frame.devices[0].uuid}
    assert gpu_target(frame.devices[1], frame.devices) is None


def test_an_instance_is_named_by_its_label_or_uuid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    devices = [replace(device, cuda_index=None) for device in split_frame().devices]
    instance = devices[2]
    for name in ("1:0", str(instance.uuid)):
        (target,) = expand_devices([name], lambda: devices)
        assert (target.device, target.environment) == ("cuda:0", {"CUDA_VISIBLE_DEVICES": instance.uuid})
    with pytest.raises(CommandError, match="GPU 1 in this environment, or it is split by MIG"):
        expand_devices(["1"], lambda: devices)
    assert expand_devices(["cuda:1", "cuda:1", "cpu"], lambda: devices)[0].device == "cuda:1"


def run_on(visible: str, uuid: str | None) -> WorkloadRun:
    """A run with CUDA_VISIBLE_DEVICES, whose workload reports the UUID of its device."""
    request = runs.new_run().request
    run = WorkloadRun(RunRequest(request.workload, "cuda:0", {}, request.python, {"CUDA_VISIBLE_DEVICES": visible}))
    chip = {"name": "NVIDIA H200 MIG 1g.18gb", "uuid": uuid}
    runs.send(run, RunEventKind.PLAN, torch="2.9.0", chip=chip, uses={"memory_bytes": 0, "peers": False}, parameters={})
    return run


@pytest.mark.parametrize(
    ("visible", "uuid"),
    [
        (SECOND.key, f"GPU-{SECOND.key.removeprefix('MIG-')}"),  # torch does not report which kind a UUID is
        (SECOND.key, PARENT),
        (SECOND.key, None),
        (f"{SECOND.key.replace('a', 'A')},{split_frame().devices[2].key}", None),
        (f"MIG-{PARENT}/8/0", PARENT),
    ],
)
def test_a_run_is_matched_with_the_instance_that_cuda_shows_it(visible: str, uuid: str | None) -> None:
    run = run_on(visible, uuid)
    run.observe(split_frame())
    assert run.device is not None
    assert run.device.label == "1:1"
    assert [other.process.pid for other in run.other_processes(split_frame()) if other.process is not None] == [5001]


@pytest.mark.parametrize(
    ("uuid", "label"), [(f"GPU-{SECOND.key.removeprefix('MIG-')}", "1:1"), (builders.device(0).key, "0")]
)
def test_without_a_visible_instance_the_uuid_decides(uuid: str, label: str) -> None:
    run = run_on("", uuid)
    run.observe(split_frame())
    assert run.device is not None
    assert run.device.label == label


def test_the_entries_of_an_instance_have_its_numbers() -> None:
    entries = {label: value for label, value, _ in device_entries(SECOND)}
    assert (entries["GPU instance"], entries["Compute instance"]) == ("8", "0")
    assert "GPU instance" not in {label for label, _, _ in device_entries(split_frame().devices[1])}
    unknown = replace(SECOND, instance=MigInstance(PARENT, 1), problems={"gpu_instance_id": NOT_REPORTED})
    assert ("GPU instance", MISSING, NOT_REPORTED.reason) in device_entries(unknown)
