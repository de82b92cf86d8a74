"""One GPU over time: how charts share a screen, and the rows for throttle reasons and events below them."""

import pytest

from gpumon.core.episodes import HistoryEventKind
from gpumon.core.model import DeviceState
from gpumon.core.store import DeviceHistory, Store
from gpumon.present.device import (
    ChartPlan,
    event_lines,
    heading_line,
    history_entries,
    plan_charts,
    throttle_lines,
    title_text,
    tracks_of,
)
from gpumon.present.paint.area import GUTTER
from gpumon.present.paint.line import SERIES_ROLES, Role, plain
from gpumon.present.time_axis import TimeWindow
from tests import builders
from tests.present.helpers import texts


def history(*reasons: tuple[str, ...]) -> DeviceHistory:
    """A device with the throttle reasons of each second from 100 s on."""
    store = Store()
    for second, names in enumerate(reasons):
        store.apply(
            builders.frame(monotonic_seconds=100.0 + second, devices=(builders.device(0, throttle_reasons=names),))
        )
    history = store.of_device(builders.device(0).key)
    assert history is not None
    return history


@pytest.mark.parametrize(
    ("size", "requested", "plan"),
    [
        ((39, 50), 3, ChartPlan(0, 0, 0)), ((80, 8), 3, ChartPlan(0, 0, 0)), ((60, 9), 3, ChartPlan(1, 2, 0)),
        ((80, 16), 3, ChartPlan(2, 4, 0)), ((80, 17), 3, ChartPlan(1, 5, 1)), ((80, 24), 3, ChartPlan(2, 5, 1)),
        ((120, 30), 3, ChartPlan(3, 5, 2)), ((120, 39), 3, ChartPlan(3, 8, 2)), ((120, 40), 1, ChartPlan(1, 16, 2)),
        ((160, 50), 3, ChartPlan(3, 9, 3)), ((160, 50), 4, ChartPlan(4, 8, 3)),
    ],
)  # fmt: skip
def test_charts_share_the_screen(size: tuple[int, int], requested: int, plan: ChartPlan) -> None:
    assert plan_charts(*size, requested) == plan


def test_the_line_below_the_charts_counts_those_without_room() -> None:
    assert texts([heading_line(2, 2, 30)]) == [" All values".ljust(30)]
    assert texts([heading_line(1, 2, 60)])[0].rstrip() == " All values   (1 more chart in a higher terminal)"
    assert texts([heading_line(1, 3, 60)])[0].rstrip() == " All values   (2 more charts in a higher terminal)"


def test_a_title_has_the_state_of_a_gpu_that_does_not_respond() -> None:
    frame = builders.frame()
    silent = builders.device(0, state=DeviceState.UNRESPONSIVE, age_seconds=12.0, cuda_index=3)
    assert title_text(builders.device(0, cuda_index=None), frame) == "GPU 0  H200  driver 580.95.05"
    assert title_text(silent, frame) == "GPU 0  H200  CUDA 3  driver 580.95.05  UNRESPONSIVE 12s"


def test_the_charts_show_this_gpu_or_those_of_the_overlay() -> None:
    store, devices = Store(), tuple(builders.device(index) for index in range(3))
    store.apply(builders.frame(devices=devices))
    (alone,) = tracks_of(devices[1], (), store)
    assert alone.device is devices[1]
    assert alone.timeline is not None
    assert [track.device for track in tracks_of(devices[1], devices[:1], store)] == [devices[1]], "one is no overlay"
    both = tracks_of(devices[1], (devices[0], devices[2]), store)
    assert [track.role for track in both] == list(SERIES_ROLES[:2])
    assert tracks_of(builders.device(9), (), store)[0].timeline is None


def test_a_throttle_reason_has_a_row_that_is_filled_while_it_was_active() -> None:
    both = history((), ("sw_power_cap",), ("sw_power_cap", "hw_slowdown"), ())
    fault, cap = throttle_lines(both, TimeWindow(103, 8, 1.0), 3)
    assert plain(fault)[GUTTER:] == "      ▄ "
    assert plain(cap)[GUTTER:] == "     ▄▄ "
    assert plain(fault).lstrip().startswith("hw slowdown │")
    assert (fault[1].role, plain(cap).lstrip()[:9]) == (Role.WARNING, "power cap")
    (only,) = throttle_lines(both, TimeWindow(103, 8, 1.0), 1)
    assert plain(only).startswith("hw slow… +1 │")
    assert list(throttle_lines(both, TimeWindow(50, 8, 1.0), 3)) == []


def test_the_entries_of_the_time_shown_have_the_duration_of_each_reason_and_the_newest_event_first() -> None:
    capped = history(*[("sw_power_cap",)] * 30)
    capped.note(110.0, HistoryEventKind.WORKLOAD, "a run started")
    capped.note(120.0, HistoryEventKind.XID, "Xid 79")
    entries = list(history_entries(capped, TimeWindow(129, 60, 1.0), 129.0))
    assert entries[0][:2] == ("Throttled: power cap", "20s")
    assert entries[0][2] == "Time in which sw_power_cap was active, of the 50s that the charts show."
    assert [entry[2] for entry in entries[1:]] == ["Xid 79", "a run started"]
    assert entries[1][1] == "0s ago"


def test_events_stand_at_their_time_and_the_newest_has_its_text() -> None:
    quiet = history((), ())
    assert list(event_lines(quiet, TimeWindow(101, 30, 1.0))) == []
    quiet.note(90.0, HistoryEventKind.WORKLOAD, "a run started")
    quiet.note(95.0, HistoryEventKind.XID, "Xid 79")
    (line,) = event_lines(quiet, TimeWindow(109, 30, 1.0))
    assert plain(line) == "     events │" + " " * 10 + "┆    X Xid 79" + " " * 7
    (narrow,) = event_lines(quiet, TimeWindow(99, 30, 1.0))
    assert plain(narrow).endswith("┆    X    "), "no room for the text"
    (at_cursor,) = event_lines(quiet, TimeWindow(109, 30, 1.0), 10)
    assert plain(at_cursor).endswith("┆ a run started     ")
