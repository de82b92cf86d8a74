"""GPUs that are split into instances (MIG), share the host's memory, or are busy without work."""

from dataclasses import replace
from typing import Any

import pytest

from gpumon.core.model import Device, DeviceState, Frame, MigInstance, Switch
from gpumon.core.problems import Problem, ProblemCode
from gpumon.core.store import Store
from gpumon.core.units import MISSING
from gpumon.jobs.protocol import EventKind, JobEvent
from gpumon.jobs.request import JobRequest
from gpumon.operations.workload import WorkloadRun
from gpumon.ui.jobs import JobBoard, Place, gpu_place
from gpumon.ui.paint.columns import place
from gpumon.ui.paint.line import Role, Span
from gpumon.ui.scene import Scene
from gpumon.ui.view import around, device, devices, processes
from gpumon.ui.view.entries import device_entries
from gpumon.ui.view.places import gpu_offers
from tests import builders
from tests.ui import runs

GIB = 1 << 30
TOTAL = 18 * GIB
NOT_TOLD = Problem(ProblemCode.NOT_SUPPORTED, "NVML does not tell it of an instance (MIG).")
SHARED = Problem(ProblemCode.MEMORY_SHARED, "This chip has no memory of its own.")


def instance(position: int, used: int = GIB) -> Device:
    """An instance of GPU 1."""
    figures = {"memory_total_bytes": TOTAL, "memory_used_bytes": used, "memory_free_bytes": TOTAL - used}
    return builders.device(
        1,
        uuid=f"MIG-a500000{position}-4d6f-5b6b-8c01-000000000000",
        instance=MigInstance(builders.device(1).key, position, 7 + position, 0),
        name="NVIDIA H200 MIG 1g.18gb",
        readings={**dict.fromkeys(builders.READINGS), **figures},
        throttle_reasons=None,
        processes=(builders.process(5000 + position, memory_bytes=used),),
        problems={"utilization_gpu_percent": NOT_TOLD},
    )


def split(**changes: Any) -> Frame:  # noqa: ANN401
    """Two GPUs, the second of which is split into two instances."""
    rates = {"utilization_gpu_percent": None, "utilization_memory_percent": None}
    whole = builders.device(1, mig_mode=Switch.ENABLED, readings=rates, processes=(), **changes)
    return builders.frame(devices=(builders.device(0), whole, instance(0), instance(1, 2 * GIB)))


def scene(frame: Frame) -> Scene:
    return Scene(Store(), frame, (), "")


def cells(frame: Frame, heading: str) -> list[Span]:
    placed = next(each for each in place(devices.DEVICE_COLUMNS, 200) if each.column.title(each.width) == heading)
    return [placed.column.cell(row, placed.width) for row in devices.device_rows(scene(frame))]


def texts(frame: Frame, heading: str) -> list[str]:
    return [span.text for span in cells(frame, heading)]


def test_instances_stand_under_their_gpu() -> None:
    assert texts(split(), "GPU") == ["0", "1", "1:0", "1:1"]
    assert texts(split(), "Name") == ["H200", "H200", "└ 1g.18gb", "└ 1g.18gb"]
    assert texts(split(), "Memory GiB")[2:] == ["1.0/18", "2.0/18"]
    assert texts(split(), "Util")[1:] == [MISSING] * 3


def test_nothing_counts_twice() -> None:
    plain = builders.frame(devices=split().gpus)
    assert around.totals_text(split()) == around.totals_text(plain)
    assert around.versions(split()).endswith("2 x H200")
    lost = builders.frame(devices=(builders.device(0, state=DeviceState.LOST), *split().devices[1:]))
    assert around.totals_text(lost).startswith("1 of 2 answer")


def test_a_process_stands_on_its_instance() -> None:
    rows = processes.process_rows(split())
    assert [(row.device.label, row.process.pid) for row in rows if row.process is not None] == [
        ("0", 4000),
        ("1:0", 5000),
        ("1:1", 5001),
    ]
    (column,) = (each for each in processes.PROCESS_COLUMNS if each.heading == "GPU")
    assert [column.cell(row, 3).text for row in rows] == ["0", "1:0", "1:1"]


def test_the_title_names_the_instance() -> None:
    assert device.title_text(split().devices[3], split()).startswith("GPU 1:1  H200 MIG 1g.18gb")


def test_the_details_tell_the_numbers_of_the_instance() -> None:
    told = {label: value for label, value, _ in device_entries(split().devices[3])}
    assert (told["GPU instance"], told["Compute instance"]) == ("8", "0")
    assert "GPU instance" not in {label for label, _, _ in device_entries(split().devices[1])}
    unknown = replace(split().devices[3], instance=MigInstance(PARENT, 1), problems={"gpu_instance_id": NOT_TOLD})
    assert ("GPU instance", MISSING, NOT_TOLD.reason) in device_entries(unknown)


