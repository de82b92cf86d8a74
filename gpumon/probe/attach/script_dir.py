"""How a process reports the outcome of the script: in a file in its memory, or in the temporary folder of the script.

The folder passes the script to `sys.remote_exec` and the outcome back; the last of the two processes removes it.
"""

import json
import os
import re
import time
from collections.abc import Container
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gpumon.core.new_files import PrivateDir, temporary_folder
from gpumon.core.text import safe_text
from gpumon.probe.attach.remote_script import OUTCOME
from gpumon.probe.attach.script_text import REQUEST_SECONDS, script_file
from gpumon.probe.attach.target import Target

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


def parse_outcome(content: bytes) -> AttachOutcome | None:
    """What a process reports; None if it is not complete or not valid."""
    try:
        document = json.loads(content)
        reason = document["reason"]
        return AttachOutcome(
            reason=None if reason is None else safe_text(str(reason), 300),
            runs=bool(document.get("runs")),
            was_there=bool(document["was_there"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def outcomes_in_memory(target: Target) -> dict[int, AttachOutcome]:
    """The outcomes in files in the memory of a process, which threads of the process keep for a moment, by inode."""
    outcomes: dict[int, AttachOutcome] = {}
    with suppress(OSError):
        for entry in (target.proc / str(target.pid) / "fd").iterdir():
            with suppress(OSError):
                if os.readlink(entry).startswith(f"/memfd:{OUTCOME}"):  # noqa: PTH115 - a file that has no path
                    descriptor = os.open(entry, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
                    try:
                        outcome = parse_outcome(os.pread(descriptor, _MAX_BYTES, 0))
                        if outcome is not None:
                            outcomes[os.fstat(descriptor).st_ino] = outcome
                    finally:
                        os.close(descriptor)
    return outcomes


def outcome_after(target: Target, earlier: Container[int]) -> AttachOutcome | None:
    """An outcome in the memory of a process that is not one of those before."""
    return next((outcome for inode, outcome in outcomes_in_memory(target).items() if inode not in earlier), None)


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
            script = script_file(target, self.folder, time.time() + REQUEST_SECONDS)
            self.script = self._dir.write("script.py", script.encode(), target.uid)
            self._dir.give(target.uid)
        except BaseException:
            self.close()
            raise

    def outcome(self) -> AttachOutcome | None:
        """The outcome, or None while the script has not run."""
        try:
            return parse_outcome(self._dir.read("outcome", _MAX_BYTES))
        except OSError:
            return None

    def is_waiting(self) -> bool:
        """Whether the script has not run yet."""
        return self.outcome() is None

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
