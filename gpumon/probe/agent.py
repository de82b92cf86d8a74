"""Runs inside somebody's process and tells, on a Unix socket of theirs, what PyTorch's allocator says of itself.

It is a guest there. It never imports torch and never makes a CUDA context: it waits until the program has done both. It
resets nothing, prints nothing, and takes no signal; whatever fails in it ends it, and never reaches the program. Its
thread is not one of `threading`'s, so that it is neither counted, nor traced, nor waited for.

One file for every Python from 3.8 on, with nothing but the standard library: it runs in the training's environment,
where gpumon is not installed. The lines that it writes are described by `gpumon.probe.protocol`, which reads them.
"""

from __future__ import annotations

import _thread
import atexit
import contextlib
import gzip
import json
import os
import re
import select
import signal
import socket
import stat
import struct
import sys
import time
from collections import deque
from types import FrameType
from typing import Any, Callable, Iterable, Iterator

SCHEMA = 1
LEAST_INTERVAL, USUAL_INTERVAL, MOST_INTERVAL = 0.1, 1.0, 60.0
"""Seconds from reading to reading; the usual one holds while nobody listens."""
MOST_SHARE = 0.0005
"""Of the process's time, by the probe's own processor time; what the hand-over of the GIL costs comes to that."""
HISTORY_SECONDS = 60.0
_HISTORY = ("allocated_bytes", "reserved_bytes", "inactive_split_bytes", "alloc_retries_count")

_GOLDEN_RATIO = 0.6180339887
_UNEVENNESS = 0.1
"""By so much of itself a pause may be longer: readings in step with a training would see it at one point only."""
_PATIENCE_SECONDS = 0.25
_LONGER_PATIENCE_SECONDS = 1.0
_IMPATIENT_SECONDS = 60.0
_CONTEXT_SECONDS = 5.0
_FILE_SECONDS = 10.0
_MOST_CLIENTS = 8
_MOST_REQUEST_BYTES = 4096
_MOST_PENDING_BYTES = 64 << 20
_DEAF_SECONDS = 30.0
_REST_AFTER_REQUEST = 10.0
"""After an answer, so many times as long as it took, none is given: the program has the time, not who asks."""
_MOST_BLOCKS = 200_000
_MOST_FILE_BLOCKS = 50_000
_MOST_FILES = 10
_FIRST_FILES = 3
_MOST_STACK = 50
_MOST_PATH_BYTES = 107
_MOST_WORDS, _WORD_LENGTH = 32, 256
_LONGEST_NUMBER = 10
_SETTINGS = (
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_NO_CUDA_MEMORY_CACHING",
    "CUBLAS_WORKSPACE_CONFIG",
    "CUDA_VISIBLE_DEVICES",
)
_RANKS = {
    "rank": ("RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"),
    "local_rank": ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID"),
    "world_size": ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS"),
}
_FILE_NAME = re.compile(r"oom-\d+-\d+-\d+\.json\.gz")
_ORDER = ("waiting_for_torch", "cpu_only", "waiting_for_cuda", "live")
"""How far PyTorch is, by what is there."""
_STATES = {"active_allocated": 0, "active_pending_free": 1, "active_awaiting_free": 1}
_INACTIVE = 2
_LOCKED_OBSERVERS = re.compile(r"[01]\.|2\.0\.")
"""Releases that call observers with the allocator locked: beside a reading, which waits for that lock with the GIL, the
program would stand still for ever."""
_REFUSED_SECONDS = 0.25
"""Pause after a connection that could not be taken in."""
_LAST_SECONDS = 0.5
"""So long the end of the program waits for the probe's at most; it takes a millisecond."""


class _GoneError(Exception):
    """There is no place for a socket, or the probe was asked to end."""


# The process and its folders


def socket_folders() -> Iterator[str]:
    """Where a socket may be, best first: in the folder that is named, or else in one of the usual ones."""
    named, runtime = os.environ.get("GPUMON_PROBE_DIR"), os.environ.get("XDG_RUNTIME_DIR")
    if named:
        yield named
        return
    if runtime and is_own(runtime):
        yield os.path.join(runtime, "gpumon")
    yield f"/tmp/gpumon-{os.getuid()}"  # noqa: S108 - it is checked to be one's own


def usable(folder: str) -> bool:
    """Makes the folder if need be; whether it is one's own, no link, and closed to others."""
    with contextlib.suppress(OSError):
        _make(folder)
    return is_own(folder, 0o077)


def _make(folder: str) -> None:
    os.mkdir(folder, 0o700)
    os.chmod(folder, 0o700)  # the program's umask may keep even its owner out


