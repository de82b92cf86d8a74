"""Which GPUs are picked, and reservations: of several processes, of processes that ended, and in damaged files."""

import dataclasses
import json
import os
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from gpumon.core.device_use import FREE_SAMPLES
from gpumon.core.model import Device, DeviceState, Frame, MigInstance, ProcessKind, Switch
from gpumon.core.problems import CommandError
from gpumon.core.topology import GpuPair, PathLevel, Topology
from gpumon.operations import pick_reservations
from gpumon.operations.pick import Picker, PickRequest, pick_from
from gpumon.operations.pick_reservations import ProcessStart, picking_process, picks_file
from tests import builders
from tests.builders import frame, process

GIB = 1 << 30


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def child() -> Iterator["subprocess.Popen[bytes]"]:
    """A process that can be ended."""
    with subprocess.Popen(["sleep", "60"]) as started:
        yield started
        started.kill()


def free(index: int, gib: float = 100, **changes: Any) -> Device:  # noqa: ANN401
    readings = {"memory_free_bytes": gib * GIB, "memory_unattributed_bytes": 0, "utilization_gpu_percent": 0}
    return builders.device(index, **{"processes": (), "readings": readings, **changes})


def busy(index: int, gib: float = 10, **changes: Any) -> Device:  # noqa: ANN401
    readings = {"memory_free_bytes": gib * GIB, "memory_unattributed_bytes": 0}
    return builders.device(index, **{"readings": readings, **changes})


def me() -> ProcessStart:
    owner = ProcessStart.of(os.getpid())
    assert owner is not None
    return owner


def pick(
    devices: Sequence[Device],
    topology: Topology | None = None,
    *,
    owner: ProcessStart | None = None,
    **request: Any,  # noqa: ANN401
) -> list[str]:
    values = {
        "number": 1,
        "free_bytes": None,
        "idle_seconds": None,
        "devices": "all",
        "owner": owner or me(),
        **request,
    }
    picker = Picker(PickRequest(**values), lambda: topology or Topology())
    return [device.label for device in picker.pick(frame(devices=tuple(devices)))]


def linked(*pairs: tuple[int, int], gpus: int = 4) -> Topology:
    every = [
        GpuPair(one, other, PathLevel.SYS, 4 if (one, other) in pairs else 0)
        for one in range(gpus)
        for other in range(one + 1, gpus)
    ]
    return Topology(pairs=tuple(every))


def test_the_free_gpu_with_the_most_memory() -> None:
    assert pick([busy(0), free(1, 50), free(2, 80), free(3, 80)]) == ["2"]


def test_gpus_with_nvlink_between_them_come_first() -> None:
    gpus = [free(0, 100), free(1, 100), free(2, 50), free(3, 50)]
    assert pick(gpus, linked((1, 2)), number=2) == ["1", "2"]


def test_free_gpus_come_before_nvlink() -> None:
    gpus = [free(0), busy(1, 90), free(2), busy(3, 90)]
    assert pick(gpus, linked((0, 1), (1, 3)), number=2, free_bytes=20 * GIB) == ["0", "2"]


def test_a_busy_gpu_fits_only_by_its_free_memory() -> None:
    gpus = [busy(0, 10), busy(1, 40)]
    with pytest.raises(CommandError, match=r"GPU 0 is in use by ada \(PID 4000, 69.3 GiB\); GPU 1 is in use") as raised:
        pick(gpus)
    assert raised.value.exit_code == 1
    assert pick(gpus, free_bytes=20 * GIB) == ["1"]
    with pytest.raises(CommandError, match=r"GPU 0 has 10\.0 GiB free, the rest is held by ada"):
        pick(gpus, free_bytes=50 * GIB)


