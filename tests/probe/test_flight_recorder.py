"""What the agent makes of PyTorch's flight recorder: texts as PyTorch 2.5 to 2.13 write them."""

import json
import sys
from collections.abc import Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from gpumon.core.collectives import CollectiveState, FlightRecording, parse_recording
from gpumon.probe.agent.flight_recorder import recording

NCCL, GLOO = "_dump_nccl_trace_json", "_dump_fr_trace_json"
SECOND = 1_000_000_000


def entry(number: int, **changes: object) -> dict[str, Any]:
    """An entry of the recorder."""
    return {
        "record_id": number, "pg_id": 0, "process_group": ["0", "default_pg"], "collective_seq_id": number,
        "p2p_seq_id": 0, "op_id": number, "profiling_name": "nccl:all_reduce", "time_created_ns": number * SECOND,
        "input_sizes": [[4, 2]], "input_dtypes": ["Float"], "output_sizes": [[4, 2]], "output_dtypes": ["Float"],
        "state": "completed", "time_discovered_started_ns": 0,
        "time_discovered_completed_ns": number * SECOND + SECOND // 2, "retired": True, "timeout_ms": 600000,
        "is_p2p": False, **changes,
    }  # fmt: skip


def dump(*entries: Mapping[str, Any], **more: object) -> dict[str, Any]:
    """What the recorder writes."""
    status = {"last_enqueued_collective": "40", "last_started_collective": "-1", "last_completed_collective": "38"}
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2]"}}
    document = {"version": "2.10", "pg_config": config, "pg_status": {"0": status}, **more}
    return {**document, "entries": list(entries)} if entries else document


def written(text: str, *_: bool) -> str:
    """What a function of the recorder returns."""
    return text


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Any:  # noqa: ANN401
    """Gives the agent recorders with some contents, and returns what a client reads."""

    def read(dumps: Mapping[str, Mapping[str, Any]], groups: object = None, **arguments: bool) -> FlightRecording:
        calls = {name: partial(written, json.dumps(document)) for name, document in dumps.items()}
        monkeypatch.setitem(sys.modules, "torch._C._distributed_c10d", SimpleNamespace(**calls))
        if groups is not None:
            monkeypatch.setitem(sys.modules, "torch.distributed.distributed_c10d", groups)
        return parse_recording(json.loads(json.dumps(recording(**arguments))))

    return read


def test_pending_and_latest_collectives(recorded: Any) -> None:  # noqa: ANN401
    pending = entry(2, state="started", time_discovered_completed_ns=0, retired=False)
    result = recorded({NCCL: dump(entry(1), pending, *(entry(number) for number in range(3, 41)))})
    assert [item.sequence for item in result.collectives] == [2, *range(25, 41)]
    first = result.collectives[0]
    assert (first.state, first.name, first.group) == (CollectiveState.STARTED, "all_reduce", "0 (default_pg)")
    assert (first.input_sizes, first.dtypes, first.created_seconds) == (((4, 2),), ("Float",), 2.0)
    assert (first.finished_seconds, result.collectives[-1].finished_seconds) == (None, 40.5)
    group = result.groups[0]
    assert (group.ranks, group.last_enqueued, group.last_completed) == ((0, 1, 2), 40, 38)
    assert result.is_recording


def test_gloo_collectives_are_complete_when_they_are_retired(recorded: Any) -> None:  # noqa: ANN401
    common = {"profiling_name": "gloo:barrier", "state": "scheduled", "time_discovered_completed_ns": 0}
    entries = [entry(1, **common), entry(2, **common, retired=False)]
    result = recorded({GLOO: dump(*entries, pg_config={"": {"name": "", "desc": "", "ranks": "[]"}})})
    assert [item.state for item in result.collectives] == [CollectiveState.COMPLETED, CollectiveState.SCHEDULED]
    assert result.collectives[0].name == "barrier"


def test_ranks_and_backends_come_from_the_groups(recorded: Any) -> None:  # noqa: ANN401
    key = "group"
    groups = SimpleNamespace(_pg_names={key: "1"}, _pg_group_ranks={key: {4: 1, 0: 0}}, _pg_map={key: ("gloo", None)})
    own = entry(1, process_group=["1", "undefined"], profiling_name="gloo:all_reduce")
    result = recorded({GLOO: dump(own, pg_config={})}, groups)
    assert [(item.name, item.ranks, item.backend) for item in result.groups] == [("1", (0, 4), "gloo")]


def test_point_to_point_operations_have_their_own_numbers(recorded: Any) -> None:  # noqa: ANN401
    result = recorded({NCCL: dump(entry(7, is_p2p=True, p2p_seq_id=3, profiling_name="nccl:send 0->1"))})
    operation = result.collectives[0]
    assert (operation.sequence, operation.is_point_to_point, operation.operation) == (3, True, 7)
    assert operation.name == "send 0->1"


def test_a_recorder_that_is_off(recorded: Any) -> None:  # noqa: ANN401
    assert not recorded({NCCL: {"version": "2.4", "pg_config": {}, "pg_status": {}}}).is_recording
    assert not recorded({}).is_recording


def test_a_brief_answer_has_counts_only(recorded: Any) -> None:  # noqa: ANN401
    result = recorded({NCCL: dump()}, is_brief=True)
    assert (result.collectives, result.is_recording) == ((), True)
    assert [(item.last_enqueued, item.last_completed) for item in result.groups] == [(40, 38)]
