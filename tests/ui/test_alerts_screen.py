"""The alerts screen, the alerts in the title of every other screen, and the marks in a device's history."""

from dataclasses import replace

import pytest
from rich.cells import cell_len
from textual.pilot import Pilot

from gpumon.core.episodes import HistoryEventKind
from gpumon.core.model import DeviceEvent, DeviceState, Frame
from gpumon.diagnosis.alerts import ALERT_RULES, DEFAULT_THRESHOLDS, Alert, Severity, Thresholds
from gpumon.present import alerts as present_alerts
from gpumon.present import header
from gpumon.present.paint.line import Role, plain
from gpumon.present.status_report import status_text
from gpumon.session.frame_session import FrameSession
from gpumon.session.view_state import ViewState
from gpumon.streams.base import Discontinuity
from gpumon.ui.app import GpumonApp
from gpumon.ui.screens.alerts import AlertsScreen
from gpumon.ui.screens.device import DeviceScreen
from gpumon.ui.widgets.line_table import LineTable
from tests import builders
from tests.frames import HOSTILE, hostile, machine
from tests.ui.fakes import FakeLive, FakeRecording, app_on, screen_lines, screen_text
from tests.ui.test_snapshots import Compare

BEGIN = 1_800_000_000.0


def moment(second: float) -> Frame:
    """A host with a GPU of each kind: power-capped, lost, idle, and one that is too hot in the first minute."""
    hot = builders.device(3, throttle_reasons=("hw_thermal_slowdown",), readings={"temperature_celsius": 85.0})
    devices = (
        builders.device(0, throttle_reasons=("sw_power_cap",)),
        builders.device(1, state=DeviceState.LOST, age_seconds=None, processes=None),
        builders.device(2, readings={"utilization_gpu_percent": 0}),
        hot if second < 60 else builders.device(3),
    )
    events = (DeviceEvent(devices[2].key, 31, BEGIN + second, 100 + second),) if second == 100 else ()
    return builders.frame(devices=devices, monotonic_seconds=100.0 + second, time_seconds=BEGIN + second, events=events)


def session_of(*frames: Frame, thresholds: Thresholds = DEFAULT_THRESHOLDS) -> FrameSession:
    stream = FakeLive()
    session = FrameSession(stream, thresholds=thresholds)
    stream.put(*frames)
    session.drain()
    return session


def view_of(*frames: Frame, thresholds: Thresholds = DEFAULT_THRESHOLDS) -> ViewState:
    view = session_of(*frames, thresholds=thresholds).view_state()
    assert view is not None
    return view


MINUTES = tuple(moment(second) for second in range(0, 182, 2))


# The session


def test_every_frame_is_checked_even_if_only_the_last_is_drawn() -> None:
    view = view_of(*MINUTES)
    assert {(alert.id, alert.device_index, alert.since_seconds - BEGIN) for alert in view.alerts} == {
        ("gpu_lost", 1, 0),
        ("xid-31", 2, 100),
        ("power_cap", 0, 0),
        ("idle_memory", 2, 0),
    }
    assert [ended.alert.id for ended in view.alerts_over] == ["hw_thermal_slowdown"]


def test_warnings_are_marks_in_the_history_of_their_device_and_notes_are_not() -> None:
    store = session_of(*MINUTES).store
    devices = MINUTES[0].devices
    noted = {}
    for device in devices:
        history = store.of_device(device.key)
        assert history is not None
        noted[device.index] = [(event.seconds - 100, event.kind, event.text) for event in history.events]
    assert noted[0] == []
    assert noted[3] == [
        (0, HistoryEventKind.DEVICE, "hw thermal slowdown"),
        (74, HistoryEventKind.DEVICE, "hw thermal slowdown: over"),
    ]
    assert [text for _, _, text in noted[1]] == ["lost"], "the store notes that itself"
    assert len(noted[2]) == 1, "the Xid, once"


def test_a_recording_that_jumps_begins_anew() -> None:
    stream = FakeRecording()
    session = FrameSession(stream)
    stream.put(*MINUTES[:20])
    stream.inbox.put(Discontinuity.REWOUND)
    stream.put(MINUTES[80])
    session.drain()
    view = session.view_state()
    assert view is not None
    assert not view.alerts_over
    assert {alert.since_seconds for alert in view.alerts} == {MINUTES[80].time_seconds}


