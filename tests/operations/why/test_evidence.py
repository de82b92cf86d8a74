"""What is read of the host and of source files for the verdict on a training run."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from gpumon.core.stacks import ThreadStack
from gpumon.operations.why.host import HostObserver, Quota, allowed_cores, descendants, read_processes, read_quota
from gpumon.operations.why.source_lines import SourceLines
from tests.insight.bottlenecks.makers import stack


def stat_line(pid: int, parent: int, ticks: int, *, state: str = "R", ended: int = 0, faults: int = 0) -> str:
    fields = ["0"] * 50
    fields[0], fields[1], fields[9] = state, str(parent), str(faults)
    fields[11], fields[13] = str(ticks), str(ended)
    return f"{pid} (a) name) {' '.join(fields)}\n"


class FakeProc:
    """A folder like /proc."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "stat").write_text("cpu 100 0 0 900 0 0 0 0 0 0\n")

    def add(self, pid: int, parent: int, ticks: int, command: str, **more: int | str) -> None:
        folder = self.root / str(pid)
        (folder / "task" / str(pid)).mkdir(parents=True, exist_ok=True)
        line = stat_line(pid, parent, ticks, **more)  # type: ignore[arg-type]
        (folder / "stat").write_text(line)
        (folder / "task" / str(pid) / "stat").write_text(line)
        (folder / "task" / str(pid) / "schedstat").write_text(f"{ticks * 10**7} 0 5\n")
        (folder / "cmdline").write_bytes(command.replace(" ", "\0").encode())
        (folder / "status").write_text("Name:\tpython\nCpus_allowed_list:\t0-3,8\n")
        (folder / "environ").write_bytes(b"OMP_NUM_THREADS=1\0SECRET=x\0")
        (folder / "cgroup").write_text("0::/job\n")

    def thread(self, pid: int, thread: int, cpu: float, queued: float) -> None:
        folder = self.root / str(pid) / "task" / str(thread)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "schedstat").write_text(f"{int(cpu * 1e9)} {int(queued * 1e9)} 5\n")


@pytest.fixture
def proc(tmp_path: Path) -> FakeProc:
    fake = FakeProc(tmp_path)
    fake.add(10, 1, 100, "python train.py")
    fake.add(11, 10, 50, "python train.py")
    fake.add(12, 10, 50, "python -m torch._inductor.compile_worker")
    fake.add(99, 1, 10, "stress")
    return fake


def test_processes_threads_and_others(proc: FakeProc, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpumon.operations.why.host.time", SimpleNamespace(monotonic=iter([5.0, 5.2]).__next__))
    observer = HostObserver(10, proc.root)
    proc.add(10, 1, 120, "python train.py", state="D", ended=10)
    proc.add(11, 10, 70, "python train.py")
    proc.add(99, 1, 110, "stress")
    proc.thread(10, 10, 1.2, 0.1)
    proc.thread(10, 15, 0.3, 0.0)
    frames = stack(("program:feed.py", "decode", 8), main=None)
    observer.poll()
    observer.add_stacks([ThreadStack("decoder", is_main=False, frames=frames, native_id=15)])

    host = observer.evidence()

    scale = host.seconds
    assert scale == pytest.approx(0.2)
    assert host.workers_count == 1, "a compile worker is no worker of a DataLoader"
    assert host.workers_cpu_cores == pytest.approx((0.2 + 0.1) / scale)
    assert host.process_cpu_cores == pytest.approx((0.2 + 0.2 + 0.1) / scale)
    assert host.main_run_queue_share == pytest.approx(0.1 / scale)
    assert [name for name, _ in host.busiest_others] == ["stress (PID 99)"]
    assert host.busiest_others[0][1] == pytest.approx(1.0 / scale)
    assert host.disk_wait_share == 1.0
    assert host.python_threads == {"decoder": "feed.py:8"}
    assert host.settings == {"OMP_NUM_THREADS": "1"}
    assert host.allowed_cores == 5


def test_a_process_that_ends_has_no_values(proc: FakeProc) -> None:
    observer = HostObserver(10, proc.root)
    for path in sorted((proc.root / "10").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()

    host = observer.evidence()

    assert host.process_cpu_cores is None
    assert host.main_run_queue_share is None
    assert host.disk_wait_share is None


def test_descendants_and_cores(proc: FakeProc) -> None:
    proc.add(13, 11, 1, "child of a child")

    assert descendants(10, read_processes(proc.root)) == {11, 12, 13}
    assert allowed_cores(proc.root / "10") == 5
    assert allowed_cores(proc.root / "404") is None


def test_the_quota_of_a_cgroup(proc: FakeProc, tmp_path: Path) -> None:
    cgroup = tmp_path / "cgroups" / "job"
    cgroup.mkdir(parents=True)
    (cgroup / "cpu.stat").write_text("usage_usec 5\nnr_periods 100\nnr_throttled 40\n")
    (cgroup / "cpu.max").write_text("150000 100000\n")

    assert read_quota(proc.root / "10", tmp_path / "cgroups") == Quota(1.5, 100, 40)

    (cgroup / "cpu.max").write_text("max 100000\n")
    assert read_quota(proc.root / "10", tmp_path / "cgroups") is None


def test_source_lines_and_settings(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(
        "import torch\nx = loss.item()\x1b[2J\nm = DDP(m, find_unused_parameters=True)\n# bucket_cap_mb=1,\n"
        "os.environ['CUDA_LAUNCH_BLOCKING'] = '1'\n"
    )
    lines = SourceLines(os.getpid())

    assert lines.line(str(file), 1) == "import torch"
    assert "\x1b" not in lines.line(str(file), 2)
    assert lines.line(str(file), 99) == ""
    assert lines.settings() == {"find_unused_parameters": "train.py:3", "CUDA_LAUNCH_BLOCKING": "train.py:5"}


def test_only_python_files_are_read(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("password\n")
    pipe = tmp_path / "pipe.py"
    os.mkfifo(pipe)
    lines = SourceLines(os.getpid())

    assert lines.line(str(secret), 1) == ""
    assert lines.line(str(pipe), 1) == ""
    assert lines.line(f"{tmp_path}/../{tmp_path.name}/secret.py", 1) == ""
    assert lines.line("relative.py", 1) == ""
