"""The child process that reads the files of a hang: their paths on standard input, one message for each on output.

It runs within limits of memory and time, like the readers of snapshots and traces: the files are not trusted. gpumon
starts it by path, so that the user's working directory is never on ``sys.path``.
"""

import sys
from pathlib import Path

if not __package__:
    sys.path[0] = str(Path(__file__).resolve().parents[3])

import argparse
import io
import json
import os
import pickle  # every name that a pickle asks for is refused, and without one it can call nothing
import re
from collections import Counter
from contextlib import closing
from typing import Any, Final

from gpumon.core.limited_child import MessageWriter, end_with_pipe, run_limited
from gpumon.core.source_file import SourceFile, UnreadableError, open_input
from gpumon.core.text import safe_text
from gpumon.distributed.ras_report import MAX_REPORT_BYTES, parse_report
from gpumon.operations.hang_files.log_text import read_text
from gpumon.probe.agent.flight_recorder import recording_of

MAX_MESSAGE_BYTES: Final = 64 << 20
_MAX_JSON_BYTES: Final = 256 << 20
_MAX_TEXT_BYTES: Final = 64 << 20
"""The end of a longer log is read."""
_MAX_EXPANSION: Final = 100
_KEPT: Final = 8
"""Entries of a group that are kept, at its end and of those that have not completed."""
_MAX_SIZES: Final = 16
_MAX_DIMENSIONS: Final = 16
_MAX_FRAMES: Final = 24
_CHUNK_BYTES: Final = 1 << 20


