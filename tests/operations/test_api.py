"""`gpumon.api`: stable names, answers on the stand-in host and about a training run, and the recipes of its page."""

import gc
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

import gpumon.api
from gpumon.api import FrameIterator, GpumonError, PartKind
from gpumon.core.metrics import unknown_metric_text
from gpumon.core.problems import ProblemCode
from gpumon.streams.recording import RecordingWriter
from tests import builders
from tests.nvml_mock import NvmlMock
from tests.probe.children import Program, running
from tests.processes import IS_INITIAL
from tests.ui.fakes import FakeLive

NAMES = {
    "Advice", "AllocatorStatistics", "Bottleneck", "ComputeMode", "Device", "DeviceEvent", "DeviceState", "Explanation",
    "Fix", "Frame", "FrameIterator", "GpuProcess", "GpumonError", "Host", "KnownError", "LogAnswer", "Match",
    "MemoryPart", "MigInstance", "PartKind", "PickedDevices", "Problem", "ProblemCode", "Process", "ProcessKind",
    "SlownessEvidence", "StepAccount", "StepProgress", "StepShare", "Switch", "WhyReport", "SlownessVerdict",
    "explain", "frames", "memory", "pick", "processes", "snapshot", "why",
    "Collector", "MetricSummary", "HostProcess", "HostSummary", "process", "recording", "select_devices", "send_signal",
}  # fmt: skip
"""A name that is gone, or has another meaning, breaks the scripts of users."""

TRAINING = """
import sys, time, types
import torch
hooks = []
optimizer, compiler = types.ModuleType("torch.optim.optimizer"), types.ModuleType("torch.compiler")
optimizer.register_optimizer_step_post_hook, optimizer._global_optimizer_post_hooks = hooks.append, {}
compiler.is_compiling = lambda: False
sys.modules.update({"torch.optim.optimizer": optimizer, "torch.compiler": compiler})
gpu = types.SimpleNamespace(name="NVIDIA H200", total_memory=1 << 37, uuid="6d6f636b-4d6f-5b6b-8c01-000000000000")
torch.cuda.get_device_properties = lambda ordinal: gpu
torch.cuda.allocate(0, 1 << 30)
print("ready", flush=True)
while True:
    for hook in hooks:
        hook(optimizer)
    time.sleep(0.02)
"""
"""With the stand-in for torch: steps, and 1 GiB on the first GPU of the stand-in for the driver."""
LOG = 'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n    x @ y\ntorch.OutOfMemoryError: '
LOG += "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 79 GiB of which 5 GiB is free.\n"
PAGE = (Path(__file__).parents[2] / "docs" / "api.md").read_text(encoding="utf-8")
RECIPES = re.findall(r"(?:### ([^\n]*)\n\n)?```python\n(.*?)```", PAGE, re.DOTALL)
OUTPUTS = {
    "": "0 NVIDIA H200",
    "Log the mean, minimum and maximum of each epoch": r"0 \d+\.?\d*\n1 \d+",
    "Wait for a free GPU, then start": "GPU-6d6f",
    "One GPU for each rank": r"GPU-\S+\nGPU-",
    "Log the memory of a job each minute": r"GPU 0 \{'context': \d+, 'allocated': 1024(?s:.*)uses no GPU",
    "Explain the log of a failed job in CI": "::error::.*memory",
    "Compare two GPUs": r"metric +GPU 0 +GPU 1\nmemory_free_bytes",
    "Record frames to a file, and read them again": r"GPU-\S+ \d+ W\n",
    "Report why a training run is slow": r"(?s)\. *\n.* ms +\d",
}
"""What recipes print; the others print nothing on that host."""
MIN_RECIPES = 10