def _make_all(folder: str) -> None:
    """Makes a folder and those above it, each for its owner alone, whatever the program's umask is."""
    if not os.path.isdir(folder):
        _make_all(os.path.dirname(folder))
        with contextlib.suppress(FileExistsError):  # another rank was faster
            _make(folder)


def is_own(folder: str, forbidden: int = 0) -> bool:
    """Whether it is a folder of one's own, no link, and its mode has nothing of what is forbidden."""
    try:
        found = os.lstat(folder)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & forbidden


def oom_folders() -> Iterator[str]:
    """Where the files go that are left on running out of memory, best first."""
    state = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    if os.path.isabs(state):
        yield os.path.join(state, "gpumon", "oom")
    for folder in socket_folders():
        if usable(folder):
            yield os.path.join(folder, "oom")


def process_facts() -> dict[str, Any]:
    """Who this is: the fields of the line ``hello``."""
    words = getattr(sys, "orig_argv", None) or [sys.executable, *getattr(sys, "argv", [])]
    facts = {name: _first_number(variables) for name, variables in _RANKS.items()}
    return {
        "pid": os.getpid(),
        "argv": [str(word)[:_WORD_LENGTH] for word in words[:_MOST_WORDS]],
        "python_version": ".".join(map(str, sys.version_info[:3])),
        "settings": {name: os.environ[name][:_WORD_LENGTH] for name in _SETTINGS if name in os.environ},
        **facts,
    }


def _first_number(variables: Iterable[str]) -> int | None:
    for name in variables:
        text = os.environ.get(name, "")
        if text.isdecimal() and len(text) < _LONGEST_NUMBER:
            return int(text)
    return None


# PyTorch


