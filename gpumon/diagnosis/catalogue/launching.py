"""Errors of starting a program: its command line, and what a launcher reports about it."""

from typing import Final

from gpumon.diagnosis.catalogue.wording import NOT_ABOUT_MEMORY
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

SECTION: Final = "Starting programs"

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="launcher-exit",
        section=SECTION,
        title="Launcher reports that the program failed",
        summary="The program that was started ended with an error; its own message stands earlier in the log.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                " failed with ",
                r"\b(?:[Tt]raining|[Ss]ubprocess) failed with (?:return |exit )?code (?P<exitcode>(?!322122)\d{1,10})",
            ),
            Pattern(
                "Failed to train/fine-tune config ",
                r"Failed to train/fine-tune config '(?P<config>[^'\n]{1,160})'",
            ),
            Pattern(
                "CalledProcessError: Command '['",
                r"CalledProcessError: Command '\['(?![^\n]{1,300}(?:died with|exit status (?:1[23]\d|-)))"
                r"[^'\n]{0,200}python[\d.]{0,6}(?:\.exe)?', (?:'-u', )?'[^'\n]{1,200}\.py'",
            ),
            Pattern("exits with return code = ", r"exits with return code = (?P<exitcode>[1-9]\d{0,2})\b"),
        ),
        causes=("The exit code 1 is an exception of Python; -9 or 137 is host memory, -11 or 139 a crash.",),
        fixes=(
            Fix("Read the traceback that stands above the one of the launcher: its last line is the cause."),
            Fix("Run the script without the launcher, to see its message alone.", "python train.py"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/huggingface/accelerate/blob/main/src/accelerate/commands/launch.py",),
        said_by="accelerate 0.15-1.12, Axolotl 0.8-0.12, DeepSpeed 0.9-0.17",
        is_echo=True,
    ),
)
