"""Figures that are missing, cannot be true, or are not of this moment: what stands in their place says which."""

from gpumon.core.frames import decode, encode
from gpumon.core.model import Frame, Sweep
from gpumon.core.problems import Problem, ProblemCode
from gpumon.core.store import Store
from gpumon.ui.paint.line import Role, Span
from gpumon.ui.scene import Scene
from gpumon.ui.view import devices
from gpumon.ui.view.entries import device_entries
from tests import builders

UNTRUE = Problem(ProblemCode.INVALID_VALUE, "The driver answered 4e+09, which cannot be true.")
UNTOLD = Problem(ProblemCode.NOT_SUPPORTED, "This chip or driver does not offer it.")
OLD = Problem(ProblemCode.STALE, "NVML answered: unknown. This is the last value before.")
FIGURES = {
    "Util": "utilization_gpu_percent",
    "Memory GiB": "memory_used_bytes",
    "Temp": "temperature_celsius",
    "Power W": "power_watts",
    "SM MHz": "clock_sm_hertz",
    "MemMHz": "clock_memory_hertz",
}


def frame(problem: Problem, *, is_there: bool = False) -> Frame:
    """A GPU whose figures all have the same problem."""
    readings = {} if is_there else dict.fromkeys(FIGURES.values())
    problems = dict.fromkeys(FIGURES.values(), problem)
    return decode(encode(builders.frame(devices=(builders.device(readings=readings, problems=problems),))))


def cells(found: Frame) -> dict[str, Span]:
    (row,) = devices.device_rows(Scene(Store(), found, (), ""))
    return {str(column.heading): column.cell(row, column.width) for column in devices.DEVICE_COLUMNS}


def entries(found: Frame) -> dict[str, tuple[str, str]]:
    return {label: (value, note) for label, value, note in device_entries(found.devices[0])}


def test_what_cannot_be_true_is_a_question_mark() -> None:
    shown = cells(frame(UNTRUE))
    assert [shown[name].text.partition("/")[0] for name in FIGURES] == ["?"] * len(FIGURES)
    assert entries(frame(UNTRUE))["Power"] == ("?", UNTRUE.reason)


def test_what_is_not_told_is_a_dash() -> None:
    shown = cells(frame(UNTOLD))
    assert [shown[name].text.partition("/")[0] for name in FIGURES] == ["–"] * len(FIGURES)
    assert entries(frame(UNTOLD))["Power"] == ("–", UNTOLD.reason)


def test_a_last_value_is_shown_and_marked() -> None:
    shown, fresh = cells(frame(OLD, is_there=True)), cells(builders.frame(devices=(builders.device(),)))
    for name in FIGURES:
        assert shown[name] == Span(fresh[name].text, Role.DIM)
        assert fresh[name].role is Role.PLAIN
    assert shown["State"].text == "STALE"
    assert entries(frame(OLD, is_there=True))["Power"] == ("612.5 W of 700.0 W", OLD.reason)


def test_the_count_of_what_cannot_be_true_travels_along() -> None:
    assert decode(encode(builders.frame(sweep=Sweep(refused=7)))).sweep.refused == 7
