import gzip
import os
import pty
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpumon.core.frames import encode
from gpumon.core.model import Frame
from gpumon.core.problems import CommandError, ExitCode, ProblemCode
from gpumon.core.store import HISTORY_BUCKETS, Store
from gpumon.session.frame_session import FrameSession
from gpumon.streams import replay
from gpumon.streams.base import Arrival, Discontinuity, Seekable, Stream
from gpumon.streams.pipe import PipeStream
from gpumon.streams.replay import MAX_FRAME_GAP_SECONDS, ReplayStream, open_replay
from tests.builders import device, frame
from tests.processes import eventually

FAST = 1e6
PATIENCE = 5.0
Start = Callable[..., ReplayStream]


def series(count: int, start: float = 100.0, step: float = 1.0) -> list[Frame]:
    return [frame(monotonic_seconds=start + place * step, devices=()) for place in range(count)]


def text(frames: list[Frame]) -> bytes:
    return b"".join(encode(item).encode() + b"\n" for item in frames)


def take(stream: Stream, until: Callable[[list[Arrival]], bool]) -> list[Arrival]:
    """What arrives until it is enough."""
    taken: list[Arrival] = []
    deadline = time.monotonic() + PATIENCE
    while not until(taken):
        left = deadline - time.monotonic()
        assert left > 0, f"only {len(taken)} arrivals, {stream.problem}"
        stream.inbox.arrived.wait(min(left, 0.02))
        taken += stream.inbox.drain()
    return taken + stream.inbox.drain()


def times(arrivals: list[Arrival]) -> list[float | None]:
    """Recorded clocks; None for a rewinding."""
    return [arrival.monotonic_seconds if isinstance(arrival, Frame) else None for arrival in arrivals]


@pytest.fixture
def play(tmp_path: Path) -> Iterator[Start]:
    streams = []

    def start(
        frames: list[Frame], speed: float = FAST, paused: bool = False, repeat: bool = False, watched: float = 0.0
    ) -> ReplayStream:
        path = tmp_path / "day.jsonl.gz"
        path.write_bytes(gzip.compress(text(frames), 1))
        stream = ReplayStream(path, speed=speed, repeat=repeat, watched_seconds=watched)
        stream.set_paused(paused)
        streams.append(stream)
        stream.start()
        return stream

    yield start
    for stream in streams:
        stream.close()


def test_the_first_frame_is_there_at_once_and_all_follow(play: Start) -> None:
    stream = play(series(50))
    arrivals = stream.inbox.drain()
    assert times(arrivals)[0] == 100.0
    arrivals += take(stream, lambda _: stream.position.ended)
    assert arrivals == series(50)
    assert stream.title == "day.jsonl.gz"
    assert isinstance(stream, Seekable)
    position = stream.position
    assert (position.seconds, position.duration_seconds, position.ended) == (49.0, 49.0, True)


def test_frames_come_at_the_pace_they_were_recorded_in(play: Start) -> None:
    started = time.monotonic()
    stream = play(series(6), speed=20.0)
    take(stream, lambda taken: len(taken) == 6)
    assert 0.25 <= time.monotonic() - started < 10


def test_a_long_gap_is_cut_short(play: Start) -> None:
    stream = play([*series(1), *series(1, start=90_000.0)], speed=20.0)
    started = time.monotonic()
    take(stream, lambda taken: len(taken) == 2)
    assert MAX_FRAME_GAP_SECONDS / 20 - 0.05 <= time.monotonic() - started < 10
    assert stream.position.seconds == 89_900.0


def test_paused_nothing_comes_until_it_goes_on(play: Start) -> None:
    stream = play(series(20), paused=True)
    take(stream, lambda taken: len(taken) == 1)
    assert not stream.inbox.arrived.wait(0.1) or not stream.inbox.drain()
    assert stream.position.paused
    stream.set_paused(False)
    assert len(take(stream, lambda _: stream.position.ended)) == 19


def test_the_speed_can_be_changed_in_the_middle_of_a_wait(play: Start) -> None:
    stream = play(series(20), speed=0.001)
    take(stream, lambda taken: len(taken) == 1)
    stream.set_speed(FAST)
    take(stream, lambda _: stream.position.ended)
    with pytest.raises(ValueError, match="greater than 0"):
        stream.set_speed(0)