class Torch:
    """What the PyTorch of this process says, once there is one. It is looked up, never imported."""

    def __init__(self) -> None:
        self._known_backend: str | None = None
        self._count: int | None = None
        self._traits: dict[int, tuple[dict[str, Any], int]] = {}
        self._contexts: set[int] = set()
        self._contexts_due = 0.0

    @property
    def state(self) -> str:
        """How far it is."""
        torch, cuda, library = self._torch, self._cuda, self._library
        if torch is None or getattr(torch.__spec__, "_initializing", False) or cuda is None or library is None:
            return "waiting_for_torch"
        if not hasattr(library, "_cuda_memoryStats"):
            return "cpu_only"
        return "live" if vars(cuda)["is_initialized"]() else "waiting_for_cuda"

    @property
    def version(self) -> str | None:
        """Its version, or None while there is none."""
        version = vars(self._torch or _GoneError).get("__version__")
        return None if version is None else str(version)

    @property
    def _torch(self) -> Any:
        return sys.modules.get("torch")

    @property
    def _cuda(self) -> Any:
        return sys.modules.get("torch.cuda")

    @property
    def _library(self) -> Any:
        return vars(self._torch or _GoneError).get("_C")

    def on_first_context(self, call: Callable[[], None]) -> bool:
        """Has PyTorch call this when it makes its first context, before it allocates anything; whether it will."""
        queue = vars(self._cuda or _GoneError).get("_queued_calls")
        if not isinstance(queue, list):
            return False
        queue.append((call, []))
        return True

    def observe_out_of_memory(self, observer: Callable[[int, int, int, int], None]) -> None:
        """Has PyTorch call the observer before it raises. Only with a context: older releases would make one."""
        if not _LOCKED_OBSERVERS.match(self.version or ""):
            self._library._cuda_attach_out_of_memory_observer(observer)

    def devices(self) -> list[dict[str, Any]]:
        """The statistics of every device on which this process has a context."""
        return [self.statistics(ordinal) for ordinal in self.ordinals()]

    def ordinals(self) -> list[int]:
        """The devices on which this process has a context. One that has come stays, so only new ones are looked for."""
        now = time.monotonic()
        if self._count is None:
            self._count = int(self._library._cuda_getDeviceCount())  # torch.cuda's own may ask NVML
        if now >= self._contexts_due:
            self._contexts_due = now + (_CONTEXT_SECONDS if self._contexts else 0.0)
            has_context = self._library._cuda_hasPrimaryContext
            missing = set(range(self._count)) - self._contexts
            self._contexts |= {ordinal for ordinal in missing if has_context(ordinal)}
        return sorted(self._contexts)

    def statistics(self, ordinal: int) -> dict[str, Any]:
        """One device's statistics: the fields of `gpumon.core.allocator.AllocatorStatistics`."""
        told: dict[str, Any] = self._library._cuda_memoryStats(ordinal)
        is_native = self.backend != "cudaMallocAsync"

        def number(metric: str, kind: str = "current", pool: str = "all") -> int | None:
            kept: int | None = told.get(metric, {}).get(pool, {}).get(kind)
            return kept

        def books(metric: str, kind: str = "current") -> int | None:
            return number(metric, kind) if is_native else None

        def pool_bytes(pool: str) -> dict[str, int]:
            names = ("allocated_bytes", "reserved_bytes", "active_bytes", "inactive_split_bytes")
            return {name: number(name, pool=pool) or 0 for name in names}

        return {
            "ordinal": ordinal,
            **self.traits(ordinal)[0],
            "allocated_bytes": number("allocated_bytes") or 0,
            "reserved_bytes": number("reserved_bytes") or 0,
            "allocated_peak_bytes": number("allocated_bytes", "peak"),
            "reserved_peak_bytes": number("reserved_bytes", "peak"),
            "active_bytes": books("active_bytes"),
            "inactive_split_bytes": None if self.expandable_segments else books("inactive_split_bytes"),
            "requested_bytes": books("requested_bytes"),
            "segments_count": books("segment"),
            "allocations_count": books("allocation"),
            "alloc_retries_count": told.get("num_alloc_retries") if is_native else None,
            "ooms_count": told.get("num_ooms") if is_native else None,
            "device_allocs_count": told.get("num_device_alloc") if is_native else None,
            "device_frees_count": told.get("num_device_free") if is_native else None,
            "small_pool": pool_bytes("small_pool") if is_native else None,
            "large_pool": pool_bytes("large_pool") if is_native else None,
        }

    def traits(self, ordinal: int) -> tuple[dict[str, Any], int]:
        """What does not change of a device: UUID and name, and its memory in bytes."""
        if ordinal not in self._traits:
            found = vars(self._cuda)["get_device_properties"](ordinal)
            uuid = getattr(found, "uuid", None)
            named = {"uuid": None if uuid is None else f"GPU-{uuid}", "name": str(found.name)}
            self._traits[ordinal] = (named, int(found.total_memory))
        return self._traits[ordinal]

    def pinned(self) -> dict[str, int] | None:
        """Pinned host memory, or None where no books are kept of it."""
        told: dict[str, dict[str, int]] = getattr(self._library, "_cuda_hostMemoryStats", dict)()
        try:
            return {name: int(told[name]["current"]) for name in ("allocated_bytes", "active_bytes")}
        except (KeyError, TypeError):
            return None

    @property
    def backend(self) -> str | None:
        """Which allocator it uses, ``native`` or ``cudaMallocAsync``; None while there is none."""
        if self._known_backend is None and self.state == "live":
            ask = getattr(self._library, "_cuda_getAllocatorBackend", None)
            self._known_backend = "native" if ask is None else str(ask())
        return self._known_backend

    @property
    def expandable_segments(self) -> bool | None:
        """Whether the allocator was told to use expandable segments; None while there is no allocator."""
        if self.backend is None:
            return None
        said = getattr(self._library, "_accelerator_getAllocatorSettings", str)() or _environment_settings()
        return re.search(r"expandable_segments\s*:\s*(True|1)", str(said)) is not None

    def segments(self, most_blocks: int, ordinals: set[int] | None = None) -> tuple[list[dict[str, Any]], bool]:
        """The segments as the answer has them, and whether there were more blocks than are told."""
        snapshot = vars(sys.modules["torch.cuda.memory"])["memory_snapshot"]
        wants_no_traces = "include_traces" in snapshot.__code__.co_varnames
        told: list[dict[str, Any]] = []
        room = most_blocks
        for segment in snapshot(include_traces=False) if wants_no_traces else snapshot():
            if ordinals is not None and segment["device"] not in ordinals:
                continue
            if len(segment["blocks"]) > room:
                return told, True
            room -= len(segment["blocks"])
            told.append(_segment(segment))
        return told, False

    def summary(self, ordinal: int) -> str:
        """``memory_summary()`` in full."""
        return str(vars(self._cuda)["memory_summary"](ordinal))

    def empty_cache(self) -> None:
        """Gives back what the allocator keeps for nobody; its context is one that there is already."""
        with vars(self._cuda)["device"](self.ordinals()[0]):
            vars(self._cuda)["empty_cache"]()


def _environment_settings() -> str:
    return os.environ.get("PYTORCH_ALLOC_CONF") or os.environ.get("PYTORCH_CUDA_ALLOC_CONF") or ""


