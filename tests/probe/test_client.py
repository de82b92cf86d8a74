"""Probes are discovered, read and queried; a faulty probe affects only itself."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest

from gpumon.core.allocator import EmptyCacheResult
from gpumon.core.problems import CommandError, ProblemCode
from gpumon.operations.empty_cache import empty_cache, explain_emptied
from gpumon.operations.waterfall import PartKind, waterfall
from gpumon.probe import connection as connections
from gpumon.probe import registry
from gpumon.probe.client import ProbeWatcher
from gpumon.probe.messages import Probe, RequestKind, SegmentMap
from gpumon.probe.socket_dir import opened, socket_names
from tests.builders import device, process
from tests.probe.children import complaints, running
from tests.probe.conftest import Watch
from tests.probe.scripted import (
    DEVICE,
    GIB,
    SEGMENT,
    answer,
    greet,
    hello,
    line,
    listening,
    requests,
    statistics,
    until_gone,
)

PID = os.getpid()
OPEN = Path("/proc/self/fd")
needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")

MANY = """
import os, socket, sys
folder, count, words, user = sys.argv[1:]
for place in range(int(count)):
    if not os.fork():
        path = f"{folder}/{os.getpid()}-{place:08x}"
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(path + ".part")
        os.rename(path + ".part", path + ".sock")
        os.setuid(int(user))
        listener.listen()
        print("up", flush=True)
        held = []
        while True:
            held.append(listener.accept()[0])
            held[-1].sendall(words.encode())
