"""The temporary folder that passes a script to another process and its outcome back; the last of the two removes it."""

import json
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gpumon.core.new_files import PrivateDir, temporary_folder
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
        self._dir = PrivateDir.create_temporary(f"{_PREFIX}{target.pid}-")
        self.folder = self._dir.path
        self._is_left_to_script = False
        try:
            self.script = self._dir.write("script.py", _script_text(self.folder).encode(), target.uid)
            self._dir.give(target.uid)
        except BaseException:
            self.close()
            raise

    def outcome(self) -> AttachOutcome | None:
        """The outcome, or None while the script has not run."""
        try:
            document = json.loads(self._dir.read("outcome", _MAX_BYTES))
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
        self._dir.unlock()
        if self.outcome() is None:
            self._is_left_to_script = True

    def close(self) -> None:
        """Remove the folder, unless it is left to the script."""
        if not self._is_left_to_script:
            self._dir.remove()
        self._dir.close()


def _script_text(folder: Path) -> str:
    """One text with everything: the process may not be able to read the folder in which gpumon is installed."""
    sources = {path.name: path.read_text("utf-8") for path in sorted(_AGENT.glob("*.py"))}
    return f"{_SCRIPT.read_text('utf-8')}\n\nrun({str(folder)!r}, {str(_AGENT)!r}, {sources!r})\n"


def _remove_abandoned() -> None:
    """Remove the folders of processes that ended before they ran their script."""
    with suppress(OSError):
        for folder in temporary_folder().glob(f"{_PREFIX}*"):
            match = _NAME.fullmatch(folder.name)
            if match and not Path("/proc", match[1]).exists():
                with suppress(OSError):
                    abandoned = PrivateDir(folder)
                    abandoned.remove()
                    abandoned.close()
