"""The top line: tabs, counts, source and state, at every width."""

from typing import Any

import pytest
from rich.cells import cell_len

from gpumon.core.model import Frame
from gpumon.core.store import Store
from gpumon.health.alerts import Alert, Severity
from gpumon.present.paint.line import Role, plain
from gpumon.present.top_line import TABS, title_line, top_line
from gpumon.session.view_state import ViewState, WorkloadsState
from tests import builders, runs


def view(source: str = "live 1s", **changes: Any) -> ViewState:  # noqa: ANN401
    frame = builders.frame(time_seconds=6 * 3600 + 12 * 60.0)
    return ViewState(Store(), frame, (), source)._replace(**changes)


def text(state: ViewState, front: str = "GPUs", width: int = 120) -> str:
    return plain(top_line(state, front, width)[0])


def alert(severity: Severity) -> Alert:
    return Alert(severity.name, severity, "Something.", device_key="a", device_index=0)


def test_a_wide_line_has_everything() -> None:
    left, _, right = text(view(), width=130).partition("   ")
    assert left == " gpumon  1 GPUs  2 Processes  3 Memory  4 Jobs  5 Workloads  6 Alerts  7 Explain  8 Doctor  9 Fleet"
    assert right.strip() == "node7  ● live 1s  06:12"


@pytest.mark.sampled(1)
@pytest.mark.parametrize("front", ["", *(tab.name for tab in TABS)])
@pytest.mark.parametrize("source", ["live 1s", "REPLAY demo.jsonl 01:05/05:00 x1", "live 1s, a sample takes 12.1 s"])
def test_the_source_and_the_tab_in_front_stay_down_to_sixty_columns(source: str, front: str) -> None:
    warned = view(source, alerts=(alert(Severity.CRITICAL),) * 12)
    for width in range(60, 220):
        line, tabs = top_line(warned, front, width)
        shown = plain(line)
        assert cell_len(shown) == width
        assert source in shown
        assert "●12" in shown
        assert [shown[start + 1] for _, start, _ in tabs] == [tab.key for tab in TABS]
        (marked,) = [span.text for span in line if span.role is Role.BRAND] or [""]
        assert marked.split()[:1] == ([next(tab.key for tab in TABS if tab.name == front)] if front else [])
        if width >= 108:
            assert all(tab.name in shown for tab in TABS) or len(source) > 10


def test_a_recording_names_its_tabs_on_eighty_columns() -> None:
    recording = view("REPLAY demo 06:44/08:44 x1", position="06:44", alerts=(alert(Severity.CRITICAL),) * 2)
    keys = {tab.name: tab.key for tab in TABS[:8]}
    line = plain(top_line(recording, "GPUs", 80, keys)[0])
    names = "1 GPUs 2 Procs 3 Mem 4 Jobs 5 Work 6 Alerts ●2 7 Explain 8 Doctor"
    assert " ".join(line.split()) == f"{names} ● 06:44"


def test_a_line_that_is_far_too_narrow_is_cut() -> None:
    for width in range(60):
        assert cell_len(text(view("REPLAY demo.jsonl 01:05/05:00 x1"), width=width)) == width


def test_only_warnings_and_critical_alerts_are_counted() -> None:
    info, warning, critical = (alert(severity) for severity in (Severity.INFO, Severity.WARNING, Severity.CRITICAL))
    assert "6 Alerts  7" in text(view(alerts=(info,)))
    for alerts, mark, role in (
        ((warning, info), " ●1", Role.WARNING),
        ((critical, warning, warning, info), " ●3", Role.ERROR),
    ):
        line, _ = top_line(view(alerts=alerts), "GPUs", 120)
        assert [span.role for span in line if mark in span.text] == [role]


def test_running_workloads_are_counted() -> None:
    state = WorkloadsState(runs=(runs.live_run(), runs.ended_run()))
    assert "5 Workloads ▶1 " in text(view(workloads=state))
    assert "▶" not in text(view(workloads=WorkloadsState(runs=(runs.ended_run(),)))).partition("node7")[0]


def test_the_state_of_the_source_is_a_mark_and_a_color() -> None:
    for state, words, role in (
        (view("PAUSED 1s", is_paused=True), "‖ PAUSED 1s", Role.WARNING),
        (view(silence_seconds=12.0), "! silent 12s", Role.ERROR),
    ):
        line, _ = top_line(state, "GPUs", 120)
        assert [span.role for span in line if words in span.text] == [role]


def test_without_a_frame_there_is_no_host_and_no_time() -> None:
    state = view()._replace(frame=Frame(0.0, 0.0, 0.0))
    assert text(state).endswith("  ● live 1s ")


def test_a_title_gives_its_details_up_first() -> None:
    (span,) = title_line("GPU 0  H200", "more", 40)
    assert span == (" GPU 0  H200" + " " * 23 + "more ", Role.HEADING)
    assert plain(title_line("GPU 0  H200", "more", 16)) == " GPU 0  H200    "
    assert plain(title_line("GPU 0  H200", "", 8)) == " GPU 0 …"


def test_eighty_columns_have_short_names_of_all_tabs() -> None:
    keys = {tab.name: tab.key for tab in TABS if tab.name != "Fleet"}
    line, _ = top_line(view(), "GPUs", 80, keys)
    assert " ".join(plain(line).split()) == ("1 GPUs 2 Procs 3 Mem 4 Jobs 5 Work 6 Alerts 7 Explain 8 Doctor ● live 1s")
