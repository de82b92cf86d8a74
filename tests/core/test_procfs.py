"""The files of /proc, with what the kernel writes into them and what it does not."""

import os
import sys
from pathlib import Path

import pytest

from gpumon.core.control_groups import control_groups, cpu_quota
from gpumon.core.procfs import (
    find_stat,
    nvidia_files,
    read_meminfo,
    read_same_stat,
    read_stat,
    read_status,
    read_title,
    sysfs_bus_id,
)

FIELDS = " ".join(["S", "41", *(str(number) for number in range(2, 50))])


@pytest.mark.parametrize("name", ["python", "a b", "a) R 1 (b", "", "\n) Z 7"])
def test_a_name_may_contain_anything(tmp_path: Path, name: str) -> None:
    (tmp_path / "stat").write_text(f"7 ({name}) {FIELDS}\n")
    stat = read_stat(tmp_path)
    assert (stat.name, stat.state, stat.parent, stat.start_ticks, stat.wait_status) == (name, "S", 41, 19, 49)
    assert stat.cpu_seconds == (11 + 12) / os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize(
    "content", [None, "", "garbage", "7 (python) S 1 2", f"7 (python) {FIELDS.replace('19', 'x')}"]
)
def test_no_process(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "stat").write_text(content)
    assert find_stat(tmp_path) is None


def test_this_process() -> None:
    stat = read_stat("/proc/self")
    assert (stat.parent, stat.state, stat.has_ended) == (os.getppid(), "R", False)
    assert read_same_stat("/proc/self", stat.start_ticks).start_ticks == stat.start_ticks
    with pytest.raises(ProcessLookupError):
        read_same_stat("/proc/self", stat.start_ticks + 1)
    assert read_status("/proc/self")["Pid"] == str(os.getpid())
    assert Path(sys.executable).name in read_title("/proc/self")
    assert list(nvidia_files("/proc/self")) == []
    assert read_meminfo()["MemTotal"] > read_meminfo()["MemAvailable"] > 0


def test_the_quota_of_an_ancestor(tmp_path: Path) -> None:
    (tmp_path / "cgroup").write_text("0::/slice/job\n")
    (tmp_path / "slice" / "job").mkdir(parents=True)
    (tmp_path / "slice" / "job" / "cpu.max").write_text("max 100000\n")
    (tmp_path / "slice" / "cpu.max").write_text("250000 100000\n")
    assert [cpu_quota(group) for group in control_groups(tmp_path, tmp_path)] == [None, 2.5, None]


@pytest.mark.parametrize(
    ("of_nvml", "of_kernel"),
    [("00000000:1B:00.0", "0000:1b:00.0"), ("0000ABCD:00:00.0", "abcd:00:00.0"), ("00010000:E1:00.0", "10000:e1:00.0")],
)
def test_the_kernel_writes_a_domain_with_at_least_four_digits(of_nvml: str, of_kernel: str) -> None:
    assert sysfs_bus_id(of_nvml) == of_kernel
