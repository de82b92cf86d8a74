"""Signals go to the process that was shown, or to none."""

import json
import random
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpumon.collect.processes import UNPROVEN
from gpumon.operations.signal_log import log_signal, signal_log
from gpumon.operations.signals import PidfdCalls, SentSignal, SignalRefusal, SignalResult, SignalSender, SignalTarget
from tests import builders
from tests.collect.proc import add_process
from tests.processes import sleeper, start_ticks

UID = 1000
OWN_PID = 700


class FakeKernel(PidfdCalls):
    """PIDs, each with the process that has it now, in a /proc of the test's own."""

    def __init__(self, proc: Path) -> None:
        self.proc = proc
        self.starts: dict[int, int] = {}
        """Start time of the process that has a PID now."""
        self.opened: dict[int, tuple[int, int]] = {}
        self.sent: list[tuple[int, int, int]] = []
        """PID, start time and number of each signal, as the process that was opened got it."""
        self.before_open: Callable[[], None] = lambda: None
        self.after_open: Callable[[], None] = lambda: None
        self.error: OSError | None = None

    def start(
        self, pid: int, start_ticks: int, command: str = "python train.py", uid: int = UID, **other: object
    ) -> None:
        words = command.encode().replace(b" ", b"\0") + b"\0"
        add_process(self.proc, pid, words, start_ticks=start_ticks, uid=uid, **other)  # type: ignore[arg-type]
        self.starts[pid] = start_ticks

    def end(self, pid: int) -> None:
        (self.proc / str(pid) / "stat").unlink()
        del self.starts[pid]

    def open(self, pid: int) -> int:
        self.before_open()
        if pid not in self.starts:
            raise ProcessLookupError(3, "No such process")
        self.opened[len(self.opened)] = pid, self.starts[pid]
        self.after_open()
        return len(self.opened) - 1

    def send(self, descriptor: int, number: int) -> None:
        pid, start_ticks = self.opened[descriptor]
        if self.error is not None:
            raise self.error
        if self.starts.get(pid) != start_ticks:
            raise ProcessLookupError(3, "No such process")
        self.sent.append((pid, start_ticks, number))

    def close(self, descriptor: int) -> None:
        del descriptor


@pytest.fixture
def kernel(tmp_path: Path) -> FakeKernel:
    fake = FakeKernel(tmp_path / "proc")
    fake.start(1, 1, "init", uid=0, parent=0)
    fake.start(600, 50, "bash")
    fake.start(OWN_PID, 60, "gpumon", parent=600)
    fake.start(4000, 5000)
    return fake


def sender(kernel: FakeKernel, uid: int = UID) -> SignalSender:
    return SignalSender(kernel.proc, kernel, OWN_PID, uid)


def examined(kernel: FakeKernel, pid: int = 4000, uid: int = UID, **changes: object) -> SignalTarget | SignalRefusal:
    process = builders.process(pid, **{"start_ticks": kernel.starts.get(pid, 77), "user": "ada", **changes})
    return sender(kernel, uid).examine(process)


def target_of(kernel: FakeKernel, pid: int = 4000, uid: int = UID) -> SignalTarget:
    target = examined(kernel, pid, uid)
    assert isinstance(target, SignalTarget)
    return target


def refused(kernel: FakeKernel, pid: int = 4000, uid: int = UID, **changes: object) -> str:
    refusal = examined(kernel, pid, uid, **changes)
    assert isinstance(refusal, SignalRefusal)
    assert str(pid) in refusal.reason
    return refusal.reason


@pytest.mark.parametrize("sent", SentSignal)
def test_a_signal_reaches_its_process(kernel: FakeKernel, sent: SentSignal) -> None:
    target = target_of(kernel)
    assert target.command == "python train.py"
    assert not target.is_foreign
    assert sender(kernel).send(target, sent) == SignalResult(target, sent)
    assert kernel.sent == [(4000, 5000, sent.value)]


