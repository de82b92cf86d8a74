"""On a real GPU with several jobs: rows agree with nvidia-smi and /proc, and a job ends from the screen."""

import json
import pwd
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from gpumon.core.model import Frame
from gpumon.streams.live import LiveStream
from tests.gpu.test_live import MEBIBYTE, gpumon, smi, status
from tests.processes import start_ticks

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(120), pytest.mark.xdist_group("gpu")]

_JOB = """
import sys, time, torch
held = torch.zeros(int(float(sys.argv[1]) * (1 << 30)), dtype=torch.uint8, device="cuda:0")
factor = torch.randn(4096, 4096, device="cuda:0")
torch.mm(factor, factor)
torch.cuda.synchronize()
print("ready", flush=True)
while True:
    if sys.argv[2] == "busy":
        for _ in range(20):
            torch.mm(factor, factor)
        torch.cuda.synchronize()
    else:
        time.sleep(0.1)
"""
"""Holds some GiB; busy with matrix products, or idle."""

_TRAINER = """
import os, sys, tempfile
os.environ["CUDA_VISIBLE_DEVICES"] = "0"  # with several GPUs, Trainer uses all of them
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

class Ready(TrainerCallback):
    def on_step_end(self, arguments, state, control, **_):
        if state.global_step == 3:
            print("ready", flush=True)

tokens = torch.randint(0, 100, (64,))
data = [{"input_ids": tokens, "labels": tokens}] * 100000
model = GPT2LMHeadModel(GPT2Config(vocab_size=100, n_positions=64, n_embd=64, n_layer=2, n_head=2))
arguments = TrainingArguments(
    output_dir=tempfile.mkdtemp(), max_steps=10**6, save_strategy="no", report_to=[], disable_tqdm=True
)
Trainer(model=model, args=arguments, train_dataset=data, callbacks=[Ready()]).train()
"""
"""A small model in the loop of transformers' Trainer."""

_BACK_SECONDS = 5.0
"""The memory of a job is back this long after its signal."""


