"""All probes of this machine: what they told last, what their processes held over time, and what they are asked.

It draws nothing. The watcher's thread rings, the app lets the board take what has come.
"""

import os
import re
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path, PurePath
from typing import Any, Final, NamedTuple, Protocol

from gpumon.core.allocator import ProbedProcess, ProbeState
from gpumon.core.inbox import Inbox
from gpumon.core.model import Device, Frame
from gpumon.core.problems import Problem, ProblemCode
from gpumon.operations.oom_files import oom_files
from gpumon.operations.probed import owners_of
from gpumon.probe.news import Answer, Ask, Probe, ProbeNews
from gpumon.ui.memory_course import MemoryCourse, Series

LOOKED_AT_SECONDS: Final = 0.5
USUAL_SECONDS: Final = 1.0
"""How often probes tell their statistics, while somebody looks at them and else."""
_MOST_COURSES: Final = 256
_MOST_OOMS: Final = 20
_JUST_SECONDS: Final = 120.0
_ANSWERED_SECONDS: Final = 40.0
"""By then the watcher has answered for a process that does not."""
_LOST: Final = Problem(ProblemCode.DROPPED, "The answer is lost: more came than could be taken in.", "Ask again.")
_OOM_NAME: Final = re.compile(r"oom-(\d{1,11})-(\d{1,10})-\d+\.json\.gz")

Then = Callable[[Answer], None]
InBackground = Callable[[Callable[[], Iterable[str]], Callable[[Iterable[str]], None]], None]


