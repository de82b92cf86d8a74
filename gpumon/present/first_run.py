"""What the overview shows before there is anything to see: the way out without a driver, and the tour of the demo."""

from typing import Final

from gpumon.core.model import Frame, short_product_name
from gpumon.core.problems import Problem
from gpumon.core.units import counted
from gpumon.present.paint.line import Line, Role, Span, line, width_of, wrapped

_TOUR: Final = ("try ", "enter", " for one GPU over time, ", "3", " for memory, ", "/", " to filter")
_SHORT_TOUR: Final = ("enter", " one GPU  ", "3", " memory  ", "/", " filter")
TOUR_KEYS: Final = (*_TOUR[1::2],)
"""The keys that the tour names."""
_WAYS: Final = (
    ("d", "play the demo: a host with eight H200 GPUs"),
    ("5", "run workloads on the CPU"),
    ("7", "explain an error or a log"),
    ("8", "check what this host lacks"),
)
_SHORT_WAYS: Final = ("d", " demo  ", "5", " workloads on the CPU  ", "7", " explain  ", "8", " doctor")
_MIN_HEIGHT: Final = 20
"""Lower screens have no empty lines, and every way in one line."""


def tour_line(frame: Frame, width: int) -> Line:
    """Three keys to try in the demo."""
    names = {short_product_name(device.name) for device in frame.gpus if device.name is not None}
    gpus = f"{len(frame.gpus)} {names.pop()}" if len(names) == 1 else counted(len(frame.gpus), "GPU")
    long = line(f" Demo of {gpus}: ", *map(_key, _TOUR))
    return long if sum(width_of(span.text) for span in long) <= width else line(" ", *map(_key, _SHORT_TOUR))


def _key(text: str) -> Span:
    """A part of a text; the parts without a space are keys."""
    return Span(text, Role.PLAIN if " " in text else Role.ACCENT)


def first_run_lines(problem: Problem, width: int, height: int) -> list[Line]:
    """The text in place of the tables when there is no GPU: why, what to do about it, and what works anyway."""
    is_high = height >= _MIN_HEIGHT
    indent = "    " if is_high else " "
    texts = [
        line(indent, piece)
        for text in (problem.reason, problem.remedy)
        for piece in wrapped(text, width - 2 * len(indent))
    ]
    title = line(indent, Span("No GPU to show", Role.ACCENT))
    if not is_high:
        return [title, *texts, line(" ", *map(_key, _SHORT_WAYS))]
    ways = [line(f"{indent}  ", Span(key, Role.ACCENT), f"  {text}") for key, text in _WAYS]
    waiting = line(indent, "gpumon shows the GPUs as soon as the driver responds. Until then:")
    return [line(""), title, line(""), *texts, line(""), waiting, line(""), *ways]
