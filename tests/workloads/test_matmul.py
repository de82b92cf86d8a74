"""The matmul workload, on the CPU."""

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.workloads.conftest import TORCH_PYTHON, WORKLOADS, RunWorkload, needs_torch, torch_python

pytestmark = needs_torch

_LOAD = f"""
import dataclasses, importlib.util, sys
spec = importlib.util.spec_from_file_location("matmul_probe", {str(WORKLOADS / "matmul.py")!r})
matmul = sys.modules["matmul_probe"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(matmul)
from _kit import products
original = products.multiplier
WORKLOAD = matmul.WORKLOAD
"""
_WRONG_EVERYWHERE = """
def multiplier(context, left, right):
    right_one = original(context, left, right)
    def wrong(out):
        right_one(out)
        out[:, 5] += 1
    return wrong
products.multiplier = multiplier
"""
_WRONG_NOW_AND_THEN = """
def multiplier(context, left, right):
    right_one, calls = original(context, left, right), []
    def wrong(out):
        right_one(out)
        calls.append(1)
        if len(calls) % 3 == 0:
            out[7, 9] += 1
            out[200, 3] = float("nan")
    return wrong
products.multiplier = multiplier
"""


def test_a_run_tells_its_events_in_order_and_its_figures(run_workload: RunWorkload) -> None:
    ran = run_workload("matmul", python=TORCH_PYTHON, size=256, duration=0.6)
    observed = [event["event"] for event in ran.events]
    assert observed[0] == "hello"
    assert observed[-2:] == ["result", "bye"]
    assert observed.index("plan") < observed.index("step") < observed.index("progress") < observed.index("result")
    assert ran.exit_code == 0
    assert ran.result["verdict"] == "ok"
    assert all(figure["unit"] and figure["repetitions"] >= 1 for figure in ran.result["figures"])
    assert ran.metric("throughput")["value"] > 1e-4
    assert ran.metric("throughput")["unit"] == "TFLOP/s"
    assert ran.metric("results_checked")["value"] >= 1
    assert ran.metric("wrong_elements")["value"] == 0
    assert {item["name"] for item in ran.of("metric")} == {"throughput"}
    assert ran.of("plan")[0]["uses"]["host_memory_bytes"] >= 7 * 4 * 256**2


@pytest.mark.sampled(1)
@pytest.mark.parametrize("dtype", ["fp64", "bf16"])
def test_other_types_equal_their_reference(run_workload: RunWorkload, dtype: str) -> None:
    assert run_workload("matmul", size=128, duration=0.2, dtype=dtype).result["verdict"] == "ok"


def test_a_flipped_bit_is_found_where_it_is(run_workload: RunWorkload) -> None:
    ran = run_workload("matmul", size=256, duration=0.2, inject_error=True)
    assert ran.exit_code == 1
    assert ran.result["verdict"] == "fail"
    assert "row 128, column 85" in ran.result["why"]
    assert ran.metric("wrong_elements")["value"] == 1


def test_a_reference_that_is_wrong_is_found_though_all_results_equal_it(
    run_workload: RunWorkload, tmp_path: Path
) -> None:
    probe = tmp_path / "probe.py"
    probe.write_text(_LOAD + _WRONG_EVERYWHERE)
    ran = run_workload(probe, size=256, duration=0.2)
    assert ran.result["verdict"] == "fail"
    assert "8 of 8 rows" in ran.result["why"]


def test_wrong_results_are_counted_and_a_number_that_is_none_is_wrong(
    run_workload: RunWorkload, tmp_path: Path
) -> None:
    probe = tmp_path / "probe.py"
    probe.write_text(_LOAD + _WRONG_NOW_AND_THEN)
    ran = run_workload(probe, size=256, duration=0.2)
    assert ran.result["verdict"] == "fail"
    assert "row 7, column 9" in ran.result["why"]
    assert ran.metric("wrong_elements")["value"] % 2 == 0


@pytest.mark.sampled(1)
@pytest.mark.parametrize("dtype", ["tf32", "fp16", "fp8", "int8"])
def test_a_type_for_gpus_says_so_on_the_cpu(run_workload: RunWorkload, dtype: str) -> None:
    ran = run_workload("matmul", dtype=dtype)
    assert ran.exit_code == 3
    (error,) = ran.of("error")
    assert error["text"] == f"{dtype} needs a GPU. On the CPU choose fp32, fp64, bf16."


def test_a_size_that_fast_products_cannot_take_names_one_that_they_can(run_workload: RunWorkload) -> None:
    ran = run_workload("matmul", size=1000)
    assert ran.exit_code == 3
    assert ran.of("error")[0]["text"].endswith("Choose 992.")


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("matmul", {"size": 256, "duration": 60}),
        ("bandwidth", {"size_mebibytes": 256, "repetitions": 20}),
        ("sync", {"max_size": 2048, "repetitions": 100}),
        ("memtest", {"size_mebibytes": 16, "duration": 60}),
        ("burn", {"size": 128, "size_mebibytes": 16, "duration": 60}),
    ],
)
def test_a_run_that_is_stopped_says_so_and_leaves_soon(name: str, parameters: dict[str, object]) -> None:
    events, write_end = os.pipe()
    command = [torch_python(), str(WORKLOADS / "_run.py"), str(WORKLOADS / f"{name}.py"), "--events", str(write_end)]
    command += ["--device", "cpu", "--parameters", json.dumps(parameters)]
    with subprocess.Popen(command, pass_fds=(write_end,), env={**os.environ, "OMP_NUM_THREADS": "1"}) as process:
        os.close(write_end)
        actual, stopped = [], False
        with os.fdopen(events) as lines:
            for line in lines:
                actual.append(json.loads(line))
                if actual[-1]["event"] == "progress" and not stopped:
                    stopped = True
                    process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=10) == 1
    (result,) = [item for item in actual if item["event"] == "result"]
    assert result["verdict"] == "cancelled"
    assert actual[-1]["event"] == "bye"
