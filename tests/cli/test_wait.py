"""`gpumon wait`: what it waits for, its sentence, its timeout, and signals."""

import signal
import subprocess
import time
from collections.abc import Callable, Iterator

import pytest

from gpumon.core.model import Device, Frame
from gpumon.core.problems import ExitCode
from gpumon.operations.wait import GpuWatch, is_free, memory_above, utilization_below, wait_for_gpus
from tests.builders import device, frame
from tests.cli.running import GPUMON, is_one_line, run
from tests.nvml_mock import NvmlMock
from tests.processes import tree


def moments(*rows: tuple[Device, ...]) -> Iterator[Frame]:
    for second, devices in enumerate(rows):
        yield frame(devices=devices, monotonic_seconds=100.0 + second)


def used(percent: int | None) -> Device:
    return device(3, readings={"utilization_gpu_percent": percent})


def test_free_means_every_named_gpu() -> None:
    free, busy = device(0, processes=()), device(0)
    other = device(1, processes=())
    assert GpuWatch("0-1", [is_free()], 0).add(frame(devices=(busy, other))) is None
    assert GpuWatch("0-1", [is_free()], 0).add(frame(devices=(free, other))) == "GPU 0 is free; GPU 1 is free."


def test_an_unknown_value_is_not_true() -> None:
    assert GpuWatch("3", [utilization_below(5)], 0).add(frame(devices=(used(None),))) is None
    assert GpuWatch("0", [is_free()], 0).add(frame(devices=(device(0, processes=None),))) is None
    stale = device(0, processes=(), age_seconds=60.0)
    assert GpuWatch("0", [is_free()], 0).add(frame(devices=(stale,))) is None


def test_the_time_starts_again_after_a_break() -> None:
    rows = [(used(percent),) for percent in (0, 0, 50, 1, 1, 1, 1)]
    frames = moments(*rows)
    sentence = wait_for_gpus(frames, GpuWatch("3", [utilization_below(5)], 2))
    assert sentence == "GPU 3 is utilized to 1 %, for 2s."
    assert next(frames).monotonic_seconds == 106.0


def test_memory() -> None:
    full = device(0, readings={"memory_free_bytes": 1 << 30})
    assert GpuWatch("0", [memory_above(90)], 0).add(frame(devices=(full,))) == "GPU 0 uses 99 % of its memory."
    assert GpuWatch("0", [memory_above(90)], 0).add(frame(devices=(device(0),))) is None


def test_a_free_gpu_ends_the_wait_when_its_process_ends(nvml_mock: NvmlMock) -> None:
    done = run("wait", "--gpu", "1", "--free", env=nvml_mock.environment(gpus=2, NVML_MOCK_IDLE="1"))
    assert (done.returncode, done.stdout) == (0, "GPU 1 is free.\n")


def test_a_gpu_in_mig_mode_is_free_when_its_instances_are(
    nvml_mock: NvmlMock, sleepers: Callable[[int], list[int]]
) -> None:
    environment = nvml_mock.environment(
        gpus=1, pids=sleepers(1), NVML_MOCK_PROCS="1", NVML_MOCK_IDLE="1", NVML_MOCK_MIG="0:2"
    )

    def wait(*argv: str) -> tuple[int, str]:
        done = run("wait", "--timeout", "3s", "--interval", "0.3", *argv, env=environment)
        return done.returncode, done.stdout

    assert wait("--gpu", "0", "--free") == (1, ""), "the process is on instance 0:0"
    assert wait("--gpu", "0:1", "--free") == (0, "GPU 0:1 is free.\n")
    code, sentence = wait("--gpu", "0:1", "--utilization-below", "100")
    assert code == 0
    assert sentence.startswith("GPU 0:1 is utilized to ")


def test_the_timeout(nvml_mock: NvmlMock, sleepers: Callable[[int], list[int]]) -> None:
    environment = nvml_mock.environment(gpus=1, pids=sleepers(1))
    for seconds in (1, 4, 16):  # a busy host may need longer than the timeout for the first values
        done = run("wait", "--gpu", "0", "--free", "--timeout", f"{seconds}s", "--interval", "0.2", env=environment)
        if done.returncode != ExitCode.MISSING_PREREQUISITE:
            break
    assert done.returncode == ExitCode.BAD_VERDICT
    assert is_one_line(done.stderr)


def test_the_end_of_a_process(nvml_mock: NvmlMock) -> None:
    with subprocess.Popen(["sleep", "1"]) as sleeper:
        began = time.monotonic()
        done = run("wait", "--pid", str(sleeper.pid), env=nvml_mock.environment())
        assert time.monotonic() - began > 0.3
    assert (done.returncode, done.stdout) == (0, f"PID {sleeper.pid} has ended.\n")
    assert run("wait", "--pid", str(sleeper.pid), env=nvml_mock.environment()).stdout.endswith("already ended.\n")


def test_a_process_that_does_not_end(nvml_mock: NvmlMock, sleepers: Callable[[int], list[int]]) -> None:
    (pid,) = sleepers(1)
    assert run("wait", "--pid", str(pid), "--timeout", "0.3", env=nvml_mock.environment()).returncode == 1


def test_an_interrupt_ends_it_cleanly(nvml_mock: NvmlMock, sleepers: Callable[[int], list[int]]) -> None:
    environment = nvml_mock.environment(gpus=1, pids=sleepers(1))
    started = subprocess.Popen(
        [GPUMON, "wait", "--gpu", "0", "--free"], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    deadline = time.monotonic() + 60
    while len(tree(started.pid)) < 2:  # it has no collector yet
        assert time.monotonic() < deadline
        time.sleep(0.05)
    started.send_signal(signal.SIGINT)
    output, errors = started.communicate(timeout=60)
    assert (started.returncode, output, errors) == (130, b"", b"\n")


@pytest.mark.parametrize(
    ("argv", "code"),
    [
        ([], 2),
        (["--gpu", "0"], 2),
        (["--free"], 2),
        (["--pid", "1", "--gpu", "0", "--free"], 2),
        (["--gpu", "0", "--memory-above", "200%"], 2),
        (["--gpu", "9", "--free"], 3),
    ],
)
def test_errors(nvml_mock: NvmlMock, argv: list[str], code: int) -> None:
    assert run("wait", *argv, env=nvml_mock.environment(gpus=1)).returncode == code
