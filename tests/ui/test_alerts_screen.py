"""The alerts screen, the alerts in the title of every other screen, and the marks in a device's history."""

import time
from dataclasses import replace

import pytest
from textual.pilot import Pilot

from gpumon.core.episodes import HistoryEventKind
from gpumon.core.model import DeviceEvent, DeviceState, Frame
from gpumon.health.alerts import ALERT_RULES, DEFAULT_THRESHOLDS, Alert, Severity, Thresholds
from gpumon.health.alerts.model import AlertFinding
from gpumon.present import alerts as present_alerts
from gpumon.present import header
from gpumon.present.paint.line import Line, Role, plain
from gpumon.present.top_line import top_line
from gpumon.session.frame_session import FrameSession
from gpumon.session.view_state import ViewState
from gpumon.streams.base import Discontinuity
from gpumon.ui.app import GpumonApp
from gpumon.ui.screens.alerts import AlertsScreen
from gpumon.ui.screens.device import DeviceScreen
from gpumon.ui.widgets.line_table import LineTable
from tests import builders
from tests.frames import machine
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


# What is above every screen


def top_text(view: ViewState, width: int = 120) -> str:
    return plain(top_line(view, "GPUs", width)[0])


def test_only_warnings_that_nobody_acknowledged_are_counted() -> None:
    info = Alert("power_cap", Severity.INFO, "Fine.", device_key="a", device_index=0)
    warning = Alert("pcie_replays", Severity.WARNING, "Bad.", device_key="a", device_index=0)
    view = view_of(machine())
    for alerts, count in (((), 0), ((info,), 0), ((info, warning), 1), ((warning, warning), 2)):
        for width in (60, 80, 120):
            assert (f"●{count}" in top_text(view._replace(alerts=alerts), width)) is (count > 0)
    acknowledged = replace(warning, is_acknowledged=True)
    assert "Alerts ●" not in top_text(view._replace(alerts=(acknowledged, info)))
    assert header.banner([acknowledged, info], 80, 3, 0.0) == []


# Acknowledging


def hot(second: float, *reasons: str) -> Frame:
    return builders.frame(
        devices=(builders.device(0, throttle_reasons=reasons),),
        monotonic_seconds=100.0 + second,
        time_seconds=BEGIN + second,
    )


class Session:
    """A session to which a test gives frames."""

    def __init__(self) -> None:
        self.stream = FakeLive()
        self.session = FrameSession(self.stream)

    def after(self, *frames: Frame) -> ViewState:
        self.stream.put(*frames)
        self.session.drain()
        view = self.session.view_state()
        assert view is not None
        return view

    def counted(self, *frames: Frame) -> list[bool]:
        """Whether each alert that stands needs attention."""
        return [alert.needs_attention for alert in self.after(*frames).alerts]


def test_an_acknowledged_alert_stays_until_it_ends_and_is_a_new_one_when_it_comes_back() -> None:
    host = Session()
    (alert,) = host.after(hot(0, "hw_slowdown")).alerts
    host.session.acknowledge(alert)
    assert host.counted() == [False], "also without a frame"
    assert host.counted(hot(1, "hw_slowdown")) == [False]
    assert host.counted(hot(10)) == [False], "it stands while it might come back"
    assert host.counted(hot(11, "hw_slowdown")) == [False]
    assert host.counted(hot(30)) == []
    assert [ended.alert.id for ended in host.after().alerts_over] == ["hw_slowdown"]
    assert host.counted(hot(31, "hw_slowdown"), hot(35, "hw_slowdown")) == [True]


def test_an_acknowledged_warning_that_becomes_critical_is_not_acknowledged() -> None:
    host = Session()
    finding = AlertFinding("test", Severity.WARNING, "Bad.")
    host.session.reported = lambda _: [(None, finding)]
    (alert,) = host.after(hot(0)).alerts
    host.session.acknowledge(alert)
    assert host.counted(hot(1)) == [False]
    finding = finding._replace(severity=Severity.CRITICAL)
    assert host.counted(hot(2)) == [True]