def _segment(told: Any) -> dict[str, Any]:
    return {
        "ordinal": told["device"],
        "address": told["address"],
        "size_bytes": told["total_size"],
        "stream": told["stream"],
        "pool": list(told.get("segment_pool_id", (0, 0))),
        "is_large": told["segment_type"] == "large",
        "is_expandable": bool(told.get("is_expandable", False)),
        "blocks": [
            [block["size"], block.get("requested_size", 0), _STATES.get(block["state"], _INACTIVE)]
            for block in told["blocks"]
        ],
    }


# Running out of memory


class Remains:
    """What is left behind when memory runs out: a file with everything that explains it.

    Args:
        torch: Where the figures come from.
    """

    def __init__(self, torch: Torch) -> None:
        self.files: list[str] = []
        self._torch = torch
        self._history: dict[int, deque[tuple[float, dict[str, Any]]]] = {}
        self._tries = 0
        self._tried_at = 0.0

    def remember(self, now: float, devices: list[dict[str, Any]]) -> None:
        """Adds a reading to the last minute's."""
        for device in devices:
            kept = self._history.setdefault(device["ordinal"], deque())
            kept.append((now, {name: device[name] for name in _HISTORY}))
            while kept[0][0] < now - HISTORY_SECONDS:
                kept.popleft()

    def keep(self, ordinal: int, asked_bytes: int, limit_bytes: int, free_bytes: int) -> None:
        """Writes the file, on the thread that wants memory and before the traceback unwinds.

        No error of the probe's leaves it. What comes from the program's own signal handlers, as KeyboardInterrupt and
        SystemExit do, goes on to the program.
        """
        try:
            now = time.monotonic()
            if self._tries >= _FIRST_FILES and now - self._tried_at < _FILE_SECONDS:
                return
            self._tries += 1
            self._tried_at = now
            request = {"bytes": asked_bytes, "limit_bytes": limit_bytes, "free_bytes": free_bytes}
            self._write(self._document(now, ordinal, request))
        except Exception:  # the program gets its own error, and none of the probe's
            _complain()

    def _document(self, now: float, ordinal: int, request: dict[str, int]) -> dict[str, Any]:
        torch = self._torch
        traits, total = torch.traits(ordinal)
        is_native = torch.backend != "cudaMallocAsync"
        segments, is_cut = torch.segments(_MOST_FILE_BLOCKS, {ordinal}) if is_native else ([], False)
        facts = process_facts()
        history = tuple(self._history.get(ordinal, ()))  # in one step: the probe's thread goes on adding to it
        return {
            "schema": SCHEMA,
            "kind": "gpumon-oom",
            "time_seconds": time.time(),
            "process": facts,
            "torch_version": torch.version,
            "backend": torch.backend,
            "device": {"ordinal": ordinal, "total_bytes": total, **traits},
            "request": request,
            "statistics": torch.statistics(ordinal),
            "pinned": torch.pinned(),
            "history": [{"seconds_before": round(now - seconds, 3), **told} for seconds, told in history],
            "settings": facts["settings"],
            "expandable_segments": torch.expandable_segments,
            "stack": _stack(),
            "segments": segments,
            "cut": is_cut,
        }

    def _write(self, document: dict[str, Any]) -> None:
        data = gzip.compress(json.dumps(document).encode("utf-8", "replace"), 1)
        name = f"oom-{int(time.time())}-{os.getpid()}-{self._tries}.json.gz"
        for folder in oom_folders():
            path = os.path.join(folder, name)
            try:
                _make_all(folder)
                _put(path, data)
            except OSError:
                continue
            self.files.append(path)
            _prune(folder, name)
            return


def _put(path: str, data: bytes) -> None:
    """Writes a file that is whole or not there."""
    unfinished = f"{path}.{os.getpid()}.part"
    with open(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "wb") as file:
        try:
            file.write(data)
            file.flush()
            os.rename(unfinished, path)
        except BaseException:
            os.unlink(unfinished)
            raise


def _prune(folder: str, newest: str) -> None:
    """Leaves the newest file and those before it; their names begin with the time, but clocks are set back."""
    names = sorted(name for name in os.listdir(folder) if _FILE_NAME.fullmatch(name) and name != newest)
    for name in names[: 1 - _MOST_FILES]:
        os.unlink(os.path.join(folder, name))


def _stack() -> list[list[Any]]:
    """The Python stack that wants memory, innermost first; a backward pass has none, and then it is the deepest."""
    own = _outwards(sys._getframe())
    return own or max(map(_outwards, sys._current_frames().values()), key=len, default=[])


