"""The experiment of a cause as a command: `gpumon try` with the training run as it was started, and with one change."""

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from gpumon.core.text_table import table

_OPTION = r"(?P<name>(?:--?|\+{0,2})(?:[\w.]+[-_.])?NAME)(?:=(?P<value>.*))?"
"""An argument of argparse, click or Hydra whose name ends with a pattern: `--num-workers=2`, `data.num_workers=2`."""


class StartCommand(NamedTuple):
    """How a training run was started.

    Attributes:
        words: The words of the command line.
        folder: The folder in which it was started; empty for the folder of gpumon.
    """

    words: tuple[str, ...]
    folder: str = ""


def try_line(kind: str, value: str, start: StartCommand | None, settings: Mapping[str, str]) -> str:
    """The line to run; empty if no command expresses the change.

    Args:
        kind: The cause.
        value: The value that its experiment sets; empty if it sets none.
        start: The command.
        settings: Variables of its environment.
    """
    if start is None:
        return ""
    for row in table("gpumon.insight.bottlenecks", "try_changes"):
        cause, form, name, *new = (part.replace("{}", value) for part in row.split())
        if cause != kind or not name or "" in new:
            continue
        command = shlex.join(start.words)
        changed = base = command
        if form == "argument":
            changed = shlex.join(_with_argument(start.words, name, new[0]))
        elif form == "without":
            base, changed = f"{name}={shlex.quote(settings.get(name, ''))} {command}", f"env -u {name} {command}"
        else:
            base = f"{name}={shlex.quote(settings[name])} {command}" if name in settings else command
            changed = f"{name}={shlex.quote(new[0])} {command}"
        if changed != base:
            move = f"cd {shlex.quote(start.folder)} && " if start.folder else ""
            return f"gpumon try {shlex.quote(move + base)} {shlex.quote(move + changed)}"
    return ""


def _with_argument(words: Sequence[str], name: str, value: str) -> list[str]:
    """The words with another value of an option; unchanged if they do not contain it."""
    result = list(words)
    option = re.compile(_OPTION.replace("NAME", name))
    for number, word in enumerate(words):
        match = option.fullmatch(word)
        if match is not None and match["value"] is not None:
            result[number] = f"{match['name']}={value}"
        elif match is not None and word.startswith("-") and not "".join(words[number + 1 : number + 2]).startswith("-"):
            result[number + 1 : number + 2] = [value]
    return result
