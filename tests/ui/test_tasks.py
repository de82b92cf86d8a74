"""What people open gpumon for, in at most six keys from the first screen."""

from typing import Final

from tests.frames import machine
from tests.ui.fakes import FakeLive, app_on, screen_text, seen

MAX_KEYS: Final = 6
TASKS: Final = (
    ("who holds a GPU", (), "ada train"), ("sort by memory", ("M",), "Memory▼"),
    ("the temperature of the last minutes", ("enter",), "Temperature  56 of 92 °C"),
    ("less time in a chart", ("enter", "z"), "1 s/col"), ("an idle GPU", (), "no GPU is free"),
    ("run matmul", ("5", "slash", *"mat", "enter"), "matmul"),
    ("an example of an explained error", ("7", "down", "enter"), "List the processes that hold GPU memory"),
    ("compare GPUs", ("enter", "o", "down", "enter", "escape"), "GPU 1"), ("a process and its memory", ("2",), "69.3"),
    ("why an alert", ("6",), "What"), ("the alert of this GPU", ("e",), "has nothing to explain"),
    ("the topology", ("L",), "r Read again"), ("another theme", ("T", "enter"), "Theme light"),
    ("other columns", ("c", "down", "enter", "escape"), "GPU Name"), ("another host", ("9",), "gpumon fleet --hosts"),
    ("the meaning of tensor", ("question_mark", "end"), "activity of the tensor cores"),
    ("what gpumon costs", ("C",), "CPU"), ("compare all GPUs", ("v",), "GPU utilization of 8 GPUs over time"),
)  # fmt: skip


async def test_every_task_takes_few_keys() -> None:
    assert [name for name, keys, _ in TASKS if len(keys) > MAX_KEYS] == []
    stream = FakeLive()
    app = app_on(stream)
    async with app.run_test(size=(120, 40)) as pilot:
        for name, keys, text in TASKS:
            stream.put(machine(8))
            await pilot.pause()
            await pilot.press(*keys)
            await seen(pilot, text)
            await pilot.press("escape", "escape", "1")
            assert "Processes on GPU" in screen_text(app), name
