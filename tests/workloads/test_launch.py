"""Launch: occupancy, what a launch wrote, and the verdict."""

from types import ModuleType

import pytest

from tests.workloads.conftest import Judge, RunWorkload, load_workload, needs_torch, output_of

MEBIBYTE = 1 << 20


@pytest.fixture(scope="module")
def launch() -> ModuleType:
    """The workload's file, loaded without torch."""
    return load_workload("launch")


@pytest.mark.parametrize(
    ("threads", "registers", "blocks", "occupancy"),
    [
        (32, None, 32, 0.5),
        (64, None, 32, 1.0),
        (128, None, 16, 1.0),
        (1024, None, 2, 1.0),
        (96, None, 21, 21 * 96 / 2048),
        (33, None, 32, 1.0),
        (256, 32, 8, 1.0),
        (256, 64, 4, 0.5),
        (1024, 33, 1, 0.5),
    ],
)
def test_occupancy_follows_threads_blocks_and_registers(
    launch: ModuleType, threads: int, registers: int | None, blocks: int, occupancy: float
) -> None:
    assert launch.computed_blocks_per_sm(threads, 2048, registers) == blocks
    assert launch.occupancy_of(blocks, threads, 2048) == pytest.approx(occupancy)


def test_no_block_size_divides_the_count_so_the_guard_is_needed(launch: ModuleType) -> None:
    count = launch.elements_of(64, 100 << 30)
    assert count == 64_000_001
    assert all(count % block for block in launch.BLOCKS)
    assert launch.elements_of(64, 1 << 30) < 64_000_001
    with pytest.raises(Exception, match="not sufficient"):
        launch.elements_of(64, 100 * MEBIBYTE)


def test_a_launch_is_described_with_what_the_guard_is_for(launch: ModuleType) -> None:
    assert "31 threads have no element; `if (i < n)`" in launch._launch_text("add_one_each", 2, 32, 33)
    assert "every 8,448th element" in launch._launch_text("add_grid_stride", 33, 256, 10**6)


@pytest.mark.parametrize(
    ("rates", "kind"),
    [
        ({"torch_add": 4000.0, "block_256": 3900.0, "block_32": 1000.0}, "ok"),
        ({"torch_add": 4000.0, "block_256": 2700.0}, "warn"),
        ({"torch_add": 4000.0}, "warn"),
        ({}, "warn"),
    ],
)
def test_the_best_launch_is_held_against_torch(launch: ModuleType, rates: dict[str, float], kind: str) -> None:
    result = launch.LaunchResults(rates=rates, occupancies={"block_256": 1.0})
    verdict = launch.verdict_of(Judge(), result)
    assert verdict[0] == kind
    if len(rates) > 1:
        assert "block 256" in verdict[1]
        assert "occupancy of 100%" in verdict[1]


def test_a_wrong_result_fails(launch: ModuleType) -> None:
    result = launch.LaunchResults(rates={"torch_add": 1.0, "block_32": 1.0}, wrong=["block_32: wrong."])
    assert launch.verdict_of(Judge(), result) == ("fail", "block_32: wrong.")


@needs_torch
def test_one_wrong_sum_and_a_write_behind_the_end_are_found() -> None:
    output = output_of(
        "launch",
        """
arrays, results = w._arrays(context, 1001), w.LaunchResults()
def add(extra=0, harm=False):
    arrays.result[:1001] = arrays.a + arrays.b
    arrays.result[1001 : 1001 + extra] = 0.0
    if harm:
        arrays.result[77] += 1
w._check(context, results, "good", arrays, add)
print(results.wrong)
w._check(context, results, "bad", arrays, lambda: add(harm=True))
w._check(context, results, "far", arrays, lambda: add(extra=1))
w._check(context, results, "nothing", arrays, lambda: None)
print(results.wrong, context.checked)
""",
    )
    good, bad = output.splitlines()
    assert good == "[]"
    assert "bad: 1 sums are wrong, the first at element 77." in bad
    assert "far: the kernel wrote past the end of the result." in bad
    assert "nothing: 1001 sums are wrong" in bad
    assert bad.endswith("4")


@needs_torch
def test_a_torch_that_cannot_compile_is_told_so() -> None:
    output = output_of(
        "launch",
        """
context.torch = types.SimpleNamespace(__version__="2.8", cuda=types.SimpleNamespace())
def fail(source, name):
    raise OSError("Could not find any NVRTC library")
for compiler in (None, fail):
    if compiler:
        context.torch.cuda._compile_kernel = compiler
    try:
        w.compiled(context, w.kernel_source(), ['add_one_each'])
    except w.UnsupportedError as error:
        print(error)
""",
    )
    first, second = output.splitlines()
    assert "since torch 2.9" in first
    assert "NVRTC" in second


@pytest.mark.gpu
@needs_torch
def test_it_runs_on_a_gpu(run_workload: RunWorkload) -> None:
    ran = run_workload("launch", "cuda:0", elements_millions=4, repetitions=5)
    if ran.exit_code == 3:
        pytest.skip(ran.of("error")[0]["text"])
    assert ran.result["verdict"] in {"ok", "warn"}, ran.result["why"]
    (error,) = ran.of("error")
    assert error["expected"]
    assert "CUDA error" in error["text"]
    assert ran.metric("best")["value"] > 0
    assert 0 < ran.metric("occupancy_block_128")["value"] <= 100
    assert ran.of("memory")[-1]["reserved_bytes"] < 200 * MEBIBYTE