def moved(stream: ReplayStream, target: float, shown: float) -> list[float | None]:
    """Moves, and returns what arrives from the last rewinding on."""
    stream.seek(target)
    assert stream.position.seconds == target
    result = times(take(stream, lambda taken: bool(taken) and times(taken)[-1] == shown))
    assert eventually(lambda: stream.position.seconds == shown - 100.0)
    return result[len(result) - result[::-1].index(None) - 1 :]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("paused", [True, False])
def test_a_move_shows_the_history_before_its_target_and_goes_on_from_there(play: Start, paused: bool) -> None:
    stream = play(series(3000), speed=0.001, paused=paused)
    for target, first, last in [(2000.4, 1381, 2100), (10.0, 100, 110), (1500.0, 880, 1600)]:
        assert moved(stream, target, last) == [None, *range(first, last + 1)]
    assert stream.inbox.lost == 0
    stream.set_speed(100.0)
    stream.set_paused(False)
    assert times(take(stream, bool))[0] == 1601.0


@pytest.mark.long
def test_a_screen_takes_the_history_in_pieces_and_draws_the_frame_that_it_moved_to(play: Start) -> None:
    stream = play(series(3000), speed=0.001, paused=True)
    session = FrameSession(stream)
    bell = threading.Event()
    stream.inbox.on_arrival(bell.set)
    most = 0
    for target in (2000.0, 10.0, 1500.0):
        stream.seek(target)
        drawn: list[float] = []
        while not drawn or drawn[-1] != 100.0 + target:
            assert bell.wait(10.0)
            bell.clear()
            before = session.frames_taken
            session.drain()
            most = max(most, session.frames_taken - before)
            state = session.view_state()
            drawn += [] if state is None else [state.frame.monotonic_seconds]
        assert set(drawn[-1:]) == {100.0 + target}
        assert len(set(drawn)) <= 2, "the frame before the move, and the one that it moved to"
    assert most <= 2 * replay._PIECE_FRAMES
    assert stream.inbox.lost == 0


def test_it_stays_on_the_last_frame_and_can_be_moved_back(play: Start) -> None:
    stream = play(series(10))
    take(stream, lambda _: stream.position.ended)
    stream.seek(3.0)
    result = times(take(stream, lambda taken: stream.position.ended and len(taken) == 11))
    assert result == [None, *(100.0 + place for place in range(10))]


def test_histories_are_full_after_a_move(play: Start) -> None:
    frames = [frame(monotonic_seconds=100.0 + place, devices=(device(),)) for place in range(0, 900, 2)]
    stream = play(frames, paused=True)
    stream.seek(890.0)
    store = Store()
    for arrival in take(stream, lambda taken: bool(taken) and times(taken)[-1] == 990.0):
        if arrival is Discontinuity.REWOUND:
            store.clear()
        else:
            assert isinstance(arrival, Frame)
            store.apply(arrival)
    assert None not in store.history(device().key, "utilization_gpu_percent", HISTORY_BUCKETS)


def test_only_the_last_of_many_moves_counts(play: Start) -> None:
    stream = play(series(1000), speed=0.001, paused=True)
    for target in range(0, 900, 7):
        stream.seek(float(target))
    take(stream, lambda taken: bool(taken) and times(taken)[-1] == 996.0)
    assert eventually(lambda: stream.position.seconds == 896.0)


def test_where_recordings_were_joined_time_is_rewound(play: Start) -> None:
    stream = play([*series(3), *series(3, start=10.0)])
    result = times(take(stream, lambda _: stream.position.ended))
    assert result == [100.0, 101.0, 102.0, None, 10.0, 11.0, 12.0]
    assert stream.position.seconds == 4.0


@pytest.mark.parametrize(("count", "start"), [(1000, 300), (101, 50), (1, 0)])
def test_it_starts_as_if_one_had_been_watching(play: Start, count: int, start: int) -> None:
    stream = play(series(count), paused=True, watched=300.0)
    history = take(stream, bool)
    assert history == series(start + 1), "all of it arrives at once, before the first draw"
    assert eventually(lambda: stream.position.seconds == start)
    if start:
        stream.set_paused(False)
        assert times(take(stream, bool))[0] == 101.0 + start


def test_a_chosen_start_has_priority(tmp_path: Path) -> None:
    path = tmp_path / "day.jsonl"
    path.write_bytes(text(series(500)))
    stream = ReplayStream(path, watched_seconds=300.0)
    stream.set_paused(True)
    stream.seek(20.0)
    stream.start()
    assert take(stream, bool) == series(21)
    stream.close()


