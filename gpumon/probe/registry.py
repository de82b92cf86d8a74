"""The sockets of probes and the connections to them: sockets are discovered, connected, read, dropped and retried.

Everything runs on the thread of `gpumon.probe.client.ProbeWatcher`, and no call blocks.
"""

import os
import selectors
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gpumon.core.problems import Problem, ProblemCode
from gpumon.core.text import safe_text
from gpumon.probe.connection import Connection, DroppedError
from gpumon.probe.messages import Answer, Probe, ProbeMessage, RequestKind
from gpumon.probe.protocol import pace_line
from gpumon.probe.socket_dir import FolderError, SocketFolder, connect, opened, peer_of, socket_folders, socket_names

MAX_CONNECTIONS: Final = 256
_SEARCH_SECONDS: Final = 5.0
"""Time between two searches for folders; each folder that exists is looked through once a second."""
MIN_RETRY_SECONDS, MAX_RETRY_SECONDS = 1.0, 30.0

_NOT_CONNECTED: Final = Problem(ProblemCode.NOT_FOUND, "No probe of this process is connected.")
_OTHER_USER: Final = "A process of another user listens on its socket."
_OTHER_NAMESPACE: Final = "Its process runs in another PID namespace and cannot be identified."
_TOO_MANY: Final = Problem(
    ProblemCode.DROPPED, f"There are more than {MAX_CONNECTIONS} probes. gpumon ignores the others."
)


@dataclass(slots=True)
class _Socket:
    """A socket file.

    Attributes:
        connection: The connection to it, or None.
        delay: Seconds until the next attempt to connect; doubled by every attempt until a probe reports.
        retry_at: Monotonic seconds of the next attempt.
    """

    connection: Connection | None = None
    delay: float = MIN_RETRY_SECONDS
    retry_at: float = 0.0

    def postpone(self, now: float) -> None:
        """Schedule the next attempt."""
        self.retry_at, self.delay = now + self.delay, min(2 * self.delay, MAX_RETRY_SECONDS)


