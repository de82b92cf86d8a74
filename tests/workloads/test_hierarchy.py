"""Hierarchy: sizes, steps, verdict, and that every kernel's result is compared, with kernels that run on the CPU."""

from itertools import pairwise
from types import ModuleType, SimpleNamespace

import pytest

from tests.workloads.conftest import Judge, RunWorkload, load_workload, needs_torch, output_of

MEBIBYTE = 1 << 20


@pytest.fixture(scope="module")
def hierarchy() -> ModuleType:
    """The workload's file, loaded without torch."""
    return load_workload("hierarchy")


class MeasuringJudge(Judge):
    """As much of a context as the verdict of a sweep needs."""

    stopping = False

    def result(self, name: str, value: float, *_: object, **options: object) -> None:
        """Keep a result."""
        self.results = {**getattr(self, "results", {}), name: (value, options.get("limit"))}


def stepped(step: float, fast: float = 5e12, slow: float = 2.5e12) -> dict[int, tuple[float, float, float]]:
    """A curve that falls around a size, over less than a doubling."""
    sizes = load_workload("hierarchy").working_sets(512 * MEBIBYTE)
    return {size: (fast if size < step else slow, 200.0, 200e-9 if size < step else 600e-9) for size in sizes}


def test_the_sweep_has_two_sizes_per_doubling_and_ends_at_the_largest(hierarchy: ModuleType) -> None:
    sizes = hierarchy.working_sets(512 * MEBIBYTE)
    assert sizes[0] == 16 << 10
    assert sizes[-1] == 512 * MEBIBYTE
    assert len(sizes) == 31
    assert all(size % 4096 == 0 for size in sizes)
    assert all(1.2 < after / before < 1.7 for before, after in pairwise(sizes))
    assert hierarchy.working_sets(300 * MEBIBYTE)[-1] == 256 * MEBIBYTE


@pytest.mark.parametrize(
    ("free", "l2", "largest"), [(80 << 10, 50, 512), (80 << 10, 96, 768), (4 << 10, 50, 256), (80 << 10, None, 512)]
)
def test_the_largest_set_exceeds_l2_and_all_buffers_take_a_quarter_of_free_memory_at_most(
    hierarchy: ModuleType, free: int, l2: int | None, largest: int
) -> None:
    chip = SimpleNamespace(l2_bytes=None if l2 is None else l2 * MEBIBYTE)
    parameters = SimpleNamespace(size_mebibytes=512)
    context = SimpleNamespace(chip=chip, parameters=parameters, free_memory=lambda: (free * MEBIBYTE, 0))
    assert hierarchy._largest_set(context) == largest * MEBIBYTE
    assert hierarchy._uses(context).memory_bytes <= free * MEBIBYTE // 4 or largest >= 512
    with pytest.raises(Exception, match="needs at least"):
        hierarchy._largest_set(SimpleNamespace(**{**vars(context), "free_memory": lambda: (1 << 30, 0)}))


@pytest.mark.parametrize("l2", [40, 50, 60, 96])
def test_the_step_of_a_curve_is_found_where_it_is(hierarchy: ModuleType, l2: int) -> None:
    curve = stepped(l2 * MEBIBYTE)
    position, factor = hierarchy.largest_drop([(size, values[0]) for size, values in sorted(curve.items())])
    assert 1 / 1.5 < position / (l2 * MEBIBYTE) < 1.5
    assert factor == pytest.approx(2)
    assert hierarchy.largest_drop([(1, 1.0), (2, 1.0)]) is None


@pytest.mark.parametrize(
    ("step", "l2", "kind", "words"),
    [
        (50, 50, "ok", "The device claims 50 MiB of L2"),
        (30, 50, "ok", "two L2 partitions"),
        (8, 50, "warn", "other processes on this GPU"),
        (50, None, "ok", "does not report the size of L2"),
    ],
)
def test_the_step_is_compared_with_the_size_that_the_device_claims(
    hierarchy: ModuleType, step: int, l2: int | None, kind: str, words: str
) -> None:
    judge = MeasuringJudge(chip=SimpleNamespace(l2_bytes=None if l2 is None else l2 * MEBIBYTE))
    verdict = hierarchy.verdict_of(judge, stepped(step * MEBIBYTE), [])
    assert verdict[0] == kind
    assert words in verdict[1]
    assert judge.results["l2_step"][1] == l2
    assert "from 5,000 to 2,500 GB/s" in verdict[1]


