"""Changes that a message undergoes in a log: prefixes, colors, wrapping, cuts, and lines in between."""

import random
import re
import textwrap
from collections.abc import Callable, Sequence
from typing import Final

from tests.errors.corpus import noise

Chance = random.Random

PREFIXES: Final = (
    "[rank{rank}]: ", "[rank{rank}]:", "[default{rank}]:", "{rank}: ", "[1,{rank}]<stderr>:",
    "(RayTrainWorker pid=4242, ip=10.0.0.1) ", "trainer-{rank}  | ", "[pod/trainer-{rank}/main] ",
    "2026-11-20 12:00:01,123 ERROR ", "2026-11-20T12:00:01.123456Z ", "[2026-11-20 12:00:01,123] [ERROR] ",
    "[rank{rank}]:[E1120 12:00:01.123456789 ProcessGroupNCCL.cpp:616] [Rank {rank}] ",
    "Nov 20 12:00:01 node1 kernel: [12345.678901] ", "[Fri Nov 20 12:00:01 2026] ",
    "E1120 12:00:01.123456 4242 watch.cpp:12] ",
)  # fmt: skip
_COLORS: Final = ("\x1b[31m", "\x1b[1;31m", "\x1b[0m", "\x1b[38;5;196m", "\x1b[K", "\x1b]8;;file:x\x1b\\", "^[[0m")


def prefixed(text: str, chance: Chance) -> str:
    """Every line with the prefix of a launcher or logger; a message that names its rank keeps that rank."""
    named = re.search(r"ank ?(\d+)", text)
    prefix = chance.choice(PREFIXES).format(rank=named[1] if named else chance.randrange(16))
    return "\n".join(prefix + line for line in text.split("\n"))


def colored(text: str, chance: Chance) -> str:
    """Escape sequences anywhere, also within words."""
    places = sorted(chance.randrange(len(text) + 1) for _ in range(chance.randint(1, 12)))
    parts = [text[start:end] for start, end in zip([0, *places], [*places, len(text)], strict=True)]
    return "".join(part + chance.choice(_COLORS) for part in parts)


def wrapped_by_terminal(text: str, chance: Chance) -> str:
    """Broken at a column; copying may then remove trailing spaces."""
    width = chance.randint(24, 130)
    rows = [line[start : start + width] for line in text.split("\n") for start in range(0, max(1, len(line)), width)]
    return "\n".join(row.rstrip() if chance.random() < 0.5 else row for row in rows)


def wrapped_by_words(text: str, chance: Chance) -> str:
    """Broken between words, with continuation lines indented, as rich consoles do."""
    indent = " " * chance.choice((0, 4, 21))
    width = chance.randint(50, 130)
    wrapped = (textwrap.wrap(line, width, subsequent_indent=indent) or [""] for line in text.split("\n"))
    return "\n".join(row.ljust(width) for rows in wrapped for row in rows)


def embedded(text: str, chance: Chance, lines: int) -> str:
    """A text within a long log."""
    around = noise(lines, chance.randrange(1000))
    place = chance.randrange(lines + 1)
    return "\n".join([*around[:place], text, *around[place:]])


def interleaved(texts: Sequence[str], chance: Chance) -> str:
    """The lines of several ranks interleaved, each with its prefix."""
    waiting = [(rank, text.split("\n")) for rank, text in enumerate(texts)]
    mixed = []
    while waiting:
        rank, lines = chance.choice(waiting)
        mixed.append(f"[rank{rank}]: {lines.pop(0)}")
        waiting = [(rank, lines) for rank, lines in waiting if lines]
    return "\n".join(mixed)


def with_other_line_ends(text: str, chance: Chance) -> str:
    """Line ends of Windows, or a progress bar before the text."""
    if chance.random() < 0.5:
        return text.replace("\n", "\r\n")
    return f"\r 10%|#         | 1/10\r 20%|##        | 2/10\r{text}"


Change = Callable[[str, Chance], str]
CHANGES: Final[tuple[Change, ...]] = (wrapped_by_words, wrapped_by_terminal, prefixed, colored, with_other_line_ends)
"""In the order in which they occur: no terminal breaks a line within a color escape."""
