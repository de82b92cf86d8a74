"""`gpumon check`: nothing is wrong with a healthy node, and each planted fault is found, with Nagios's exit code."""

import json
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from gpumon.core.model import Device, Frame, Process
from gpumon.core.workload_metrics import Better, Measurement, WorkloadMetric
from gpumon.health.checks import Check, Status, verdict
from gpumon.health.doctor.facts import Expected
from gpumon.health.doctor.rules import NODE_WORKLOADS, NodeWorkload
from gpumon.health.doctor.siblings import performance
from gpumon.operations import node_workloads
from gpumon.operations.node_check import NodeOptions, NodeResult, check_node, summary_line
from gpumon.workload_runs.protocol import VerdictKind
from gpumon.workload_runs.state import RunResult
from tests.cli.running import run
from tests.health.doctor_facts import gpu, machine
from tests.nvml_mock import NvmlMock

EXPECTED = Expected(8, "H200")
LIMITS = (
    "Limit                     Soft Limit           Hard Limit     Units\nMax open files            {}  65536  files\n"
)


def node(root: Path) -> Path:
    """A node with eight GPUs as its files show it."""
    files = {
        "proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05  Tue",
        "proc/self/limits": LIMITS.format(65536),
        "proc/meminfo": "MemTotal:       2113000000 kB\n",
        "dev/kmsg": "",
        "dev/shm/x": "",
        "tmp/x": "",
        **{f"dev/nvidia{name}": "" for name in ("ctl", "-uvm", *map(str, range(8)))},
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


class Fault(NamedTuple):
    """A planted fault: where it is, and which check has to find it."""

    check: str
    status: Status
    mock: str = ""
    variables: dict[str, str] = {}  # noqa: RUF012 - read only
    files: Callable[[Path], Any] = lambda root: root


def _xid(root: Path) -> None:
    (root / "dev/kmsg").write_text("4,2,3,-;NVRM: Xid (PCI:0000:1B:00): 79, pid=1, GPU has fallen off the bus.\n")


FAULTS = (
    Fault("gpu.answers", Status.FAIL, "lost:1"), Fault("gpu.answers", Status.FAIL, "timeout:1"),
    Fault("gpu.alike", Status.WARN, "linkdown:1=5"),
    Fault("gpu.leftovers", Status.WARN, variables={"NVML_MOCK_PIDS": str(os.getpid())}),
    Fault("gpu.alike", Status.WARN, "narrow:1"), Fault("gpu.count", Status.FAIL, "count:7"),
    Fault("gpu.model", Status.FAIL, variables={"NVML_MOCK_NAME": "NVIDIA H100 80GB HBM3"}),
    Fault("gpu.ecc", Status.FAIL, "garbage:eccdbe:2"), Fault("gpu.ecc", Status.WARN, "wrong:eccpending:2"),
    Fault("gpu.alike", Status.WARN, "wrong:ecc:2"), Fault("gpu.row_remap", Status.WARN, "wrong:rows:3"),
    Fault("gpu.row_remap", Status.FAIL, "wrong:rowfail:3"),
    Fault("gpu.mig", Status.WARN, variables={"NVML_MOCK_MIG": "1:7"}),
    Fault("gpu.mig", Status.WARN, "wrong:migpending:1"), Fault("gpu.persistence", Status.WARN, "wrong:persistence"),
    Fault("gpu.compute_mode", Status.FAIL, "wrong:prohibited:4"), Fault("gpu.slowdown", Status.WARN, "wrong:hot:5"),
    Fault("gpu.slowdown", Status.WARN, "wrong:brake:5"), Fault("gpu.slowdown", Status.WARN, "wrong:warm:5"),
    Fault("gpu.row_remap", Status.WARN, "wrong:pages:5", variables={"NVML_MOCK_CC": "7.0"}),
    Fault("gpu.alike", Status.WARN, "wrong:cap:6"), Fault("gpu.unowned_memory", Status.WARN, "wrong:leak:7"),
    Fault("driver.nvml", Status.FAIL, "init:18"), Fault("gpu.xid", Status.FAIL, files=_xid),
    Fault("driver.nodes", Status.FAIL, files=lambda root: (root / "dev/nvidia-uvm").unlink()),
    Fault("host.ulimits", Status.WARN, files=lambda root: (root / "proc/self/limits").write_text(LIMITS.format(256))),
    Fault("host.shm", Status.FAIL, files=lambda root: (root / "dev/shm").rename(root / "dev/none")),
)  # fmt: skip


def examine(
    mock: NvmlMock, monkeypatch: pytest.MonkeyPatch, root: Path, fault: str = "", **variables: str
) -> NodeResult:
    for name, value in (mock.environment(fault=fault, NVML_MOCK_IDLE="1") | variables).items():
        monkeypatch.setenv(name, value)
    return check_node(NodeOptions(expected=EXPECTED, root=root))


def test_a_healthy_node(nvml_mock: NvmlMock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    result = examine(nvml_mock, monkeypatch, node(tmp_path))
    assert [check for check in result.checks if check.status in {Status.WARN, Status.FAIL}] == []
    done = {check.id for check in result.checks if check.status is Status.OK}
    assert done >= {fault.check for fault in FAULTS}, "what is skipped finds nothing"
    assert summary_line(result, EXPECTED).startswith("OK - 8/8 NVIDIA H200, ")


@pytest.mark.sampled(3)
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault.check}-{fault.mock}")
def test_a_planted_fault(fault: Fault, nvml_mock: NvmlMock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fault.files(node(tmp_path))
    result = examine(nvml_mock, monkeypatch, tmp_path, fault.mock, **fault.variables)
    by_id = {check.id: check for check in result.checks}
    assert by_id[fault.check].status is fault.status, by_id[fault.check]
    word = "CRITICAL" if verdict(result.checks) is Status.FAIL else "WARNING"
    line = summary_line(result, EXPECTED)
    assert line.startswith(word)
    assert f"{fault.check}: {by_id[fault.check].detail}" in line
    assert "\n" not in line


def test_exit_codes_are_those_of_nagios(nvml_mock: NvmlMock) -> None:
    ignored = ("driver.nodes", "host.shm", "host.ulimits", "driver.loaded")
    hidden = [word for check in ignored for word in ("--ignore", check)]
    environment = nvml_mock.environment(gpus=2, fault="wrong:persistence:1", NVML_MOCK_IDLE="1")
    done = run("check", "--json", "--expect-gpus", "2", "--ignore", "host.cgroup", *hidden, env=environment)
    document = json.loads(done.stdout)
    assert done.returncode == 1, document["summary"]
    assert document["verdict"] == "warn"
    assert document["summary"].startswith("WARNING - 2/2 NVIDIA H200, gpu.persistence: ")
    assert run("check", "--expect-gpus", "3", *hidden, env=environment).returncode == 2
    for wrong in (("--ignore", "no.such"), ("--level", "9")):
        done = run("check", *wrong, env=environment)
        assert (done.returncode, done.stdout[:9]) == (3, "UNKNOWN -")


def test_a_slow_gpu_and_a_wrong_result_of_a_workload() -> None:
    rate = WorkloadMetric("throughput", "TFLOP/s", Better.HIGHER)
    results = {
        f"GPU {index}": (Measurement(rate, value, 3),) for index, value in enumerate((700.0, 705.0, 690.0, 500.0))
    }
    assert performance(results, ()).status is Status.WARN
    assert "GPU 3 has 72% of the median throughput" in performance(results, ()).detail
    assert performance({name: results[name] for name in list(results)[:3]}, ()).status is Status.OK
    assert performance(results, ("GPU 1: 3 results are wrong.",)).status is Status.FAIL


def test_workloads_run_on_free_gpus_only_and_the_load_fills_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[tuple[str, tuple[int, ...], str]] = []
    heat = "The GPU was throttled by a high temperature."

    def run_workload(workload: NodeWorkload, devices: Sequence[Device], *_: object, **__: object) -> dict[str, Any]:
        ran.append((workload.name, tuple(gpu.index for gpu in devices), workload.settings.get("duration", "")))
        state = SimpleNamespace(result=RunResult(VerdictKind.WARN, heat), unsupported_reason=None)
        return {f"GPU {gpu.index}": SimpleNamespace(state=state) for gpu in devices}

    def checks(frame: Frame, seconds: float, *, force: bool) -> list[Check]:
        ran.clear()
        deadline = time.monotonic() + seconds
        return list(node_workloads.measured(frame, NODE_WORKLOADS, deadline, force=force, python=None))

    monkeypatch.setattr(node_workloads, "_run", run_workload)
    idle = {"utilization_gpu_percent": 0.0, "sm_activity_percent": 0.0, "memory_unattributed_bytes": 0}
    frame = machine(devices=(gpu(0, readings=idle, processes=()), gpu(1, readings=idle, processes=(Process(7),))))
    done = checks(frame, 480, force=False)
    assert ran == [("matmul", (0,), "3"), ("transfer", (0,), ""), ("burn", (0,), "460")]
    assert [check.status for check in done] == [Status.OK, Status.OK, Status.SKIP, Status.WARN]
    assert "GPU 1 in use" in done[0].detail
    assert done[3].detail.startswith(f"GPU 0: {heat}")
    done = checks(frame, 20, force=True)
    assert ran[-1] == ("collectives", (0, 1), "")
    assert done[3].status is Status.SKIP
