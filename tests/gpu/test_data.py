"""On a real GPU: overlap, dataloader and placement reach the right verdict, and a race is found.

Results are printed (``pytest -m gpu -n 0 -s``).
"""

from pathlib import Path

import pytest

from tests.gpu.test_workloads import WorkloadProcess, assert_memory_freed, show, used_bytes
from tests.workloads.conftest import WORKLOADS, RunWorkload, run_workload

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(120), pytest.mark.xdist_group("gpu")]

__all__ = ["run_workload"]

_RACE = f"""
import importlib.util, sys
spec = importlib.util.spec_from_file_location("overlap_probe", {str(WORKLOADS / "overlap.py")!r})
overlap = sys.modules["overlap_probe"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(overlap)
WORKLOAD = overlap.WORKLOAD

def racing(host_batches, device, compute):
    import torch
    copies = torch.cuda.Stream(device)
    buffers = [torch.empty_like(host_batches[0], device=device) for _ in range(2)]
    torch.cuda.synchronize(device)
    for step, batch in enumerate(host_batches):
        with torch.cuda.stream(copies):
            buffers[step % 2].copy_(batch, non_blocking=True)
        compute(buffers[step % 2], step)
    torch.cuda.synchronize(device)

overlap.CASES["pinned, two streams"] = (racing, True, "Two streams that do not wait for each other.")
"""
_PLANTED = ("loss.item()", ".cpu()", 'print(f"loss {loss:.4f}"', "[per_sample > _HARD_LOSS]", "if loss < best:")


@pytest.fixture(autouse=True)
def separate_state_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def by_case(result: dict[str, object], name: str) -> dict[str, float]:
    """The values of a result by their cases."""
    metrics = result["figures"]
    assert isinstance(metrics, list)
    return {metric.get("case", ""): float(metric["value"]) for metric in metrics if metric["name"] == name}


def finished(name: str, **settings: object) -> dict[str, object]:
    """The result of a workload that has freed its memory."""
    before = used_bytes()
    arguments = [argument for key, value in settings.items() for argument in ("--set", f"{key}={value}")]
    workload = WorkloadProcess(name, *arguments)
    result = workload.finish()
    show(result)
    print(f"  {workload.times()}")
    assert workload.process.returncode == 0
    assert_memory_freed(before)
    return dict(result)


def test_two_streams_hide_the_copy() -> None:
    result = finished("overlap")
    steps, hidden = by_case(result, "step"), by_case(result, "copy_hidden")
    print(f"  {steps['pinned, two streams'] / steps['ideal']:.3f} of ideal")
    assert result["verdict"] == "ok"
    assert hidden["pinned, two streams"] >= 50
    assert steps["pinned, two streams"] >= 0.97 * steps["ideal"]
    assert steps["pinned, two streams"] < steps["pinned, serial"] < steps["pageable, serial"]
    assert hidden["pinned, non_blocking"] < 35


def test_a_race_between_streams_fails(run_workload: RunWorkload, tmp_path: Path) -> None:
    probe = tmp_path / "probe.py"
    probe.write_text(_RACE)
    ran = run_workload(probe, device="cuda:0")
    print(f"\n{ran.result['why']}")
    assert ran.exit_code == 1
    assert "steps computed with wrong data" in ran.result["why"]
    assert "pinned, two streams" in ran.result["why"]


def test_one_worker_is_not_enough_for_expensive_samples() -> None:
    result = finished("dataloader", decode_ms=20, step_ms=20, max_workers=1)
    waiting = by_case(result, "waiting")
    assert result["verdict"] == "warn"
    assert waiting["1 worker"] > 80
    assert "the GPU waits for its data" in str(result["why"])


def test_five_of_five_hidden_synchronizations_are_found_by_line() -> None:
    source = (WORKLOADS / "placement.py").read_text().splitlines()
    lines = [
        number for code in _PLANTED for number, line in enumerate(source, 1) if code in line and "# hidden" in line
    ]
    assert len(lines) == 5
    result = finished("placement")
    steps, waits = by_case(result, "step"), by_case(result, "waits")
    assert f"5 of 5 hidden synchronizations were found, in lines {', '.join(map(str, lines))}." in str(result["why"])
    assert result["verdict"] == "ok", "the loop without hidden synchronizations waits nowhere"
    assert waits["none hidden"] == 0
    assert all(value >= 1 for case, value in waits.items() if case.startswith("line "))
    assert waits["each batch .to(), pinned, non_blocking"] == 0
    assert waits["each batch .to(), pageable"] >= 1
    assert steps["none hidden"] < steps["all hidden"]
    assert steps["none hidden"] < steps["each sample .to()"]
