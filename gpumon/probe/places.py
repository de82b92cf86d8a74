"""The sockets that are there and the connections to them: found, met, listened to, dropped and met again.

All of it happens in the one thread of `gpumon.probe.client.ProbeWatcher`, and nothing of it waits.
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
from gpumon.probe.folder import FolderError, connect, opened, peer_of, socket_names
from gpumon.probe.news import Answer, Ask, Probe, ProbeNews
from gpumon.probe.protocol import pace_line

MOST_CONNECTIONS: Final = 256
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0

_NOBODY: Final = Problem(ProblemCode.NOT_FOUND, "No probe of this process is connected.")
_ANOTHER_USER: Final = "another user listens there."
_UNSEEN: Final = "its process runs in another PID namespace, so it cannot be told which one it is."
_FULL: Final = Problem(
    ProblemCode.DROPPED, f"There are more than {MOST_CONNECTIONS} probes; the others are not listened to."
)


@dataclass(slots=True)
class _Place:
    """A socket that is there.

    Attributes:
        connection: While it is listened to.
        pause: Seconds until it is tried again; it grows while nothing is heard.
        retry_at: Monotonic seconds before which it is left alone.
    """

    connection: Connection | None = None
    pause: float = FIRST_PAUSE
    retry_at: float = 0.0

    def wait(self, now: float) -> None:
        """Leaves it alone for a while."""
        self.retry_at, self.pause = now + self.pause, min(2 * self.pause, LONGEST_PAUSE)


class Places:
    """Every socket of a probe, by its path.

    Args:
        folders: Where to look.
        selector: What the thread waits with; a connection is registered under its path.
        tell: Takes what comes.
        pace: Seconds from reading to reading.

    Attributes:
        probes: Those that are connected and have greeted, by PID as the kernel tells it here.
        problems: Why folders are not looked into and sockets not listened to, by path.
    """

    def __init__(
        self,
        folders: Iterable[Path],
        selector: selectors.BaseSelector,
        tell: Callable[[ProbeNews], None],
        pace: float,
    ) -> None:
        self.probes: dict[int, Probe] = {}
        self.problems: dict[Path, Problem] = {}
        self._folders = tuple(folders)
        self._selector = selector
        self._tell = tell
        self._pace = pace
        self._places: dict[Path, _Place] = {}

    @property
    def has_heard_all(self) -> bool:
        """Whether every connected probe has told something."""
        heard = (connection.probe for _, connection in self._connections())
        return all(probe is not None and probe.reading is not None for probe in heard)

    def scan(self, now: float) -> None:
        """What is due every second: sockets that have come or gone, deadlines, and leave to speak on."""
        found: set[Path] = set()
        for folder in self._folders:
            self._note(folder, self._look_into(folder, found, now))
        for path, connection in self._connections():
            connection.refill()
            self._take(path, connection, connection.expire(now), now)
        for path in [path for path, place in self._places.items() if path not in found and place.connection is None]:
            del self._places[path]
            self._note(path, None)

    def attend(self, path: Path, now: float) -> None:
        """Listens to a probe that speaks."""
        connection = self._places[path].connection
        if connection is not None:
            self._take(path, connection, connection.receive(now), now)

    def set_pace(self, seconds: float, now: float) -> None:
        """Asks all for statistics so often, and those that come later."""
        self._pace = seconds
        for path, connection in self._connections():
            self._take(path, connection, self._tell_pace(connection), now)

    def ask(self, pid: int, ask: Ask, number: int, more: Mapping[str, int], now: float) -> None:
        """Asks a process for something; if it cannot be asked, that is the answer."""
        for path, connection in self._connections():
            if connection.pid == pid and connection.probe is not None:
                self._take(path, connection, connection.ask(ask, number, more, now), now)
                return
        self._tell(Answer(pid, number, ask, problem=_NOBODY))

    def end(self) -> None:
        """Closes all connections."""
        for path, connection in self._connections():
            self._end(path, connection)

    def _connections(self) -> list[tuple[Path, Connection]]:
        places = self._places.items()
        return [(path, place.connection) for path, place in places if place.connection is not None]

    def _look_into(self, folder: Path, found: set[Path], now: float) -> Problem | None:
        """Meets what is new in a folder; returns why not, if so."""
        problem = None
        try:
            with opened(folder) as descriptor:
                for name in socket_names(descriptor):
                    path = folder / name
                    found.add(path)
                    place = self._places.setdefault(path, _Place())
                    if place.connection is not None or now < place.retry_at:
                        continue
                    if len(self._connections()) >= MOST_CONNECTIONS:
                        return _FULL
                    place.wait(now)
                    self._note(path, self._meet(descriptor, path, place, now))
        except FileNotFoundError:
            pass
        except FolderError as error:
            problem = error.problem
        except OSError as error:
            problem = FolderError(folder, safe_text(str(error), 100)).problem
        return problem

    def _meet(self, descriptor: int, path: Path, place: _Place, now: float) -> Problem | None:
        """Connects to a socket; returns why not, if that is worth a word."""
        try:
            connection = connect(descriptor, path.name)
        except (ConnectionRefusedError, FileNotFoundError, BlockingIOError):
            return None
        except OSError as error:
            return _unheard(path, safe_text(str(error), 100), ProblemCode.UNKNOWN)
        pid, uid = peer_of(connection)
        is_known = any(each.pid == pid for _, each in self._connections())
        why = _ANOTHER_USER if uid != os.getuid() else "" if pid else _UNSEEN
        if why or is_known:
            connection.close()
            return _unheard(path, why) if why else None
        met = place.connection = Connection(connection, pid, now)
        self._take(path, met, self._tell_pace(met), now)
        return self.problems.get(path)

    def _tell_pace(self, connection: Connection) -> Iterator[ProbeNews]:
        with suppress(BlockingIOError):
            connection.tell(pace_line(self._pace))
        yield from ()

    def _take(self, path: Path, connection: Connection, news: Iterator[ProbeNews], now: float) -> None:
        """Passes on what comes of a connection, and ends it if nothing more is to be had."""
        try:
            for each in news:
                if isinstance(each, Probe):
                    self.probes[each.pid] = each
                    self._places[path].pause = FIRST_PAUSE
                    self._note(path, None)
                self._tell(each)
        except DroppedError as dropped:
            self._end(path, connection)
            self._places[path].retry_at = max(self._places[path].retry_at, now + FIRST_PAUSE)
            if dropped.problem.code is not ProblemCode.NOT_FOUND:  # that one has ended is no problem
                self._note(path, _unheard(path, dropped.problem.reason, dropped.problem.code))
            return
        self._listen(path, connection)

    def _listen(self, path: Path, connection: Connection) -> None:
        """Waits for it to speak; one that has said enough in this second is not heard until the next."""
        is_registered = connection.fileno() in self._selector.get_map()
        if connection.is_heard and not is_registered:
            self._selector.register(connection, selectors.EVENT_READ, path)
        elif is_registered and not connection.is_heard:
            self._selector.unregister(connection)

    def _end(self, path: Path, connection: Connection) -> None:
        if connection.fileno() in self._selector.get_map():
            self._selector.unregister(connection)
        self._places[path].connection = None
        self.probes.pop(connection.pid, None)
        for each in connection.end():
            self._tell(each)

    def _note(self, path: Path, problem: Problem | None) -> None:
        if problem is not None:
            self.problems[path] = problem
        else:
            self.problems.pop(path, None)


def _unheard(path: Path, reason: str, code: ProblemCode = ProblemCode.NO_PERMISSION) -> Problem:
    return Problem(code, f"The probe {path.name} is not listened to: {reason}")
