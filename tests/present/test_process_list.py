"""The rows of the table of all processes: idle times, marks, columns, and groups."""

from gpumon.core.allocator import ProbedProcess
from gpumon.core.model import Frame
from gpumon.core.problems import Problem, ProblemCode
from gpumon.core.store import Store
from gpumon.operations.process_details import ProcessOrigin
from gpumon.present.paint.line import plain
from gpumon.present.paint.table import fit_columns
from gpumon.present.process_list import (
    LISTED_COLUMNS,
    Grouping,
    ListedProcess,
    grouped,
    listed_key,
    listed_line,
    listed_processes,
    processes_of,
    processes_title,
)
from gpumon.present.table_state import arranged, columns_for, visible_columns
from gpumon.probe.messages import Probe
from gpumon.session.process_registry import ProcessesState, ProcessHistory, identity_of
from gpumon.session.table_memory import TableState
from gpumon.session.view_state import ProbesState, ViewState
from tests import builders

GIB = 1 << 30
ANN, BO = builders.process(11, user="ann", memory_bytes=5 * GIB), builders.process(12, user="bo", memory_bytes=2 * GIB)


def view(frame: Frame, processes: ProcessesState | None = None) -> ViewState:
    store = Store()
    store.apply(frame)
    return ViewState(store, frame, (), "live", processes=processes or ProcessesState())


def machine() -> Frame:
    both = builders.device(0, processes=(ANN, BO))
    return builders.frame(devices=(both, builders.device(1, processes=(ANN,))))


def texts(rows: list[ListedProcess], width: int = 150) -> list[str]:
    columns = columns_for(LISTED_COLUMNS, rows)
    placed = fit_columns(visible_columns(columns, TableState()), width)
    return [plain(listed_line(placed, row)).rstrip() for row in rows]


def test_a_group_counts_a_process_on_two_gpus_once_and_its_memory_twice() -> None:
    rows = grouped(listed_processes(view(machine())), Grouping.USER)
    assert [listed_key(row).rpartition("/")[2] for row in rows] == ["ann", "11", "11", "bo", "12"]
    ann = rows[0]
    assert processes_of(ann) == (ANN,)
    assert ann.group is not None
    assert ann.group.memory_bytes == 10 * GIB
    assert texts(list(rows))[0].startswith("▾ ann  1 process  GPU mem 10.0 GiB  CPU 104%  host mem 9.00 GiB")


def test_groups_by_parent_and_job_name_what_they_have_in_common() -> None:
    origins = {
        identity_of(ANN): ProcessOrigin(parent=7, parent_command="torchrun x.py", job="4711.0", scheduler="slurm")
    }
    rows = listed_processes(view(machine(), ProcessesState(origins)))
    labels = [row.group.label for row in grouped(rows, Grouping.PARENT) if row.group is not None]
    assert labels == ["PID 7  torchrun x.py", "parent unknown"]
    labels = [row.group.label for row in grouped(rows, Grouping.JOB) if row.group is not None]
    assert labels == ["slurm 4711.0", "no job"]


def test_rows_without_a_process_are_in_no_group() -> None:
    problem = Problem(ProblemCode.NO_PERMISSION, "Permission denied by the driver.")
    refused = builders.device(1, processes=None, problems={"processes": problem})
    unowned = builders.device(0, processes=(ANN,), readings={"memory_unattributed_bytes": 9 * GIB})
    rows = grouped(listed_processes(view(builders.frame(devices=(unowned, refused)))), Grouping.USER)
    assert [row.group is not None for row in rows] == [True, False, False, False]
    *_, unattributed, unread = texts(list(rows))
    assert "unattributed" in unattributed
    assert "Process list of GPU 1 not available" in unread
    assert processes_of(rows[-1]) == processes_of(None) == ()


def test_idle_is_the_time_of_the_process_or_of_its_gpu() -> None:
    history = ProcessHistory()
    history.idle_since = 100.0 - 95.0
    key = (*identity_of(ANN), builders.device(0).key)
    rows = listed_processes(view(machine(), ProcessesState(histories={key: history})))
    assert [row.idle_seconds for row in rows] == [95.0, None, None]
    (line, *_) = texts(rows)
    assert " 90s " in line
    busy = builders.process(11, sm_percent=5.0, start_ticks=ANN.start_ticks)
    frame = builders.frame(devices=(builders.device(0, processes=(busy,)),))
    (row,) = listed_processes(view(frame, ProcessesState(histories={key: history})))
    assert row.idle_seconds is None


def test_columns_of_what_started_a_process_are_shown_if_a_row_has_it() -> None:
    rows = listed_processes(view(machine()))
    shown = {column.id for column in visible_columns(columns_for(LISTED_COLUMNS, rows), TableState())}
    assert "idle" in shown
    assert not {"job", "rank", "container", "framework", "torch"} & shown
    origins = {identity_of(BO): ProcessOrigin(rank=0, world_size=2, container="0123456789ab")}
    rows = listed_processes(view(machine(), ProcessesState(origins)))
    shown = {column.id for column in visible_columns(columns_for(LISTED_COLUMNS, rows), TableState())}
    assert {"rank", "container"} <= shown
    assert "job" not in shown


def test_a_column_says_whether_a_process_can_get_a_probe() -> None:
    origins = {identity_of(ANN): ProcessOrigin(probe_word="can attach"), identity_of(BO): ProcessOrigin(probe_word="x")}
    probe = Probe(ProbedProcess(BO.pid, BO.pid), None, 0.0)
    state = view(machine(), ProcessesState(origins))._replace(probes=ProbesState({BO.pid: probe}))
    rows = listed_processes(state)
    assert [(row.base.process, row.probe_text) for row in rows[:2]] == [(ANN, "can attach"), (BO, "probe")]
    assert "can attach" in texts(rows)[0]


def test_filters_by_job_pod_and_idle_time() -> None:
    origins = {
        identity_of(ANN): ProcessOrigin(job="4711.0", scheduler="slurm"),
        identity_of(BO): ProcessOrigin(pod="ml/train-0", framework="vLLM"),
    }
    rows = [row._replace(idle_seconds=900.0) for row in listed_processes(view(machine(), ProcessesState(origins)))]
    columns = columns_for(LISTED_COLUMNS, rows)

    def pids(text: str) -> list[int]:
        result = arranged(rows, columns, TableState(filter_text=text))
        assert not result.problem
        return [row.base.process.pid for row in result.rows if row.base.process is not None]

    assert pids("job:4711") == [11, 11]
    assert pids("pod:train-0") == pids("framework:vllm") == pids("vllm") == [12]
    assert pids("idle>10m") == [11, 12, 11]
    assert pids("idle>1h") == []


def test_marks_and_the_title() -> None:
    rows = listed_processes(view(machine()), {identity_of(ANN)})
    assert [row.is_marked for row in rows] == [True, False, True]
    assert "*11" in texts(rows)[0]
    assert processes_title(rows, Grouping.USER, 1) == ("2 processes on 2 GPUs", "1 marked  by user  2 users")