def _outwards(frame: FrameType | None) -> list[list[Any]]:
    """The stack from a frame on, without the probe's own frames."""
    told: list[list[Any]] = []
    while frame is not None and len(told) < _MOST_STACK:
        code = frame.f_code
        if code.co_filename != _outwards.__code__.co_filename:
            told.append([code.co_filename[-_WORD_LENGTH:], frame.f_lineno, code.co_name])
        frame = frame.f_back
    return told


# The socket


class Client:
    """Somebody who listens.

    Args:
        connection: A connected socket.
    """

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.interval: float | None = None
        self._received = b""
        self._pending: deque[memoryview] = deque()
        self._pending_bytes = 0
        self._statistics: bytes | None = None
        self._heard_at = time.monotonic()

    @property
    def wants_to_write(self) -> bool:
        """Whether something waits to be sent."""
        return bool(self._pending) or self._statistics is not None

    def tell(self, line: bytes, *, replaceable: bool = False) -> None:
        """Sends a line, or what is newest of those that replace each other, as soon as it is listened to."""
        if replaceable:
            self._statistics = line
        else:
            self._put(line)
        self.write()

    def _put(self, line: bytes) -> None:
        self._pending.append(memoryview(line))
        self._pending_bytes += len(line)

    def write(self) -> None:
        """Sends what can be sent without waiting.

        Raises:
            OSError: The client has gone, or has not listened for long.
        """
        while self.wants_to_write:
            if self._statistics is not None and not self._pending:
                self._put(self._statistics)
                self._statistics = None
            try:
                sent = self.connection.send(self._pending[0])
            except BlockingIOError:
                is_deaf = time.monotonic() - self._heard_at > _DEAF_SECONDS
                if is_deaf or self._pending_bytes > _MOST_PENDING_BYTES:
                    raise OSError("the client does not listen") from None
                return
            self._heard_at = time.monotonic()
            self._pending_bytes -= sent
            rest = self._pending.popleft()[sent:]
            if rest:
                self._pending.appendleft(rest)
        self._heard_at = time.monotonic()

    def requests(self) -> list[dict[str, Any]]:
        """What it has asked for since.

        Raises:
            OSError: The client has gone, or asks for nothing that could be understood.
        """
        try:
            data = self.connection.recv(_MOST_REQUEST_BYTES)
        except BlockingIOError:
            return []
        if not data:
            raise OSError("the client has gone")
        *lines, self._received = (self._received + data).split(b"\n")
        if len(self._received) > _MOST_REQUEST_BYTES:
            raise OSError("the request does not end")
        try:
            asked = [json.loads(line) for line in lines if line.strip()]
        except (ValueError, RecursionError):
            raise OSError("the request is no JSON") from None
        return [each for each in asked if isinstance(each, dict)]


