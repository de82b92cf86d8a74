"""Why the probe cannot be loaded into a process: one row of ``refusals.txt`` per cause."""

from typing import Final

from gpumon.core.problems import CommandError, ExitCode, Problem, ProblemCode
from gpumon.core.text_table import table

ALTERNATIVES: Final = (
    "Restart the process with `gpumon watch -- COMMAND`, or add `import gpumon.probe; gpumon.probe.start()` to it."
)


class RefusalError(CommandError):
    """The probe cannot be loaded into a process.

    Args:
        cause: A row of the table.
        values: What stands in its sentences, such as the process as ``target``.

    Attributes:
        word: Why, in two or three words for a column.
    """

    def __init__(self, cause: str, **values: object) -> None:
        rows = (row.split("|") for row in table(__package__, "refusals"))
        texts = next([part.strip() for part in parts] for parts in rows if parts[0].strip() == cause)
        code = ProblemCode[texts.pop(2)]
        _, self.word, reason, remedy = (text.format(alternatives=ALTERNATIVES, **values) for text in texts)
        super().__init__(Problem(code, reason, remedy), ExitCode.MISSING_PREREQUISITE)