def test_a_long_file_is_not_searched_before_the_first_frame(play: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "_START_SCAN_BYTES", 1000)
    stream = play(series(400), paused=True, watched=300.0)
    assert take(stream, bool) == series(301)
    assert eventually(lambda: stream.position.duration_seconds == 399.0)
    stream.set_paused(False)
    assert times(take(stream, bool))[0] == 401.0, "the search for the end does not lose the next frame"


@pytest.mark.sampled(1)
@pytest.mark.parametrize("paused", [True, False])
def test_a_short_move_forward_keeps_the_history(play: Start, paused: bool) -> None:
    stream = play(series(3000), speed=0.001, paused=paused)
    moved(stream, 1000.0, 1100.0)
    stream.seek(1010.0)
    assert times(take(stream, lambda taken: len(taken) == 10)) == [*range(1101, 1111)]
    assert eventually(lambda: stream.position.seconds == 1010.0)
    stream.seek(1010.5)
    assert eventually(lambda: stream.position.seconds == 1010.5)
    stream.seek(1011.5)
    assert times(take(stream, bool)) == [1111.0]
    assert moved(stream, 1001.0, 1101.0)[:2] == [None, 381.0]


def test_damage_is_told_and_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "day.jsonl"
    path.write_bytes(text(series(2)) + b"torn\n" + text(series(2, start=102.0)))
    stream = ReplayStream(path, FAST)
    stream.start()
    assert len(take(stream, lambda _: stream.position.ended)) == 4
    assert stream.problem is not None
    assert stream.problem.code is ProblemCode.DAMAGED
    stream.close()


def test_a_pipe_with_a_name_is_played_but_not_moved_in(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    threading.Thread(target=fifo.write_bytes, args=(text(series(5)),)).start()
    stream = ReplayStream(fifo, FAST, repeat=True)
    stream.start()
    stream.seek(0.0)
    assert take(stream, lambda _: stream.position.ended) == series(5)
    stream.close()


def test_a_pipe_tells_its_frames_its_damage_and_its_end() -> None:
    reading, writing = os.pipe()
    stream = PipeStream(reading, "box")
    stream.start()
    os.write(writing, text(series(1)))
    assert take(stream, lambda taken: len(taken) == 1) == series(1)
    os.write(writing, b"damaged\n")
    assert eventually(lambda: stream.problem is not None)
    assert stream.problem is not None
    assert stream.problem.code is ProblemCode.DAMAGED
    os.write(writing, text(series(2))[:-20])
    assert take(stream, lambda taken: len(taken) == 1) == series(1)
    os.close(writing)
    assert eventually(lambda: stream.problem is not None and stream.problem.code is ProblemCode.STREAM_ENDED)
    assert str(stream.problem) == "The stream ended. The screen shows the last frame."


def test_a_file_that_is_no_recording_is_refused_before_anything_is_shown(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(CommandError) as caught:
            open_replay(path, 1.0)
        assert caught.value.exit_code is ExitCode.USAGE


FROM_INPUT = """
import os, sys, time
from pathlib import Path
from gpumon.core.problems import CommandError
from gpumon.streams.replay import open_replay
try:
    stream = open_replay(Path("-"), 1e6)
except CommandError as error:
    print("refused:", error)
    sys.exit(error.exit_code)
stream.start()
stream.inbox.arrived.wait(5)
print(type(stream).__name__, stream.inbox.drain()[0].monotonic_seconds, sys.__stdin__.isatty(), sys.stdin.readline())
"""


def run_on_terminal(script: str) -> tuple[int, str]:
    """Run a shell script with a new controlling terminal, in which a line is typed."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv("/bin/sh", ["sh", "-c", script])
    os.write(terminal, b"typed\n")
    said = b""
    try:
        while data := os.read(terminal, 4096):
            said += data
    except OSError:
        pass  # the terminal ends with its last process
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), said.decode()


@pytest.mark.parametrize(("source", "kind"), [("cat {} |", "PipeStream"), ("< {}", "ReplayStream")])
def test_frames_on_standard_input_leave_the_terminal_for_keys(tmp_path: Path, source: str, kind: str) -> None:
    (tmp_path / "day").write_bytes(text(series(2)))
    (tmp_path / "program.py").write_text(FROM_INPUT)
    program = f"{sys.executable} {tmp_path / 'program.py'}"
    place = source.format(tmp_path / "day")
    code, said = run_on_terminal(f"{place} {program}" if source.endswith("|") else f"{program} {place}")
    assert code == 0, said
    assert f"{kind} 100.0 True typed" in said