class Server:
    """The socket and those who listen."""

    def __init__(self) -> None:
        self.path: str | None = None
        self.clients: dict[int, Client] = {}
        self._listener: socket.socket | None = None
        self._inode = 0
        self._pid = os.getpid()

    def open(self) -> None:
        """Listens in the first folder that can be used.

        Raises:
            _GoneError: There is none.
        """
        for folder in socket_folders():
            try:
                name = f"{os.getpid()}-{os.urandom(4).hex()}.sock"
                path = os.path.join(folder, name)
                if len(os.fsencode(path)) <= _MOST_PATH_BYTES and usable(folder):
                    self._listen(path)
                    return
            except OSError:
                _complain()
        raise _GoneError

    def _listen(self, path: str) -> None:
        """It gets its name when it listens already: who finds the name may connect."""
        unfinished = path[: -len(".sock")] + ".part"
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listener.setblocking(False)
            listener.bind(unfinished)
            os.chmod(unfinished, 0o600)
            listener.listen(_MOST_CLIENTS)
            os.rename(unfinished, path)
        except OSError:
            listener.close()  # or Python would warn of it on the program's own stream
            with contextlib.suppress(OSError):
                os.unlink(unfinished)
            raise
        if self._listener is not None:
            self._listener.close()
        self._listener = listener
        self.path, self._inode = path, os.stat(path).st_ino

    def ensure(self) -> None:
        """Listens anew if somebody has cleaned the folder up, as a logout does."""
        try:
            is_there = self.path is not None and os.stat(self.path).st_ino == self._inode
        except OSError:
            is_there = False
        if not is_there:
            self.open()

    def wait(self, seconds: float, bell: int) -> list[tuple[Client, int]]:
        """Waits for those who listen; returns those who have asked or gone, and takes in who is new.

        Args:
            seconds: How long at most.
            bell: A descriptor that ends the waiting when something comes from it.
        """
        listener = self._listener
        assert listener is not None
        poll = select.poll()
        poll.register(listener, select.POLLIN)
        poll.register(bell, select.POLLIN)
        for descriptor, client in self.clients.items():
            poll.register(descriptor, select.POLLIN | (select.POLLOUT if client.wants_to_write else 0))
        ready = []
        for descriptor, events in poll.poll(max(0.0, seconds) * 1000.0):
            if descriptor == listener.fileno():
                ready += self._accept(listener)
            elif descriptor != bell:
                ready.append((self.clients[descriptor], events & ~select.POLLOUT))
        return ready

    def _accept(self, listener: socket.socket) -> list[tuple[Client, int]]:
        try:
            connection, _ = listener.accept()
        except OSError:  # the program has no descriptor left, and the connection stays there to be taken in
            time.sleep(_REFUSED_SECONDS)
            return []
        size = struct.calcsize("3i")
        _, uid, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
        if uid not in (os.getuid(), 0) or len(self.clients) >= _MOST_CLIENTS:
            connection.close()
            return []
        connection.setblocking(False)
        client = self.clients[connection.fileno()] = Client(connection)
        return [(client, 0)]

    def drop(self, client: Client) -> None:
        """Ends a connection."""
        self.clients.pop(client.connection.fileno(), None)
        client.connection.close()

    def let_go(self) -> None:
        """Closes nothing: the program has, and the numbers may be those of its own files by now."""
        for client in self.clients.values():
            client.connection.detach()
        if self._listener is not None:
            self._listener.detach()

    def forget(self) -> None:
        """Closes everything; in a forked child this leaves the parent's alone."""
        for client in self.clients.values():
            client.connection.close()
        if self._listener is not None:
            self._listener.close()
        self.clients = {}
        self.remove()

    def remove(self) -> None:
        """Removes the name, if it is this process's."""
        path, self.path = self.path, None
        if path is not None and self._pid == os.getpid():
            with contextlib.suppress(OSError):
                os.unlink(path)


# The probe


