"""`gpumon selftest`: a healthy host passes every check, and each defect is found by its check."""

import asyncio
import json
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner

from gpumon.cli import commands
from gpumon.core.metrics import METRICS
from gpumon.core.model import Frame
from gpumon.core.problems import Problem, ProblemCode
from gpumon.core.timeline import Timeline
from gpumon.operations.doctor.examination import DoctorOptions, Examination
from gpumon.ui import selftest as selftest_module
from gpumon.ui.app import GpumonApp
from gpumon.ui.screens import doctor as doctor_module
from gpumon.ui.selftest import Status, keys, screens, selftest
from tests import builders
from tests.cli.running import run
from tests.nvml_mock import NvmlMock
from tests.ui.fakes import FakeLive

CHECKS = [
    "frames", "values", "overview", "device", "memory", "process", "processes", "jobs", "why", "cost", "topology",
    "alerts", "fleet", "help", "explain", "doctor", "workloads", "palette", "digits", "pause", "pace", "seek", "themes",
    "sizes",
]  # fmt: skip
PICTURES = {
    "overview.svg", "device-chart.svg", "metrics.svg", "memory.svg", "process.svg", "processes.svg", "jobs.svg",
    "why.svg", "cost.svg", "topology.svg", "alerts.svg", "help.svg", "explain.svg", "doctor.svg", "workloads.svg",
    "workload_form.svg",
}  # fmt: skip
SIZE = (100, 30)
NOT_SUPPORTED = Problem(ProblemCode.NOT_SUPPORTED, "This chip does not have it.")