def test_two_hundred_attempts_on_reused_pids_reach_no_wrong_process(kernel: FakeKernel) -> None:
    chance = random.Random(14)
    ticks = 10_000
    wrong, reached = [], 0
    pids = range(4000, 4008)
    for pid in pids:
        kernel.start(pid, ticks)

    def shuffle() -> None:
        """Any process ends, and its PID may be taken by another one, with the same command line or not."""
        nonlocal ticks
        for pid in pids:
            ticks += 1
            if chance.random() < 0.3:
                if pid in kernel.starts:
                    kernel.end(pid)
                if chance.random() < 0.8:
                    kernel.start(pid, ticks, chance.choice(["python train.py", "python other.py"]))

    for _ in range(200):
        for pid in pids:
            if pid not in kernel.starts:
                kernel.start(pid, ticks := ticks + 1)
        pid = chance.choice(pids)
        target = target_of(kernel, pid)
        shown = kernel.starts[pid]
        kernel.before_open, kernel.after_open = chance.choice(
            [(lambda: None, lambda: None), (shuffle, lambda: None), (lambda: None, shuffle), (shuffle, shuffle)]
        )
        kernel.sent.clear()
        result = sender(kernel).send(target, chance.choice(list(SentSignal)))
        kernel.before_open = kernel.after_open = lambda: None
        wrong += [item for item in kernel.sent if item[:2] != (pid, shown)]
        assert bool(kernel.sent) == (not result.refusal)
        reached += len(kernel.sent)
    assert wrong == []
    assert 50 < reached < 150, "both cases occur"


def test_a_pid_that_was_reused_before_the_dialog_opened(kernel: FakeKernel) -> None:
    assert "no longer the process that was shown" in refused(kernel, start_ticks=4999)
    kernel.end(4000)
    assert refused(kernel) == "PID 4000 has ended."


def test_a_process_that_became_another_program_or_user(kernel: FakeKernel) -> None:
    target = target_of(kernel)
    kernel.start(4000, 5000, "bash -c other")
    assert "no longer the process that was shown" in sender(kernel).send(target, SentSignal.TERM).refusal
    kernel.start(4000, 5000, uid=UID + 1)
    assert "no longer the process that was shown" in sender(kernel).send(target, SentSignal.TERM).refusal
    assert kernel.sent == []


def test_a_row_without_proof_is_never_a_target(kernel: FakeKernel) -> None:
    reason = refused(kernel, start_ticks=None, command=None, problems={"command": UNPROVEN})
    assert "Nothing proves which process" in reason
    assert "container" in reason


@pytest.mark.parametrize(
    ("pid", "words"),
    [(1, "first process"), (600, "started this gpumon"), (OWN_PID, "q quits"), (800, "X stops"), (801, "X stops")],
)
def test_gpumon_its_parents_and_its_children_are_no_targets(kernel: FakeKernel, pid: int, words: str) -> None:
    kernel.start(800, 90, "collector", parent=OWN_PID)
    kernel.start(801, 91, "workload", parent=800)
    for uid in (UID, 0):
        if pid != 1 or uid == 0:
            assert words in refused(kernel, pid, uid)


def test_another_users_process_is_for_root_alone(kernel: FakeKernel) -> None:
    assert refused(kernel, uid=UID + 1) == "PID 4000 belongs to ada: only that user and root may signal it."
    target = target_of(kernel, uid=0)
    assert target.is_foreign
    assert sender(kernel, 0).send(target, SentSignal.TERM).refusal == ""


def test_a_zombie_is_explained(kernel: FakeKernel) -> None:
    kernel.start(4000, 5000, state="Z", parent=3999)
    reason = refused(kernel)
    assert "zombie" in reason
    assert "3999" in reason


def test_a_blocked_process_is_explained_and_a_short_wait_is_not(kernel: FakeKernel) -> None:
    target = target_of(kernel)
    kernel.start(4000, 5000, state="D")
    assert "uninterruptible" in sender(kernel).send(target, SentSignal.KILL).refusal
    kernel.after_open = lambda: kernel.start(4000, 5000, state="S")
    assert sender(kernel).send(target, SentSignal.KILL).refusal == ""


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (PermissionError(1, "Operation not permitted"), "does not permit"),
        (ProcessLookupError(3, "No such process"), "has ended"),
        (OSError(22, "Invalid argument"), "Invalid argument"),
    ],
)
def test_what_the_kernel_refuses_is_a_sentence(kernel: FakeKernel, error: OSError, words: str) -> None:
    kernel.error = error
    assert words in sender(kernel).send(target_of(kernel), SentSignal.TERM).refusal


