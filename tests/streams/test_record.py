import dataclasses
import signal
import subprocess
import sys
import time
from collections.abc import Collection
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.core.frames import encode
from gpumon.core.model import Frame, Host
from gpumon.core.problems import CommandError, ExitCode, Problem, ProblemCode
from gpumon.operations.record import Anonymizer, record
from gpumon.streams.base import FrameInbox
from gpumon.streams.recording import RecordingReader
from tests.builders import device, frame, process

HELPER = """
import signal, sys, threading
from pathlib import Path
from gpumon.operations.record import record
from tests.builders import frame
from tests.streams.test_record import FakeStream
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup or in the background they come ignored
signal.signal(signal.SIGINT, signal.default_int_handler)
stream = FakeStream([frame(), frame(monotonic_seconds=101.0)])
threading.Timer(0.05, lambda: print("ready", file=sys.stderr, flush=True)).start()
try:
    record(stream, Path(sys.argv[1]), None, anonymize=False, activity=False)
finally:
    print("closed", stream.closed, file=sys.stderr)
"""


class FakeStream:
    """Gives frames at its start, and nothing more."""

    title = "fake"

    def __init__(self, frames: list[Frame]) -> None:
        self.inbox = FrameInbox()
        self.requested: set[str] = set()
        self.closed = False
        self._frames = frames

    @property
    def problem(self) -> Problem | None:
        return None

    def start(self) -> None:
        for item in self._frames:
            self.inbox.put(item)

    def close(self) -> None:
        self.closed = True

    def request_on_demand(self, keys: Collection[str], process_keys: Collection[str] = ()) -> None:
        self.requested = {*keys, *process_keys}


def recorded(path: Path) -> list[Frame]:
    reader = RecordingReader(path)
    frames = [item.frame for item in reader]
    assert reader.problem is None
    reader.close()
    return frames


@pytest.mark.parametrize("name", ["day.jsonl", "day.jsonl.gz"])
def test_frames_are_recorded_until_the_time_is_over(tmp_path: Path, name: str) -> None:
    frames = [frame(), frame(monotonic_seconds=101.0)]
    stream = FakeStream(frames)

    def reports(recorded: Frame) -> dict[str, object]:
        if recorded == frames[1]:
            stream.inbox.put(frame(monotonic_seconds=102.0))
        return {}

    record(stream, tmp_path / name, 0.1, anonymize=False, activity=False, reports=reports)
    assert recorded(tmp_path / name) == [*frames, frame(monotonic_seconds=102.0)]
    assert stream.closed


@pytest.mark.parametrize("missed", [0, 3])
def test_frames_that_could_not_be_written_in_time_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], missed: int
) -> None:
    stream = FakeStream([frame(monotonic_seconds=100.0 + place) for place in range(2 + missed)])
    stream.inbox = FrameInbox(size=2)
    record(stream, tmp_path / "day", 0.001, anonymize=False, activity=False)
    assert ("lacks 3 frames" in capsys.readouterr().err) == bool(missed)
    assert len(recorded(tmp_path / "day")) == 2


@pytest.mark.parametrize("activity", [True, False])
def test_activity_of_all_gpus_is_recorded_unless_it_is_not_wanted(activity: bool, tmp_path: Path) -> None:
    stream = FakeStream([frame(devices=(device(0), device(1)))])
    record(stream, tmp_path / "day", 0.001, anonymize=False, activity=activity)
    assert stream.requested == ({device(0).key, device(1).key} if activity else set())


def test_without_a_driver_there_is_nothing_to_record(tmp_path: Path) -> None:
    away = Problem(ProblemCode.DRIVER_NOT_LOADED, "The driver is not loaded.", "Load it.")
    stream = FakeStream([frame(devices=(), problems={"driver": away})])
    with pytest.raises(CommandError, match="not loaded") as caught:
        record(stream, tmp_path / "day", 1.0, anonymize=False, activity=False)
    assert caught.value.exit_code is ExitCode.MISSING_PREREQUISITE
    assert not (tmp_path / "day").exists()
    assert stream.closed


def test_a_driver_that_goes_away_later_is_recorded(tmp_path: Path) -> None:
    away = Problem(ProblemCode.DRIVER_NOT_LOADED, "The driver is not loaded.", "Load it.")
    frames = [frame(), frame(devices=(), problems={"driver": away})]
    record(FakeStream(frames), tmp_path / "day", 0.01, anonymize=False, activity=False)
    assert recorded(tmp_path / "day") == frames


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGTERM, 128 + signal.SIGTERM), (signal.SIGHUP, 128 + signal.SIGHUP), (signal.SIGINT, -signal.SIGINT)],
)
def test_a_signal_ends_a_recording_and_the_file_is_whole(tmp_path: Path, number: signal.Signals, code: int) -> None:
    path = tmp_path / "day.gz"
    child = subprocess.Popen([sys.executable, "-c", HELPER, str(path)], stderr=subprocess.PIPE, text=True)
    assert child.stderr is not None
    assert child.stderr.readline() == "ready\n"
    child.send_signal(number)
    said = child.communicate(timeout=20)[1]
    assert child.returncode == code
    assert "closed True" in said
    assert len(recorded(path)) == 2