class SocketRegistry:
    """Every socket of a probe, by its path.

    Args:
        folders: Where to look for sockets; None for wherever a probe that may be read listens.
        selector: What the thread waits on; connections are registered with their path as data.
        publish: Receives every message.
        pace: Seconds between two readings.

    Attributes:
        probes: The processes whose probes are connected and have sent ``hello``, by PID as the kernel reports it.
        problems: Why folders and sockets are not used, by path.
    """

    def __init__(
        self,
        folders: Iterable[Path] | None,
        selector: selectors.BaseSelector,
        publish: Callable[[ProbeMessage], None],
        pace: float,
    ) -> None:
        self.probes: dict[int, Probe] = {}
        self.problems: dict[Path, Problem] = {}
        self._folders = None if folders is None else tuple(folders)
        self._selector = selector
        self._publish = publish
        self._pace = pace
        self._sockets: dict[Path, _Socket] = {}
        self._found: tuple[SocketFolder, ...] = ()
        self._search_at = 0.0

    @property
    def has_all_readings(self) -> bool:
        """Whether every connected probe has sent statistics."""
        probes = (connection.probe for _, connection in self._connections())
        return all(probe is not None and probe.reading is not None for probe in probes)

    def scan(self, now: float) -> None:
        """Do what is due once a second: connect to new sockets, forget removed ones, check deadlines."""
        present: set[Path] = set()
        if now >= self._search_at:
            self._search_at = now + _SEARCH_SECONDS
            self._found = tuple(socket_folders(self._folders))
        for folder in self._found:
            exists = os.path.lexists(folder.path)
            self._set_problem(folder.path, self._scan_folder(folder, present, now) if exists else None)
        for path, connection in self._connections():
            connection.refill()
            self._process(path, connection, connection.expire(now), now)
        removed = [path for path, entry in self._sockets.items() if path not in present and entry.connection is None]
        for path in removed:
            del self._sockets[path]
            self._set_problem(path, None)

    def receive(self, path: Path, now: float) -> None:
        """Read from a probe that has sent something."""
        connection = self._sockets[path].connection
        if connection is not None:
            self._process(path, connection, connection.receive(now), now)

    def set_pace(self, seconds: float, now: float) -> None:
        """Request statistics at this interval from all probes, also from those that connect later."""
        self._pace = seconds
        for path, connection in self._connections():
            self._process(path, connection, self._send_pace(connection), now)

    def ask(self, pid: int, ask: RequestKind, number: int, arguments: Mapping[str, int], now: float) -> None:
        """Send a request to a process; publish an answer with the problem if that is not possible."""
        for path, connection in self._connections():
            if connection.pid == pid and connection.probe is not None:
                self._process(path, connection, connection.ask(ask, number, arguments, now), now)
                return
        self._publish(Answer(pid, number, ask, problem=_NOT_CONNECTED))

    def close(self) -> None:
        """Close all connections."""
        for path, connection in self._connections():
            self._disconnect(path, connection)

    def _connections(self) -> list[tuple[Path, Connection]]:
        entries = self._sockets.items()
        return [(path, entry.connection) for path, entry in entries if entry.connection is not None]

    def _scan_folder(self, folder: SocketFolder, present: set[Path], now: float) -> Problem | None:
        """Connect to the new sockets of a folder.

        Args:
            folder: The folder.
            present: Receives the paths of its sockets.
            now: Monotonic seconds.

        Returns:
            Why the folder is not used, if so.
        """
        problem = None
        try:
            with opened(*folder) as descriptor:
                for name in socket_names(descriptor):
                    path = folder.path / name
                    present.add(path)
                    entry = self._sockets.setdefault(path, _Socket())
                    if entry.connection is not None or now < entry.retry_at:
                        continue
                    if len(self._connections()) >= MAX_CONNECTIONS:
                        return _TOO_MANY
                    entry.postpone(now)
                    self._set_problem(path, self._connect(descriptor, path, entry, folder.uid, now))
        except FileNotFoundError:
            pass
        except FolderError as error:
            problem = error.problem
        except OSError as error:
            problem = FolderError(folder.path, safe_text(str(error), 100)).problem
        return problem

    def _connect(self, descriptor: int, path: Path, entry: _Socket, user: int, now: float) -> Problem | None:
        """Connect to a socket; return why not, if the user should know."""
        try:
            connection = connect(descriptor, path.name)
        except (ConnectionRefusedError, FileNotFoundError, BlockingIOError):
            return None
        except OSError as error:
            return _socket_problem(path, f"{safe_text(str(error), 100)}.", ProblemCode.UNKNOWN)
        pid, uid = peer_of(connection)
        is_known = any(other.pid == pid for _, other in self._connections())
        reason = _OTHER_USER if uid != user else "" if pid else _OTHER_NAMESPACE
        if reason or is_known:
            connection.close()
            return _socket_problem(path, reason) if reason else None
        connected = entry.connection = Connection(connection, pid, now, is_foreign=uid != os.geteuid())
        self._process(path, connected, self._send_pace(connected), now)
        return self.problems.get(path)

    def _send_pace(self, connection: Connection) -> Iterator[ProbeMessage]:
        with suppress(BlockingIOError):
            connection.send(pace_line(self._pace))
        yield from ()

    def _process(self, path: Path, connection: Connection, messages: Iterator[ProbeMessage], now: float) -> None:
        """Publish the messages of a connection, and disconnect if they end with a DroppedError."""
        try:
            for message in messages:
                if isinstance(message, Probe):
                    self.probes[message.pid] = message
                    self._sockets[path].delay = MIN_RETRY_SECONDS
                    self._set_problem(path, None)
                self._publish(message)
        except DroppedError as dropped:
            self._disconnect(path, connection)
            self._sockets[path].retry_at = max(self._sockets[path].retry_at, now + MIN_RETRY_SECONDS)
            if dropped.problem.code is not ProblemCode.NOT_FOUND:  # a process that has ended is not a problem
                self._set_problem(path, _socket_problem(path, dropped.problem.reason, dropped.problem.code))
            return
        self._update_selector(path, connection)

    def _update_selector(self, path: Path, connection: Connection) -> None:
        """Wait for bytes of a connection, unless its allowance for this second is used up."""
        is_registered = connection.fileno() in self._selector.get_map()
        if connection.may_read and not is_registered:
            self._selector.register(connection, selectors.EVENT_READ, path)
        elif is_registered and not connection.may_read:
            self._selector.unregister(connection)

    def _disconnect(self, path: Path, connection: Connection) -> None:
        if connection.fileno() in self._selector.get_map():
            self._selector.unregister(connection)
        self._sockets[path].connection = None
        self.probes.pop(connection.pid, None)
        for message in connection.close():
            self._publish(message)

    def _set_problem(self, path: Path, problem: Problem | None) -> None:
        if problem is not None:
            self.problems[path] = problem
        else:
            self.problems.pop(path, None)


def _socket_problem(path: Path, reason: str, code: ProblemCode = ProblemCode.NO_PERMISSION) -> Problem:
    return Problem(code, f"Probe {path.name} is not connected. {reason}")
