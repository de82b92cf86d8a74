"""The train workload, on the CPU: every comparison, variants that fail, and steps that do not train."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.workloads.conftest import Ran, RunWorkload, load_workload, needs_torch, with_step

_TINY = {"model": "mlp", "model_size": "tiny", "batch_size": 4, "duration": 0.05, "precision": "fp32"}


def cases(ran: Ran) -> dict[str, dict[str, float]]:
    """The results, by case."""
    table: dict[str, dict[str, float]] = {}
    for result in ran.result["figures"]:
        table.setdefault(result["case"], {})[result["name"]] = result["value"]
    return table


@pytest.mark.sampled(1)
@needs_torch
@pytest.mark.parametrize("model", ["cnn", "rnn", "lstm", "gru", "transformer", "mlp"])
def test_every_model_is_measured_and_trains(run_workload: RunWorkload, model: str) -> None:
    ran = run_workload("train", **{**_TINY, "model": model})
    assert ran.result["verdict"] == "ok", ran.result
    values = cases(ran)[""]
    parts = {"data", "forward", "backward", "optimizer"}
    assert set(values) >= {"samples", "steps", "throughput", *parts}
    assert values["samples"] == pytest.approx(4 * values["steps"])
    assert min(values.values()) > 0
    assert ran.result["why"].startswith("fp32, batch 4: ")
    assert "compare=device" in ran.result["why"]


@needs_torch
def test_precisions_are_compared_and_tf32_is_a_sentence(run_workload: RunWorkload) -> None:
    ran = run_workload("train", **_TINY, compare="precision")
    assert ran.result["verdict"] == "ok", ran.result
    table = cases(ran)
    assert {"fp32", "bf16"} <= set(table)
    assert "tf32" not in table
    assert table["fp32"]["speed_up"] == 1
    ratio = table["bf16"]["samples"] / table["fp32"]["samples"]
    assert table["bf16"]["speed_up"] == pytest.approx(ratio)
    assert "tf32: TF32 is a format of GPUs" in ran.result["why"]
    assert ran.result["why"].startswith(("Use bf16: ", "Use fp16: ", "Stay with fp32: "))


@needs_torch
def test_batch_sizes_are_a_sweep(run_workload: RunWorkload) -> None:
    ran = run_workload("train", **_TINY, compare="batch")
    assert list(cases(ran)) == ["batch 1", "batch 2", "batch 4", "batch 8", "batch 16"]
    positions = [result["position"] for result in ran.result["figures"] if result["name"] == "samples"]
    assert positions == [1, 2, 4, 8, 16]
    assert ran.result["why"].startswith("Use batch ")


@needs_torch
def test_a_host_without_a_gpu_learns_what_limits_it(run_workload: RunWorkload) -> None:
    ran = run_workload("train", **_TINY, compare="device")
    assert ran.result["verdict"] == "ok"
    assert list(cases(ran)) == ["1 thread", "1 thread, bf16"], "the tests use one thread"
    why = ran.result["why"]
    for text in ("This CPU trains ", "1,000,000 samples take ", "of a large matrix product on this CPU", "bf16 is "):
        assert text in why
    assert "A GPU is 10x faster if it sustains " in why


@needs_torch
def test_what_raises_the_utilization(run_workload: RunWorkload, tmp_path: Path) -> None:
    fault = """
if self._options.compile:
    raise ValueError("InvalidCxxCompiler: No working C++ compiler found")
return super().step(batch, mark)"""
    ran = run_workload(with_step("train", tmp_path, fault), **_TINY, compare="faster")
    assert list(cases(ran)) == ["as set", "fused optimizer"]
    assert "as set 1.00x; fused optimizer " in ran.result["why"]


@needs_torch
def test_a_missing_compiler_is_a_sentence(run_workload: RunWorkload, tmp_path: Path) -> None:
    fault = """
if self._options.compile:
    raise ValueError("InvalidCxxCompiler: No working C++ compiler found")