@pytest.mark.timeout(240)
def test_demo_walks_everything_and_saves_pictures(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    monkeypatch.setattr(commands, "DEMO_SECONDS", 20)  # all of what was before is applied, which takes long
    done = CliRunner().invoke(commands.gpumon, ["selftest", "--demo", "--screens", str(folder), "--size", "100x30"])
    assert (done.exit_code, done.stderr) == (0, ""), done.stdout
    lines = [line.split(maxsplit=2) for line in done.stdout.splitlines()]
    assert [line[1] for line in lines] == CHECKS
    assert [line[1] for line in lines if line[0] != "ok"] == ["fleet"], "no Prometheus is configured"
    assert all(len(line) == 3 for line in lines), "each check has a detail"
    assert {path.name for path in folder.iterdir()} == PICTURES
    for path in folder.iterdir():
        assert ET.parse(path).getroot().tag.endswith("svg")


@pytest.mark.long
def test_a_healthy_host(nvml_mock: NvmlMock) -> None:
    done = run("selftest", "--json", env=nvml_mock.environment(gpus=2))
    assert (done.returncode, done.stderr) == (0, "")
    document = json.loads(done.stdout)
    assert (document["schema"], document["verdict"]) == (1, "ok")
    assert [check["id"] for check in document["checks"]] == [*CHECKS, "workload", "memory summary", "empty_cache"]
    skipped = {check["id"] for check in document["checks"] if check["status"] == "skip"}
    assert skipped == {"process", "seek", "fleet", "workload", "memory summary", "empty_cache"}, "no CUDA in torch"
    assert all(check["status"] in {"ok", "skip"} and check["detail"] for check in document["checks"])


@pytest.mark.long
def test_without_a_driver_selftest_opens_the_screens_on_the_demo(nvml_mock: NvmlMock) -> None:
    done = run("selftest", "--json", env=nvml_mock.environment_without_library())
    assert (done.returncode, done.stderr) == (3, "")
    driver, *checks = json.loads(done.stdout)["checks"]
    assert (driver["id"], driver["status"]) == ("driver", "skip")
    assert "libnvidia-ml.so.1" in driver["detail"]
    assert [check["id"] for check in checks] == CHECKS
    assert not [check for check in checks if check["status"] == "fail"]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("size", ["nonsense", "0x0", "80", "80x", "x24", "-1x5", "80x24x2", "1001x10"])
def test_an_invalid_size(nvml_mock: NvmlMock, size: str) -> None:
    done = run("selftest", "--demo", "--size", size, env=nvml_mock.environment())
    assert (done.returncode, done.stdout) == (2, "")
    assert "is not a size such as 160x50" in done.stderr


# Defects


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Restricts the selftest to the checks with some names."""

    def restrict(*names: str) -> None:
        steps = tuple((name, step) for name, step in selftest_module.STEPS if name in names)
        assert len(steps) == len(names)
        monkeypatch.setattr(selftest_module, "STEPS", steps)

    return restrict


async def failures(frame: Frame) -> dict[str, str]:
    """The checks that fail on a host, with their details. Metrics that the frame lacks are not supported there."""
    unknown = {metric: NOT_SUPPORTED for metric in METRICS if metric not in builders.READINGS}
    devices = tuple(replace(device, problems={**unknown, **device.problems}) for device in frame.devices)
    stream = FakeLive()
    stream.put(replace(frame, devices=devices))
    checks = await selftest(stream, SIZE, "dark", None)
    return {check.id: check.detail for check in checks if check.status is Status.FAIL}


@pytest.fixture(autouse=True)
def _short_timeouts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fake streams send one frame, and the commands above already test the large sizes."""
    monkeypatch.setattr(screens, "FIRST_FRAMES_SECONDS", 0.1)
    monkeypatch.setattr(screens, "_DOCTOR_SECONDS", 0.1)
    monkeypatch.setattr(keys, "SIZES", ((60, 10),))


@pytest.mark.long
async def test_a_healthy_host_has_no_failures_and_no_thread_is_left() -> None:
    before = {thread.name for thread in threading.enumerate()}
    assert await failures(builders.frame()) == {}

    def left() -> set[str]:
        return {thread.name for thread in threading.enumerate() if thread.name.startswith("gpumon-")} - before

    deadline = time.monotonic() + 30.0  # what the doctor asks of the host ends on its own
    while left() and time.monotonic() < deadline:
        await asyncio.sleep(0.05)
    assert left() == set()


async def test_a_value_that_is_missing_without_a_reason(only: Callable[..., None]) -> None:
    only("values")
    device = builders.device(0, readings={"power_watts": None})
    assert await failures(builders.frame(devices=(device,))) == {"values": "GPU 0 lacks power_watts without a reason"}


async def test_a_chart_without_points(monkeypatch: pytest.MonkeyPatch, only: Callable[..., None]) -> None:
    only("overview", "device")
    monkeypatch.setattr(Timeline, "columns", lambda *arguments: [None] * arguments[3])
    failed = await failures(builders.frame())
    assert set(failed) == {"device"}
    assert failed["device"].startswith("the chart of utilization_gpu_percent, temperature_celsius")


async def test_a_screen_that_does_not_open(monkeypatch: pytest.MonkeyPatch, only: Callable[..., None]) -> None:
    only("cost", "help")
    monkeypatch.setattr(GpumonApp, "action_help", lambda _: None)
    assert await failures(builders.frame()) == {"help": "OverviewScreen is on top instead of HelpScreen"}


async def test_a_hang_ends_at_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selftest_module, "TIMEOUT_SECONDS", 0.5)
    monkeypatch.setattr(screens, "FIRST_FRAMES_SECONDS", 60.0)
    checks = await selftest(FakeLive(), SIZE, "dark", None)
    assert [(check.id, check.status) for check in checks] == [("deadline", Status.FAIL)]


@pytest.mark.long
async def test_selftest_uses_no_gpu(monkeypatch: pytest.MonkeyPatch, only: Callable[..., None]) -> None:
    only("doctor")
    requests: list[DoctorOptions | None] = []

    def examination(request: DoctorOptions | None) -> Examination:
        requests.append(request)
        return Examination(request)

    monkeypatch.setattr(doctor_module, "Examination", examination)
    await failures(builders.frame())
    assert [request is not None and request.tests_gpus for request in requests] == [False]