def main() -> None:
    """Read the files that standard input names, one path a line as JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--memory", type=int, required=True)
    parser.add_argument("--seconds", type=int, required=True)
    options = parser.parse_args()
    writer = MessageWriter(MAX_MESSAGE_BYTES)
    reader = _HangFileReader()

    def read() -> dict[str, Any]:
        for line in sys.stdin:
            number, path = json.loads(line)
            writer.write({"event": "file", "number": number, **_outcome(reader, Path(path))})
        return {"event": "result"}

    run_limited(read, writer, options.memory, options.seconds)


def _outcome(reader: "_HangFileReader", path: Path) -> dict[str, Any]:
    try:
        return reader.read(path)
    except UnreadableError as error:
        return {"kind": "", "problem": str(error)}
    except OSError as error:
        return {"kind": "", "problem": f"cannot be read: {(error.strerror or str(error)).lower()}"}
    except MemoryError:
        return {"kind": "", "problem": "needs more memory than its reader may use"}
    except (TypeError, ValueError, KeyError, IndexError, AttributeError, RecursionError, OverflowError) as error:
        return {"kind": "", "problem": f"is damaged: {safe_text(str(error), 100)}"}


class _HangFileReader:
    """Reads files; the ranks of a process group are sent once, because each of thousands of dumps lists them all."""

    def __init__(self) -> None:
        self._members: dict[tuple[int, ...], int] = {}

    def read(self, path: Path) -> dict[str, Any]:
        """The message about a file."""
        with closing(open_input(path)) as raw:
            modified = os.fstat(raw.fileno()).st_mtime
            file = SourceFile(raw.fileno(), _MAX_EXPANSION)
            start = file.peek().lstrip()
            if not start:
                raise UnreadableError("is empty")
            message = self._content(file, start)
        return {"modified": modified, **message}

    def _content(self, file: SourceFile, start: bytes) -> dict[str, Any]:
        data = _read_end(file, _MAX_JSON_BYTES if start[:1] in b"{[\x80" else _MAX_TEXT_BYTES)
        if start[:1] == b"\x80":
            return self._recorder(_DataUnpickler.loads(data))
        if start[:1] in b"{[" and (document := _json(data)) is not None:
            if isinstance(document, dict) and "communicators" in document:
                if len(data) > MAX_REPORT_BYTES:
                    raise UnreadableError("is too large for a RAS report")
                parse_report(data)
                return {"kind": "ras", "report": data.decode(errors="replace")}
            return self._recorder(document)
        fields = read_text(data[-_MAX_TEXT_BYTES:].decode(errors="replace"))
        return {"kind": "stacks" if fields["stacks"] and not fields["works"] else "log", **fields}

    def _recorder(self, document: Any) -> dict[str, Any]:  # noqa: ANN401 - whatever the file contains
        dump = {"entries": document} if isinstance(document, list) else document
        if not isinstance(dump, dict) or not isinstance(dump.get("entries", []), list):
            raise UnreadableError("is no dump of a flight recorder")
        if "entries" not in dump and "pg_status" not in dump:
            raise UnreadableError("is no dump of a flight recorder: it has no entries")
        entries = [_entry(entry) for entry in _kept(dump.get("entries", []))]
        result = recording_of([{**dump, "entries": entries}])
        for group in result["groups"]:
            members = tuple(group["ranks"])
            group["ranks"] = [] if members in self._members else list(members)
            group["key"] = self._members.setdefault(members, len(self._members))
        frames = {_id_of(entry): entry.get("frames") for entry in entries}
        for collective in result["collectives"]:
            collective["frames"] = _frames(frames.get((collective["group"].partition(" ")[0], collective["operation"])))
        return {"kind": "recorder", "version": safe_text(str(dump.get("version", "")), 20), "recording": result}


class _DataUnpickler(pickle.Unpickler):
    """Reads dicts, lists, texts and numbers, which need no name of a class or function; each name is refused."""

    @classmethod
    def loads(cls, data: bytes) -> Any:  # noqa: ANN401 - whatever the file contains
        """The value of a pickle.

        Raises:
            UnreadableError: It is damaged, or asks for a name.
        """
        try:
            return cls(io.BufferedReader(io.BytesIO(data), _CHUNK_BYTES)).load()  # it has peek, which is fast
        except EOFError:
            raise UnreadableError(f"is truncated after {len(data)} bytes") from None
        except pickle.UnpicklingError as error:
            truncated = "truncated" in str(error)
            raise UnreadableError(f"is {'truncated' if truncated else 'damaged'} after {len(data)} bytes") from None

    def find_class(self, _module: str, _name: str) -> Any:  # noqa: ANN401
        raise UnreadableError("tries to call functions when it is read, which no dump does; no function was called")


def _kept(entries: list[Any]) -> list[Any]:
    """The entries that can matter, in order: the latest ones of each group, and the oldest that have not completed."""
    latest: Counter[Any] = Counter()
    pending: Counter[Any] = Counter()
    kept: set[int] = set()
    for number in range(len(entries) - 1, -1, -1):
        group = entries[number].get("pg_id", 0)
        if latest[group] < _KEPT:
            latest[group] += 1
            kept.add(number)
    for number, entry in enumerate(entries):
        if entry.get("state") != "completed" and not entry.get("retired") and number not in kept:
            pending[entry.get("pg_id", 0)] += 1
            if pending[entry.get("pg_id", 0)] <= _KEPT:
                kept.add(number)
    return [entries[number] for number in sorted(kept)]


def _id_of(entry: dict[str, Any]) -> tuple[str, Any]:
    """What names an entry of a dump: the number of its group, and its own in the group."""
    return str(entry["process_group"][0]), entry.get("op_id")


def _entry(raw: Any) -> dict[str, Any]:  # noqa: ANN401 - whatever the file contains
    """An entry of any version as PyTorch writes it since 2.4: one number of a collective became two, and so on."""
    entry: dict[str, Any] = dict(raw)
    if not ({"profiling_name", "state"} <= entry.keys() and entry.keys() & {"collective_seq_id", "seq_id"}):
        raise UnreadableError("is a flight recorder of a schema that gpumon does not know")
    number = entry.get("seq_id", 0)
    group, name = entry.get("process_group"), str(entry["profiling_name"])
    pair = group if isinstance(group, (list, tuple)) and len(group) == 2 else (entry.get("pg_id", 0), "")
    is_point_to_point = bool(entry.get("is_p2p", bool(re.search(r":(?:send|recv) ", name))))
    return {
        **entry,
        "pg_id": entry.get("pg_id", pair[0]),
        "process_group": (safe_text(str(pair[0]), 80), safe_text(str(pair[1]), 80)),
        "profiling_name": safe_text(name, 80),
        "is_p2p": is_point_to_point,
        "collective_seq_id": int(entry.get("collective_seq_id", number)),
        "p2p_seq_id": int(entry.get("p2p_seq_id", number)),
        "op_id": int(entry.get("op_id", entry.get("record_id", entry.get("id", number)))),
        "time_created_ns": int(entry.get("time_created_ns") or 1000 * (entry.get("time_created_us") or 0)),
        "state": str(entry["state"]),
        **{key: _sizes(entry.get(key)) for key in ("input_sizes", "output_sizes")},
        "input_dtypes": [safe_text(str(dtype), 40) for dtype in (entry.get("input_dtypes") or [])[:_MAX_SIZES]],
    }


def _sizes(raw: Any) -> list[list[int]]:  # noqa: ANN401 - whatever the file contains
    return [[int(size) for size in shape[:_MAX_DIMENSIONS]] for shape in (raw or [])[:_MAX_SIZES]]


def _frames(raw: Any) -> list[list[Any]]:  # noqa: ANN401 - whatever the file contains
    frames = raw[:_MAX_FRAMES] if isinstance(raw, (list, tuple)) else []
    return [
        [safe_text(str(frame["filename"]), 500), max(0, int(frame["line"])), safe_text(str(frame["name"]), 200)]
        for frame in frames
    ]


def _json(data: bytes) -> Any:  # noqa: ANN401 - whatever the file contains
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def _read_end(file: SourceFile, limit: int) -> bytes:
    """The last bytes of a file."""
    chunks = io.BytesIO()
    while chunk := file.read(_CHUNK_BYTES):
        chunks.write(chunk)
        if chunks.tell() > 2 * limit:
            end = chunks.getvalue()[-limit:]
            chunks = io.BytesIO()
            chunks.write(end)
    return chunks.getvalue()[-limit:]


if __name__ == "__main__":
    end_with_pipe(main)