@pytest.fixture
def host(nvml_mock: NvmlMock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, value in nvml_mock.environment(gpus=2, NVML_MOCK_IDLE="1", XDG_STATE_HOME=str(tmp_path)).items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def training(
    nvml_mock: NvmlMock, monkeypatch: pytest.MonkeyPatch, short_path: Path, tmp_path: Path
) -> Iterator[Program]:
    """A training run with a probe, on both GPUs of the stand-in."""
    with running(short_path, TRAINING) as program:
        assert program.hear() == "ready"
        program.socket()
        mock = nvml_mock.environment(gpus=2, pids=[program.process.pid], NVML_MOCK_PROCS="1")
        folders = {"GPUMON_PROBE_DIR": str(short_path / "sockets"), "XDG_STATE_HOME": str(tmp_path)}
        for name, value in {**mock, **folders}.items():
            monkeypatch.setenv(name, value)
        yield program


def test_the_names_are_stable() -> None:
    assert set(gpumon.api.__all__) == NAMES
    assert all(hasattr(gpumon.api, name) for name in NAMES)
    assert gpumon.snapshot is gpumon.api.snapshot
    assert not hasattr(gpumon, "GpuProcess"), "types are those of gpumon.api"


def test_processes_and_their_memory(training: Program) -> None:
    pid = training.process.pid
    first, second = gpumon.processes()
    assert [(first.device.index, first.pid), (second.device.index, second.pid)] == [(0, pid), (1, pid)]
    assert first.torch is not None
    assert first.torch.reserved_bytes == 1 << 30
    deadline = time.monotonic() + 20
    while gpumon.processes()[0].training is None:  # the probe begins to count steps when it has a client
        assert time.monotonic() < deadline
        time.sleep(0.1)
    parts = {part.kind: part.bytes for part in gpumon.memory(pid)[0].parts}
    assert parts[PartKind.ALLOCATED] == 1 << 30
    assert parts[PartKind.CONTEXT] > 0
    with pytest.raises(GpumonError, match="uses no GPU of this host") as raised:
        gpumon.memory(os.getpid())
    assert raised.value.problem.remedy


def test_a_process_and_a_signal_to_exactly_it(training: Program) -> None:
    deadline = time.monotonic() + 20
    while (record := gpumon.process(training.process.pid)).step_seconds is None and time.monotonic() < deadline:
        time.sleep(0.1)  # the probe begins to count steps when it has a client
    assert record.argv is not None
    assert record.argv[0].endswith("python") or "python" in record.argv[0]
    assert record.parent == os.getpid()
    assert record.children == ()
    assert record.reserved_bytes == 1 << 30
    assert record.step_seconds is not None
    assert record.problems == {}
    with_steps = replace(record.gpus[0], torch=None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gpumon.operations.host_process.sample_process", lambda _: (with_steps,))
        reason = gpumon.process(training.process.pid).problems["allocated_bytes"].reason
    assert reason == "PyTorch has used no GPU in this process."
    with pytest.raises(GpumonError, match="no longer the process"):
        gpumon.send_signal(replace(record, start_ticks=1))
    with pytest.raises(ValueError, match="INT, TERM, KILL"):
        gpumon.send_signal(record, "HUP")
    gpumon.send_signal(record)
    assert training.process.wait(10) == -signal.SIGTERM


def test_why(training: Program) -> None:
    report = gpumon.why(training.process.pid, 1)
    account = report.evidence.account
    assert report.device is not None
    assert report.stages == ("passive",)
    assert sum(share.seconds for share in account.shares) == pytest.approx(account.step_seconds)
    with pytest.raises(GpumonError, match="has no probe"):
        gpumon.why(os.getpid())


def test_a_text_and_a_path_are_told_apart(tmp_path: Path) -> None:
    file = tmp_path / "train.log"
    file.write_text(LOG)
    for explanation in (gpumon.explain(LOG), gpumon.explain(file), gpumon.explain(tmp_path)):
        assert explanation.is_failure
        assert explanation.cause is not None
        assert explanation.cause.error.id == "oom"
    for name in (str(file), "of another run.log"[-7:]):
        with pytest.raises(GpumonError, match="is the name of a file") as raised:
            gpumon.explain(name)
        assert raised.value.problem.remedy == f"Pass pathlib.Path({name!r})."
    with pytest.raises(GpumonError, match="cannot be read"):
        gpumon.explain(tmp_path / "missing")


def test_pick_reserves_for_this_process(host: None) -> None:
    first, second = gpumon.pick(), gpumon.pick(device="all")
    assert first.pid == os.getpid()
    assert first.visible_devices == first.devices[0].uuid
    assert first.devices[0].index != second.devices[0].index
    with pytest.raises(GpumonError, match=f"is reserved for PID {os.getpid()}"):
        gpumon.pick()


def test_pick_of_a_mig_instance(host: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NVML_MOCK_MIG", "1:2")
    assert gpumon.pick(device="1:0").visible_devices.startswith("MIG-")


@pytest.mark.parametrize(("title", "code"), RECIPES, ids=[title for title, _ in RECIPES])
def test_the_recipes_of_the_page_run(
    title: str,
    code: str,
    training: Program,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    def sleep(seconds: float) -> None:
        """A recipe that sleeps for a minute finds afterwards that the job has ended."""
        if seconds < 60:
            real_sleep(seconds)
        else:
            training.process.kill()
            training.process.wait()
            monkeypatch.setenv("NVML_MOCK_PIDS", "")

    real_sleep = time.sleep
    monkeypatch.setattr(time, "sleep", sleep)
    (tmp_path / "train.log").write_text(LOG)
    (tmp_path / "train.py").write_text("import os\nos.write(1, f'{os.environ[\"CUDA_VISIBLE_DEVICES\"]}\\n'.encode())")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["recipe.py", str(training.process.pid)])
    if "pick(" in code:
        monkeypatch.setenv("NVML_MOCK_PIDS", "")
        monkeypatch.setenv("NVML_MOCK_IDLE", "1")
    exit_code = 0
    try:
        exec(compile(code, title, "exec"), {"__name__": "__main__"})
    except SystemExit as end:
        exit_code = int(end.code or 0)
    printed = capfd.readouterr().out
    assert re.search(OUTPUTS[title], printed) if title in OUTPUTS else not printed, printed
    assert exit_code == ("Epilog" in title or "in CI" in title)
    files = {file.name: file.read_text() for file in tmp_path.iterdir() if file.is_file()}
    assert f" {training.process.pid} " in files["epilog-0.txt"] if "Epilog" in title else "epilog-0.txt" not in files
    assert 'gpumon_power_watts{uuid="GPU-6d6f' in files["gpumon.prom"] if "node_exporter" in title else True
    assert len(RECIPES) > MIN_RECIPES


def test_a_summary_of_an_epoch(host: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NVML_MOCK_PIDS", str(os.getpid()))
    with gpumon.Collector(0.1) as collector:
        time.sleep(0.5)
        first, second = collector.summary("epoch"), collector.summary("epoch")
        assert collector.summary("run").frames >= first.frames
    power = first.devices["0"]["power_watts"]
    assert power.minimum <= power.mean <= power.maximum
    assert power.count >= 2
    own = first.processes[os.getpid()]
    assert own["memory_bytes"].mean > 1 << 30
    assert not IS_INITIAL or own["host_memory_bytes"].count >= 2
    assert second.frames == 0, "since the previous summary"
    assert first.flat()["epoch/gpu 0/power_watts/mean"] == power.mean
    assert "epoch/host/memory_available_bytes/max" in first.flat()
    assert not [thread for thread in threading.enumerate() if thread.name == "gpumon-collector"]


def test_activity_on_request(host: None) -> None:
    gpu = gpumon.snapshot(activity=True).gpus[1]
    for metric in ("sm_activity_percent", "pcie_receive_bytes_per_second", "nvlink_transmit_bytes_per_second"):
        assert gpu.get(metric) is not None, gpu.problems[metric]
    assert gpu.get("energy_joules") is not None
    assert unknown_metric_text("gpu_util") == "There is no metric 'gpu_util'. Did you mean utilization_gpu_percent?"
    with pytest.raises(ValueError, match=r"no metric 'utilisation_gpu'. Did you mean utilization_gpu_percent"):
        gpu.get("utilisation_gpu")


def test_devices_are_selected_without_a_reservation(host: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NVML_MOCK_MIG", "1:2")
    assert [gpu.label for gpu in gpumon.select_devices("1:0")] == ["1:0"]
    assert {gpu.label for gpu in gpumon.select_devices(free=True)} == {"0", "1:0", "1:1"}
    assert gpumon.select_devices(free_memory_bytes=1e15) == ()
    with pytest.raises(GpumonError, match="no GPU 7"):
        gpumon.select_devices("7")


def test_a_recording_is_read(tmp_path: Path) -> None:
    file = tmp_path / "host.jsonl"
    with closing(RecordingWriter(file)) as writer:
        for second in range(3):
            writer.write(builders.frame(monotonic_seconds=float(second)))
    assert [frame.monotonic_seconds for frame in gpumon.recording(file)] == [0.0, 1.0, 2.0]
    with pytest.raises(GpumonError, match="missing"):
        next(gpumon.recording(tmp_path / "missing"))


def test_a_snapshot(host: None) -> None:
    frame = gpumon.api.snapshot()
    assert [gpu.index for gpu in frame.gpus] == [0, 1]
    assert frame.gpus[0].get("power_watts") is not None


def test_without_a_driver_the_frame_has_the_reason(nvml_mock: NvmlMock, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in nvml_mock.environment_without_library().items():
        monkeypatch.setenv(name, value)
    frame = gpumon.api.snapshot()
    assert frame.devices == ()
    assert frame.problems["driver"].code is ProblemCode.LIBRARY_NOT_FOUND


def test_frames_arrive_one_after_the_other(host: None) -> None:
    with gpumon.api.frames(interval=0.1) as frames:
        moments = [frame.monotonic_seconds for frame, _ in zip(frames, range(4), strict=False)]
    assert moments == sorted(set(moments))
    assert list(frames) == [], "closed"


@pytest.mark.parametrize("interval", [0.0, -1.0, 1e9, float("nan")])
def test_intervals_out_of_range(interval: float) -> None:
    with pytest.raises(ValueError, match=r"from 0\.1 to 3600"):
        gpumon.api.frames(interval)


def test_a_loop_that_is_left_closes_the_collector() -> None:
    stream = FakeLive()
    stream.put(builders.frame())
    for _ in FrameIterator(stream):
        break
    gc.collect()
    assert (stream.started, stream.closed) == (1, 1)
