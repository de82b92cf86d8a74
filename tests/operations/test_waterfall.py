"""A GPU's memory from zero to its total: every byte is attributed, unattributed or free, and doubts are noted."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.core.allocator import AllocatorStatistics, EmptyCacheResult, ProbedProcess, ProbeReading, ProbeState
from gpumon.core.model import Device, DeviceState, Process, Switch
from gpumon.core.problems import Problem, ProblemCode
from gpumon.operations.empty_cache import explain_emptied
from gpumon.operations.waterfall import PartKind, Waterfall, waterfall
from gpumon.probe.messages import Probe
from tests.builders import device, process

MIB, GIB = 1 << 20, 1 << 30
TOTAL, DRIVER = 140 * GIB, GIB
UNSEEN = {"command": Problem(ProblemCode.PROCESS_NOT_VISIBLE, "Not here.")}


def gpu(*processes: Process, used: int = 50 * GIB, reserved: int | None = DRIVER, **changes: Any) -> Device:  # noqa: ANN401
    readings = {
        "memory_total_bytes": TOTAL,
        "memory_used_bytes": used,
        "memory_reserved_bytes": reserved,
        "memory_free_bytes": TOTAL - used - (reserved or 0),
    }
    return device(0, **{"readings": readings, "processes": processes, **changes})


def statistics(**changes: Any) -> AllocatorStatistics:  # noqa: ANN401
    values: dict[str, Any] = {
        "ordinal": 0,
        "uuid": device(0).uuid,
        "name": "NVIDIA H200",
        "allocated_bytes": 30 * GIB,
        "active_bytes": 31 * GIB,
        "reserved_bytes": 40 * GIB,
        "inactive_split_bytes": 3 * GIB,
    }
    return AllocatorStatistics(**(values | changes))


def probe(
    pid: int = 4000, *devices: AllocatorStatistics, state: ProbeState = ProbeState.LIVE, connected: bool = True,
    expandable: bool = False, problem: Problem | None = None,
) -> dict[int, Probe]:  # fmt: skip
    reading = ProbeReading(state, 1.0, devices=devices, expandable_segments=expandable, problem=problem)
    return {pid: Probe(ProbedProcess(pid, pid), reading, 1.0, connected)}


def sizes(result: Waterfall, pid: int | None = None) -> dict[PartKind, float]:
    return {part.kind: part.bytes / GIB for part in result.parts if pid is None or part.pid == pid}


def test_every_part_of_a_process_is_told_apart() -> None:
    result = waterfall(gpu(process(4000, memory_bytes=41 * GIB)), probe(4000, statistics()))
    assert sizes(result) == {
        PartKind.DRIVER_RESERVED: 1,
        PartKind.CONTEXT: 1,
        PartKind.ALLOCATED: 30,
        PartKind.FREED_WAITING: 1,
        PartKind.RELEASABLE: 6,
        PartKind.FRAGMENTED: 3,
        PartKind.UNATTRIBUTED: 9,
        PartKind.FREE: 89,
    }
    assert result.notes == ()
    assert [part.pid for part in result.parts] == [None, *[4000] * 5, None, None]
    assert sum(part.bytes for part in result.parts) == TOTAL


def test_processes_come_by_pid_and_one_without_a_probe_is_one_block() -> None:
    listed = [process(5000, memory_bytes=4 * GIB), process(4000, memory_bytes=41 * GIB), process(3000, memory_bytes=0)]
    result = waterfall(gpu(*listed), probe(4000, statistics()))
    pids = [part.pid for part in result.parts if part.pid is not None]
    assert pids == [3000, *[4000] * 5, 5000]
    assert sizes(result, 5000) == {PartKind.UNPROBED: 4}
    assert sizes(result)[PartKind.UNATTRIBUTED] == 5


def test_memory_of_cuda_graphs_is_not_promised() -> None:
    result = waterfall(gpu(process(4000, memory_bytes=41 * GIB)), probe(4000, statistics()))
    remedy = next(part.remedy for part in result.parts if part.kind is PartKind.RELEASABLE)
    assert "except memory in pools of CUDA graphs" in remedy


def test_a_probe_that_is_gone_or_of_another_gpu_does_not_count() -> None:
    listed = gpu(process(4000, memory_bytes=41 * GIB))
    gone = waterfall(listed, probe(4000, statistics(), connected=False))
    elsewhere = waterfall(listed, probe(4000, statistics(uuid="GPU-ffff")))
    assert sizes(gone, 4000) == sizes(elsewhere, 4000) == {PartKind.UNPROBED: 41}


@pytest.mark.parametrize(
    ("state", "problem", "words"),
    [
        (ProbeState.WAITING_FOR_TORCH, None, "it has not imported PyTorch"),
        (ProbeState.CPU_ONLY, None, "built without CUDA"),
        (ProbeState.WAITING_FOR_CUDA, None, "not created a CUDA context"),
        (ProbeState.LIVE, None, "outside PyTorch"),
        (ProbeState.FAILED, Problem(ProblemCode.NOT_SUPPORTED, "Too old."), "Too old."),
        (ProbeState.FAILED, None, "cannot read"),
    ],
)
def test_a_process_whose_probe_sees_nothing_says_why(state: ProbeState, problem: Problem | None, words: str) -> None:
    result = waterfall(gpu(process(4000, memory_bytes=GIB)), probe(4000, state=state, problem=problem))
    (part,) = [part for part in result.parts if part.pid == 4000]
    assert part.kind is PartKind.UNPROBED
    assert words in part.meaning


def test_a_process_on_two_gpus_has_its_own_figures_on_each() -> None:
    uuid = device(1).uuid
    probes = probe(4000, statistics(ordinal=1), statistics(uuid=uuid, allocated_bytes=GIB, reserved_bytes=GIB))
    both = process(4000, memory_bytes=41 * GIB)
    assert sizes(waterfall(gpu(both), probes))[PartKind.ALLOCATED] == 30
    assert sizes(waterfall(gpu(both, uuid=uuid), probes))[PartKind.ALLOCATED] == 1


def test_a_device_without_uuid_is_known_by_the_list_if_it_is_the_only_one() -> None:
    listed = gpu(process(4000, memory_bytes=41 * GIB))
    assert PartKind.ALLOCATED in sizes(waterfall(listed, probe(4000, statistics(uuid=None))))
    two = waterfall(listed, probe(4000, statistics(uuid=None), statistics(uuid=None, ordinal=1)))
    assert sizes(two, 4000) == {PartKind.UNPROBED: 41}
    assert "does not report which of its GPUs" in two.notes[0]
    other = waterfall(listed, probe(4000, statistics(uuid=None, name="NVIDIA A100")))
    assert sizes(other, 4000) == {PartKind.UNPROBED: 41}
    unlisted = waterfall(gpu(), probe(4000, statistics(uuid=None)))
    assert sizes(unlisted, 4000) == {}


def test_in_a_container_the_only_process_that_fits_is_the_one() -> None:
    listed = [process(812345, memory_bytes=41 * GIB, problems=UNSEEN), process(900, memory_bytes=2 * GIB)]
    small = process(812346, memory_bytes=3 * GIB, problems=UNSEEN)
    result = waterfall(gpu(*listed, small), probe(57, statistics()))
    assert sizes(result, 57)[PartKind.CONTEXT] == 1
    assert sizes(result, 812345) == {}
    assert "shown as the driver's process 812345" in result.notes[0]


def test_an_unknown_list_of_processes_is_told() -> None:
    why = Problem(ProblemCode.NO_PERMISSION, "Not allowed.")
    result = waterfall(gpu(processes=None, problems={"processes": why}), {})
    assert sizes(result)[PartKind.UNATTRIBUTED] == 50
    assert result.notes == ("The processes are not known: their memory is unattributed. Not allowed.",)


def test_a_process_whose_memory_is_not_told_is_not_zero() -> None:
    hidden = process(4000, memory_bytes=None)
    assert "does not report the memory of process 4000" in waterfall(gpu(hidden), {}).notes[0]
    result = waterfall(gpu(hidden), probe(4000, statistics()))
    assert PartKind.CONTEXT not in sizes(result)
    assert sizes(result)[PartKind.UNATTRIBUTED] == 10


def test_readings_of_two_moments_fit_into_what_is_left() -> None:
    small = waterfall(gpu(process(4000, memory_bytes=40 * GIB - MIB), used=40 * GIB), probe(4000, statistics()))
    assert sizes(small)[PartKind.CONTEXT] == 0
    assert small.notes == ()
    grown = waterfall(gpu(process(4000, memory_bytes=20 * GIB), used=20 * GIB), probe(4000, statistics()))
    assert sizes(grown)[PartKind.FREE] == TOTAL / GIB - DRIVER / GIB - 40
    assert "20.0 GiB more than the driver reports" in grown.notes[0]


def test_what_cannot_be_true_is_refused() -> None:
    liar = waterfall(gpu(process(4000, memory_bytes=41 * GIB)), probe(4000, statistics(reserved_bytes=1 << 50)))
    assert sizes(liar, 4000) == {PartKind.UNPROBED: 41}
    assert "more than this GPU can have given" in liar.notes[0]
    contradiction = waterfall(gpu(process(4000, memory_bytes=139 * GIB), process(4001, memory_bytes=GIB)), {})
    assert contradiction.problem is not None
    assert contradiction.parts == ()


def test_figures_that_are_old_are_told() -> None:
    stale = gpu(problems={"memory_used_bytes": Problem(ProblemCode.STALE, "Of 3 s ago.")})
    assert waterfall(stale, {}).notes == ("Of 3 s ago.",)
    stumbled = gpu(problems={"processes": Problem(ProblemCode.STALE, "Of 3 s ago.")})
    assert waterfall(stumbled, {}).notes == ("The memory of the processes is not current. Of 3 s ago.",)
    hung = gpu(state=DeviceState.UNRESPONSIVE, age_seconds=30.0)
    assert "30s old" in waterfall(hung, {}).notes[0]


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        (gpu(mig_mode=Switch.ENABLED), ProblemCode.NOT_SUPPORTED),
        (gpu(state=DeviceState.LOST), ProblemCode.GPU_LOST),
        (device(0, readings={"memory_used_bytes": None}), ProblemCode.NOT_READ),
        (
            device(
                0,
                readings={"memory_total_bytes": None},
                problems={"memory_total_bytes": Problem(ProblemCode.NO_PERMISSION, "No.")},
            ),
            ProblemCode.NO_PERMISSION,
        ),
    ],
)
def test_what_cannot_be_drawn_says_why(changed: Device, code: ProblemCode) -> None:
    result = waterfall(changed, {})
    assert result.problem is not None
    assert result.problem.code is code
    assert result.parts == ()


amounts = st.one_of(st.integers(0, 200 * GIB), st.integers(0, 1 << 63))


@given(
    owned=st.lists(st.one_of(st.none(), amounts), max_size=3),
    devices=st.lists(
        st.tuples(amounts, amounts, st.one_of(st.none(), amounts), st.one_of(st.none(), amounts)), max_size=3
    ),
    used=st.integers(0, TOTAL - DRIVER),
    first=st.integers(0, 3),
)
def test_whatever_is_said_the_parts_fill_the_gpu(
    owned: list[int | None], devices: list[tuple[int, int, int | None, int | None]], used: int, first: int
) -> None:
    listed = [process(1 + place, memory_bytes=memory, problems=UNSEEN) for place, memory in enumerate(owned)]
    probes: dict[int, Probe] = {}
    for place, (allocated, reserved, active, split) in enumerate(devices):
        figures = statistics(
            allocated_bytes=allocated, reserved_bytes=reserved, active_bytes=active, inactive_split_bytes=split
        )
        probes |= probe(first + place, figures)
    result = waterfall(gpu(*listed, used=used), probes)
    if result.problem is None:
        assert sum(part.bytes for part in result.parts) == TOTAL
        assert all(part.bytes >= 0 for part in result.parts)
        owners = [(part.pid, part.kind) for part in result.parts]
        assert len(owners) == len(set(owners))


BEFORE = statistics()
AFTER = statistics(reserved_bytes=34 * GIB)


def emptied(before: AllocatorStatistics = BEFORE, after: AllocatorStatistics = AFTER) -> EmptyCacheResult:
    return EmptyCacheResult((before,), (after,), 0.02)


def test_what_came_back_and_what_stays_is_told() -> None:
    said = explain_emptied(emptied(), 0, 50 * GIB, 44 * GIB)
    assert said[0] == "6.00 GiB released in 20 ms: reserved memory went from 40.0 GiB to 34.0 GiB."
    assert said[1] == "The driver agrees: memory in use fell by 6.00 GiB."
    assert said[2].startswith("30.0 GiB stays: live tensors")
    assert said[3].startswith("1.00 GiB stays until a stream")
    assert said[4].startswith("3.00 GiB stays fragmented")
    assert len(said) == 5


@pytest.mark.parametrize(
    ("after", "words"),
    [
        (BEFORE, "Nothing was released: PyTorch reserves 40.0 GiB."),
        (statistics(reserved_bytes=41 * GIB), "the program reserved 1.00 GiB more in the meantime"),
    ],
)
def test_nothing_came_back(after: AllocatorStatistics, words: str) -> None:
    assert words in explain_emptied(emptied(after=after), 0, 50 * GIB, 50 * GIB)[0]


def test_why_cache_stays() -> None:
    cached = statistics(reserved_bytes=36 * GIB)
    assert "2.00 GiB is still cached" in explain_emptied(emptied(after=cached), 0)[-1]
    without_books = statistics(inactive_split_bytes=None, reserved_bytes=34 * GIB)
    assert "3.00 GiB stays outside of tensors" in explain_emptied(emptied(after=without_books), 0)[-1]
    assert explain_emptied(EmptyCacheResult((), (), 0.0), 0) == ("PyTorch has no memory of this GPU in this process.",)