class Agent:
    """Reads at a pace and answers.

    Args:
        waits_for: The state of PyTorch from which on there is a socket, one of `_ORDER`.
    """

    def __init__(self, waits_for: str) -> None:
        self.torch = Torch()
        self.remains = Remains(self.torch)
        self.server = Server()
        self._is_ending = False
        self._has_ended = _thread.allocate_lock()
        self._bell: tuple[int, int] | None = None
        self._waits_for = waits_for
        self._began = time.monotonic()
        self._due = 0.0
        self._reads = 0
        self._spent = 0.0
        self._rest_until = 0.0
        self._file_due = 0.0
        self._has_asked = False
        self._reason = ""

    def begin(self) -> None:
        """Starts the thread."""
        self._bell = os.pipe()
        self._has_ended.acquire()
        try:
            _thread.start_new_thread(self._run, (self._bell[0], _thread.get_native_id()))
        except BaseException:
            self._hang_up()
            raise

    def end(self, seconds: float) -> None:
        """Ends the thread. A program may not end while it is in the middle of something, so this waits for it a little.

        Args:
            seconds: How long at most.
        """
        if self._bell is not None and not self._is_ending:
            self._is_ending = True
            with contextlib.suppress(OSError):
                os.write(self._bell[1], b"!")
            if self._has_ended.acquire(timeout=seconds):
                self._hang_up()
            self.server.remove()

    def abandon(self) -> None:
        """Closes what a forked child has of its parent's probe, whose thread it does not have."""
        self._hang_up()
        self.server.forget()

    def _hang_up(self) -> None:
        for descriptor in self._bell or ():
            with contextlib.suppress(OSError):
                os.close(descriptor)
        self._bell = None

    def _run(self, bell: int, starter: int) -> None:
        """The thread. Nothing leaves it."""
        try:
            _take_no_signals(starter)
            self._wait_for_torch(bell)
            self.server.open()
            while not self._is_ending:
                self._turn(bell)
            self._tell(time.monotonic())
        except BaseException:  # a guest leaves silently
            _complain()
        finally:
            self.server.forget()
            self._has_ended.release()

    def _wait_for_torch(self, bell: int) -> None:
        """Waits without a socket: most processes never load PyTorch, and most forked ones never use it."""
        while _ORDER.index(self.torch.state) < _ORDER.index(self._waits_for):
            self._hope()
            if self._is_ending:
                raise _GoneError
            is_patient = time.monotonic() - self._began > _IMPATIENT_SECONDS
            self._hear(bell, _LONGER_PATIENCE_SECONDS if is_patient else _PATIENCE_SECONDS)

    def _hear(self, bell: int, seconds: float) -> None:
        """Waits for the bell.

        Raises:
            _GoneError: It rings although nobody has pulled it. Then the program has closed all descriptors, as one does
                that becomes a daemon, and this one is none or a file of its own by now.
        """
        poll = select.poll()
        poll.register(bell, select.POLLIN)
        if poll.poll(1000 * seconds) and not self._is_ending:
            self._bell = None
            self.server.let_go()
            raise _GoneError

    def _hope(self) -> None:
        """Asks PyTorch, once, to say when it makes its first context."""
        if not self._has_asked and self.torch.state == "waiting_for_cuda":
            self._has_asked = True
            self.torch.on_first_context(_observe)

    def _turn(self, bell: int) -> None:
        """Answers until the next reading is due, then reads."""
        for client, events in self.server.wait(self._due - time.monotonic(), bell):
            self._serve(client, events)
        self._hear(bell, 0.0)
        now = time.monotonic()
        if now < self._due:
            return
        if now >= self._file_due:
            self._file_due = now + _FILE_SECONDS
            self.server.ensure()
        self._tell(now)

    def _tell(self, now: float) -> None:
        """Reads, and tells those who listen."""
        began = time.thread_time()
        line = _line(self._statistics(now))
        for client in list(self.server.clients.values()):
            self._guarded(client, lambda each: each.tell(line, replaceable=True))
        before, self._spent = self._spent, time.thread_time() - began
        self._due = now + self._interval(min(before, self._spent))

    def _statistics(self, now: float) -> dict[str, Any]:
        """A reading."""
        torch = self.torch
        state = torch.state
        self._hope()
        devices, pinned = [], None
        if state == "live" and not self._reason:
            _observe()
            try:
                devices, pinned = torch.devices(), torch.pinned()
            except Exception as error:  # a PyTorch of another kind
                self._reason = f"{type(error).__name__}: {error}"
                _complain()
            self.remains.remember(now, devices)
        self._reads += 1
        return {
            "event": "statistics",
            "state": "failed" if self._reason else state,
            "reason": self._reason[:_WORD_LENGTH],
            "monotonic_seconds": now,
            "torch_version": torch.version,
            "backend": torch.backend,
            "expandable_segments": torch.expandable_segments,
            "devices": devices,
            "pinned": pinned,
            "cost": {
                "share": time.thread_time() / max(now - self._began, 1.0),
                "seconds": self._spent,
                "reads": self._reads,
            },
            "oom_files": self.remains.files[-_MOST_FILES:],
        }

    def _interval(self, spent: float) -> float:
        """Until the next reading: as asked for, but so long that readings that take so much keep to their share."""
        wanted = min((client.interval or USUAL_INTERVAL for client in self.server.clients.values()), default=None)
        if wanted is None:
            wanted = USUAL_INTERVAL if self.torch.state == "live" else _PATIENCE_SECONDS
        unevenness = 1.0 + _UNEVENNESS * (self._reads * _GOLDEN_RATIO % 1.0)
        return max(wanted, spent / MOST_SHARE) * unevenness

    def _serve(self, client: Client, events: int) -> None:
        if not events:  # it is new, or listens again
            self._guarded(client, Client.write if client.interval else self._greet)
        else:
            self._guarded(client, self._answer_all)

    def _guarded(self, client: Client, call: Callable[[Client], None]) -> None:
        """Does something with a client; one that has gone, or asks for what makes no sense, is dropped."""
        try:
            call(client)
        except Exception:  # whatever a client does, the others are served
            _complain()
            self.server.drop(client)

    def _greet(self, client: Client) -> None:
        client.interval = USUAL_INTERVAL
        client.tell(_line({"schema": SCHEMA, "event": "hello", **process_facts()}))
        self._due = 0.0

    def _answer_all(self, client: Client) -> None:
        for request in client.requests():
            if request.get("ask") == "pace":
                wanted = request.get("interval_seconds")
                if isinstance(wanted, (int, float)) and wanted > 0:  # which NaN is not
                    client.interval = min(max(wanted, LEAST_INTERVAL), MOST_INTERVAL)
                    self._due = min(self._due, time.monotonic() + client.interval)
            else:
                client.tell(_line(self._answer(request)))

    def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """The answer, or why there is none."""
        began = time.monotonic()
        told = {"event": "answer", "id": request.get("id"), "ok": False}
        if began < self._rest_until:
            return {**told, "reason": "It has just answered; ask again in a moment."}
        if self.torch.state != "live":
            return {**told, "reason": "The process has no CUDA context."}
        try:
            found = self._asked(request)
        except Exception as error:  # whatever PyTorch answers is told
            _complain()
            return {**told, "reason": f"{type(error).__name__}: {error}"[:_WORD_LENGTH]}
        took = time.monotonic() - began
        self._rest_until = began + took + (0.0 if "after" in found else min(_REST_AFTER_REQUEST * took, 5.0))
        return {**told, "ok": True, "reason": "", "seconds": took, **found}

    def _asked(self, request: dict[str, Any]) -> dict[str, Any]:
        what = request.get("ask")
        if what == "summary":
            return {"text": self.torch.summary(int(request.get("ordinal", 0)))}
        if what == "segments":
            segments, is_cut = self.torch.segments(_MOST_BLOCKS)
            return {"segments": segments, "cut": is_cut}
        if what == "empty_cache":
            before = self.torch.devices()
            self.torch.empty_cache()
            self._due = 0.0
            return {"before": before, "after": self.torch.devices()}
        raise ValueError("This probe does not know that.")