def test_a_paused_screen_keeps_its_alerts() -> None:
    stream = FakeLive()
    session = FrameSession(stream)
    stream.put(machine())
    session.drain()
    session.toggle_pause()
    lost = builders.device(0, state=DeviceState.LOST)
    stream.put(replace(machine(), monotonic_seconds=110.0, devices=(lost,)))
    session.drain()
    paused = session.view_state()
    session.toggle_pause()
    live = session.view_state()
    assert paused is not None
    assert live is not None
    assert [len(paused.alerts), len(live.alerts)] == [0, 1]


def test_the_feed_takes_thresholds() -> None:
    assert "idle_memory" not in {
        alert.id for alert in view_of(*MINUTES, thresholds=Thresholds(idle_seconds=1e6)).alerts
    }


# The line on every screen


def test_notes_are_counted_in_the_title_and_warnings_are_alerts() -> None:
    note = Alert("power_cap", Severity.INFO, "Fine.", device_key="a", device_index=0)
    bad = Alert("pcie_replays", Severity.WARNING, "Bad.", device_key="a", device_index=0)
    waiting = Alert("waiting", Severity.INFO, "Waiting.")
    assert header.alerts_text([]) == header.alerts_text([waiting]) == ""
    assert header.alerts_text([note]) == "1 info (a)"
    assert header.alerts_text([note, note, waiting]) == "2 info (a)"
    assert header.alerts_text([bad, note]) == "! 1 alert (a)"
    assert header.alerts_text([bad, bad, note]) == "! 2 alerts (a)"


def test_a_narrow_title_drops_notes_and_keeps_warnings() -> None:
    noted = ViewState(
        session_of().store, MINUTES[0], (Alert("a", Severity.INFO, "", device_key="k"),), "live every 1 s"
    )
    warned = noted._replace(alerts=(Alert("a", Severity.WARNING, "", device_key="k"),))
    for width in range(20, 120):
        for view in (noted, warned):
            assert cell_len(plain(header.title_line("gpumon  driver 580.95.05 · CUDA 13.0", "", view, width))) == width
        assert ("! 1 alert (a)" in plain(header.title_line("x" * 30, "", warned, width))) is (width >= 40)
    assert "info" not in plain(header.title_line("x" * 40, "", noted, 60))
    assert "1 info (a)" in plain(header.title_line("x" * 40, "", noted, 70))


def test_information_is_not_in_the_banner() -> None:
    note = Alert("power_cap", Severity.INFO, "Fine.", device_key="a", device_index=0)
    waiting = Alert("waiting", Severity.INFO, "Waiting.")
    assert [plain(row).strip() for row in header.banner([waiting, note], 80, 3, 0.0)] == ["! Waiting."]
    assert header.banner([note], 80, 3, 0.0) == []


def test_the_report_marks_information_otherwise() -> None:
    capped = tuple(builders.device(place, throttle_reasons=("sw_power_cap",)) for place in range(2))
    text = status_text(builders.frame(devices=capped))
    assert "i GPUs 0-1 run at their power limit, which is normal under full load." in text
    assert "!" not in text


# The screen


@pytest.mark.parametrize("size", [(60, 10), (80, 24), (160, 50)])
async def test_it_opens_with_a_from_wherever_one_is(size: tuple[int, int]) -> None:
    stream = FakeLive()
    app = app_on(stream)
    async with app.run_test(size=size) as pilot:
        stream.put(*MINUTES)
        await pilot.press("a")
        await pilot.pause()
        assert isinstance(app.screen, AlertsScreen)
        await pilot.press("a")
        await pilot.pause()
        assert app.screen.query("#devices")
        await pilot.press("enter", "a")
        await pilot.pause()
        assert isinstance(app.screen, AlertsScreen)
        await pilot.press("escape")
        await pilot.pause()
        assert isinstance(app.screen, DeviceScreen)


async def test_a_terminal_that_is_far_too_small_does_no_harm() -> None:
    stream = FakeLive()
    app = app_on(stream)
    async with app.run_test(size=(20, 5)) as pilot:
        await open_alerts(pilot, app, stream, *MINUTES)
        await pilot.resize_terminal(2, 1)
        await pilot.press("escape")
        await pilot.pause()
        assert not isinstance(app.screen, AlertsScreen)


async def open_alerts(pilot: Pilot[None], app: GpumonApp, stream: FakeLive, *frames: Frame) -> AlertsScreen:
    stream.put(*frames)
    await pilot.press("a")
    await pilot.pause()
    assert isinstance(app.screen, AlertsScreen)
    return app.screen


