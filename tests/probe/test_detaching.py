"""When the probe has Kineto detach CUPTI after a trace, and when it says that it cannot."""

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from gpumon.probe.agent.kineto import Kineto
from gpumon.probe.agent.messages import RefusedError

NO_TORCH: Any = None


def reason(monkeypatch: pytest.MonkeyPatch, cuda: str | None, *, has_graphs: bool = False) -> str:
    monkeypatch.setitem(sys.modules, "torch.version", SimpleNamespace(cuda=cuda))
    return Kineto(NO_TORCH, lambda: has_graphs)._why_attached()


def test_it_is_detached_unless_that_could_end_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not reason(monkeypatch, "13.0")
    assert not reason(monkeypatch, None, has_graphs=True), "without CUDA, there is no CUPTI"
    assert "CUDA 12.4" in reason(monkeypatch, "12.4")
    assert "CUDA graphs" in reason(monkeypatch, "13.0", has_graphs=True)
    monkeypatch.setenv("TEARDOWN_CUPTI", "0")
    assert reason(monkeypatch, "13.0") == "TEARDOWN_CUPTI is set"


def test_a_program_that_is_slower_afterwards_is_recorded_only_if_that_is_allowed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "torch.version", SimpleNamespace(cuda="13.0"))
    kineto = Kineto(NO_TORCH, lambda: True)
    with pytest.raises(RefusedError, match=r"CUPTI would stay attached .* CUDA graphs, .* 20 to 40 % longer"):
        next(kineto.record({"milliseconds": 500, "may_stay": 0}))


def test_graphs_that_were_captured_after_a_detachment_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.version", SimpleNamespace(cuda="13.0"))
    kineto = Kineto(NO_TORCH, lambda: True)
    kineto._was_detached = True
    with pytest.raises(RefusedError, match="CUPTI was detached"):
        next(kineto.record({"milliseconds": 500}))
