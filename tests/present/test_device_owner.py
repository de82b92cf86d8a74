"""Who uses a GPU: names of programs, ranks, other users, and since when the GPU is idle."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.core.device_use import IdleSince
from gpumon.core.model import Device, DeviceState, ProcessKind
from gpumon.core.store import Store
from gpumon.core.units import MISSING
from gpumon.operations.program_name import program_name
from gpumon.present.device_owner import DeviceOwner, IdleDuration, idle_duration, jobs_of, owner_of
from gpumon.present.device_table import device_rows, owner_spans
from gpumon.present.paint.line import plain
from gpumon.session.view_state import ViewState
from tests import builders

UTILIZATION = "utilization_gpu_percent"


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("python train.py --config large.yaml", "train"),
        ("/opt/venv/bin/python3.11 -u -X dev /home/ada/pretrain.py", "pretrain"),
        ("python -m lm.finetune --lr 1", "finetune"),
        ("python -m lm.main", "lm/main"),
        ("python -m lm.__main__", "lm"),
        ("python /home/ada/whisper/main.py", "whisper/main"),
        ("python ./main.py", "./main"),
        ("torchrun --nproc_per_node=8 train.py --lr 1", "train"),
        ("/usr/bin/python3 /usr/local/bin/torchrun --nproc-per-node 8 -m lm.train", "train"),
        ("python -m torch.distributed.run --nproc-per-node 8 sft.py", "sft"),
        ("accelerate launch --num_processes 4 dpo.py", "dpo"),
        ("accelerate launch", "accelerate"),
        ("python -m ipykernel_launcher -f /run/user/kernel.json", "notebook"),
        ("/usr/bin/python3 /opt/jupyter/lib/ipykernel/__main__.py", "notebook"),
        ("/venv/bin/python /venv/bin/vllm serve meta-llama/Llama-3", "vllm serve"),
        ("python -m vllm.entrypoints.openai.api_server --model x", "vllm serve"),
        ("VLLM::EngineCore", "vllm serve"),
        ("ray::train_loop", "ray train_loop"),
        ("python -c import torch", "python -c"),
        ("python", "python"),
        ("python3.13t", "python3.13t"),
        ("./build/nccl-tests/all_reduce_perf -b 8", "all_reduce_perf"),
        ("/usr/lib/xorg/Xorg :0", "Xorg"),
        ("訓練.py", "訓練"),
        ("", MISSING),
        ("/", "/"),
    ],
)
def test_the_name_of_a_program(command: str, name: str) -> None:
    assert program_name(command) == name


@given(st.text(alphabet=" -./:mcpython日[]", max_size=40))
def test_every_command_has_a_name(command: str) -> None:
    assert program_name(command).strip() or not command.strip()


def owner(device: Device, *others: Device, **values: IdleDuration) -> DeviceOwner:
    return owner_of(device, jobs_of((device, *others)), values.get("idle", IdleDuration()))


def test_the_owner_is_the_user_of_the_largest_process() -> None:
    mine = builders.process(1, user="ada", memory_bytes=5, command="python a.py")
    other = builders.process(2, user="bo", memory_bytes=9, command="python b.py")
    desktop = builders.process(3, user="root", memory_bytes=99, command="Xorg", kinds=(ProcessKind.GRAPHICS,))
    shown = owner(builders.device(processes=(mine, other, desktop)))
    assert (shown.user, shown.program, shown.others) == ("bo", "b", 2)


def test_ranks_are_the_processes_with_one_command_line_on_the_whole_host() -> None:
    devices = [builders.device(index, processes=(builders.process(10 + index),)) for index in range(4)]
    single = builders.device(4, processes=(builders.process(20, command="python train.py --other"),))
    assert owner(devices[0], *devices[1:], single).ranks == 4
    assert owner(single, *devices).ranks == 1
    twice = builders.device(0, processes=(builders.process(10),))
    assert owner(twice, builders.device(1, processes=(builders.process(10),))).ranks == 1, "one process on two GPUs"


def test_a_gpu_without_processes_is_free_unless_memory_is_held() -> None:
    free = owner(builders.device(processes=()))
    assert (free.program, free.is_free, free.user) == ("free", True, "")
    held = owner(builders.device(processes=(), readings={"memory_unattributed_bytes": 5 << 30}))
    assert (held.program, held.is_free) == ("unattributed", False)
    desktop = owner(builders.device(processes=(builders.process(10, kinds=(ProcessKind.GRAPHICS,)),)))
    assert (desktop.user, desktop.is_free) == ("ada", True)


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


def test_the_table_shows_the_idle_time() -> None:
    store = Store()
    for second in range(0, 300, 5):
        device = builders.device(readings={UTILIZATION: 0.0 if second else 90.0}, processes=())
        frame = builders.frame(devices=(device,), monotonic_seconds=1000.0 + second, interval_seconds=5.0)
        store.apply(frame)
    (row,) = device_rows(ViewState(store, frame, (), ""))
    assert plain(owner_spans(row.owner, 0)) == "free 4m"
