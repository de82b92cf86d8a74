"""Snapshots to test with: a real one, made ones, and ones that were made to do harm."""

import functools
import gzip
import io
import lzma
import pickle
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from gpumon.snapshots.build import build_snapshot
from gpumon.snapshots.loader import SnapshotLoader
from gpumon.snapshots.model import DeviceMemory, Snapshot

REAL: Final = Path(__file__).parents[1] / "data" / "snapshot.pickle.xz"
"""Of a small transformer's training with torch 2.11 on an H200."""


@functools.cache
def real_bytes() -> bytes:
    """The real snapshot, as torch wrote it."""
    return lzma.decompress(REAL.read_bytes())


def loaded(data: bytes | dict[str, Any], largest: int = 0) -> Snapshot:
    """What is kept of a snapshot, read in this process."""
    written = data if isinstance(data, bytes) else pickle.dumps(data)
    loader = SnapshotLoader(io.BytesIO(written))
    return build_snapshot(loader, loader.run(), "test", len(written), largest)


def device_of(data: bytes | dict[str, Any], largest: int = 0) -> DeviceMemory:
    """Its only device."""
    (device,) = loaded(data, largest).devices
    return device


def frame(name: str, line: int = 1, file: str = "/home/user/train.py") -> dict[str, Any]:
    """A frame as torch writes it."""
    return {"name": name, "filename": file, "line": line}


def event(action: str, address: int, size: int, *names: str, **more: object) -> dict[str, Any]:
    """An event; its time is to be given as ``time_us``."""
    frames = [frame(name) for name in names]
    return {"action": action, "addr": address, "size": size, "stream": 0, "time_us": 0, "frames": frames, **more}


def block(address: int, size: int, state: str = "active_allocated", *names: str, **more: object) -> dict[str, Any]:
    """A block."""
    frames = [frame(name) for name in names]
    asked = 0 if state == "inactive" else size
    return {"address": address, "size": size, "requested_size": asked, "state": state, "frames": frames, **more}


def segment(*blocks: dict[str, Any], **more: object) -> dict[str, Any]:
    """A segment of some blocks."""
    return {
        "device": 0,
        "address": blocks[0]["address"] if blocks else 0,
        "total_size": sum(block["size"] for block in blocks),
        "stream": 0,
        "segment_type": "large",
        "segment_pool_id": (0, 0),
        "is_expandable": False,
        "frames": [],
        "blocks": list(blocks),
        **more,
    }


class Calls:
    """Asks the reader of its pickle to call something."""

    def __init__(self, function: Callable[..., object], *arguments: object) -> None:
        self._call = (function, arguments)

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return self._call


def _nested(depth: int) -> bytes:
    return b"\x80\x04" + b"]\x94" * depth + b"a" * (depth - 1) + b"."


def _laughs() -> bytes:
    """Lists of lists of lists, each ten times the one before."""
    text = b"\x80\x04]\x94"
    for level in range(40):
        text += b"]\x94(" + b"".join(b"h" + bytes((level,)) for _ in range(10)) + b"e"
    return text + b"."


def _shared_blocks() -> bytes:
    """Ten thousand times one segment of ten thousand times one block: 50 kB that would be a hundred million blocks."""
    one = segment(*[block(0, 1)] * 10_000)
    return pickle.dumps({"segments": [one] * 10_000, "device_traces": []})