def test_a_kernel_without_pidfd_sends_nothing(kernel: FakeKernel) -> None:
    def fail() -> None:
        raise OSError(38, "Function not implemented")

    kernel.before_open = fail
    assert "Function not implemented" in sender(kernel).send(target_of(kernel), SentSignal.TERM).refusal
    assert kernel.sent == []


# Real processes


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    process = sleeper()
    yield process
    process.kill()
    process.wait()


@pytest.mark.parametrize("sent", SentSignal)
def test_a_real_process_ends_by_the_signal(child: subprocess.Popen[bytes], sent: SentSignal) -> None:
    real = SignalSender(own_pid=1 << 22)
    target = real.examine(builders.process(child.pid, start_ticks=start_ticks(child.pid)))
    assert isinstance(target, SignalTarget)
    assert abs(target.started_seconds - time.time()) < 10
    time.sleep(0.3)  # the interpreter has installed its handler of SIGINT
    assert real.send(target, sent).refusal == ""
    assert child.wait(10) in {-sent.value, 1}
    assert real.send(target, sent).refusal == f"PID {child.pid} has ended."


# The log


@pytest.fixture
def state_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


def a_result(command: str = "python train.py", refusal: str = "") -> SignalResult:
    target = SignalTarget(4000, 5000, UID, "ada", command, "", 0.0, is_foreign=False)
    return SignalResult(target, SentSignal.TERM, refusal)


def test_the_log_has_a_line_for_each_signal_and_only_its_user_can_read_it(state_home: Path) -> None:
    assert log_signal(a_result()) is None
    assert log_signal(a_result(refusal="PID 4000 has ended.")) is None
    path = signal_log()
    assert path == state_home / "gpumon" / "signals.log"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    first, second = (json.loads(text) for text in path.read_text().splitlines())
    said = {"signal": "SIGTERM", "pid": 4000, "user": "ada", "command": "python train.py", "sent": True}
    assert first.items() >= said.items()
    assert (second["sent"], second["reason"]) == (False, "PID 4000 has ended.")


@pytest.mark.parametrize(
    "command",
    [
        "python x.py --api-key sEcReT1",
        "python x.py --hub_token=sEcReT1",
        "python x.py --password sEcReT1 --steps 5",
        "env WANDB_API_KEY=sEcReT1 python x.py",
        "git clone https://ann:sEcReT1@host/x",
        "x hf_sEcReT1abcdefghijkl",
    ],
)
def test_the_log_has_no_secrets(state_home: Path, command: str) -> None:
    assert log_signal(a_result(command)) is None
    assert "sEcReT1" not in (state_home / "gpumon" / "signals.log").read_text()
    assert "<secret>" in (state_home / "gpumon" / "signals.log").read_text()


# A real PID namespace

REUSE = """
import os, signal, subprocess, sys, time
from pathlib import Path
from gpumon.core.procfs import read_stat
from gpumon.operations.signals import SentSignal, SignalSender, SignalTarget
from tests import builders

def start():
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])

def ticks(pid):
    return read_stat(f"/proc/{pid}").start_ticks

sender = SignalSender(own_pid=1 << 22)
first = start()
pid = first.pid
target = sender.examine(builders.process(pid, start_ticks=ticks(pid)))
assert isinstance(target, SignalTarget), target
first.kill()
first.wait()
time.sleep(0.05)  # the start time counts in hundredths of a second
Path("/proc/sys/kernel/ns_last_pid").write_text(str(pid - 1))
second = start()
assert second.pid == pid, (second.pid, pid)
assert target.start_ticks != ticks(pid)
for sent in SentSignal:
    print(sender.send(target, sent).refusal)
time.sleep(0.1)
print("alive" if second.poll() is None else "dead")
second.kill()
"""


def test_a_pid_that_the_kernel_reused_gets_no_signal() -> None:
    """In a PID namespace of the test's own, in which the next PID can be chosen."""
    unshare = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
    try:
        subprocess.run([*unshare, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this user cannot make a PID namespace")
    done = subprocess.run(
        [*unshare, sys.executable, "-c", REUSE], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    *refusals, last = done.stdout.splitlines()
    assert len(refusals) == 3
    assert all("no longer the process that was shown" in refusal for refusal in refusals)
    assert last == "alive"
