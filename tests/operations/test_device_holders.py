"""Who could hold unattributed memory, on a stand-in for /proc."""

import os
from pathlib import Path

import pytest

from gpumon.operations.device_holders import DeviceHolder, Holders, device_holders
from gpumon.present.process_table import holders_text

BUS_ID = "00000000:1B:00.0"


def add(proc: Path, pid: int, name: str, *files: str) -> Path:
    """A process with open files."""
    folder = proc / str(pid)
    (folder / "fd").mkdir(parents=True)
    (folder / "comm").write_text(f"{name}\n")
    for number, file in enumerate(files):
        (folder / "fd" / str(number)).symlink_to(file)
    return folder


def add_gpu(proc: Path, folder: str, minor: int) -> None:
    information = proc / "driver/nvidia/gpus" / folder / "information"
    information.parent.mkdir(parents=True)
    information.write_text(f"Model: \t\t NVIDIA H200\nBus Location: \t {folder}\nDevice Minor: \t {minor}\n")


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    add_gpu(tmp_path, "0000:1b:00.0", 3)
    add(tmp_path, 1, "systemd", "/dev/null")
    add(tmp_path, 10, "python", "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia3")
    add(tmp_path, 11, "python", "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia3", "socket:[7]")
    add(tmp_path, 12, "other", "/dev/nvidia-uvm", "/dev/nvidia1")
    add(tmp_path, 13, "nvitop", "/dev/nvidiactl", "/dev/nvidia3")
    return tmp_path


def holders(proc: Path, *listed: int, bus_id: str | None = BUS_ID) -> Holders:
    return device_holders({"GPU-0": bus_id}, {"GPU-0": listed}, proc)["GPU-0"]


def test_a_process_with_cuda_on_the_gpu_that_is_not_listed(proc: Path) -> None:
    assert holders(proc, 10) == Holders((DeviceHolder(11, "python"),), are_hidden=False)
    assert holders(proc, 10, 11) == Holders((), are_hidden=False)


def test_without_the_number_of_the_gpu_every_gpu_counts(proc: Path) -> None:
    assert [holder.pid for holder in holders(proc, 10, bus_id=None).holders] == [11, 12]
    assert [holder.pid for holder in holders(proc, 10, bus_id="00000000:FF:00.0").holders] == [11, 12]


@pytest.mark.skipif(os.geteuid() == 0, reason="root sees the files of every process")
def test_files_of_other_users_are_hidden(proc: Path) -> None:
    (proc / "11/fd").chmod(0)
    assert holders(proc, 10) == Holders((), are_hidden=True)


def test_a_process_that_ends_meanwhile_is_left_out(proc: Path) -> None:
    (proc / "9").mkdir()
    (proc / "10/comm").unlink()
    assert holders(proc, 11) == Holders((DeviceHolder(10, ""),), are_hidden=False)


def test_a_real_proc_can_be_searched() -> None:
    assert holders(Path("/proc"), bus_id=None).holders == ()


def test_the_sentence() -> None:
    assert holders_text(None) == "no visible process owns this memory"
    assert holders_text(Holders((), are_hidden=False)) == "no visible process owns this memory"
    assert "may not see the open files" in holders_text(Holders((), are_hidden=True))
    several = Holders((DeviceHolder(7, "python"), DeviceHolder(8, "")), are_hidden=True)
    assert holders_text(several).startswith("could be of PID 7 python, PID 8, with CUDA on this GPU; this user")
