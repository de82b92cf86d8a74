"""The part of the selftest that uses a GPU: a short workload, its memory summary, and empty_cache() in a process."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from gpumon.core.json_fields import object_in
from gpumon.core.problems import CommandError
from gpumon.health.checks import Check, FailedError, SkippedError, Status
from gpumon.operations.empty_cache import empty_cache, explain_emptied
from gpumon.operations.recorded_file import connected_watcher
from gpumon.workload_runs.interpreter import find_interpreter

_RUN_SECONDS: Final = 60.0
_GPUMON: Final = (sys.executable, str(Path(__file__).resolve().parents[1] / "__main__.py"))
_WORKLOAD: Final = (
    *("run", "matmul", "--device", "cuda:0", "--json"),
    *("--set", "size=1024", "--set", "duration=1.5", "--set", "memory_percent=1"),
)
_CACHED_MIB: Final = 64
_PROGRAM: Final = f"""
import sys, torch
x = torch.empty({_CACHED_MIB} << 20, dtype=torch.uint8, device="cuda")
del x
print("ready", flush=True)
sys.stdin.read()
"""


def gpu_checks() -> Iterator[Check]:
    """Run the checks in turn; each needs a Python that has torch with CUDA."""
    events: list[dict[str, object]] = []
    yield _checked("workload", lambda: _run_workload(events))
    yield _checked("memory summary", lambda: _memory_summary(events))
    yield _checked("empty_cache", _empty_cache)


def _checked(name: str, step: Callable[[], str]) -> Check:
    try:
        return Check(name, Status.OK, step())
    except (FailedError, subprocess.TimeoutExpired) as error:
        return Check(name, Status.FAIL, str(error))
    except SkippedError as error:
        return Check(name, Status.SKIP, str(error))
    except CommandError as error:
        return Check(name, Status.FAIL, str(error.problem))


def _run_workload(events: list[dict[str, object]]) -> str:
    """Run a small matmul for a second, unless other processes use the GPU; its events are added to ``events``."""
    done = subprocess.run(
        [*_GPUMON, *_WORKLOAD], capture_output=True, text=True, timeout=_RUN_SECONDS, check=False,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    events += [event for line in done.stdout.splitlines() if (event := object_in(line.encode())) is not None]
    result = next((event for event in events if event.get("event") == "result"), None)
    if result is None:
        reasons = [str(event["text"]) for event in events if event.get("event") == "error"]
        raise SkippedError([*(reasons or done.stderr.strip().splitlines()), "The workload did not start."][0])
    if result.get("verdict") not in {"ok", "warn"}:
        raise FailedError(str(result.get("why")))
    return f"matmul: {result.get('verdict')}, {result.get('why')}"


def _memory_summary(events: list[dict[str, object]]) -> str:
    """The table of torch.cuda.memory_summary() that the workload sent."""
    if not any(event.get("event") == "result" for event in events):
        raise SkippedError("The workload did not run.")
    summary = next((str(event["summary"]) for event in events if event.get("summary")), "")
    if "Allocated memory" not in summary:
        raise FailedError("The workload sent no memory summary.")
    return f"{len(summary.splitlines())} lines"


def _empty_cache() -> str:
    """Start a process with the probe that caches memory, and have it return the memory to the driver."""
    try:
        python = find_interpreter(None).path
    except CommandError as error:
        raise SkippedError(str(error.problem)) from None
    command = [*_GPUMON, "watch", "--", str(python), "-c", _PROGRAM]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            if process.stdout.readline() != "ready\n":
                raise SkippedError((process.stderr.read().strip().splitlines() or ["torch did not start"])[-1])
            time.sleep(1.0)  # the probe reads the allocator once a second
            with connected_watcher((process.pid,)) as watcher:
                emptied = empty_cache(watcher, process.pid)
        finally:
            process.kill()
    released = sum(device.reserved_bytes for device in emptied.before) - sum(
        device.reserved_bytes for device in emptied.after
    )
    if released < _CACHED_MIB << 20:
        raise FailedError(f"{released >> 20} MiB were released, not {_CACHED_MIB} MiB")
    return explain_emptied(emptied, emptied.before[0].ordinal)[0]