async def test_a_key_acknowledges_the_selected_alert() -> None:
    stream = FakeLive()
    app = app_on(stream)
    async with app.run_test(size=(120, 30)) as pilot:
        screen = await open_alerts(pilot, app, stream, *MINUTES)
        table = screen.query_one("#alerts", LineTable)

        def first_words() -> list[str]:
            return [" ".join(plain(row.line).split()[:2]) for row in table.rows]

        assert "●2" in screen_lines(app)[0]
        await pilot.press("home", "a")
        await pilot.pause()
        assert first_words() == ["✓ critical", "! warning", "i info", "i info", "- ended"]
        assert "●1" in screen_lines(app)[0]
        assert "1 critical, 1 warning, 2 info  1 acknowledged" in screen_text(app)
        assert "gpu lost on GPU 1, acknowledged" in screen_text(app)
        for key in ("down", "down", "end"):
            await pilot.press(key)
            await pilot.pause()
            assert ("Acknowledge" in screen_lines(app)[-1]) is (key == "down" and table.cursor == 1)
        await pilot.press("a")
        await pilot.pause()
        assert first_words()[1:] == ["! warning", "i info", "i info", "- ended"], "nothing else can be acknowledged"
        await pilot.press("home", "a")
        await pilot.pause()
        assert first_words()[0] == "x critical"
        await pilot.press("a", "escape")
        await pilot.pause()
        assert "GPU 1 is lost" not in screen_lines(app)[2], "it has left the banner"
        assert "Xid 31" in screen_text(app)


def test_an_ended_alert_has_its_beginning_its_end_and_its_duration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    rows = present_alerts.alert_rows(view_of(*MINUTES))
    assert "When     08:00:00 to 08:01:14 (74s)" in plain_lines(present_alerts.pane_lines(rows[-1], 120, 9))
    assert "When     since 08:00:00 (3m)" in plain_lines(present_alerts.pane_lines(rows[0], 120, 9))


def plain_lines(lines: list[Line]) -> str:
    return "\n".join(plain(line) for line in lines)


def test_information_is_not_in_the_banner() -> None:
    note = Alert("power_cap", Severity.INFO, "Fine.", device_key="a", device_index=0)
    waiting = Alert("waiting", Severity.INFO, "Waiting.")
    assert [plain(row).strip() for row in header.banner([waiting, note], 80, 3, 0.0)] == ["! Waiting."]
    assert header.banner([note], 80, 3, 0.0) == []


# The screen


async def open_alerts(pilot: Pilot[None], app: GpumonApp, stream: FakeLive, *frames: Frame) -> AlertsScreen:
    stream.put(*frames)
    await pilot.press("6")
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


def test_the_headline_names_what_there_is() -> None:
    def head(*severities: Severity) -> tuple[str, Role]:
        ((text, role), *_) = present_alerts.headline([Alert("a", severity, "") for severity in severities])
        return text.strip(), role

    assert head() == ("No problems.", Role.PLAIN)
    assert head(Severity.INFO)[0] == "No problems. 1 info: normal behavior, nothing to fix."
    assert head(Severity.WARNING, Severity.WARNING, Severity.INFO) == ("2 warnings, 1 info", Role.WARNING)
    assert head(Severity.CRITICAL, Severity.CRITICAL) == ("2 critical", Role.ERROR)


@pytest.mark.long
@pytest.mark.parametrize("size", [(80, 24), (120, 30)])
def test_picture_of_the_alerts(snap_compare: Compare, size: tuple[int, int]) -> None:
    stream = FakeLive()
    stream.put(*MINUTES)

    async def press(pilot: Pilot[None]) -> None:
        await pilot.press("6", "down")
        await pilot.pause()

    assert snap_compare(app_on(stream), terminal_size=size, run_before=press)