def test_the_history_of_an_instance_is_its_own() -> None:
    store = Store()
    store.apply(split())
    first, second = split().devices[2:]
    assert store.history(first.key, "memory_used_bytes", 1) == [GIB]
    assert store.history(second.key, "memory_used_bytes", 1) == [2 * GIB]


def test_a_workload_is_offered_the_instances_and_not_their_gpu() -> None:
    frame = split()
    offers = gpu_offers(JobBoard(lambda: None), frame.devices)
    assert [offer.is_free for offer in offers] == [True, False, True, True]
    assert offers[1].refusal == "GPU 1 is split (MIG): choose one of its instances."
    assert offers[2].label.startswith("GPU 1:0  └ 1g.18gb  17.0 GiB of 18.0 GiB free")


def test_cuda_is_shown_an_instance_alone_and_a_gpu_without_what_is_split() -> None:
    frame = split()
    alone = gpu_place(frame.devices[2], frame.devices)
    assert alone == Place(
        frame.devices[2].key, "GPU 1:0", "cuda:0", {"CUDA_VISIBLE_DEVICES": frame.devices[2].uuid or ""}
    )
    whole = gpu_place(frame.devices[0], frame.devices)
    assert whole is not None
    assert whole.environment == {"CUDA_VISIBLE_DEVICES": frame.devices[0].uuid}
    silent = split(state=DeviceState.UNRESPONSIVE)
    assert gpu_offers(JobBoard(lambda: None), silent.devices)[1].refusal == "GPU 1 does not answer."


def run_on(visible: str, uuid: str | None) -> WorkloadRun:
    """A run that was told what CUDA shows it, and says on which chip it is."""
    told = runs.entry()
    request = JobRequest(
        told.run.request.workload, "cuda:0", {}, told.run.request.python, {"CUDA_VISIBLE_DEVICES": visible}
    )
    run = WorkloadRun(request)
    chip = {"name": "NVIDIA H200 MIG 1g.18gb", "uuid": uuid}
    plan = {"torch": "2.9.0", "chip": chip, "uses": {"memory_bytes": 0, "peers": False}, "parameters": {}}
    run.state.apply(JobEvent(EventKind.PLAN, runs.BEGAN, plan))
    return run


SECOND = split().devices[3]
PARENT = split().devices[1].key


@pytest.mark.parametrize(
    ("visible", "uuid"),
    [
        (SECOND.key, f"GPU-{SECOND.key.removeprefix('MIG-')}"),  # torch does not tell which of the two a UUID is
        (SECOND.key, PARENT),
        (SECOND.key, None),
        (f"{SECOND.key.replace('a', 'A')},{split().devices[2].key}", None),
        (f"MIG-{PARENT}/8/0", PARENT),
    ],
)
def test_a_run_is_matched_with_the_instance_that_cuda_shows_it(visible: str, uuid: str | None) -> None:
    run = run_on(visible, uuid)
    run.watch(split())
    assert run.device is not None
    assert run.device.label == "1:1"
    assert [each.process.pid for each in run.neighbours(split()) if each.process is not None] == [5001]


def test_without_a_named_instance_the_uuid_decides() -> None:
    run = run_on("", f"GPU-{SECOND.key.removeprefix('MIG-')}")
    run.watch(split())
    assert run.device is not None
    assert run.device.label == "1:1"
    other = run_on("", builders.device(0).key)
    other.watch(split())
    assert other.device is not None
    assert other.device.label == "0"


def busy(utilization: float, activity: float | None, reasons: tuple[str, ...] | None = ("sw_power_cap",)) -> Frame:
    readings = {"utilization_gpu_percent": utilization, "sm_activity_percent": activity}
    return builders.frame(devices=(builders.device(0, readings=readings, throttle_reasons=reasons),))


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        (busy(100, 0.0), Span("no SM work", Role.DIM)),
        (busy(90, 0.99), Span("no SM work", Role.DIM)),
        (busy(100, 0.0, None), Span("no SM work", Role.DIM)),
        (busy(100, 1.0), Span("power cap", Role.DIM)),
        (busy(89, 0.0), Span("power cap", Role.DIM)),
        (busy(100, None), Span("power cap", Role.DIM)),
        (busy(100, 0.0, ("hw_slowdown",)), Span("!hw slowdown", Role.WARNING)),
    ],
)
def test_a_busy_gpu_on_which_nothing_computes_says_so(frame: Frame, words: Span) -> None:
    assert cells(frame, "State") == [words]


def test_memory_of_the_host_is_marked() -> None:
    shared = builders.device(0, name="NVIDIA GB10", problems={"memory_reserved_bytes": SHARED})
    frame = builders.frame(devices=(shared, builders.device(1)))
    assert texts(frame, "Memory GiB") == ["~69.3/140", "69.3/140"]
    assert "memory shared with the host" in device.title_text(shared, frame)
    assert "shared" not in device.title_text(frame.devices[1], frame)
    first, second = gpu_offers(JobBoard(lambda: None), frame.devices)
    assert "free, shared with the host" in first.label
    assert "shared" not in second.label
