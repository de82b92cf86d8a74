"""Runs without a process: a test says what the workload told and what its GPU did."""

from pathlib import Path
from typing import Any

from gpumon.diagnosis.verdict import sample_of
from gpumon.jobs.catalogue import WorkloadInfo
from gpumon.jobs.job import JobEnded, LogLine
from gpumon.jobs.parameters import Parameter, ParameterKind, Value
from gpumon.jobs.protocol import EventKind, JobEvent
from gpumon.jobs.request import JobRequest
from gpumon.operations.workload import Change, WorkloadRun
from gpumon.ui.jobs import CPU, BoardRun, gpu_place
from tests import builders

BEGAN = 1_800_000_000.0
GIB = 1 << 30

PARAMETERS = (
    Parameter("dtype", ParameterKind.CHOICE, "bf16", "fp32", "Type of the numbers.", choices=("fp32", "fp16", "bf16")),
    Parameter("size", ParameterKind.INTEGER, 8192, 1024, "Rows of the matrices.", minimum=64, maximum=32768),
    Parameter("duration", ParameterKind.NUMBER, 20.0, 5.0, "How long it lasts.", "s", 0.1, 86400),
    Parameter("inject_error", ParameterKind.FLAG, False, False, "Flips one bit, to see that it is found."),
)


def workload(name: str = "matmul", **changes: Any) -> WorkloadInfo:  # noqa: ANN401
    values: dict[str, Any] = {
        "name": name,
        "file": Path(f"/somewhere/{name}.py"),
        "purpose": f"Tries {name}: is it right, and how fast is it?",
        "needs": "One GPU or the CPU.",
        "why_not_cpu": "",
        "parameters": PARAMETERS,
    }
    return WorkloadInfo(**(values | changes))


def entry(key: str = "1", gpu: int | None = 0, info: WorkloadInfo | None = None) -> BoardRun:
    """A run that was asked for, and has told nothing yet."""
    devices = builders.frame().devices
    place = CPU if gpu is None else gpu_place(devices[gpu], devices)
    assert place is not None
    parameters: dict[str, Value] = {"dtype": "bf16", "size": 8192, "duration": 20.0, "inject_error": False}
    request = JobRequest(info or workload(), place.device, parameters, Path("/opt/torch/bin/python"), place.environment)
    return BoardRun(key, WorkloadRun(request), place)


def tell(told: BoardRun, kind: EventKind, seconds: float = 0.0, **fields: Any) -> None:  # noqa: ANN401
    """The workload tells something, some seconds after it began."""
    told.run.state.apply(JobEvent(kind, BEGAN + seconds, fields))


def fail(told: BoardRun, kind: str, text: str, *, expected: bool = False) -> None:
    """It meets an error."""
    fields = {"class": kind, "text": text, "expected": expected}
    told.run.state.apply(JobEvent(EventKind.ERROR, BEGAN, fields))


def plan(told: BoardRun, **uses: Any) -> None:  # noqa: ANN401
    """It tells its plan."""
    gpu = told.place is not CPU
    chip = {"name": "NVIDIA H200", "uuid": builders.device(0).uuid} if gpu else None
    wanted = {"memory_bytes": 12 * GIB if gpu else 0, "host_memory_bytes": 0, "seconds": 20.0, "peers": False, **uses}
    tell(told, EventKind.HELLO, workload="matmul", pid=4000)
    tell(
        told,
        EventKind.PLAN,
        torch="2.9.0",
        cuda="13.0" if gpu else None,
        device=told.place.device,
        chip=chip,
        uses=wanted,
        parameters={},
    )


def live(seconds: int = 12, gpu: int | None = 0) -> BoardRun:
    """A run in its midst, with everything that one can tell."""
    told = entry(gpu=gpu)
    plan(told)
    told.run.state.begin(BEGAN)
    tell(told, EventKind.STEP, 0.0, text="Random operands are multiplied once.")
    tell(told, EventKind.STEP, 1.0, text="The product is computed again and again; each result must equal the first.")
    for tenth in range(seconds * 10):
        tell(told, EventKind.METRIC, tenth / 10, name="throughput", value=600 + tenth % 37, unit="TFLOP/s")
        tell(told, EventKind.METRIC, tenth / 10, name="free_share", value=(tenth * 7 % 100) / 100, unit="")
    tell(told, EventKind.PROGRESS, seconds, done=seconds, total=20.0)
    tell(told, EventKind.TIMING, name="empty kernel", host_seconds=4.1e-6, device_seconds=9.3e-6)
    tell(told, EventKind.TIMING, name="matmul 8192", host_seconds=2.1e-5, device_seconds=1.6e-3)
    if gpu is not None:
        _watch(told, seconds)
    else:
        tell(told, EventKind.MEMORY, seconds, resident_bytes=GIB // 4)
    told.run.job.log.extend([LogLine("stdout", "hello"), LogLine("stderr", "a warning [/] of torch")])
    return told


def _watch(told: BoardRun, seconds: int) -> None:
    for second in range(seconds):
        device = builders.device(
            0,
            readings={"utilization_gpu_percent": min(100, second * 30), "power_watts": min(698, 200 + 90 * second)},
            throttle_reasons=("sw_power_cap",),
        )
        told.run.device = device
        told.run.samples.append(sample_of(device, BEGAN + second))
    tell(
        told,
        EventKind.MEMORY,
        seconds,
        allocated_bytes=3 * GIB,
        active_bytes=4 * GIB,
        reserved_bytes=6 * GIB,
        peak_allocated_bytes=5 * GIB,
        peak_reserved_bytes=9 * GIB,
        summary="|====|\n|  PyTorch CUDA memory summary, device ID 0  |\n|====|",
    )


def ended(verdict: str = "ok", gpu: int | None = 0, code: int = 0) -> BoardRun:
    """A run with its result, compared with the last one."""
    told = live(20, gpu)
    figures = [
        {"name": "throughput", "value": 617.25, "unit": "TFLOP/s", "repetitions": 99, "limit": 989.4}
        | {"limit_source": "132 SMs x 4096 operations a clock x 1830 MHz"},
        {"name": "wrong_elements", "value": 0, "unit": "elements", "repetitions": 1024, "limit": None},
    ]
    why = "bf16 8192 x 8192: 617 TFLOP/s, 62% of what the chip can do. All 1024 results equal a checked reference."
    tell(told, EventKind.RESULT, 20.0, verdict=verdict, why=why, figures=figures)
    told.run.state.apply(JobEnded(code, verdict == "cancelled", ""))
    told.run.changes = (Change("throughput", 610.0, 617.25),)
    told.ended_seconds = BEGAN + 20.0
    return told
