"""`%%gpumem`: the peak of a cell, its change, and the lines whose tensors were alive at the peak."""

import sys
from types import SimpleNamespace
from typing import Any

import pytest

import gpumon

CELL = "/tmp/ipykernel_7/8.py"


def event(action: str, address: int, gibibytes: int, line: int = 0) -> dict[str, Any]:
    files = ["/x/site-packages/torch/nn/functional.py", *([CELL] if line else [])]
    frames = [{"filename": file, "line": line, "name": "f"} for file in files]
    return {"action": action, "addr": address, "size": gibibytes << 30, "frames": frames, "time_us": 2e18}


EVENTS = (
    {**event("alloc", 9, 50), "time_us": 1.0},  # before the cell, in a history that the program records
    event("free_requested", 1, 1),  # of what was allocated before the cell
    event("free_completed", 1, 1),
    event("alloc", 2, 2, line=1),
    event("alloc", 3, 4, line=2),
    event("alloc", 4, 3),
    event("free_requested", 3, 4),
    event("alloc", 5, 1, line=3),
)


def run_cell(cell: str) -> None:
    """Load the extension into what stands in for IPython, and run a cell with it."""
    magics: dict[str, Any] = {}
    shell = SimpleNamespace(
        compile=SimpleNamespace(_filename_map={CELL: 3}),
        register_magic_function=lambda function, _, name: magics.update({name: function}),
        run_cell=lambda text: SimpleNamespace(raise_error=lambda: exec(text)),
    )
    gpumon.load_ipython_extension(shell)
    magics["gpumem"]("", cell)


@pytest.mark.parametrize("is_foreign", [False, True], ids=["", "recorded by the program"])
def test_the_report_of_a_cell(
    is_foreign: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    calls: list[Any] = []
    allocated = iter((5 << 30, 6 << 30))
    library = SimpleNamespace(
        _cuda_getDeviceCount=lambda: 1,
        _cuda_hasPrimaryContext=lambda _: True,
        _cuda_isHistoryEnabled=lambda: is_foreign,
        _cuda_memoryStats=lambda _: {"allocated_bytes": {"all": {"current": next(allocated)}}},
    )
    properties = SimpleNamespace(name="H200", total_memory=1)
    cuda = SimpleNamespace(is_initialized=lambda: True, get_device_properties=lambda _: properties)
    memory = SimpleNamespace(
        _record_memory_history=lambda **options: calls.append(options["enabled"]),
        _snapshot=lambda: {"device_traces": [EVENTS if is_foreign else EVENTS[1:]]},
    )
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(_C=library, __spec__=None))
    monkeypatch.setitem(sys.modules, "torch.cuda", cuda)
    monkeypatch.setitem(sys.modules, "torch.cuda.memory", memory)
    run_cell("print('after the report')")
    assert capsys.readouterr().out.splitlines() == [
        "GPU 0 (H200): peak 13.0 GiB, before 5.00 GiB, change +1.00 GiB",
        "    4.00 GiB  1 tensor    In [3], line 2",
        "    3.00 GiB  1 tensor    by no Python of the program, such as in a backward pass",
        "    2.00 GiB  1 tensor    In [3], line 1",
        "after the report",
    ]
    assert calls == ([] if is_foreign else ["all", None])
    monkeypatch.delitem(sys.modules, "torch")
    run_cell("")
    assert "PyTorch has not used CUDA" in capsys.readouterr().out