@functools.cache
def hostile(canary: Path) -> dict[str, tuple[bytes, str]]:
    """Files that must be rejected, with a part of the reason, by name.

    Args:
        canary: A file that exists once code of the pickle was executed.
    """
    touch, packed = f"touch {canary}".encode(), gzip.compress(real_bytes(), 1)
    return {
        "os.system": (pickle.dumps(Calls(__import__("os").system, touch.decode())), "call functions"),
        "open": (pickle.dumps(Calls(open, str(canary), "w"), protocol=2), "call functions"),
        "stack global": (b"\x80\x04\x8c\x05posix\x94\x8c\x06system\x94\x93.", "call functions"),
        "inside": (pickle.dumps({"segments": [Calls(open, str(canary), "w")]}), "call functions"),
        "protocol 0": (b"cposix\nsystem\n(S'" + touch + b"'\ntR.", "does not start"),
        "persistent id": (b"\x80\x04\x8c\x02id\x94Q.", "call functions"),
        "extension": (b"\x80\x04\x82\x01.", "call functions"),
        "build": (b"\x80\x04}\x94}\x94b.", "call functions"),
        "laughs": (_laughs(), "no segments"),
        "nested": (_nested(1_000_000), "nested more deeply"),
        "marks": (b"\x80\x04" + b"(" * 1000 + b".", "nested more deeply"),
        "shared blocks": (_shared_blocks(), "more blocks"),
        "text of 8 GB": (b"\x80\x04\x8d" + struct.pack("<Q", 8 << 30) + b"x" * 100, "declares a text"),
        "bytes of 8 GB": (b"\x80\x04\x8e" + struct.pack("<Q", 8 << 30) + b"x" * 100, "declares a text"),
        "number of 1 GB": (b"\x80\x04\x8b" + struct.pack("<i", 1 << 30) + b"x" * 100, "declares a text"),
        "negative size": (b"\x80\x04\x8b" + struct.pack("<i", -1) + b"x" * 100, "declares a text"),
        "far memo": (b"\x80\x04]r\xff\xff\xff\x7f.", "damaged"),
        "memo written again": (b"\x80\x02}q\x00X\x01\x00\x00\x00aq\x01X\x01\x00\x00\x00bq\x01s.", "damaged"),
        "list as key": (b"\x80\x04}\x94(]K\x01u.", "damaged"),
        "deep tuple as key": (b"\x80\x04})" + b"\x85" * 90_000 + b"K\x01s.", "damaged"),
        "huge number for a name": (
            pickle.dumps({"segments": [], "device_traces": [[{"action": 1 << 400_000, "size": 1 << 400_000}]]}),
            "out of range",
        ),
        "nothing on the stack": (b"\x80\x04.", "truncated"),
        "truncated": (real_bytes()[:200_000], "truncated"),
        "newer": (b"\x80\x06N.", "does not start"),
        "text": (b"Epoch 1, loss 0.123\n" * 100, "does not start"),
        "empty": (b"", "empty"),
        "zeros": (b"\0" * 5000, "does not start"),
        "other pickle": (pickle.dumps({"model": [1, 2, 3]}), "no segments"),
        "number": (pickle.dumps(42), "no segments"),
        "negative size of a block": (pickle.dumps({"segments": [segment(block(0, -5))]}), "out of range"),
        "size of an event": (
            pickle.dumps({"segments": [], "device_traces": [[event("alloc", 1, 1 << 80)]]}),
            "out of range",
        ),
        "a thousand devices": (
            pickle.dumps({"segments": [segment(block(0, 5), device=number) for number in range(1000)]}),
            "impossible device number",
        ),
        "device of a billion": (
            pickle.dumps({"segments": [segment(block(0, 5), device=1 << 30)]}),
            "impossible device number",
        ),
        "gzip of text": (gzip.compress(b"hello" * 100), "does not start"),
        "gzip cut off": (packed[:20_000], "truncated"),
        "gzip damaged": (packed[:2000] + b"\xff" * 2000, "compressed data is invalid"),
        "gzip of nothing": (gzip.compress(b"\x80\x04" + b"\0" * (64 << 20), 1), "damaged"),
        "JSON": (b'{"schema": 1, "kind": "other"}', "memory snapshot"),
        "JSON cut off": (b'{"schema": 1, "kind": "gpumon-oom", "device"', "is damaged"),
        "JSON nested": (b'{"a":' + b"[" * 100_000, "does not begin"),
        "JSON of other kinds": (b'{"kind": "gpumon-oom", "device": 5}', "is damaged"),
    }
