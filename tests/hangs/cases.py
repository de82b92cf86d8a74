"""The planted hangs with what gpumon has to say of them, and the healthy jobs."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gpumon.core.ranks import HangKind

FOLDER: Final = Path(__file__).parent
_MARK: Final = "# hangs"


@dataclass(frozen=True)
class Case:
    """A job.

    Attributes:
        name: The name of its script.
        kind: The verdict; None for a healthy job.
        rank: The rank that is the reason; None if there is more than one.
        collective: How the collective begins in which the others wait.
        ranks_count: Number of ranks.
        has_torchrun: Whether torchrun starts it; otherwise each rank is started by itself.
    """

    name: str
    kind: HangKind | None = None
    rank: int | None = None
    collective: str = "all_reduce #31"
    ranks_count: int = 2
    has_torchrun: bool = False

    @property
    def script(self) -> Path:
        """The file."""
        return FOLDER / ("healthy" if self.kind is None else "scripts") / f"{self.name}.py"

    @property
    def lines(self) -> set[str]:
        """The lines at which the rank may stand; an empty one if it cannot be known."""
        texts = enumerate(self.script.read_text().splitlines(), 1)
        return {f"{self.script.name}:{number}" for number, text in texts if text.endswith(_MARK)} or {""}


HANGS: Final = (
    Case("sleeping", HangKind.NOT_ENTERED, 1, ranks_count=3, has_torchrun=True),
    Case("pipe_read", HangKind.BLOCKED, 1),
    Case("socket_receive", HangKind.BLOCKED, 1),
    Case("terminal_input", HangKind.BLOCKED, 0),
    Case("child_process", HangKind.BLOCKED, 1),
    Case("file_lock", HangKind.BLOCKED, 1),
    Case("gil_in_c", HangKind.GIL_HELD, 1, "all_reduce #101"),
    Case("regular_expression", HangKind.GIL_HELD, 2, "all_reduce #101", 3),
    Case("stopped", HangKind.STOPPED, 1, ranks_count=3, has_torchrun=True),
    Case("lock", HangKind.WAITING_FOR_LOCK, 1),
    Case("infinite_loop", HangKind.NOT_ENTERED, 2, ranks_count=3),
    Case("slow_loader", HangKind.WAITING_FOR_DATA, 1, "all_reduce #"),
    Case("slow_loaders", HangKind.WAITING_FOR_DATA, None, ""),
    Case("different_collective", HangKind.MISMATCHED, 1, "barrier #31", 3),
    Case("missed_barrier", HangKind.MISMATCHED, 0, "all_reduce", 3),
    Case("finished_early", HangKind.MISMATCHED, 1, "barrier #31", 3),
    Case("wrong_root", HangKind.TRANSPORT, None, "broadcast #31", 3),
    Case("receive", HangKind.NOT_ENTERED, 1, ranks_count=3),
    Case("two_groups", HangKind.DEADLOCK, None, "all_reduce #1 of group dp"),
    Case("group_of_two", HangKind.NOT_ENTERED, 3, "all_reduce #31 of group pair1", 4),
    Case("exits", HangKind.DEAD, 2, "new_group", 3),
    Case("crashes", HangKind.DEAD, 1, "new_group", 3),
)
HEALTHY: Final = tuple(
    Case(name)
    for name in (
        "uneven_steps",
        "checkpoint",
        "evaluation",
        "big_file",
        "first_step",
        "long_steps",
        "sleeping_loader",
        "short_pause",
        "accumulation",
        "compilation",
    )
)
