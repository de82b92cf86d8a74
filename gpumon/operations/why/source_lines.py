"""The source lines of a program that another process runs, read with limits: its paths are not trusted."""

import os
import stat
from pathlib import Path
from typing import Final

from gpumon.core.acting_user import acting_as
from gpumon.core.procfs import effective_uid
from gpumon.core.text import safe_text
from gpumon.insight.bottlenecks.causes.loop import IN_SOURCE
from gpumon.stacks.tables import file_text, is_program

_MAX_FILES: Final = 64
_MAX_BYTES: Final = 2 << 20
_MAX_LINE: Final = 200


class SourceLines:
    """Reads the lines of Python files, each file once.

    The mount namespace of the process counts.
    """

    def __init__(self, pid: int, proc: Path = Path("/proc")) -> None:
        self._root = proc / str(pid) / "root"
        self._files: dict[str, list[str]] = {}

    def line(self, file: str, number: int) -> str:
        """The line of a file as safe text; empty if it cannot be read.

        The path is absolute and ends in ``.py``; the first line is number 1.
        """
        if file not in self._files:
            if len(self._files) >= _MAX_FILES:
                return ""
            self._files[file] = self._read(file)
        lines = self._files[file]
        return safe_text(lines[number - 1], _MAX_LINE) if 0 < number <= len(lines) else ""

    def settings(self) -> dict[str, str]:
        """Settings that the files read so far contain, by name, with the line of each: ``train.py:12``."""
        result: dict[str, str] = {}
        for file, lines in self._files.items():
            if not is_program(file):
                continue
            for number, text in enumerate(lines, 1):
                for name, pattern in IN_SOURCE.items():
                    if name not in result and pattern.search(text.partition("#")[0]):
                        result[name] = f"{file_text(file)}:{number}"
        return result

    def _read(self, file: str) -> list[str]:
        if not file.startswith("/") or not file.endswith(".py") or ".." in file:
            return []
        for path in (f"{self._root}{file}", file):
            try:
                with acting_as(effective_uid(self._root.parent)):
                    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
            except OSError:
                continue
            with os.fdopen(descriptor, "rb") as opened:
                if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
                    return []
                return opened.read(_MAX_BYTES).decode("utf-8", "replace").split("\n")
        return []
