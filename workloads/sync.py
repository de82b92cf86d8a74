"""Synchronization: when a call returns to the host, and when the device finishes the work."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from _kit import LOWER, DeclaredMetric, UnsupportedError, Uses, Verdict, Workload, integer, timing
from _kit.timing import time_text

if TYPE_CHECKING:
    from _kit.context import Context

_SEED = 20260
_SIZES = (16, 64, 256, 1024, 2048, 4096, 8192, 16384)
_LAUNCHES = 1000
_ITEMS = 200
_ROUNDS = 7
_MAX_SERIES_SECONDS = 1.0
_BLOCKING_CYCLES = 4_000_000
"""The device is blocked for about 2 ms while work is queued, so that launch gaps do not count."""
_SPARE_BYTES = 128 << 20
"""64 MiB for cuBLAS workspaces, the rest for small tensors, the graph and rounding by the allocator."""
_MAX_SHARE_OF_FREE = 0.9


class _Timings:
    """Medians of one operation in seconds: return of the call, end on the device, and the time between CUDA events."""

    def __init__(self, context: Context, work: Callable[[], object], repetitions: int) -> None:
        work()
        context.synchronize()
        returned: list[float] = []
        done: list[float] = []
        start = time.monotonic()
        while len(done) < repetitions and not (
            done and (context.stopping or time.monotonic() - start > _MAX_SERIES_SECONDS)
        ):
            host, device = timing.host_seconds(context, work)
            returned.append(host)
            done.append(device)
        self.repetitions = len(done)
        self.returned, self.done = timing.median(returned), timing.median(done)
        _block(context)
        self.events = timing.median(timing.device_seconds(context, work, self.repetitions))


def _block(context: Context) -> None:
    """Blocks the stream for a moment, if this torch has a function for it."""
    sleep = getattr(context.torch.cuda, "_sleep", None)
    if context.on_gpu and sleep is not None:
        sleep(_BLOCKING_CYCLES)


def _sizes(context: Context) -> list[int]:
    return [size for size in _SIZES if size <= context.parameters.max_size]


def _uses(context: Context) -> Uses:
    """Returns the memory of three matrices of the largest size.

    Raises:
        UnsupportedError: They do not fit.
    """
    required = 3 * 4 * _sizes(context)[-1] ** 2 + _SPARE_BYTES
    if not context.on_gpu:
        return Uses(0, 5, host_memory_bytes=required)
    free = context.free_memory()[0]
    if required > free * _MAX_SHARE_OF_FREE:
        raise UnsupportedError(
            f"Three matrices of {_sizes(context)[-1]} x {_sizes(context)[-1]} need {required / 2**30:.1f} GiB; "
            f"{free / 2**30:.1f} GiB are free. Choose a smaller max_size."
        )
    return Uses(required, 15)


def _run(context: Context) -> Verdict:
    uses, sizes = _uses(context), _sizes(context)
    if context.on_gpu:
        context.cap_memory(uses.memory_bytes)
    steps = len(sizes) + 4
    number = context.torch.zeros(1, device=context.device)
    launch = _launches(context, number)
    context.progress(1, steps)
    wrong, summary = [], ""
    if not context.stopping:
        _tiny_kernel(context, number, launch)
    context.progress(2, steps)
    matrices = _Matrices(context, sizes[-1])
    for done, size in enumerate(sizes):
        if context.stopping:
            break
        summary, is_right = matrices.measure(size, launch)
        wrong += [] if is_right else [f"the product of {size} x {size}"]
        context.progress(3 + done, steps)
    for part in (_graph, _items):
        if not context.stopping and (part is _items or context.on_gpu):
            wrong += part(context)
    context.progress(steps, steps)
    if wrong:
        return context.fail(f"Wrong results: {', '.join(wrong)}.")
    return context.ok(summary)


def _launches(context: Context, number: Any) -> float:
    """Measures the launch overhead, separately for the first launches of the process; returns it in seconds."""
    context.step(
        f"{_LAUNCHES} tiny additions are launched one after another. On a GPU, the first ones of a process are slower, "
        "because code is loaded and caches are filled: always warm up before measuring."
    )

    def once() -> float:
        start = time.perf_counter()
        for _ in range(_LAUNCHES):
            number.add_(1)
        seconds = time.perf_counter() - start
        context.synchronize()
        return seconds / _LAUNCHES

    context.synchronize()
    first, rest = once(), [once() for _ in range(_ROUNDS)]
    rounds = _ROUNDS + 1
    context.checked += 1
    if float(number) != rounds * _LAUNCHES:
        raise ArithmeticError(f"{rounds * _LAUNCHES} additions of 1 gave {float(number):.0f}")
    launch = timing.median(rest)
    context.result("first_launches", first * 1e6, repetitions=_LAUNCHES)
    context.result("launch_overhead", launch * 1e6, repetitions=_ROUNDS * _LAUNCHES)
    context.step(
        f"A launch takes {time_text(launch)} of host time; the first {_LAUNCHES} took {time_text(first)} each."
    )
    return launch


def _tiny_kernel(context: Context, number: Any, launch: float) -> None:
    """Measures a kernel with almost no work."""
    timings = _Timings(context, lambda: number.add_(1), context.parameters.repetitions)
    _report(
        context,
        "empty",
        "a kernel with almost no work" if context.on_gpu else "an addition of one number",
        timings,
        launch,
    )


class _Matrices:
    """Operands of small integers, whose products are exact in float32, in memory that is allocated once."""

    def __init__(self, context: Context, largest: int) -> None:
        torch = context.torch
        generator = torch.Generator(device=context.device).manual_seed(_SEED)
        self._context = context
        self._buffers = [torch.empty(largest**2, dtype=torch.float32, device=context.device) for _ in range(3)]
        for operand in self._buffers[:2]:
            operand.random_(-1, 2, generator=generator)

    def measure(self, size: int, launch: float) -> tuple[str, bool]:
        """Measures one product; returns a sentence about it, and whether the product is correct."""
        left, right, out = (buffer[: size**2].view(size, size) for buffer in self._buffers)
        torch = self._context.torch
        timings = _Timings(self._context, lambda: torch.mm(left, right, out=out), self._context.parameters.repetitions)
        summary = _report(
            self._context, str(size), f"a product of {size} x {size} matrices in float32", timings, launch
        )
        vector = torch.arange(size, device=self._context.device).remainder(7).add(1).to(torch.float32)
        self._context.checked += 1
        # A wrong element changes its row of the product with a vector without zeros.
        return summary, bool(torch.equal(torch.mv(out, vector), torch.mv(left, torch.mv(right, vector))))


def _report(context: Context, name: str, what: str, timings: _Timings, launch: float) -> str:
    """Sends the timing and results of one operation; returns a sentence about them."""
    error, count = timings.done / max(timings.returned, 1e-9), timings.repetitions
    context.timing(what, timings.returned, timings.done)
    context.result(f"done_{name}", timings.done * 1e6, repetitions=count)
    if context.on_gpu:
        context.result(f"returned_{name}", timings.returned * 1e6, repetitions=count)
        context.result(f"events_{name}", timings.events * 1e6, repetitions=count)
        context.result(f"naive_error_{name}", error, repetitions=count)
    else:
        return (
            f"For {what} the call returned after {time_text(timings.returned)}. On the CPU a call returns when "
            "its work is finished, so a plain timing is correct."
        )
    summary = (
        f"For {what} the call returned after {time_text(timings.returned)}, and the device finished after "
        f"{time_text(timings.done)}: without synchronization the measured time is {error:,.0f} x too short."
    )
    if timings.events < launch:
        bound = "less than a launch takes: the operation is launch-bound, and a faster GPU would not help"
    else:
        bound = "more than a launch takes: the operation is bound by the GPU"
    context.step(f"{summary} By CUDA events the device worked for {time_text(timings.events)}, {bound}.")
    return summary


def _graph(context: Context) -> list[str]:
    """Measures tiny additions one by one and as one captured graph; returns the wrong results."""
    context.step(
        f"{_LAUNCHES} tiny additions are launched one by one, then captured in a CUDA graph and replayed. The host "
        "launches a graph with a single call, so the additions run back to back without waiting for the host."
    )
    torch = context.torch
    number = torch.zeros(1, device=context.device)

    def additions() -> None:
        for _ in range(_LAUNCHES):
            number.add_(1)

    eager = [timing.host_seconds(context, additions)[1] / _LAUNCHES for _ in range(_ROUNDS)]
    expected = float(number)
    graph = _captured(context, additions)
    graph.replay()
    number.zero_()
    replayed = [timing.host_seconds(context, graph.replay)[1] / _LAUNCHES for _ in range(_ROUNDS)]
    is_right = float(number) == expected == _ROUNDS * _LAUNCHES
    context.checked += 1
    eager_seconds, graph_seconds = timing.median(eager), timing.median(replayed)
    context.result("eager_per_operation", eager_seconds * 1e6, repetitions=_ROUNDS * _LAUNCHES)
    context.result("graph_per_operation", graph_seconds * 1e6, repetitions=_ROUNDS * _LAUNCHES)
    context.step(
        f"One by one an addition takes {time_text(eager_seconds)}, in a graph {time_text(graph_seconds)}: "
        f"{eager_seconds / graph_seconds:.1f} x faster."
    )
    return [] if is_right else ["the additions of the graph"]


def _captured(context: Context, work: Callable[[], object]) -> Any:
    """Captures ``work`` as a CUDA graph; other threads of this process may use CUDA during the capture."""
    cuda = context.torch.cuda
    graph, stream = cuda.CUDAGraph(), cuda.Stream()
    stream.wait_stream(cuda.current_stream())
    with cuda.stream(stream):
        work()
    cuda.current_stream().wait_stream(stream)
    with cuda.graph(graph, capture_error_mode="thread_local"):
        work()
    return graph


def _items(context: Context) -> list[str]:
    """Reads a loss after every step, or once at the end; returns the wrong results."""
    effect = (
        "Each .item() waits until the device has finished all queued work, and the next step is not queued until then."
        if context.on_gpu
        else "On the CPU there is no queue to wait for: .item() costs only the call."
    )
    context.step(f"A loss is read with .item() after each of {_ITEMS} steps, then only once at the end. {effect}")
    loss = context.torch.ones(1, device=context.device)

    def steps(is_read: bool) -> float:
        total = context.torch.zeros(1, device=context.device)
        for _ in range(_ITEMS):
            total += loss.mul(2)
            if is_read:
                total.item()
        return float(total.item())

    every: list[float] = []
    end: list[float] = []
    steps(True)
    totals = set()
    for _ in range(_ROUNDS):  # in turns, so that both meet the same load of the host
        for is_read, seconds in ((True, every), (False, end)):
            context.synchronize()
            start = time.perf_counter()
            totals.add(steps(is_read))
            seconds.append((time.perf_counter() - start) / _ITEMS)
    context.checked += 1
    with_item, without = timing.median(every), timing.median(end)
    context.result("item_each_step", with_item * 1e6, repetitions=_ROUNDS * _ITEMS)
    context.result("item_at_the_end", without * 1e6, repetitions=_ROUNDS * _ITEMS)
    cost = "the cost of the call itself" if with_item > without else "less than the noise of this host"
    rest = "" if context.on_gpu else f" The difference is {cost}."
    context.step(f"A step with .item() takes {time_text(with_item)}, without {time_text(without)}.{rest}")
    return [] if totals == {2.0 * _ITEMS} else ["the sums read with .item()"]


WORKLOAD = Workload(
    name="sync",
    purpose="Measures when a call returns and when the device finishes, launch overhead, CUDA graphs, and .item().",
    needs="A GPU or the CPU, with memory for three matrices.",
    uses=_uses,
    run=_run,
    main_metric="launch_overhead",
    code=(timing.host_seconds, timing.device_seconds, _launches, _graph, _captured, _items),
    metrics=(DeclaredMetric("naive_error_*", "x", LOWER), DeclaredMetric("*", "us", LOWER)),
    parameters=(
        integer("max_size", 8192, 64, 16384, "Size of the largest matrices.", default_cpu=1024),
        integer("repetitions", 20, 1, 200, "Measurements per operation; the median is reported.", default_cpu=5),
    ),
)
