"""The lines around the tables: totals, versions, host and banner."""

import pytest
from rich.cells import cell_len

from gpumon.core.model import Device, DeviceState, Frame
from gpumon.health.alerts import Alert, Severity
from gpumon.present.device_table import device_rows
from gpumon.present.header import banner, host_line, versions_text
from gpumon.present.overview_totals import totals_lines
from gpumon.present.paint.line import Role, plain
from tests import builders
from tests.present.helpers import texts, view
from tests.present.split import split_frame

WIDE = "训练模型の学習"


def alert(number: int, severity: Severity = Severity.WARNING, action: str = "Fix it.") -> Alert:
    return Alert(f"alert{number}", severity, f"Thing {number} is wrong.", action)


def info(number: int) -> Alert:
    return Alert(f"info{number}", Severity.INFO, "At its power limit.", device_key="GPU-1")


def totals(frame: Frame) -> str:
    """The totals of the overview, as text with single spaces."""
    shown = view(frame)
    return " ".join(" ".join(map(plain, totals_lines(shown, device_rows(shown), 160, 3))).split())


def test_totals_leave_out_and_count_gpus_that_do_not_respond() -> None:
    devices = [builders.device(index, readings={"utilization_gpu_percent": 10.0 * index}) for index in range(4)]
    devices[3] = builders.device(3, state=DeviceState.LOST, readings={"utilization_gpu_percent": 100.0})
    text = totals(builders.frame(devices=tuple(devices)))
    assert "! 3 of 4 respond" in text
    assert " 10% " in text
    assert "1.8/2.1 kW" in text
    silent = tuple(builders.device(index, state=DeviceState.UNRESPONSIVE) for index in range(2))
    assert "! 0 of 2 respond" in totals(builders.frame(devices=silent))


def test_totals_have_a_dash_where_nothing_is_known() -> None:
    assert "util –% mem –/– GiB power – W" in totals(builders.frame(devices=(Device(0), Device(1))))


def test_an_instance_and_its_gpu_count_once() -> None:
    gpus = builders.frame(devices=split_frame().gpus)
    assert totals(split_frame()).partition(" host ")[0] == totals(gpus).partition(" host ")[0]
    assert versions_text(split_frame()).endswith("2 x H200")
    lost = builders.frame(devices=(builders.device(0, state=DeviceState.LOST), *split_frame().devices[1:]))
    assert "1 of 2 respond" in totals(lost)


def test_a_frame_without_values_is_all_dashes() -> None:
    frame = Frame(0.0, 0.0, 1.0)
    assert " ".join(plain(host_line(frame)).split()) == "host CPU –% of – load – memory – of – up –"
    assert versions_text(frame) == "", "the number of GPUs is unknown"
    assert versions_text(builders.frame(devices=())) == "driver 580.95.05 · CUDA 13.0 · 0 GPUs"
    mixed = (builders.device(0), builders.device(1, name="NVIDIA A100"))
    assert versions_text(builders.frame(devices=mixed)).endswith("2 GPUs")


# The banner


@pytest.mark.parametrize("width", [0, 1, 2, 10, 40, 79, 200])
@pytest.mark.parametrize("max_lines", [1, 3])
def test_a_banner_never_overflows(width: int, max_lines: int) -> None:
    for count in range(6):
        alerts = [alert(number, action=WIDE * number) for number in range(count)]
        lines = banner(alerts, width, max_lines, 0.0)
        assert len(lines) <= max(max_lines, 1)
        assert all(cell_len(text) <= width for text in texts(lines))


def test_a_banner_counts_the_alerts_that_it_leaves_out() -> None:
    assert texts(banner([alert(number) for number in range(5)], 80, 3, 0.0)) == [
        " ! Thing 0 is wrong. Fix it.",
        " ! Thing 1 is wrong. Fix it.",
        " ! Thing 2 is wrong. Fix it. (+2 more)",
    ]
    assert texts(banner([alert(number, action="x" * 60) for number in range(5)], 60, 1, 0.0)) == [
        " ! Thing 0 is wrong. (+4 more)"
    ]
    assert texts(banner([alert(number) for number in range(3)], 80, 3, 0.0))[2] == " ! Thing 2 is wrong. Fix it."


def test_a_banner_keeps_the_count_when_the_text_is_cut() -> None:
    (line,) = banner([Alert("a", Severity.CRITICAL, WIDE * 20), alert(1)], 60, 1, 0.0)
    assert plain(line).endswith("… (+1 more)")
    assert line[0].role is Role.ERROR


def test_the_action_of_a_single_alert_gets_its_own_line() -> None:
    lines = banner([alert(0, action="y" * 70)], 80, 3, 0.0)
    assert [text.strip() for text in texts(lines)] == ["! Thing 0 is wrong.", "y" * 70]
    assert len(banner([alert(0, action="y" * 70)], 80, 1, 0.0)) == 1
    assert banner([], 80, 3, 0.0) == []


@pytest.mark.parametrize(("age", "since"), [(59.0, ""), (60.0, " (60s)"), (300.0, " (5m)")])
def test_a_banner_shows_the_age_of_an_alert_from_a_minute_on(age: float, since: str) -> None:
    old = Alert("a", Severity.WARNING, "It is hot.", since_seconds=1000.0)
    assert texts(banner([old], 80, 3, 1000.0 + age)) == [f" ! It is hot.{since}"]


def test_info_about_a_gpu_is_not_in_the_banner_and_info_about_the_host_is() -> None:
    assert banner([info(1)], 80, 3, 0.0) == []
    (line,) = banner([Alert("host", Severity.INFO, "About the host.")], 80, 3, 0.0)
    assert line[0].role is Role.ACCENT


def test_an_action_joins_its_alert_where_both_fit() -> None:
    text = " ! Thing 0 is wrong. Fix it."
    assert texts(banner([alert(0)], len(text), 1, 0.0)) == [text]
    assert texts(banner([alert(0)], len(text) - 1, 1, 0.0)) == [" ! Thing 0 is wrong."]
    assert texts(banner([alert(0)], len(text) - 1, 2, 0.0)) == [" ! Thing 0 is wrong.", "   Fix it."]
    assert texts(banner([alert(0)], 1, 1, 0.0)) == ["…"]


def test_the_host_line_has_the_memory_in_use() -> None:
    (text,) = texts([host_line(builders.frame())])
    assert text == " node7  CPU  12% of 192  load 3.0 2.5 2.0  memory 1.00 of 2.00 TiB  up 1d00h"
