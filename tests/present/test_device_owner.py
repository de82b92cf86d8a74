"""Who uses a GPU: names of programs, ranks, other users, and since when the GPU is idle."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.core.device_use import FREE_SAMPLES, FreeCheck, IdleSince
from gpumon.core.model import Device, DeviceState, ProcessKind
from gpumon.core.units import MISSING
from gpumon.operations.program_name import program_name, without_interpreter
from gpumon.present.device_owner import DeviceOwner, IdleDuration, idle_duration, jobs_of, owner_of
from gpumon.present.device_table import owner_spans
from gpumon.present.paint.line import plain
from tests import builders

UTILIZATION = "utilization_gpu_percent"


def test_the_name_of_a_program() -> None:
    for row in Path(__file__).with_name("program_names.txt").read_text("utf-8").splitlines():
        command, _, name = row.partition(" => ")
        assert program_name(command) == name


@given(st.text(alphabet=" -./:mcpython日[]", max_size=40))
def test_every_command_has_a_name(command: str) -> None:
    assert program_name(command).strip() or not command.strip()


def owner(device: Device, *others: Device, **values: IdleDuration) -> DeviceOwner:
    return owner_of(
        device, jobs_of((device, *others)), values.get("idle", IdleDuration()), is_free=FreeCheck().add(device)
    )


def text(device: Device, width: int = 60, **values: IdleDuration) -> str:
    return plain(owner_spans(owner(device, **values), 5, width))


def test_the_owner_is_the_user_of_the_largest_process() -> None:
    mine = builders.process(1, user="ada", memory_bytes=5, command="python a.py")
    other = builders.process(2, user="bo", memory_bytes=9, command="python b.py")
    desktop = builders.process(3, user="root", memory_bytes=99, command="Xorg", kinds=(ProcessKind.GRAPHICS,))
    shown = owner(builders.device(processes=(mine, other, desktop)))
    assert (shown.user, shown.program) == ("bo", "b")
    assert text(builders.device(processes=(mine, other, desktop))) == "3 users: bo b, ada a, root Xorg"


def test_all_programs_of_a_user_are_counted_and_a_zombie_comes_last() -> None:
    processes = [
        builders.process(number, command=f"python train_{number}.py", memory_bytes=number << 33) for number in range(5)
    ]
    gpu = builders.device(processes=tuple(processes))
    assert text(gpu) == "ada   train_4 32G +4"
    assert text(gpu, 16) == "ada   train_4 +4"
    dead = builders.process(4, command="python train_4.py", memory_bytes=4 << 33, host_memory_bytes=0)
    assert text(builders.device(processes=(*processes[:4], dead))) == "ada   train_3 24G +4"
    assert text(builders.device(processes=(dead,))) == "ada   zombie 4 32G"


def test_a_gpu_that_is_held_but_idle_shows_since_when() -> None:
    idle = IdleDuration(2460.0)
    gpu = builders.device(readings={"memory_used_bytes": 52 << 30, UTILIZATION: 0})
    assert text(gpu, idle=idle) == "ada   train idle 41m, 52G held"
    assert text(gpu, 22, idle=idle) == "ada   train idle 41m"
    assert text(gpu, 15, idle=idle) == "ada   train 41m"


def test_ranks_are_the_processes_with_one_command_line_on_the_whole_host() -> None:
    devices = [builders.device(index, processes=(builders.process(10 + index),)) for index in range(4)]
    single = builders.device(4, processes=(builders.process(20, command="python train.py --other"),))
    assert owner(devices[0], *devices[1:], single).ranks == 4
    assert owner(single, *devices).ranks == 1
    twice = builders.device(0, processes=(builders.process(10),))
    assert owner(twice, builders.device(1, processes=(builders.process(10),))).ranks == 1, "one process on two GPUs"


def test_a_gpu_without_processes_is_free_unless_memory_is_held() -> None:
    free = owner(builders.device(processes=(), readings={UTILIZATION: 0}))
    assert (free.program, free.is_free, free.user) == ("free", True, "")
    held = owner(builders.device(processes=(), readings={UTILIZATION: 0, "memory_unattributed_bytes": 5 << 30}))
    assert (held.program, held.is_free) == ("unattributed", False)
    hidden = owner(builders.device(processes=(), readings={UTILIZATION: 87}))
    assert (hidden.program, hidden.is_free) == ("in use (process not visible)", False)
    graphics = builders.process(10, kinds=(ProcessKind.GRAPHICS,))
    desktop = owner(builders.device(processes=(graphics,), readings={UTILIZATION: 4}))
    assert (desktop.user, desktop.is_free) == ("ada", True)


def test_a_gpu_is_free_when_its_last_samples_are_empty() -> None:
    empty = builders.device(processes=(), readings={UTILIZATION: 0})
    check = FreeCheck()
    assert check.add(empty), "nothing else is known"
    assert not check.add(builders.device(processes=(), readings={UTILIZATION: 87}))
    assert [check.add(empty) for _ in range(FREE_SAMPLES)] == [False, False, True]


@pytest.mark.parametrize("changes", [{"processes": None}, {"state": DeviceState.LOST}])
def test_an_unknown_owner_is_not_free(changes: dict[str, Any]) -> None:
    assert owner(builders.device(**changes)) == DeviceOwner()


def test_a_process_of_another_pid_namespace_has_only_a_number() -> None:
    hidden = builders.process(77, user=None, command=None)
    shown = owner(builders.device(processes=(hidden,)))
    assert (shown.user, shown.program, shown.ranks) == (MISSING, "PID 77", 1)


def test_a_gpu_that_is_split_counts_its_instances() -> None:
    assert owner_of(builders.device(), {}, IdleDuration(), instances=3).program == "MIG ×3"


def test_a_gpu_is_idle_since_its_last_work() -> None:
    shown = idle_duration(IdleSince(100.0, is_at_least=False), 2600.0)
    assert (shown.is_idle, shown.text) == (True, "41m")
    assert idle_duration(IdleSince(100.0, is_at_least=False), 130.0).text == "", "a pause of the program"
    assert idle_duration(None, 130.0).text == ""


def test_an_idle_time_reaches_no_further_than_the_history() -> None:
    assert idle_duration(IdleSince(100.0, is_at_least=True), 190.0).text == ">90s"


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("/opt/venv/bin/python3.11 -u -X dev /home/ada/train_4.py --config llama", "train_4.py --config llama"),
        ("python -m lm.finetune --lr 1", "lm.finetune --lr 1"),
        ("python -c import torch", "python -c import torch"),
        ("python", "python"),
        ("/usr/bin/vllm serve m", "vllm serve m"),
    ],
)
def test_a_command_line_begins_with_its_program(command: str, shown: str) -> None:
    assert without_interpreter(command) == shown