def test_a_recording_ends_soon_after_its_reader(tmp_path: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", HELPER, "-"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == encode(frame()) + "\n"
    child.stdout.close()
    assert child.stderr is not None
    started = time.monotonic()
    said = child.stderr.read()
    child.wait(20)
    assert time.monotonic() - started < 10
    assert "BrokenPipeError" in said
    assert "closed True" in said
    child.stderr.close()


def test_signal_handlers_are_put_back(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    record(FakeStream([frame()]), tmp_path / "day", 0.001, anonymize=False, activity=False)
    assert signal.getsignal(signal.SIGTERM) is before


SECRET = frame(
    host=Host(name="node7.lab.example"),
    devices=(
        device(
            0,
            processes=(
                process(
                    1, user="ada", command="/home/ada/env/bin/python3 /home/ada/x/train.py --data=/data/ada -k s3cr3t"
                ),
                process(
                    2, user="bob", command="torchrun --nproc-per-node 8 -m pkg.run --token hf_abc https://u:p@x.y/z"
                ),
            ),
            problems={
                "fan": Problem(ProblemCode.UNKNOWN, "Read /home/ada/f on node7 of GPU-00000000-4d6f-5b6b failed.")
            },
        ),
        device(1, processes=(process(1, user="ada", command="bob_tool a b=c ada@node7:/x/y.py d"),)),
    ),
)


def test_an_anonymous_frame_tells_nobody() -> None:
    result = Anonymizer().apply(SECRET)
    line = encode(result)
    for secret in ("node7", "lab.example", "ada", "bob", "/home", "/data", "s3cr3t", "hf_abc", "4d6f-5b6b", "x.y"):
        assert secret not in line, secret
    assert result.host.name == "host"
    assert [item.uuid for item in result.devices] == [f"GPU-00000000-0000-0000-0000-00000000000{n}" for n in (0, 1)]
    first, second = result.devices[0].processes or ()
    assert (first.pid, first.user, first.command) == (1, "user1", "python3 train.py --data …")
    assert (second.user, second.command) == ("user2", "torchrun --nproc-per-node … -m pkg.run --token …")
    (third,) = result.devices[1].processes or ()
    assert (third.user, third.command) == ("user1", "…")
    assert str(result.devices[0].problems["fan"]) == "Read … on … of … failed."


def test_names_stay_the_same_within_a_recording() -> None:
    anonymizer = Anonymizer()
    anonymizer.apply(SECRET)
    later = dataclasses.replace(SECRET, devices=(dataclasses.replace(SECRET.devices[1], index=0),))
    changed = anonymizer.apply(later).devices[0]
    assert changed.uuid == "GPU-00000000-0000-0000-0000-000000000001"
    assert changed.processes is not None
    assert changed.processes[0].user == "user1"


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("", ""),
        ("-m", "-m"),
        ("python -m torch.distributed.run -m secret x.py", "python -m torch.distributed.run … x.py"),
        ("python train.py -m secret", "python train.py …"),
        ("python -c import_os;print(1)", "python …"),
        ("mysql -m secret --password=x --user y", "mysql … --password … --user …"),
        ("KEY=value python", "…"),
        ("/home/grace hopper/bin/python", "…"),
        ("sshd: grace [priv]", "sshd …"),
        ("ray::Worker.run", "…"),
        ("python ./a/b.py ../c.py http://h/d.py", "python b.py c.py …"),
    ],
)
def test_little_is_left_of_a_command_line(command: str, shown: str) -> None:
    assert Anonymizer().command(command) == shown


@given(st.text(max_size=80), st.text(max_size=200))
def test_any_text_can_be_made_anonymous(user: str, command: str) -> None:
    made = Anonymizer().apply(frame(devices=(device(processes=(process(user=user, command=command),)),)))
    (result,) = made.devices[0].processes or ()
    assert result.user == "user1"
    assert result.command is not None
    assert "/" not in result.command
    assert "@" not in result.command


def test_missing_stays_missing() -> None:
    made = Anonymizer().apply(frame(host=Host(), devices=(device(uuid=None, processes=None),)))
    assert made.host.name is None
    assert made.devices[0].uuid is None
    assert made.devices[0].processes is None