async def test_each_alert_has_a_row_and_all_that_is_said_about_it() -> None:
    stream = FakeLive()
    app = app_on(stream)
    async with app.run_test(size=(120, 30)) as pilot:
        screen = await open_alerts(pilot, app, stream, *MINUTES)
        table = screen.query_one("#alerts", LineTable)
        assert [plain(row.line).split()[:3] for row in table.rows] == [
            ["x", "critical", "1"],
            ["!", "warning", "2"],
            ["i", "info", "0"],
            ["i", "info", "2"],
            ["-", "ended", "3"],
        ]
        assert "1 critical, 1 warning, 2 info" in screen_text(app)
        await pilot.press("end")
        await pilot.pause()
        text = screen_text(app)
        assert "hw thermal slowdown on GPU 3" in text
        assert "Check the fans, the air flow" in text
        assert "Temperature 85 °C" in text
        assert "74s" in text, "how long it stood"
        await pilot.press("enter")
        await pilot.pause()
        assert isinstance(app.screen, DeviceScreen)
        assert app.screen.key == MINUTES[0].devices[3].key


async def test_a_healthy_host_has_no_problems_and_names_what_could_not_be_checked() -> None:
    stream = FakeLive()
    app = app_on(stream)
    async with app.run_test(size=(120, 30)) as pilot:
        await open_alerts(pilot, app, stream, machine())
        text = screen_text(app)
        assert "No problems." in text
        assert f"{len(ALERT_RULES)} rules checked on 8 GPUs." in text
        assert "PCIe replays: pcie_replay_count is not read." in text


async def test_an_alert_of_the_machine_opens_nothing() -> None:
    stream = FakeLive()
    app = app_on(stream)
    async with app.run_test(size=(80, 24)) as pilot:
        await open_alerts(pilot, app, stream, hostile())
        await pilot.press("home", "enter")
        await pilot.pause()
        assert not [char for char in screen_text(app).replace("\n", "") if not char.isprintable()]
        assert HOSTILE[:6] in screen_text(app), "markup is text"


async def test_nothing_is_sent_for_what_stays() -> None:
    stream = FakeLive()
    app = app_on(stream)
    async with app.run_test(size=(120, 30)) as pilot:
        await open_alerts(pilot, app, stream, machine())
        before = screen_lines(app)
        stream.put(replace(machine(), monotonic_seconds=101.0, time_seconds=BEGIN + 1))
        await pilot.pause()
        assert screen_lines(app) == before


def test_rules_that_can_all_be_checked_are_one_line() -> None:
    readings = dict.fromkeys(
        (
            "temperature_memory_celsius", "pcie_replay_count", "nvlink_links_count", "ecc_uncorrected_volatile_count",
            "ecc_corrected_volatile_count", "remapped_rows_pending", "remapped_rows_failure", "sm_activity_percent",
        ),
        0.0,
    )  # fmt: skip
    (summary,) = present_alerts.coverage_lines(
        view_of(builders.frame(devices=(builders.device(readings=readings),))), 120, 5
    )
    assert plain(summary) == f" {len(ALERT_RULES)} rules checked on 1 GPU."


@pytest.mark.parametrize("width", [20, 40, 80, 200])
@pytest.mark.parametrize("height", [1, 4, 9])
def test_the_pane_keeps_its_size(width: int, height: int) -> None:
    for row in present_alerts.alert_rows(view_of(*MINUTES)):
        pane = present_alerts.pane_lines(row, width, height)
        assert len(pane) == height
        assert all(cell_len(plain(line)) <= max(width, 31) for line in pane)


def test_the_headline_names_what_there_is() -> None:
    def head(*severities: Severity) -> tuple[str, Role]:
        ((text, role), *_) = present_alerts.headline([Alert("a", severity, "") for severity in severities])
        return text.strip(), role

    assert head() == ("No problems.", Role.PLAIN)
    assert head(Severity.INFO)[0] == "No problems. 1 info: normal behavior, nothing to fix."
    assert head(Severity.WARNING, Severity.WARNING, Severity.INFO) == ("2 warnings, 1 info", Role.WARNING)
    assert head(Severity.CRITICAL, Severity.CRITICAL) == ("2 critical", Role.ERROR)


@pytest.mark.parametrize("size", [(80, 24), (120, 30)])
def test_picture_of_the_alerts(snap_compare: Compare, size: tuple[int, int]) -> None:
    stream = FakeLive()
    stream.put(*MINUTES)

    async def press(pilot: Pilot[None]) -> None:
        await pilot.press("a", "down")
        await pilot.pause()

    assert snap_compare(app_on(stream), terminal_size=size, run_before=press)