class Watcher(Protocol):
    """What the probes are watched with: `gpumon.probe.client.ProbeWatcher`."""

    inbox: Inbox[ProbeNews]

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Why some are not listened to."""

    @property
    def probes(self) -> Mapping[int, Probe]:
        """Those that are connected, by PID."""

    def start(self) -> None:
        """Begins to look for probes."""

    def close(self) -> None:
        """Ends."""

    def set_pace(self, seconds: float) -> None:
        """Asks all probes for statistics that often."""

    def ask(self, pid: int, ask: Ask, **more: Any) -> int:  # noqa: ANN401
        """Asks a process for something; the answer comes into the inbox with the number that this returns."""


class OutOfMemory(NamedTuple):
    """A process ran out of memory, and its probe left a file.

    Attributes:
        pid: The process.
        path: The file.
        time_seconds: Unix time.
    """

    pid: int
    path: str
    time_seconds: float


class _Asked(NamedTuple):
    """What a process was asked for, when, and who is to be told."""

    pid: int
    ask: Ask
    seconds: float
    then: Then


class ProbeBoard:
    """The probes of this machine.

    Args:
        open_watcher: Makes the watcher; called once, late, since it brings a thread and modules of its own.
        ring: Is called from any thread when a probe has news.
        in_background: Does something in a thread, then tells what came of it in this one.
    """

    def __init__(
        self, open_watcher: Callable[[], Watcher], ring: Callable[[], None], in_background: InBackground
    ) -> None:
        self.ooms: list[OutOfMemory] = []
        """The newest last."""
        self.clock = time.monotonic
        self.is_own: Callable[[int], bool] = is_own
        """Whether a process belongs to the user."""
        self._open_watcher = open_watcher
        self._ring = ring
        self._in_background = in_background
        self._watcher: Watcher | None = None
        self._is_closed = False
        self._probes: dict[int, Probe] = {}
        self._held: tuple[float, dict[int, Probe]] | None = None
        self._courses: dict[tuple[int, str], MemoryCourse] = {}
        self._whose: dict[int, ProbedProcess] = {}
        self._keys: dict[tuple[int, int], str] = {}
        self._asked: dict[int, _Asked] = {}
        self._lost = 0
        self._pace = USUAL_SECONDS

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Why some probes are not listened to."""
        return () if self._watcher is None else self._watcher.problems

    @property
    def probes(self) -> Mapping[int, Probe]:
        """Those that are there, by PID; while the screen stands still, as they were when it was stopped."""
        return self._probes if self._held is None else self._held[1]

    @property
    def now(self) -> float:
        """The moment that `probes` are of, in monotonic seconds."""
        return self.clock() if self._held is None else self._held[0]

    def start(self) -> None:
        """Begins to look for probes, if that has not begun yet."""
        if self._watcher is None and not self._is_closed:
            self._watcher = self._open_watcher()
            self._watcher.set_pace(self._pace)
            self._watcher.inbox.on_arrival(self._ring)
            self._watcher.start()

    def close(self) -> None:
        """Ends for good."""
        self._is_closed = True
        if self._watcher is not None:
            self._watcher.close()

    def hold(self, is_held: bool) -> None:
        """Lets what is shown stand still, or go on."""
        self._held = (self.clock(), dict(self._probes)) if is_held else None

    def look(self, is_looked_at: bool) -> None:
        """Says whether a screen shows the probes; only then are they asked often."""
        pace = LOOKED_AT_SECONDS if is_looked_at else USUAL_SECONDS
        if pace != self._pace:
            self._pace = pace
            if self._watcher is not None:
                self._watcher.set_pace(pace)

    def take(self) -> None:
        """Takes in all news."""
        if self._watcher is None:
            return
        for news in self._watcher.inbox.drain():
            if isinstance(news, Answer):
                self._take_answer(news)
            else:
                self._take_probe(news)
                if not news.connected:
                    self._forget(news)
        if self._watcher.inbox.lost != self._lost:  # maybe that somebody has gone
            self._lost = self._watcher.inbox.lost
            connected = self._watcher.probes
            for probe in [probe for pid, probe in self._probes.items() if pid not in connected]:
                self._forget(probe)

    def watch(self, frame: Frame) -> None:
        """Notes what the processes hold by the driver's account, and which device is which to them."""
        self._give_up()
        if not self._probes:
            return
        for device in frame.devices:
            if frame.is_fresh(device):
                self._watch_device(device, frame.monotonic_seconds)

    def course(self, pid: int, key: str) -> MemoryCourse | None:
        """What a process has held on a device over time."""
        return self._courses.get((pid, key))

    def ask(self, pid: int, ask: Ask, then: Then, **more: Any) -> None:  # noqa: ANN401
        """Asks a process; ``then`` is called with the answer, or with why there is none."""
        if self._watcher is not None:
            self._asked[self._watcher.ask(pid, ask, **more)] = _Asked(pid, ask, self.clock(), then)

    def refusal(self, shown: Probe) -> str:
        """Why a process may not be asked to do something, in a sentence; empty if it may.

        Args:
            shown: Its probe as it was when the user decided; the PID may be another process's by now.
        """
        pid, probe = shown.pid, self._probes.get(shown.pid)
        if probe is None or probe.reading is None or probe.reading.state is not ProbeState.LIVE:
            return f"PID {pid} has gone, or PyTorch in it is not at work."
        if probe.process != shown.process:
            return f"PID {pid} has gone; another process has its number now."
        if not self.is_own(pid):
            return f"PID {pid} belongs to another user; only its own user may have it do something."
        return ""

    def _take_answer(self, answer: Answer) -> None:
        asked = self._asked.pop(answer.id, None)
        if asked is not None:
            asked.then(answer)

    def _give_up(self) -> None:
        """An answer that has not come by now was pushed out of a full inbox."""
        latest = self.clock() - _ANSWERED_SECONDS
        for number, asked in [each for each in self._asked.items() if each[1].seconds < latest]:
            self._take_answer(Answer(asked.pid, number, asked.ask, problem=_LOST))

    def _take_probe(self, probe: Probe) -> None:
        if self._whose.get(probe.pid) != probe.process:  # the PID belonged to another process before
            self._courses = {key: held for key, held in self._courses.items() if key[0] != probe.pid}
            self._whose[probe.pid] = probe.process
        self._probes[probe.pid] = probe
        reading = probe.reading
        if reading is None:
            return
        for told in reading.devices:
            key = self._keys.get((probe.pid, told.ordinal))
            course = None if key is None else self._course(probe.pid, key)
            if course is not None:
                course.tell(probe.arrived_monotonic, told)
        self._note_ooms(probe.pid, reading.oom_files)

    def _forget(self, probe: Probe) -> None:
        """A probe has gone. Its process's course stays, and what it may have left without the time to tell it."""
        pid = probe.pid
        del self._probes[pid]
        kept = {*self._probes, *(owner for owner, _ in self._courses)}
        self._whose = {owner: process for owner, process in self._whose.items() if owner in kept}
        self._keys = {name: key for name, key in self._keys.items() if name[0] != pid}
        self._in_background(partial(left_files, probe.process.own_pid), partial(self._note_ooms, pid))

    def _watch_device(self, device: Device, seconds: float) -> None:
        for owner in owners_of(device, self._probes).owners:
            if owner.statistics is None or owner.probe is None:
                continue
            course = self._course(owner.pid, device.key)
            if course is None:
                return
            if (owner.pid, owner.statistics.ordinal) not in self._keys:
                self._keys[owner.pid, owner.statistics.ordinal] = device.key
                course.tell(owner.probe.arrived_monotonic, owner.statistics)
            if owner.memory_bytes is not None:
                course.add(Series.HELD, seconds, owner.memory_bytes)

    def _course(self, pid: int, key: str) -> MemoryCourse | None:
        """A course, begun if need be; for a new one that of a process that has gone makes room, and no other does."""
        found = self._courses.get((pid, key))
        if found is not None:
            return found
        if len(self._courses) >= _MOST_COURSES:
            gone = next((name for name in self._courses if name[0] not in self._probes), None)
            if gone is None:
                return None
            del self._courses[gone]
        self._courses[pid, key] = MemoryCourse()
        return self._courses[pid, key]

    def _note_ooms(self, pid: int, paths: Iterable[str]) -> None:
        known = {each.path for each in self.ooms}
        for path in paths:
            named = _OOM_NAME.fullmatch(PurePath(path).name)
            if named is not None and path not in known:
                self.ooms.append(OutOfMemory(pid, path, float(named[1])))
        self.ooms.sort(key=lambda each: each.time_seconds)
        del self.ooms[:-_MOST_OOMS]


def left_files(own_pid: int) -> list[str]:
    """The files that a process has just left on running out of memory, by the PID that it sees itself under."""
    newest = time.time() - _JUST_SECONDS
    return [str(path) for path in oom_files() if _is_left(path.name, own_pid, newest)]


def _is_left(name: str, own_pid: int, newest: float) -> bool:
    named = _OOM_NAME.fullmatch(name)
    return named is not None and int(named[2]) == own_pid and int(named[1]) >= newest


def is_own(pid: int) -> bool:
    """Whether a process belongs to the user that gpumon runs as."""
    try:
        return Path(f"/proc/{pid}").stat().st_uid == os.geteuid()
    except OSError:
        return False
