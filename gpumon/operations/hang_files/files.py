"""Finds the files of a hang, and has child processes with limits read them."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, Final, NamedTuple

from gpumon.core.json_text import json_bytes
from gpumon.core.problems import CommandError, ProblemCode
from gpumon.core.text import safe_text

_MAX_FILES: Final = 20_000
_FILES_PER_CHILD: Final = 64
_MAX_CHILDREN: Final = 8
_MEMORY_BYTES: Final = 2 << 30
"""Address space of a child; a dump of 2,000 collectives takes 10 MB."""
_SECONDS: Final = 120
_BYTES_PER_SECOND: Final = 1_000_000
"""Our own reader of pickles reads at least twice as many."""
_RANK: Final = re.compile(r"rank[-_ =.]?(\d{1,6})(?!\d)", re.IGNORECASE)
_TORCHRUN: Final = re.compile(r"attempt_\d+/(\d{1,6})/std(?:out|err)\.log$")
_LAST_NUMBER: Final = re.compile(r"(\d{1,6})(?:\.[A-Za-z]\w*)*$")


class HangFile(NamedTuple):
    """One file.

    Attributes:
        path: The file.
        rank: The rank by its name; None if the name has none.
        kind: ``recorder``, ``log``, ``stacks`` or ``ras``; empty if it cannot be read.
        message: What its reader found.
        problem: Why it could not be read, as a clause after its name; empty if it could.
    """

    path: Path
    rank: int | None
    kind: str
    message: dict[str, Any]
    problem: str = ""

    @property
    def is_rank_sure(self) -> bool:
        """Whether the name says that the number is a rank; any other number may mean something else."""
        return bool(_RANK.search(self.path.name) or _TORCHRUN.search(str(self.path)))


def find_files(paths: Sequence[Path]) -> list[Path]:
    """The files that a user means: those that are named, and those in folders that are named, at any depth.

    Raises:
        CommandError: One does not exist, or there are too many files.
    """
    result: list[Path] = []
    for path in paths:
        if not path.exists():
            raise CommandError.missing(ProblemCode.NOT_FOUND, f"File not found: {safe_text(str(path), 200)}.", "")
        if path.is_dir():
            inside = (Path(folder, name) for folder, _, names in os.walk(path) for name in names if name[0] != ".")
            result += sorted(file for file in inside if file.is_file())
        else:
            result.append(path)
    if len(result) > _MAX_FILES:
        raise CommandError.usage(ProblemCode.INVALID_VALUE, f"{len(result):,} files are more than {_MAX_FILES:,}.")
    return result


def rank_of(path: Path) -> int | None:
    """The rank that the name of a file or of its folder has, such as ``nccl_trace_rank_3`` or ``3/stderr.log``."""
    torchrun = _TORCHRUN.search(str(path))
    named = _RANK.findall(path.name) or ([torchrun[1]] if torchrun else _RANK.findall(path.parent.name))
    if not named:
        named = _LAST_NUMBER.findall(path.name)
    return int(named[-1]) if named else None


def read_files(paths: Sequence[Path]) -> list[HangFile]:
    """Read files; one that cannot be read has the reason."""
    count = min(_MAX_CHILDREN, os.cpu_count() or 1, -(-len(paths) // _FILES_PER_CHILD)) or 1
    numbered = list(enumerate(paths))
    with ThreadPoolExecutor(count) as pool:
        shares = pool.map(_read_share, [numbered[start::count] for start in range(count)])
        files = sorted(pair for share in shares for pair in share)
    return [file for _, file in files]


def _read_share(share: list[tuple[int, Path]]) -> list[tuple[int, HangFile]]:
    """Read files in one child; a file that ends it has a problem, and another child reads the rest."""
    result: list[tuple[int, HangFile]] = []
    while len(result) < len(share):
        rest = share[len(result) :]
        before = len(result)
        members: dict[int, list[int]] = {}
        for (number, path), message in zip(rest, _messages(rest), strict=False):
            for group in message.get("recording", {}).get("groups", ()):
                group["ranks"] = members.setdefault(group["key"], group["ranks"])
            file = HangFile(path, rank_of(path), message["kind"], message, message.get("problem", ""))
            result.append((number, file))
        if len(result) < len(share):
            number, path = share[len(result)]
            result.append((number, HangFile(path, rank_of(path), "", {}, "could not be read: its reader ended")))
        assert len(result) > before
    return result


def _messages(share: list[tuple[int, Path]]) -> Iterator[dict[str, Any]]:
    """What a child says of files, one after the other, until it ends."""
    size = sum(path.stat().st_size for _, path in share if path.is_file())
    limits = [f"--memory={_MEMORY_BYTES}", f"--seconds={_SECONDS + size // _BYTES_PER_SECOND}"]
    with TemporaryFile() as names:
        names.write(b"".join(json_bytes([number, str(path.absolute())]) for number, path in share))
        names.seek(0)
        command = [sys.executable, str(Path(__file__).with_name("__main__.py")), *limits]
        with subprocess.Popen(
            command, stdin=names, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
        ) as child:
            assert child.stdout is not None
            try:
                for line in child.stdout:
                    message = json.loads(line)
                    if message.get("event") != "file":
                        return
                    yield message
            except ValueError:
                return  # a part of a line: the child died while it wrote
            finally:
                child.kill()