print("parent", flush=True)
sys.stdin.read()
"""


class Children:
    """Probes in separate processes."""

    def __init__(self, folder: Path, count: int, uid: int | None = None) -> None:
        words = (hello() + statistics()).decode()
        user = str(os.getuid() if uid is None else uid)
        self._process = subprocess.Popen(
            [sys.executable, "-c", MANY, str(folder), str(count), words, user],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert self._process.stdout is not None
        for _ in range(count + 1):
            self._process.stdout.readline()

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, 9)
        self._process.communicate()


def test_a_probe_connects_reports_and_disconnects(folder: Path, watch: Watch) -> None:
    with listening(folder):
        watched = watch()
        probe = watched.reading()
        assert (probe.pid, probe.process.own_pid) == (PID, 7)
        assert probe.reading is not None
        assert probe.reading.devices[0].reserved_bytes == 40 * GIB
        assert 0 <= probe.age_seconds(time.monotonic()) < 5
    watched.until(lambda: watched.news and isinstance(watched.news[-1], Probe) and not watched.news[-1].connected)
    assert not watched.watcher.probes
    come = [new for new in watched.news if isinstance(new, Probe)]
    assert [item.reading is None for item in come] == [True, False, False]
    assert [item.connected for item in come] == [True, True, False]
    assert watched.watcher.problems == ()


def test_without_any_folder_nothing_happens(tmp_path: Path, watch: Watch) -> None:
    watched = watch(tmp_path / "none")
    assert watched.watcher.settle(5)
    assert watched.watcher.probes == {}
    assert watched.watcher.problems == ()


def test_a_watcher_without_probes_is_nearly_idle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[Path] = []

    def look(folder: Path, uid: int) -> AbstractContextManager[int]:
        looks.append(folder)
        return opened(folder, uid)

    monkeypatch.setattr(registry, "opened", look)
    watcher = ProbeWatcher([tmp_path / "none", tmp_path])
    watcher.start()
    time.sleep(1.5)
    watcher.close()
    own = [folder for folder in looks if tmp_path in {folder, folder.parent}]
    assert 2 <= len(own) <= 4


def test_a_folder_created_later_is_used(tmp_path: Path, watch: Watch) -> None:
    late = tmp_path / "late"
    watched = watch(late)
    assert watched.watcher.settle(5)
    late.mkdir(mode=0o700)
    with listening(late):
        watched.reading()


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda folder: folder.chmod(0o777), "other users can access"),
        pytest.param(lambda folder: os.chown(folder, 65534, 0), "another user", marks=needs_root),
        (lambda folder: (folder.rename(f"{folder}2"), folder.symlink_to(f"{folder}2")), "symbolic link"),
    ],
)
def test_an_untrusted_folder_is_reported_and_ignored(
    folder: Path, watch: Watch, spoil: Callable[[Path], None], words: str
) -> None:
    with listening(folder):
        spoil(folder)
        watched = watch()
        assert words in watched.problem()
        assert watched.watcher.probes == {}


@needs_root
def test_a_socket_of_another_users_process_is_rejected(folder: Path, watch: Watch) -> None:
    children = Children(folder, 1, 65534)
    try:
        watched = watch()
        assert "A process of another user listens" in watched.problem()
        assert watched.watcher.probes == {}
    finally:
        children.kill()


def test_stale_sockets_are_removed(folder: Path, watch: Watch) -> None:
    stale = folder / "12-0123abcd.sock"
    with socket.socket(socket.AF_UNIX) as abandoned:
        abandoned.bind(str(stale))
    watched = watch()
    watched.until(lambda: not stale.exists())
    assert watched.watcher.problems == ()


def test_the_pace_is_sent_at_once_and_when_it_changes(folder: Path, watch: Watch) -> None:
    heard: list[dict[str, Any]] = []

    def listen(connection: socket.socket) -> None:
        connection.sendall(hello() + statistics())
        with connection.makefile("rb") as stream:
            heard.extend(map(json.loads, stream))

    with listening(folder, listen):
        watched = watch(pace=0.5)
        watched.reading()
        watched.watcher.set_pace(2.0)
        time.sleep(0.2)
    watched.until(lambda: len(heard) == 2)
    assert [item["interval_seconds"] for item in heard] == [0.5, 2.0]


def answering(**bodies: Mapping[str, Any]) -> Callable[[socket.socket], None]:
    def behave(connection: socket.socket) -> None:
        connection.sendall(hello() + statistics())
        for asked in requests(connection):
            connection.sendall(answer(asked["id"], **bodies[asked["ask"]]))

    return behave


def test_requests_are_answered(folder: Path, watch: Watch) -> None:
    bodies: dict[str, dict[str, Any]] = {
        "summary": {"text": "|===|\n|   |"},
        "segments": {"segments": [SEGMENT] * 3000, "cut": False, "seconds": 0.01},
        "empty_cache": {"before": [DEVICE], "after": [{**DEVICE, "reserved_bytes": 34 * GIB}], "seconds": 0.02},
    }
    with listening(folder, answering(**bodies)):
        watched = watch()
        watched.reading()
        summary = watched.answer(watched.watcher.ask(PID, "summary", ordinal=0))
        segments = watched.answer(watched.watcher.ask(PID, RequestKind.SEGMENTS))
        emptied = watched.answer(watched.watcher.ask(PID, RequestKind.EMPTY_CACHE))
    assert (summary.pid, summary.ask, summary.problem) == (PID, RequestKind.SUMMARY, None)
    assert summary.result == "|===|\n|   |"
    assert isinstance(segments.result, SegmentMap)
    assert len(segments.result.segments) == 3000
    assert isinstance(emptied.result, EmptyCacheResult)


def test_failed_requests_have_a_reason(folder: Path, watch: Watch) -> None:
    with listening(folder, answering(summary={"ok": False, "reason": "No context."}, segments={"segments": 3})):
        watched = watch()
        watched.reading()
        refused = watched.answer(watched.watcher.ask(PID, "summary"))
        invalid = watched.answer(watched.watcher.ask(PID, "segments"))
        unconnected = watched.answer(watched.watcher.ask(PID + 1, "segments"))
    assert [str(item.problem and item.problem.reason) for item in (refused, unconnected)] == [
        "No context.",
        "No probe of this process is connected.",
    ]
    assert invalid.problem is not None
    assert invalid.problem.code is ProblemCode.DAMAGED
    assert refused.result is invalid.result is unconnected.result is None


def test_one_open_request_of_each_kind(folder: Path, watch: Watch) -> None:
    with listening(folder):
        watched = watch()
        watched.reading()
        first = watched.watcher.ask(PID, "segments")
        second = watched.answer(watched.watcher.ask(PID, "segments"))
    gone = watched.answer(first)
    assert second.problem is not None
    assert "previous request" in second.problem.reason
    assert gone.problem is not None
    assert "ended" in gone.problem.reason


def test_a_late_answer_is_ignored(folder: Path, watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "ANSWER_SECONDS", 0.1)
    may_answer = threading.Event()

    def behave(connection: socket.socket) -> None:
        connection.sendall(hello() + statistics())
        for asked in requests(connection):
            may_answer.wait(10)
            connection.sendall(answer(asked["id"], text="late"))

    with listening(folder, behave):
        watched = watch()
        watched.reading()
        late = watched.answer(watched.watcher.ask(PID, "summary"))
        assert late.problem is not None
        assert late.problem.code is ProblemCode.UNRESPONSIVE
        may_answer.set()
        monkeypatch.setattr(connections, "ANSWER_SECONDS", 10.0)
        time.sleep(0.2)
        again = watched.answer(watched.watcher.ask(PID, "summary"))
        assert again.result == "late"


def test_a_request_that_takes_time_has_that_time(folder: Path, watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "ANSWER_SECONDS", 0.1)
    with listening(folder):
        watched = watch()
        watched.reading()
        started = time.monotonic()
        quick = watched.watcher.ask(PID, RequestKind.STACKS)
        slow = watched.watcher.ask(PID, RequestKind.OBSERVE, milliseconds=1500, hertz=100)
        assert watched.answer(quick).problem is not None
        assert time.monotonic() - started < 1.5
        assert watched.answer(slow).problem is not None
        assert time.monotonic() - started > 1.5


@pytest.mark.parametrize(
    ("ask", "arguments", "seconds"),
    [
        (RequestKind.SUMMARY, {"ordinal": 3}, 30.0),
        (RequestKind.OBSERVE, {"milliseconds": 5000, "hertz": 100}, 35.0),
        (RequestKind.MEMORY_HISTORY, {"milliseconds": 120_000}, 150.0),
        (RequestKind.TRACE, {"milliseconds": 500, "start_at_epoch_milliseconds": 0}, 110.5),
        (RequestKind.TRACE, {"milliseconds": 500, "start_at_epoch_milliseconds": 1_002_000}, 112.5),
    ],
)
def test_the_timeout_of_an_answer(ask: RequestKind, arguments: dict[str, int], seconds: float) -> None:
    assert connections.answer_seconds(ask, arguments, 1000.0) == seconds


def test_a_probe_that_dies_in_the_middle_of_an_answer_is_gone(folder: Path, watch: Watch) -> None:
    def behave(connection: socket.socket) -> None:
        connection.sendall(hello() + statistics())
        for asked in requests(connection):
            connection.sendall(answer(asked["id"], text="whole")[:-5])
            return

    with listening(folder, behave):
        watched = watch()
        watched.reading()
        torn = watched.answer(watched.watcher.ask(PID, "summary"))
    assert torn.problem is not None
    assert "ended" in torn.problem.reason
    watched.until(lambda: any(isinstance(new, Probe) and not new.connected for new in watched.news))


def test_a_busy_process_stays_connected_with_an_old_reading(folder: Path, watch: Watch) -> None:
    with listening(folder):
        watched = watch()
        probe = watched.reading()
        time.sleep(0.5)
        (still,) = watched.watcher.probes.values()
    assert still == probe
    assert still.connected
    assert still.age_seconds(time.monotonic()) >= 0.5


def test_a_probe_that_never_greets_is_disconnected(folder: Path, watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "GREETING_SECONDS", 0.1)
    left = threading.Event()

    def behave(connection: socket.socket) -> None:
        until_gone(connection)
        left.set()

    with listening(folder, behave):
        watched = watch()
        assert "has sent no message" in watched.problem()
        assert left.wait(5)
    assert watched.news == []


def test_a_probe_that_rejects_clients_is_retried_rarely(folder: Path, watch: Watch) -> None:
    met: list[float] = []
    with listening(folder, lambda _: met.append(time.monotonic())):
        watched = watch()
        assert "maximum number of clients" in watched.problem()
        watched.until(lambda: len(met) >= 2)
    assert met[1] - met[0] > 0.9


def test_a_restarted_probe_is_connected_again(folder: Path, watch: Watch) -> None:
    watched = watch()
    for _ in range(3):
        with listening(folder):
            watched.reading()
        watched.until(lambda: not watched.watcher.probes)


def test_the_same_socket_is_tried_again_after_a_loss(folder: Path, watch: Watch) -> None:
    tries: list[int] = []

    def behave(connection: socket.socket) -> None:
        tries.append(len(tries))
        connection.sendall(hello() + statistics(monotonic_seconds=len(tries)))
        if len(tries) > 1:
            until_gone(connection)

    with listening(folder, behave):
        watched = watch()
        watched.until(lambda: len(tries) == 2, 5)
        watched.reading()


def test_the_number_of_connections_is_limited(folder: Path, watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "MAX_CONNECTIONS", 3)
    children = Children(folder, 6)
    try:
        watched = watch()
        watched.until(lambda: len(watched.watcher.probes) == 3)
        assert "gpumon ignores the others" in watched.problem()
    finally:
        children.kill()


def flood(word: bytes) -> Callable[[socket.socket], None]:
    def behave(connection: socket.socket) -> None:
        connection.sendall(hello())
        while True:
            connection.sendall(word)

    return behave


def say(*words: bytes) -> Callable[[socket.socket], None]:
    def behave(connection: socket.socket) -> None:
        for word in words:
            connection.sendall(word)
        until_gone(connection)

    return behave


def pour(connection: socket.socket) -> None:
    """A gigabyte, and nothing in it."""
    for _ in range(1 << 10):
        connection.sendall(bytes(1 << 20))


MANY_DEVICES = statistics(devices=[{**DEVICE, "ordinal": place} for place in range(10_000)])
MALICE: dict[str, tuple[Callable[[socket.socket], None], str]] = {
    "a line that never ends": (flood(b"x" * 65536), "line that is too long"),
    "a line that never ends, slowly": (say(hello(), *[b"x" * 1024] * 65), "line that is too long"),
    "a gigabyte before a greeting": (pour, "line that is too long"),
    "line feeds": (flood(b"\n" * 65536), "invalid message"),
    "no UTF-8": (flood(b"\xff\xfe\n" * 1000), "invalid message"),
    "NaN": (flood(statistics().replace(b"5.5", b"NaN")), "invalid message"),
    "huge numbers": (flood(statistics().replace(b"5.5", b"9" * 5000)), "invalid message"),
    "deep nesting": (flood(b"[" * 60_000 + b"\n"), "invalid message"),
    "ten thousand devices": (say(hello(), MANY_DEVICES), "line that is too long"),
    "too many devices": (flood(statistics(devices=[{}] * 65)), "invalid message"),
    "answers to nothing": (flood(answer(1, text="x") * 100), "a request that gpumon did not send"),
    "no greeting": (say(*[statistics()] * 200), "in the wrong order"),
    "greetings": (flood(hello()), "in the wrong order"),
    "a newer schema": (say(hello(schema=2)), "schema 2"),
}  # fmt: skip


@pytest.mark.sampled(4)
@pytest.mark.parametrize("malice", MALICE)
def test_a_hostile_probe_is_dropped_and_another_one_is_read(folder: Path, watch: Watch, malice: str) -> None:
    behave, words = MALICE[malice]
    children = Children(folder, 1)
    try:
        with listening(folder, behave):
            watched = watch()
            assert words in watched.problem()
            watched.until(lambda: any(pid != PID for pid in watched.watcher.probes))
            assert watched.watcher._thread.is_alive()
    finally:
        children.kill()


def test_a_flood_of_readings_is_throttled(folder: Path, watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = 0

    def behave(connection: socket.socket) -> None:
        nonlocal sent
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 16)
        connection.sendall(hello())
        while True:
            sent += connection.send(statistics() * 100)

    monkeypatch.undo()  # looks once a second, as usual
    with listening(folder, behave):
        watcher = ProbeWatcher([folder])
        watcher.start()
        time.sleep(2.5)
        taken = sent
        assert watcher.probes[PID].connected
        watcher.close()
    assert connections.BYTES_PER_SECOND <= taken <= 3 * connections.BYTES_PER_SECOND + (1 << 20)


def test_an_answer_of_a_gigabyte_is_not_kept(folder: Path, watch: Watch) -> None:
    def behave(connection: socket.socket) -> None:
        connection.sendall(hello() + statistics())
        for _ in requests(connection):
            pour(connection)

    with listening(folder, behave):
        watched = watch()
        watched.reading()
        actual = watched.answer(watched.watcher.ask(PID, "summary"))
        assert actual.problem is not None
        assert "line that is too long" in watched.problem()


def test_a_failure_of_gpumon_itself_is_reported_and_survived(
    folder: Path, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    fails = iter([True] * 20)

    def fail(*given: int) -> list[str]:
        if next(fails, False):
            raise RuntimeError("on purpose")
        return original(*given)

    original = socket_names
    monkeypatch.setattr(registry, "socket_names", fail)
    with listening(folder):
        watched = watch()
        assert "RuntimeError: on purpose" in watched.problem()
        watched.reading()
        watched.until(lambda: not watched.watcher.problems)


def test_closing_leaves_neither_thread_nor_descriptor(folder: Path) -> None:
    with ExitStack() as stack:
        stack.enter_context(listening(folder, greet))
        before = len(list(OPEN.iterdir()))
        watcher = ProbeWatcher([folder])
        watcher.start()
        assert watcher.settle(5)
        assert watcher._thread in threading.enumerate()
        watcher.close()
        watcher.close()
        assert watcher.ask(PID, "summary") == 1
        assert watcher._thread not in threading.enumerate()
        deadline = time.monotonic() + 5
        while len(list(OPEN.iterdir())) > before and time.monotonic() < deadline:
            time.sleep(0.01)
        assert len(list(OPEN.iterdir())) <= before
    never = ProbeWatcher([folder])
    never.close()


def test_an_unknown_request_raises(folder: Path) -> None:
    watcher = ProbeWatcher([folder])
    with pytest.raises(ValueError, match="format_disk"):
        watcher.ask(PID, "format_disk")
    watcher.close()


def test_invalid_lines_are_ignored(folder: Path, watch: Watch) -> None:
    with listening(folder, say(b"junk\n", hello(), line({"event": "weather"}), b"{}\n", statistics())):
        watched = watch()
        assert watched.reading().pid == PID


HOLDING = f"""
import sys, time, torch
first = torch.cuda.allocate(1, {GIB})
second = torch.cuda.allocate(1, {2 * GIB})
second["used"] = False
print("ready", flush=True)
sys.stdin.readline()
"""


def test_the_real_agent_is_understood(tmp_path: Path, watch: Watch) -> None:
    with running(tmp_path, HOLDING, RANK="1") as program:
        assert program.hear() == "ready"
        watched = watch(tmp_path / "sockets")
        probe = watched.reading()
        assert probe.pid == probe.process.own_pid == program.process.pid
        assert probe.process.rank == 1
        reading = probe.reading
        assert reading is not None
        assert reading.cost is not None
        (message,) = reading.devices
        assert (message.ordinal, message.allocated_bytes, message.reserved_bytes) == (1, GIB, 3 * GIB)
        answers = {ask: watched.answer(watched.watcher.ask(probe.pid, ask)) for ask in ("segments", "summary")}
        deadline = time.monotonic() + 60
        while answers["summary"].result is None and time.monotonic() < deadline:  # the probe rests after an answer
            answers["summary"] = watched.answer(watched.watcher.ask(probe.pid, "summary"))
        assert isinstance(answers["segments"].result, SegmentMap)
        assert sum(segment.size_bytes for segment in answers["segments"].result.segments) == 3 * GIB
        gpu = device(1, uuid=message.uuid, processes=(process(probe.pid, memory_bytes=4 * GIB),))
        parts = {part.kind: part.bytes for part in waterfall(gpu, watched.watcher.probes).parts}
        assert (parts[PartKind.CONTEXT], parts[PartKind.ALLOCATED]) == (GIB, GIB)
        emptied = None
        while emptied is None:
            with suppress(CommandError) if time.monotonic() < deadline else nullcontext():  # it rests again
                emptied = empty_cache(watched.watcher, probe.pid)
        assert explain_emptied(emptied, 1)[0].startswith("2.00 GiB released")
        program.end()
        watched.until(lambda: not watched.watcher.probes)
    assert list((tmp_path / "sockets").iterdir()) == []
    assert complaints(tmp_path) == ""


def test_a_stopped_process_stays_connected_and_continues(tmp_path: Path, watch: Watch) -> None:
    with running(tmp_path, HOLDING) as program:
        assert program.hear() == "ready"
        watched = watch(tmp_path / "sockets", pace=0.1)
        pid = watched.reading().pid
        program.process.send_signal(signal.SIGSTOP)
        watched.until(lambda: watched.watcher.probes[pid].age_seconds(time.monotonic()) > 0.5)
        number = watched.watcher.ask(pid, "summary")
        time.sleep(0.2)
        assert watched.watcher.probes[pid].connected
        program.process.send_signal(signal.SIGCONT)
        assert watched.answer(number).result
        watched.until(lambda: watched.watcher.probes[pid].age_seconds(time.monotonic()) < 0.5)


def test_a_killed_process_is_disconnected_and_its_socket_removed(tmp_path: Path, watch: Watch) -> None:
    with running(tmp_path, HOLDING) as program:
        assert program.hear() == "ready"
        watched = watch(tmp_path / "sockets")
        pid = watched.reading().pid
        program.process.kill()
        watched.until(lambda: not watched.watcher.probes)
        watched.until(lambda: not list((tmp_path / "sockets").iterdir()))
    assert watched.watcher.problems == ()
    assert [new.connected for new in watched.news if isinstance(new, Probe) and new.pid == pid][-1] is False