@contextmanager
def job(script: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A job that has allocated its memory."""
    command = [sys.executable, "-c", script, *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        while line and line.strip() != "ready":
            line = process.stdout.readline()
        assert line, process.communicate()[1][-2000:]
        yield process
    finally:
        process.kill()
        process.communicate()


def theirs() -> dict[int, int]:
    """MiB of each process as ``nvidia-smi --query-compute-apps`` lists it; one on several GPUs is added up."""
    memory: dict[int, int] = {}
    for row in smi("compute-apps", "pid", "used_gpu_memory"):
        if row["used_gpu_memory"].isdigit():
            memory[int(row["pid"])] = memory.get(int(row["pid"]), 0) + int(row["used_gpu_memory"])
    return memory


def need(pids: Sequence[int]) -> dict[int, int]:
    """The list of nvidia-smi, once all PIDs are in it.

    The test is skipped if the driver lists other PIDs, as those of another PID namespace.
    """
    deadline = time.monotonic() + 10
    while not set(pids) <= (listed := theirs()).keys():
        if time.monotonic() > deadline:
            pytest.skip(f"the driver lists PIDs of another namespace: {listed}, not {pids}")
        time.sleep(0.5)
    return listed


def mine() -> dict[int, list[dict[str, Any]]]:
    """The rows of ``gpumon status --json`` by PID, one for each GPU of a process."""
    rows: dict[int, list[dict[str, Any]]] = {}
    for device in status()["devices"]:
        for process in device["processes"] or ():
            rows.setdefault(process["pid"], []).append(process)
    return rows


def pmon_pids() -> set[int]:
    """The PIDs of ``nvidia-smi pmon``."""
    done = subprocess.run(["nvidia-smi", "pmon", "-c", "1"], capture_output=True, text=True, check=True)
    rows = [line.split() for line in done.stdout.splitlines() if not line.startswith("#")]
    return {int(row[1]) for row in rows if len(row) > 1 and row[1].isdigit()}


def test_rows_agree_with_nvidia_smi_and_proc() -> None:
    pytest.importorskip("torch")
    with ExitStack() as stack:
        sizes = {stack.enter_context(job(_JOB, size, "idle")).pid: float(size) for size in ("0.5", "1", "2")}
        listed = need(list(sizes))
        rows, pmon = mine(), pmon_pids()
        print("nvidia-smi", listed, "pmon", pmon, "gpumon", rows)
        assert set(sizes) <= pmon
        assert rows.keys() == theirs().keys()
        for pid, size in sizes.items():
            (row,) = rows[pid]
            assert row["memory_bytes"] == pytest.approx(listed[pid] * MEBIBYTE, abs=2 * MEBIBYTE)
            assert size * 1024 <= listed[pid] <= size * 1024 + 2048, "what it has allocated, and its CUDA context"
            proc = Path("/proc", str(pid))
            assert row["command"].startswith(sys.executable)
            assert row["user"] in {pwd.getpwuid(proc.stat().st_uid).pw_name, str(proc.stat().st_uid)}
            assert row["start_ticks"] == start_ticks(pid)
            assert 0 < row["age_seconds"] < 120
            assert row["host_memory_bytes"] > 100 * MEBIBYTE
        memory = [rows[pid][0]["memory_bytes"] for pid in sizes]
        assert memory == sorted(memory)


def test_the_share_of_the_multiprocessors_is_that_of_the_busy_job() -> None:
    """Only the shares are requested, as by the screen of processes: nothing else of the GPU is sampled."""
    pytest.importorskip("torch")
    stream = LiveStream(1.0)
    with job(_JOB, "0.5", "busy") as busy, job(_JOB, "0.5", "idle") as idle:
        need([busy.pid, idle.pid])
        stream.start()
        try:
            shares: dict[int, float] = {}
            frame: Frame | None = None
            deadline = time.monotonic() + 30
            while time.monotonic() < deadline and not (shares.get(busy.pid, 0) >= 50 and idle.pid in shares):
                stream.inbox.arrived.wait(2)
                for frame in [item for item in stream.inbox.drain() if isinstance(item, Frame)]:
                    stream.request_on_demand([], [device.key for device in frame.devices])
                    processes = [process for device in frame.devices for process in device.processes or ()]
                    shares |= {process.pid: share for process in processes if (share := process.sm_percent) is not None}
        finally:
            stream.close()
    print("busy", shares.get(busy.pid), "idle", shares.get(idle.pid))
    assert shares[busy.pid] >= 50
    assert shares[idle.pid] <= 5
    assert frame is not None
    assert "tensor_activity_percent" not in frame.devices[0].readings


def test_a_job_ended_from_the_screen_gives_its_memory_back() -> None:
    pytest.importorskip("torch")
    with job(_JOB, "3", "idle") as ended, job(_JOB, "0.5", "idle") as other:
        need([ended.pid, other.pid])
        before = int(smi("gpu", "memory.used")[0]["memory.used"])
        waiting = subprocess.Popen(
            [sys.executable, "-m", "gpumon", "wait", "--pid", str(ended.pid), "--timeout", "60s"],
            stdout=subprocess.PIPE,
            text=True,
        )
        with gpumon(rows=40, cols=140) as terminal:
            terminal.wait_for("1 GPUs")
            terminal.send("2")
            terminal.wait_for(rf"(?m)\b{ended.pid} ")
            terminal.send("/")
            terminal.wait_for("words, or user:ann")
            terminal.send(f"pid:{ended.pid}")
            terminal.wait_for(r"\b1 of \d")
            terminal.send("\r")
            time.sleep(0.5)  # the rows have the focus again
            terminal.send("*")
            terminal.wait_for(rf"\*{ended.pid} ")
            terminal.send("K")
            terminal.wait_for(r"Send a signal to 1 process\?")
            terminal.send("\x1b[B\r")
            terminal.wait_for(rf"SIGTERM sent to PID {ended.pid}")
            deadline = time.monotonic() + _BACK_SECONDS
            ended.wait(_BACK_SECONDS)
            while ended.pid in theirs() or before - int(smi("gpu", "memory.used")[0]["memory.used"]) < 3 * 1024:
                assert time.monotonic() < deadline, "its memory did not come back"
                time.sleep(0.2)
            terminal.wait_for(rf"PID {ended.pid} no longer uses a GPU\.", timeout=10)
            terminal.send("q")
            assert terminal.wait_exit() == 0
        assert other.poll() is None, "the other job runs on"
        text = waiting.communicate(timeout=30)[0]
        assert waiting.returncode == 0
        assert text == f"PID {ended.pid} has ended.\n"


def test_a_trainer_of_transformers_is_listed() -> None:
    for package in ("torch", "transformers", "accelerate"):
        if find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    with job(_TRAINER) as trainer:
        listed = need([trainer.pid])
        row = mine()[trainer.pid][0]
        print(json.dumps(row))
        assert row["memory_bytes"] == pytest.approx(listed[trainer.pid] * MEBIBYTE, rel=0.2)
        assert row["cpu_percent"] is None or row["cpu_percent"] > 5
