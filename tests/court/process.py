"""The process of one training run."""

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Final

from tests.court.cases import CUDA, TWO_GPUS, Case

REPOSITORY: Final = Path(__file__).parents[2]
SCRIPT: Final = Path(__file__).with_name("training") / "run.py"
_START_SECONDS: Final = 150.0
"""torch.compile is part of the first steps."""
_END_SECONDS: Final = 40.0
_POLL_SECONDS: Final = 0.5


class TrainingError(Exception):
    """A training run ended, or did not answer in time."""


class SkippedError(Exception):
    """A training run that this host cannot run."""


def device_of(case: Case, device: str) -> str | None:
    """The device that the case runs on if `device` is preferred; None if it cannot run there."""
    if case.is_cpu_only:
        return "cpu"
    return None if device == "cpu" and case.needs in {CUDA, TWO_GPUS} else device


class TrainingProcess:
    """A training run under `gpumon watch`, in its own process group, until `close`."""

    def __init__(
        self, case: Case, device: str, *, is_cured: bool, seconds: float, python: str = sys.executable, ranks: int = 2
    ) -> None:
        watch = [sys.executable, "-m", "gpumon", "watch", "--"]
        options = ["--device", device, "--seconds", str(seconds), "--wait"]
        options += ["--cured"] if is_cured else []
        options += ["--ranks", str(ranks)] if case.has_ranks else []
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed with the process
        self._process = subprocess.Popen(
            [*watch, python, str(SCRIPT), case.module, case.name, *options],
            cwd=REPOSITORY,
            env=_environment(device, is_one_thread=case.module != "contention")
            | ({} if is_cured else dict(case.environment)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            start_new_session=True,
        )
        self._events: queue.Queue[dict[str, Any] | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def close(self) -> None:
        """End it, and the processes that it started."""
        if self._process.returncode is None:
            for pid in (*_descendants(self._process.pid), self._process.pid):  # torchrun gives each rank its own group
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        with contextlib.suppress(OSError):
            assert self._process.stdin is not None
            self._process.stdin.close()
        self._errors.close()

    def first_steps(self) -> int:
        """Let it begin, and wait until it steps.

        Returns:
            The PID of rank 0.

        Raises:
            SkippedError: It cannot run here.
            TrainingError: It ended, or took too long.
        """
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.write("\n")
            self._process.stdin.flush()
        return int(self._next("stepping", _START_SECONDS)["pid"])

    def end(self) -> dict[str, Any]:
        """End it early, and return what it measured."""
        self._process.send_signal(signal.SIGTERM)
        return self._next("end", _END_SECONDS)

    def result(self, seconds: float) -> dict[str, Any]:
        """Wait for its end, and return what it measured."""
        return self._next("end", seconds + _END_SECONDS)

    def _next(self, name: str, seconds: float) -> dict[str, Any]:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            try:
                event = self._events.get(timeout=min(left, _POLL_SECONDS))
            except queue.Empty:
                continue
            if event is None:
                raise TrainingError(f"ended without {name}: {self._last_error()}")
            if event["event"] == "skipped":
                raise SkippedError(event["reason"])
            if event["event"] == name and event.get("rank", 0) == 0:
                return event
        raise TrainingError(f"no {name} within {seconds:.0f} s: {self._last_error()}")

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with contextlib.suppress(ValueError):
                event = json.loads(line)
                if isinstance(event, dict) and "event" in event:
                    self._events.put(event)
        self._events.put(None)

    def _last_error(self) -> str:
        self._errors.seek(0)
        lines = [line.strip() for line in self._errors.read().splitlines() if "Error" in line]
        return lines[-1][:300] if lines else "no error message"


def _descendants(pid: int) -> list[int]:
    children: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            children += map(int, path.read_text().split())
    return [*children, *(other for child in children for other in _descendants(child))]


def _environment(device: str, *, is_one_thread: bool) -> dict[str, str]:
    """That of a user; on the CPU one thread for each process, so that other load on this host changes less."""
    one_thread = {"OMP_NUM_THREADS": "1"} if device == "cpu" and is_one_thread else {}
    no_multicast = {"NCCL_NVLS_ENABLE": "0"}  # not every host with several GPUs allows it
    return {**no_multicast, **os.environ, **one_thread}