def test_graphics_do_not_count_and_memory_of_nobody_does() -> None:
    desktop = process(9, kinds=(ProcessKind.GRAPHICS,))
    drawing = {"memory_free_bytes": 10 * GIB, "utilization_gpu_percent": 4}
    assert pick([busy(0, processes=(desktop,), readings=drawing)]) == ["0"]
    unattributed = {"memory_unattributed_bytes": 60 * GIB, "memory_free_bytes": 60 * GIB}
    with pytest.raises(CommandError, match=r"GPU 1 is in use: 60\.0 GiB by no visible process"):
        pick([builders.device(1, processes=(), readings=unattributed)])
    context = {"memory_unattributed_bytes": GIB // 2, "memory_free_bytes": 79 * GIB, "memory_total_bytes": 80 * GIB}
    with pytest.raises(CommandError, match=r"GPU 1 is in use: 512 MiB by no visible process"):
        pick([builders.device(1, processes=(), readings=context)])


def test_gpus_that_cannot_be_used() -> None:
    gpus = [free(0, state=DeviceState.LOST), free(1, uuid=None), free(2, processes=None)]
    with pytest.raises(CommandError, match="GPU 0 is lost; GPU 1 has no known UUID; GPU 2 is in use"):
        pick(gpus)


def test_instances_of_a_split_gpu() -> None:
    gpu = free(0, mig_mode=Switch.ENABLED)
    instance = dataclasses.replace(free(0), uuid="MIG-1", instance=MigInstance(gpu.key, 0, 7, 0))
    assert pick([gpu, instance]) == ["0:0"]
    with pytest.raises(CommandError, match="split by MIG"):
        pick([gpu])
    with pytest.raises(CommandError, match="CUDA uses only one"):
        pick([gpu, instance], number=2)


def test_two_picks_do_not_return_the_same_gpu() -> None:
    gpus = [free(0), free(1)]
    assert pick(gpus) == ["0"]
    assert pick(gpus) == ["1"]
    with pytest.raises(CommandError, match=f"GPU 0 is reserved for PID {os.getpid()} by gpumon pick"):
        pick(gpus)


def test_the_end_of_the_owner_releases_its_gpu(child: "subprocess.Popen[bytes]") -> None:
    owner = ProcessStart.of(child.pid)
    assert owner is not None
    assert pick([free(0)], owner=owner) == ["0"]
    with pytest.raises(CommandError):
        pick([free(0)])
    child.kill()
    child.wait()
    assert pick([free(0)]) == ["0"]


def test_a_reservation_ends_after_a_time_unless_the_gpu_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    assert pick([free(0)]) == ["0"]
    monkeypatch.setattr(pick_reservations, "HOLD_SECONDS", 0.0)
    monkeypatch.setattr(pick_reservations, "_user", lambda: "ada")
    with pytest.raises(CommandError, match="reserved"):
        pick([busy(0, 90)], free_bytes=20 * GIB)
    assert pick([busy(0, 90, processes=(process(user="bob"),))], free_bytes=20 * GIB) == ["0"]


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"schema": 1, "picks": 3}', b'{"schema": 1, "picks": [{}, 4]}', b"\xff"]
)
def test_a_damaged_file_is_written_again(content: bytes) -> None:
    file = picks_file()
    file.parent.mkdir()
    file.write_bytes(content)
    assert pick([free(0)]) == ["0"]
    assert [entry["pid"] for entry in json.loads(file.read_bytes())["picks"]] == [os.getpid()]


def moments(devices: Sequence[Sequence[Device]]) -> Iterator[Frame]:
    for second, row in enumerate(devices):
        yield frame(devices=tuple(row), monotonic_seconds=100.0 + second)


def test_waiting_until_a_gpu_is_free() -> None:
    picker = Picker(PickRequest(1, None, None, "all", me()), Topology)
    frames = moments([[busy(0)], [busy(0)], *[[free(0)]] * FREE_SAMPLES])
    assert [device.label for device in pick_from(frames, picker, None)] == ["0"]


def test_waiting_until_a_gpu_is_idle() -> None:
    idle = busy(0, readings={"utilization_gpu_percent": 0, "memory_free_bytes": 10 * GIB})
    picker = Picker(PickRequest(1, None, 3.0, "all", me()), Topology)
    frames = moments([[idle], [busy(0)], *[[idle]] * 9])
    assert [device.label for device in pick_from(frames, picker, None)] == ["0"]
    assert next(frames).monotonic_seconds == 106.0, "idle from 102 to 105"


def test_the_timeout_names_the_holder() -> None:
    picker = Picker(PickRequest(1, None, None, "all", me()), Topology)
    with pytest.raises(CommandError, match="ada"):
        pick_from(moments([[busy(0)]] * 2), picker, time.monotonic())


def proc(folder: Path, processes: dict[int, tuple[int, str, str]]) -> Path:
    for pid, (parent, program, arguments) in processes.items():
        (folder / str(pid)).mkdir(parents=True)
        (folder / str(pid) / "stat").write_text(f"{pid} (a) b) S {parent} " + " ".join(["7"] * 50))
        (folder / str(pid) / "cmdline").write_text(arguments)
        (folder / str(pid) / "exe").symlink_to(program)
    return folder


def test_a_subshell_is_its_shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getppid", lambda: 30)
    tree = {10: (1, "/bin/sshd", "sshd"), 20: (10, "/bin/bash", "-bash"), 30: (20, "/bin/bash", "-bash")}
    assert picking_process(proc(tmp_path / "shell", tree)) == 20
    script = {**tree, 30: (20, "/bin/bash", "bash\0train.sh")}
    assert picking_process(proc(tmp_path / "script", script)) == 30