return super().step(batch, mark)"""
    ran = run_workload(with_step("train", tmp_path, fault), **_TINY, compare="compile")
    assert ran.exit_code == 0
    assert ran.result["verdict"] == "warn"
    assert list(cases(ran)) == ["eager"]
    assert "No working C++ compiler found. Install a C++ compiler, such as g++." in ran.result["why"]
    (error,) = ran.of("error")
    assert error["expected"]


@needs_torch
def test_a_variant_without_memory_is_a_sentence(run_workload: RunWorkload, tmp_path: Path) -> None:
    fault = """
if len(batch[0]) > 8:
    raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 bytes.")
return super().step(batch, mark)"""
    ran = run_workload(with_step("train", tmp_path, fault), **_TINY, compare="batch")
    assert ran.result["verdict"] == "ok"
    assert list(cases(ran)) == ["batch 1", "batch 2", "batch 4", "batch 8"]
    assert "batch 16: A batch of 16 does not fit into the memory of this run." in ran.result["why"]


@pytest.mark.sampled(1)
@needs_torch
@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("self.steps += 1\nreturn self._torch.ones(())", "The optimizer counted 0 of "),
        (
            "if self.steps % 2: self.optimizer.step = lambda: None\nreturn super().step(batch, mark)",
            "The optimizer counted 1 of ",
        ),
        ("super().step(batch, mark)\nreturn self._torch.tensor(float('nan'))", "The loss is nan"),
    ],
)  # fmt: skip
def test_steps_that_do_not_train_fail(run_workload: RunWorkload, tmp_path: Path, fault: str, reason: str) -> None:
    marked = fault.replace(
        "return self._torch.ones", "[mark(name) for name in training.PARTS]\nreturn self._torch.ones"
    )
    ran = run_workload(with_step("train", tmp_path, marked), **_TINY)
    assert ran.exit_code == 1
    assert ran.result["verdict"] == "fail"
    assert ran.result["why"].startswith(reason)
    assert ran.result["why"].endswith("The step did not train the model.")


def measured(samples: float, precision: str = "fp32", batch: int = 8, first: float = 0.1, peak: int = 100) -> object:
    """A measurement as a verdict needs it."""
    training = load_workload("_kit.training")
    kit = load_workload("_kit.training_run")
    parts = {"data": 0.1, "forward": 0.3, "backward": 0.5, "optimizer": 0.1}
    return kit.Measured(training.StepOptions(precision), batch, batch / samples, 1e9, 5, first, parts, peak, 0)


def verdict(compare: str, **rows: object) -> str:
    """The recommendation for some rows."""
    return str(load_workload("_kit.training_advice").variants_verdict(compare, list(rows.items())))


def test_a_low_share_of_the_peak_names_what_would_raise_it() -> None:
    kit, options = load_workload("_kit.training_advice"), load_workload("_kit.training").StepOptions
    parts = {"data": 0.01, "forward": 0.33, "backward": 0.56, "optimizer": 0.1}
    peak = 1e12

    def advice(share: float, **settings: object) -> str:
        chosen = options("bf16", **settings)
        row = load_workload("_kit.training_run").Measured(chosen, 8, 1.0, share * peak, 5, 0.1, parts, 100, 0)
        setattr(kit, "limit_of", lambda *_: (peak, "planted"))  # noqa: B010 - the type checker knows no such attribute
        return str(kit.advice(SimpleNamespace(on_gpu=True), row))

    text = "The GPU can do more: set compare=faster, which measures torch.compile, a fused optimizer, a wider model."
    assert "32% of the peak" in advice(0.32)
    assert advice(0.32).endswith(text)
    assert advice(0.2, fused=True, compile=True).endswith(
        "find a larger batch (gpumon run batch), and set compare=faster, which measures a wider model."
    )
    assert advice(0.6).endswith("Keep these settings.")


def test_of_equally_fast_precisions_the_one_without_a_loss_scale_is_recommended() -> None:
    rows = {"fp32": measured(100), "fp16": measured(303, "fp16"), "bf16": measured(300, "bf16", peak=60)}
    assert verdict("precision", **rows) == "Use bf16: 3.00x faster than fp32, with 60% of its peak memory."
    rows = {"fp32": measured(100), "bf16": measured(50, "bf16")}
    assert verdict("precision", **rows) == "Stay with fp32: no other precision is shown to be faster here."


def test_compilation_is_recommended_with_what_it_costs() -> None:
    rows = {"eager": measured(100), "compiled": measured(200, first=20.1)}
    text = "Use torch.compile: 2.00x faster than eager. The first step takes 20 s longer, which 500 steps win back."
    assert verdict("compile", **rows) == text
    rows = {"eager": measured(100), "compiled": measured(80)}
    assert verdict("compile", **rows) == "Stay with eager: compiled is 1.25x slower than eager."


def test_the_smallest_batch_near_the_best_is_recommended() -> None:
    rows = {"batch 8": measured(50), "batch 16": measured(92), "batch 32": measured(100)}
    assert verdict("batch", **rows).startswith(
        "Use batch 16: 92 samples/s, 92% of the best, 1.84x faster than batch 8."
    )


def test_variants_run_in_turns_and_noise_is_no_difference() -> None:
    """The speeds are planted: rounds of A B B A with a drift that both share."""
    kit = load_workload("_kit.training_run")
    context = SimpleNamespace(stopping=False, progress=lambda *_: None)
    order: list[int] = []

    def text(speeds: tuple[float, float], noise: float) -> str:
        def run(row: int) -> object:
            order.append(row)
            drift = 1 + 0.02 * len(order) + noise * (1, 1, -1, -1, 1, -1, 1, -1)[len(order) - 1]
            return measured(speeds[row] * drift, ("fp32", "bf16")[row])

        order.clear()
        rows = kit.in_turns(context, [run(0), run(1)], run)
        assert order == [0, 1, 1, 0, 0, 1, 1, 0]
        return verdict("precision", fp32=rows[0], bf16=rows[1])

    assert text((100, 200), 0.02).startswith("Use bf16: 2.00x faster than fp32 (1.92x to 2.08x)")
    assert text((100, 107), 0.2) == "Stay with fp32: no other precision is shown to be faster here."


def test_a_cpu_gets_the_threads_and_the_precision_that_are_fastest() -> None:
    advice = load_workload("_kit.training_advice")
    model = SimpleNamespace(parameter_count=1 << 20)
    one, two, half = measured(100), measured(180), measured(90, "bf16")
    rows = [("1 thread", one), ("2 threads", two), ("2 threads, bf16", half)]
    text = advice.device_verdict(None, model, rows, 5e10)
    assert text == (
        "This CPU trains 180 samples/s (2 threads), 22.5 GFLOP/s: 1,000,000 samples take 1.5 h. 2 threads are 1.80x "
        "faster than 1 thread. bf16 is not faster on this CPU. Small layers and memory limit it, not arithmetic: fp32 "
        "reaches 45% of a large matrix product on this CPU. Try a larger batch_size. A GPU is 10x faster if it "
        "sustains 225 GFLOP/s in this job; it must hold 16 MiB for weights, gradients and optimizer, and the "
        "activations. Run the same command there."
    )
    rows = [("1 thread", two), ("2 threads", one), ("2 threads, bf16", measured(360, "bf16"))]
    text = advice.device_verdict(None, model, rows, 3e10)
    assert "2 threads are 1.80x slower than 1 thread. Use fewer threads: torch.set_num_threads(1)." in text
    assert "bf16 is 2.00x faster than fp32: use it. Arithmetic limits it: fp32 reaches 75% " in text


def test_a_gpu_is_compared_with_the_fastest_precision_of_the_cpu() -> None:
    advice = load_workload("_kit.training_advice")
    context = SimpleNamespace(torch=SimpleNamespace(get_num_threads=lambda: 8))
    rows = [("cpu, fp32", measured(10)), ("cpu, bf16", measured(20, "bf16")), ("gpu", measured(2000, "bf16"))]
    text = advice.device_verdict(context, None, rows, None)
    assert text.startswith(
        "Train on the GPU, 100x faster: 2,000 samples/s on the GPU (bf16), 20 on the CPU (bf16, 8 threads)"
    )
    assert text.endswith("1,000,000 samples take 8.3 min instead of 14 h.")