def test_a_wrong_sum_fails_and_a_partial_sweep_is_not_ok(hierarchy: ModuleType) -> None:
    judge = MeasuringJudge(chip=None)
    assert hierarchy.verdict_of(judge, stepped(50 * MEBIBYTE), ["stride 2: a kernel read 1 instead of 2."])[0] == "fail"
    assert hierarchy.verdict_of(judge, {}, [])[0] == "warn"


@needs_torch
def test_the_cpu_is_refused_in_a_sentence(run_workload: RunWorkload) -> None:
    ran = run_workload("hierarchy")
    assert ran.exit_code == 3
    assert ran.of("error")[0]["text"] == "hierarchy measures CUDA kernels, which need a GPU."


ON_CPU = """
import _kit.hierarchy_probe as p
import _kit.timing as timing
def chase(grid, block, args, shared_mem):
    next, out, at, warm_up, steps = args
    words = next.tolist()
    for _ in range(warm_up + steps):
        at = words[at]
    out[:3] = torch.tensor([at, 10 * steps, 20 * steps])
def chase_shared(grid, block, args, shared_mem):
    at = 0
    for _ in range(args[1]):
        at = (at + 33) % 4096
    args[0][:3] = torch.tensor([at, 5, 5])
def chain_registers(grid, block, args, shared_mem):
    x = 1
    for _ in range(args[1]):
        x = (5 * x + 1) % 2**32
    args[0][:3] = torch.tensor([x, 5, 5])
def add(sums, total):
    total = (int(sums[0]) + total) % 2**32
    sums[0] = total - 2**32 if total >= 2**31 else total
def read_ca(grid, block, args, shared_mem):
    data, sums, count, parts, passes = args
    for b in range(grid[0]):
        first, last = count * (b % parts) // parts, count * (b % parts + 1) // parts
        add(sums, passes * int(data[4 * first : 4 * last].sum()))
read_cg = read_ca
def read_shared(grid, block, args, shared_mem):
    add(args[0], grid[0] * args[1] * sum(i + 6 for i in range(1024)))
def read_registers(grid, block, args, shared_mem):
    add(args[0], grid[0] * block[0] * 8 * args[1] * args[2] // args[1])
def read_strided(grid, block, args, shared_mem):
    data, sums, count, stride = args
    add(sums, int(data[[i * stride for i in range(count // stride)]].sum()) FAULT)
class Kernel:
    def __init__(self, run):
        self.run = run
    def __call__(self, grid, block, args, shared_mem=0):
        self.run(grid, block, args, shared_mem)
p.compiled = lambda context, source, names: {name: Kernel(globals().get(name)) for name in names}
p.CHASE_STEPS = 1000
context.parameters = types.SimpleNamespace(repetitions=2)
context.chip = types.SimpleNamespace(sm_count=3, max_threads_per_sm=2048)
context.on_gpu = False
lab = p.HierarchyProbe(context, 1 << 21)
rates = [lab.bandwidth(size) for size in (16384, 20480, 1 << 20, 1 << 21)]
rates += [lab.shared_bandwidth(), lab.register_bandwidth(), lab.strided_bandwidth(8)]
latencies = [lab.latency(16384), lab.latency(1 << 20), lab.shared_latency(), lab.register_latency()]
assert all(rate > 0 for rate in rates)
assert latencies[0][0] == 10 and all(seconds > 0 for _, seconds in latencies), latencies
assert lab.occupied(0, 0) is None, "no driver here"
print(context.checked, lab.wrong)
"""


@pytest.mark.sampled(1)
@needs_torch
@pytest.mark.parametrize(("fault", "output"), [("", "15 []"), ("+ 1", "15 ['stride 8: a kernel read ")])
def test_every_result_is_compared(fault: str, output: str) -> None:
    assert output_of("launch", ON_CPU.replace("FAULT", fault)).startswith(output)