def _line(told: dict[str, Any]) -> bytes:
    return json.dumps(told, separators=(",", ":")).encode("utf-8", "replace") + b"\n"


def _take_no_signals(starter: int) -> None:
    """Signals go to the program's own threads, as if this one were not there.

    Args:
        starter: The thread that has started this one.

    Raises:
        _GoneError: They are the same, as gevent has it: its signals are the program's, and a probe would hold it up.
    """
    if _thread.get_native_id() == starter:
        raise _GoneError
    faults = {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL}
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - faults)


def _complain() -> None:
    """Notes an exception in the file that GPUMON_PROBE_DEBUG names: the program's own streams are not the probe's."""
    path = os.environ.get("GPUMON_PROBE_DEBUG")
    if path:
        import traceback

        with contextlib.suppress(OSError), open(path, "a", encoding="utf-8") as file:
            traceback.print_exc(file=file)


# Beginning and end

_MARK = "_gpumon_probe_pid"
"""Where a process notes that it has a probe."""
_NAME = "_gpumon_probe_agent"
"""What this module is called as well, so that there is but one, whoever loads it."""
sys.modules.setdefault(_NAME, sys.modules[__name__])
_agent = Agent("live")
_has_hooks = False
_is_observing = False


def start(waits_for: str = "waiting_for_torch") -> None:
    """Starts the probe of this process, unless it has one.

    Args:
        waits_for: From when on it can be seen: at once, from ``cpu_only`` on (which is when PyTorch has been imported),
            or from ``live`` on (when it has made a CUDA context).
    """
    global _agent, _has_hooks  # noqa: PLW0603 - a process has one probe
    if os.environ.get("GPUMON_PROBE") == "0" or vars(sys).get(_MARK) == os.getpid():
        return
    vars(sys)[_MARK] = os.getpid()
    _agent = Agent(waits_for)
    if not _has_hooks:
        _has_hooks = True
        atexit.register(_at_exit)
        os.register_at_fork(after_in_child=_after_fork)
    try:
        _agent.begin()
    except BaseException:  # there is no descriptor or no thread left
        del vars(sys)[_MARK]
        raise


def stop() -> None:
    """Ends the probe; it can be started again."""
    _agent.end(_LAST_SECONDS)
    vars(sys).pop(_MARK, None)


def begin() -> None:
    """Starts the probe at the first CUDA context: PyTorch calls this on the thread that makes it."""
    try:
        start("live")
        _observe()
    except Exception:  # PyTorch would pass it on to the program
        _complain()


def _observe() -> None:
    """Asks PyTorch, once, to be told when memory runs out."""
    global _is_observing  # noqa: PLW0603 - the allocator is the process's, and it keeps what it was given
    if not _is_observing:
        _is_observing = True
        try:
            _agent.torch.observe_out_of_memory(_out_of_memory)
        except Exception:  # cudaMallocAsync and old releases have no observers
            _complain()


def _out_of_memory(ordinal: int, asked_bytes: int, limit_bytes: int, free_bytes: int) -> None:
    if _MARK in vars(sys):  # PyTorch keeps its observers, even when the probe was stopped
        _agent.remains.keep(ordinal, asked_bytes, limit_bytes, free_bytes)


def _at_exit() -> None:
    _agent.end(_LAST_SECONDS)


def _after_fork() -> None:
    """A forked child never speaks as its parent. If it makes a CUDA context it gets a probe of its own."""
    try:
        _agent.abandon()
        if _MARK in vars(sys) and not _agent.torch.on_first_context(begin):
            start("live")
    except Exception:  # a guest leaves silently
        _complain()
