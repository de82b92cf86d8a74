"""The plain-text report of ``gpumon status``."""

import re

import pytest

from gpumon.core.frames import decode, encode
from gpumon.core.problems import CommandError, Problem, ProblemCode
from gpumon.health.alerts import Thresholds
from gpumon.present.text.status import formatted, status_text
from tests import builders
from tests.frames import HOSTILE, machine, troubled

REFUSED = Problem(ProblemCode.NO_PERMISSION, "Permission denied by the driver.")


def test_the_report_is_plain_text() -> None:
    evil = builders.device(name=HOSTILE, processes=(builders.process(user=HOSTILE, command=HOSTILE),))
    for frame in (machine(), troubled(), decode(encode(builders.frame(devices=(evil,))))):
        text = status_text(frame)
        assert all(char.isprintable() for row in text.split("\n") for char in row)
        assert all(row == row.rstrip() for row in text.split("\n"))


def test_the_report_lists_every_gpu_every_process_and_every_alert() -> None:
    text = status_text(troubled())
    rows = text.splitlines()
    assert sum(row.split()[1:2] == ["H200"] for row in rows) == 8
    assert re.search(r"^ +1 .* LOST +–$", text, re.MULTILINE)
    assert re.search(r"^ +2 .* UNRESPONSIVE-12s +–$", text, re.MULTILINE)
    assert "4007" in text
    assert "! GPU 1 is lost: The GPU has fallen off the bus." in text


def test_the_report_without_processes_has_the_reason_in_place_of_the_table() -> None:
    text = status_text(builders.frame(devices=(builders.device(processes=None, problems={"processes": REFUSED}),)))
    assert "PID" not in text
    assert "\n\n! Process list not available: Permission denied by the driver.\n" in f"{text}\n"
    assert "PID" not in status_text(builders.frame(devices=(builders.device(processes=()),)))


def test_the_table_of_processes_ends_with_the_lists_that_cannot_be_read() -> None:
    unread = builders.device(1, processes=None, problems={"processes": REFUSED})
    text = status_text(builders.frame(devices=(builders.device(0), unread)))
    assert "PID" in text
    assert "! Process list of GPU 1 not available: Permission denied by the driver." in text


def test_the_report_uses_the_thresholds_of_the_user() -> None:
    readings = {"temperature_celsius": 80.0, "temperature_slowdown_celsius": 90.0}
    frame = builders.frame(devices=(builders.device(readings=readings),))
    assert "!80°" not in status_text(frame)
    assert "!80°" in status_text(frame, Thresholds(temperature_margin_celsius=10.0))


def test_the_state_is_one_word_and_a_format_has_every_value() -> None:
    frame = troubled()
    rows = [line for line in status_text(frame).splitlines() if re.match(r" +\d ", line)]
    assert len({len(line.split()) for line in rows[:1]}) == 1
    assert "UNRESPONSIVE-12s" in status_text(frame)
    lines = [*formatted(machine(2), "{index} {name} {utilization}% {memory_used}/{memory_total} {power_watts} {state}")]
    assert lines[1].startswith("1 H200 13% 69")
    assert lines[1].split()[-1] == "ok"
    assert (
        next(
            formatted(
                builders.frame(devices=(builders.device(readings={"power_watts": None}),)), "{power_watts:>3.1f}|"
            )
        )
        == "  –|"
    )
    for template, reason in (
        ("{indx}", "Did you mean index"),
        ("{name.__class__}", "Names: index"),
        ("{index", "Expected '}'"),
        ("{index:>999999}", "not a format"),
    ):
        with pytest.raises(CommandError, match=re.escape(reason)):
            list(formatted(machine(1), template))
