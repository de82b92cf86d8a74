"""Runs without a process: a test sends the events of the workload and the samples of its GPU."""

from pathlib import Path
from typing import Any

from gpumon.core.workload_metrics import Measurement, WorkloadMetric
from gpumon.insight.workload_verdict import sample_of
from gpumon.operations.device_selection import CPU, gpu_target
from gpumon.operations.workload import MetricChange, WorkloadRun
from gpumon.workload_runs.catalogue import RunRequest, WorkloadInfo
from gpumon.workload_runs.parameters import ParameterKind, Value, WorkloadParameter
from gpumon.workload_runs.protocol import RunEvent, RunEventKind
from gpumon.workload_runs.supervised_run import LogLine, RunEnded
from tests import builders

BEGAN = 1_800_000_000.0
GIB = 1 << 30

PARAMETERS = (
    WorkloadParameter(
        "dtype", ParameterKind.CHOICE, "bf16", "fp32", "Type of the numbers.", choices=("fp32", "fp16", "bf16")
    ),
    WorkloadParameter("size", ParameterKind.INTEGER, 8192, 1024, "Rows of the matrices.", minimum=64, maximum=32768),
    WorkloadParameter("duration", ParameterKind.NUMBER, 20.0, 5.0, "How long it lasts.", "s", 0.1, 86400),
    WorkloadParameter("inject_error", ParameterKind.FLAG, False, False, "Flips one bit, which the check must detect."),
)


def measured(*figures: Any) -> list[Measurement]:  # noqa: ANN401
    """The measurements of a result in its public format."""
    parsed = [Measurement.of(figure) for figure in figures]
    return [measurement for measurement in parsed if measurement is not None]


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


def new_run(key: str = "1", gpu: int | None = 0, info: WorkloadInfo | None = None) -> WorkloadRun:
    """A run that was requested and has not sent anything yet."""
    devices = builders.frame().devices
    target = CPU if gpu is None else gpu_target(devices[gpu], devices)
    assert target is not None
    parameters: dict[str, Value] = {"dtype": "bf16", "size": 8192, "duration": 20.0, "inject_error": False}
    python = Path("/opt/torch/bin/python")
    request = RunRequest(info or workload(), target.device, parameters, python, target.environment)
    return WorkloadRun(request, target, key)


def send(run: WorkloadRun, kind: RunEventKind, seconds: float = 0.0, **fields: Any) -> None:  # noqa: ANN401
    """The workload sends an event, some seconds after it started its work."""
    run.state.apply(RunEvent(kind, BEGAN + seconds, fields))


def report_error(run: WorkloadRun, kind: str, text: str, *, expected: bool = False) -> None:
    """The workload reports an error."""
    fields = {"class": kind, "text": text, "expected": expected}
    run.state.apply(RunEvent(RunEventKind.ERROR, BEGAN, fields))


def send_plan(run: WorkloadRun, **uses: Any) -> None:  # noqa: ANN401
    """The workload sends its plan."""
    is_gpu = run.target is not CPU
    chip = {"name": "NVIDIA H200", "uuid": builders.device(0).uuid} if is_gpu else None
    planned = {"memory_bytes": 12 * GIB if is_gpu else 0, "host_memory_bytes": 0, "seconds": 20.0, "peers": False}
    send(run, RunEventKind.HELLO, workload="matmul", pid=4000)
    send(
        run,
        RunEventKind.PLAN,
        torch="2.9.0",
        cuda="13.0" if is_gpu else None,
        device=run.target.device,
        chip=chip,
        uses=planned | uses,
        parameters={},
    )


def live_run(seconds: int = 12, gpu: int | None = 0) -> WorkloadRun:
    """A run at work, with every kind of event that a workload can send."""
    run = new_run(gpu=gpu)
    send_plan(run)
    run.state.record_start(BEGAN)
    send(run, RunEventKind.STEP, 0.0, text="Random operands are multiplied once.")
    send(run, RunEventKind.STEP, 1.0, text="The product is computed again and again; each result must equal the first.")
    for tenth in range(seconds * 10):
        send(run, RunEventKind.METRIC, tenth / 10, name="throughput", value=600 + tenth % 37, unit="TFLOP/s")
        send(run, RunEventKind.METRIC, tenth / 10, name="free_share", value=(tenth * 7 % 100) / 100, unit="")
    send(run, RunEventKind.PROGRESS, seconds, done=seconds, total=20.0)
    send(run, RunEventKind.TIMING, name="empty kernel", host_seconds=4.1e-6, device_seconds=9.3e-6)
    send(run, RunEventKind.TIMING, name="matmul 8192", host_seconds=2.1e-5, device_seconds=1.6e-3)
    if gpu is not None:
        _add_samples(run, seconds)
    else:
        send(run, RunEventKind.MEMORY, seconds, resident_bytes=GIB // 4)
    run.child.log.extend([LogLine("stdout", "hello"), LogLine("stderr", "a warning [/] of torch")])
    return run


def _add_samples(run: WorkloadRun, seconds: int) -> None:
    for second in range(seconds):
        device = builders.device(
            0,
            readings={"utilization_gpu_percent": min(100, second * 30), "power_watts": min(698, 200 + 90 * second)},
            throttle_reasons=("sw_power_cap",),
        )
        run.device = device
        run.samples.append(sample_of(device, BEGAN + second))
    send(
        run,
        RunEventKind.MEMORY,
        seconds,
        allocated_bytes=3 * GIB,
        active_bytes=4 * GIB,
        reserved_bytes=6 * GIB,
        peak_allocated_bytes=5 * GIB,
        peak_reserved_bytes=9 * GIB,
        summary="|====|\n|  PyTorch CUDA memory summary, device ID 0  |\n|====|",
    )


def ended_run(verdict: str = "ok", gpu: int | None = 0, code: int = 0) -> WorkloadRun:
    """A run with its result, compared with the last one."""
    run = live_run(20, gpu)
    metrics = [
        {"name": "throughput", "value": 617.25, "unit": "TFLOP/s", "repetitions": 99, "limit": 989.4}
        | {"limit_source": "132 SMs x 4096 operations a clock x 1830 MHz"},
        {"name": "wrong_elements", "value": 0, "unit": "elements", "repetitions": 1024, "limit": None},
    ]
    why = "bf16 8192 x 8192: 617 TFLOP/s, 62% of what the chip can do. All 1024 results equal a checked reference."
    send(run, RunEventKind.RESULT, 20.0, verdict=verdict, why=why, figures=metrics)
    run.state.apply(RunEnded(code, verdict == "cancelled", ""))
    run.changes = (MetricChange(WorkloadMetric("throughput"), 610.0, 617.25),)
    run.ended_seconds = BEGAN + 20.0
    return run
