"""Exit codes, and the one way a command ends without a result."""

from enum import IntEnum
from typing import Final

from gpumon.core.problems import Problem

SIGNAL_BASE: Final = 128
"""A command that signal n ends exits with this plus n."""

COLLECTOR_OUTDATED: Final = 75
"""A collector ends with this when the driver was replaced and only a new process can load the library that fits it."""


class ExitCode(IntEnum):
    """What a script may rely on."""

    OK = 0
    """Done and fine; warnings too."""
    BAD_VERDICT = 1
    """It ran, and what it found is bad."""
    USAGE = 2
    """It was asked for something that makes no sense, or that cannot be read."""
    NOT_THERE = 3
    """What it needs is not there: no driver, no GPU, no torch."""


class CommandError(Exception):
    """Ends a command with a sentence of cause, a sentence of remedy and an exit code."""

    def __init__(self, problem: Problem, exit_code: ExitCode) -> None:
        super().__init__(str(problem))
        self.problem = problem
        self.exit_code = exit_code
