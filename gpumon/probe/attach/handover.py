"""How a script gets to another process and its outcome back: by a folder that the last of the two takes away."""

import fcntl
import json
import os
import re
import shutil
import stat
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gpumon.core.text import safe_text
from gpumon.probe.attach.target import Target

_INSIDE: Final = Path(__file__).with_name("inside.py")
_AGENT: Final = Path(__file__).parents[1] / "agent.py"
_NAME: Final = "gpumon-attach-"
_FOLDER: Final = re.compile(rf"{_NAME}(\d+)-.+")
_MOST_BYTES: Final = 4096


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the script says, from within the process.

    Attributes:
        reason: Why the probe could not start, or None.
        runs: Whether there is one now.
        was_there: Whether there was one before.
    """

    reason: str | None
    runs: bool
    was_there: bool


class Handover:
    """A folder with a script in it, readable by the process that is to run it.

    gpumon holds it locked while it waits for the outcome. Whoever finds that the other one has gone removes it, so that
    it vanishes in the end even if gpumon is killed or waits no longer.

    Args:
        target: The process.
    """

    def __init__(self, target: Target) -> None:
        _sweep()
        self.folder = Path(tempfile.mkdtemp(prefix=f"{_NAME}{target.pid}-"))
        self.script = self.folder / "script.py"
        self._lock: int | None = None
        self._is_left = False
        try:
            self._lock = _locked(self.folder)
            self.script.write_text(_script(self.folder), "utf-8")
            if target.is_foreign:
                for path in (self.script, self.folder):
                    os.chown(path, target.uid, -1)
        except BaseException:
            self.close()
            raise

    def outcome(self) -> Outcome | None:
        """What came of it, or None while the script has not run."""
        try:
            told = json.loads(_read(self.folder / "outcome"))
            reason = told["reason"]
            return Outcome(
                reason=None if reason is None else safe_text(str(reason), 300),
                runs=bool(told.get("runs")),
                was_there=bool(told["was_there"]),
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None

    def leave(self) -> None:
        """Waits no longer: the script stays until it runs, and then removes itself."""
        self._unlock()
        if self.outcome() is None:
            self._is_left = True

    def close(self) -> None:
        """Takes everything away, unless the script was left to itself."""
        if not self._is_left:
            shutil.rmtree(self.folder, ignore_errors=True)
        self._unlock()

    def _unlock(self) -> None:
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)


def _script(folder: Path) -> str:
    """Everything in one text: the process may not be able to read where gpumon is installed."""
    call = f"begin({str(folder)!r}, {str(_AGENT)!r}, {_AGENT.read_text('utf-8')!r})"
    return f"{_INSIDE.read_text('utf-8')}\n\n{call}\n"


def _sweep() -> None:
    """Removes what processes have left that ended before they ran their script."""
    with suppress(OSError):
        for folder in Path(tempfile.gettempdir()).glob(f"{_NAME}*"):
            named = _FOLDER.fullmatch(folder.name)
            if named and folder.lstat().st_uid == os.geteuid() and not Path("/proc", named[1]).exists():
                with suppress(OSError):
                    os.close(_locked(folder))
                    shutil.rmtree(folder, ignore_errors=True)


def _locked(folder: Path) -> int:
    """A descriptor that holds the folder's lock."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _read(path: Path) -> bytes:
    """A small file that another user may have made: neither a link nor a pipe is followed."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        return os.read(descriptor, _MOST_BYTES) if stat.S_ISREG(os.fstat(descriptor).st_mode) else b""
    finally:
        os.close(descriptor)
