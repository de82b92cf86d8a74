"""The temporary folder that passes a script to another process and its outcome back; the last of the two removes it."""

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

_SCRIPT: Final = Path(__file__).with_name("remote_script.py")
_AGENT: Final = Path(__file__).parents[1] / "agent"
_PREFIX: Final = "gpumon-attach-"
_NAME: Final = re.compile(rf"{_PREFIX}(\d+)-.+")
_MAX_BYTES: Final = 4096


@dataclass(frozen=True, slots=True)
class AttachOutcome:
    """What the script reports from inside the process.

    Attributes:
        reason: Why the probe could not start, or None.
        runs: Whether there is a probe now.
        was_there: Whether there was one before.
    """

    reason: str | None
    runs: bool
    was_there: bool


class ScriptDir:
    """A folder with a script in it, readable by the process that will run the script.

    gpumon holds a lock on the folder while it waits for the outcome. The process that finds the lock released, or the
    other process gone, removes the folder, also if gpumon was killed or has stopped waiting.

    Args:
        target: The process.

    Raises:
        OSError: The folder cannot be created.
    """

    def __init__(self, target: Target) -> None:
        _remove_abandoned()
        self.folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{target.pid}-"))
        self.script = self.folder / "script.py"
        self._lock: int | None = None
        self._is_left_to_script = False
        try:
            self._lock = _lock(self.folder)
            self.script.write_text(_script_text(self.folder), "utf-8")
            if target.is_foreign:
                for path in (self.script, self.folder):
                    os.chown(path, target.uid, -1)
        except BaseException:
            self.close()
            raise

    def outcome(self) -> AttachOutcome | None:
        """The outcome, or None while the script has not run."""
        try:
            document = json.loads(_read(self.folder / "outcome"))
            reason = document["reason"]
            return AttachOutcome(
                reason=None if reason is None else safe_text(str(reason), 300),
                runs=bool(document.get("runs")),
                was_there=bool(document["was_there"]),
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None

    def stop_waiting(self) -> None:
        """Leave the folder to the script, which removes it when it runs."""
        self._unlock()
        if self.outcome() is None:
            self._is_left_to_script = True

    def close(self) -> None:
        """Remove the folder, unless it is left to the script."""
        if not self._is_left_to_script:
            shutil.rmtree(self.folder, ignore_errors=True)
        self._unlock()

    def _unlock(self) -> None:
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)


def _script_text(folder: Path) -> str:
    """One text with everything: the process may not be able to read the folder in which gpumon is installed."""
    sources = {path.name: path.read_text("utf-8") for path in sorted(_AGENT.glob("*.py"))}
    return f"{_SCRIPT.read_text('utf-8')}\n\nrun({str(folder)!r}, {str(_AGENT)!r}, {sources!r})\n"


def _remove_abandoned() -> None:
    """Remove the folders of processes that ended before they ran their script."""
    with suppress(OSError):
        for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
            match = _NAME.fullmatch(folder.name)
            if match and folder.lstat().st_uid == os.geteuid() and not Path("/proc", match[1]).exists():
                with suppress(OSError):
                    os.close(_lock(folder))
                    shutil.rmtree(folder, ignore_errors=True)


def _lock(folder: Path) -> int:
    """Lock a folder; the returned descriptor holds the lock."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _read(path: Path) -> bytes:
    """Read a small file that another user may have created, without following a link or blocking on a pipe."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        return os.read(descriptor, _MAX_BYTES) if stat.S_ISREG(os.fstat(descriptor).st_mode) else b""
    finally:
        os.close(descriptor)
