"""The host, and orphaned collectors."""

import os
import platform
import time
from pathlib import Path

import pytest

from gpumon.collect.host import COLLECTOR_NAME, HostReader, OrphanedCollectors
from gpumon.core.model import HOST_RATES
from gpumon.core.problems import ProblemCode
from tests.collect.proc import add_process, add_thread

COMM = COLLECTOR_NAME.encode()


def test_host() -> None:
    reader = HostReader()
    first = reader.read()
    time.sleep(0.1)  # a CPU's times are counted in ticks of 10 ms
    second = reader.read()
    assert first.cpu_percent is None
    assert "cpu_percent" in first.problems
    assert second.cpu_percent is not None
    assert not set(second.problems) - set(HOST_RATES), "the rates need samples that are further apart"
    assert second.memory_total_bytes is not None
    assert second.memory_available_bytes is not None
    assert 0 < second.memory_available_bytes < second.memory_total_bytes
    assert second.cpu_count == os.cpu_count()
    assert (second.uptime_seconds or 0) > 0


def test_cpu_utilization_is_the_share_that_is_not_idle(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text("MemTotal:       1000 kB\nMemAvailable:    250 kB\nHugePages_Total:       0\n")
    stat = tmp_path / "stat"
    stat.write_text("cpu  100 0 100 700 100 0 0 0 50 0\ncpu0 1 1 1 1\n")
    reader = HostReader(tmp_path)
    host = reader.read()
    assert (host.memory_total_bytes, host.memory_available_bytes) == (1000 << 10, 250 << 10)
    assert host.cpu_percent is None
    assert reader.read().problems["cpu_percent"].code is ProblemCode.NOT_READ, "no tick has passed"
    stat.write_text("cpu  130 0 100 750 120 0 0 0 80 0\n")
    assert reader.read().cpu_percent == 30.0
    stat.write_text("cpu  130 0 100 790 110 0 0 0 80 0\n")
    assert reader.read().cpu_percent == 0.0, "the kernel lets iowait decrease"


@pytest.mark.parametrize("stat", ["", "cpu  a b c d e\n", "cpu  1 2\n"])
def test_a_host_without_readable_times_says_so(tmp_path: Path, stat: str) -> None:
    (tmp_path / "stat").write_text(stat)
    host = HostReader(tmp_path).read()
    assert host.cpu_percent is None
    assert host.memory_total_bytes is None
    assert {"cpu_percent", "memory_total_bytes", "memory_available_bytes"} <= host.problems.keys()


def test_collector_name_fits_into_comm() -> None:
    assert len(COMM) <= 15


def test_a_collector_in_a_driver_call_is_left_behind(tmp_path: Path) -> None:
    add_process(tmp_path, 500, comm=COMM, state="D")
    folder = add_process(tmp_path, 501, comm=COMM, state="S")
    add_thread(folder, 502, b"502 (gpumon-collect) D 1" + b" 0" * 50)
    problem = OrphanedCollectors(0, tmp_path).problem(0)
    assert problem is not None
    assert problem.code is ProblemCode.COLLECTOR_LEFT_BEHIND
    assert "(PID 500, 501)" in problem.reason


def test_collectors_at_work_and_other_processes_are_not(tmp_path: Path) -> None:
    add_process(tmp_path, 500, comm=COMM, state="S")
    add_process(tmp_path, 501, comm=b"python", state="D")
    add_process(tmp_path, 502, comm=COMM, state="D", parent=600)
    add_process(tmp_path, 600, command=b"/usr/bin/python3\0/home/me/.venv/bin/gpumon\0")
    add_process(tmp_path, os.getpid(), comm=COMM, state="D")
    (tmp_path / "503").mkdir()
    assert OrphanedCollectors(0, tmp_path).problem(0) is None


def test_a_host_without_a_name_has_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "node", lambda: "")
    host = HostReader().read()
    assert host.name is None
    assert host.problems["name"].code is ProblemCode.NOT_FOUND
