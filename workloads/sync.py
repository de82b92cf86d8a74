"""What ``torch.cuda.synchronize()`` changes: when a call returns, and when the device has done the work."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Optional

from _kit import NotHereError, Uses, Verdict, Workload, integer, timing

if TYPE_CHECKING:
    from _kit.context import Context

_SEED = 20260
_SIZES = (16, 64, 256, 1024, 2048, 4096, 8192, 16384)
_LAUNCHES = 1000
_ITEMS = 200
_ROUNDS = 7
_LONGEST_SERIES_SECONDS = 1.0
_HOLDING_CYCLES = 4_000_000
"""How long the device is held up, about 2 ms, while work is queued: so the host cannot be late with the next kernel."""
_SPARE_BYTES = 128 << 20
"""64 MiB for the workspaces of cuBLAS, the rest for small tensors, the graph and the allocator's rounding."""
_LARGEST_SHARE_OF_FREE = 0.9


class _Timed:
    """Medians in seconds of one piece of work: when its call returned, when it was done, and what events say."""

    def __init__(self, context: Context, work: Callable[[], object], repetitions: int) -> None:
        work()
        context.synchronize()
        returned: list[float] = []
        done: list[float] = []
        began = time.monotonic()
        while len(done) < repetitions and not (
            done and (context.stopping or time.monotonic() - began > _LONGEST_SERIES_SECONDS)
        ):
            host, device = timing.host_seconds(context, work)
            returned.append(host)
            done.append(device)
        self.repetitions = len(done)
        self.returned, self.done = timing.median(returned), timing.median(done)
        _hold(context)
        self.events = timing.median(timing.device_seconds(context, work, self.repetitions))


def _hold(context: Context) -> None:
    """Keeps the device busy for a moment, where this torch can."""
    sleep = getattr(context.torch.cuda, "_sleep", None)
    if context.on_gpu and sleep is not None:
        sleep(_HOLDING_CYCLES)


def _sizes(context: Context) -> list[int]:
    return [size for size in _SIZES if size <= context.parameters.max_size]


def _uses(context: Context) -> Uses:
    """What three matrices of the largest size take.

    Raises:
        NotHereError: They do not fit.
    """
    held = 3 * 4 * _sizes(context)[-1] ** 2 + _SPARE_BYTES
    if not context.on_gpu:
        return Uses(0, 5, host_memory_bytes=held)
    free = context.free_memory()[0]
    if held > free * _LARGEST_SHARE_OF_FREE:
        raise NotHereError(
            f"Three matrices of {_sizes(context)[-1]} x {_sizes(context)[-1]} need {held / 2**30:.1f} GiB; "
            f"{free / 2**30:.1f} GiB are free. Choose a smaller max_size."
        )
    return Uses(held, 15)


def _run(context: Context) -> Verdict:
    uses, sizes = _uses(context), _sizes(context)
    if context.on_gpu:
        context.cap_memory(uses.memory_bytes)
    steps = len(sizes) + 4
    number = context.torch.zeros(1, device=context.device)
    launch = _launches(context, number)
    context.progress(1, steps)
    wrong, told = [], ""
    if not context.stopping:
        _empty(context, number, launch)
    context.progress(2, steps)
    matrices = _Matrices(context, sizes[-1])
    for done, size in enumerate(sizes):
        if context.stopping:
            break
        told, right = matrices.measure(size, launch)
        wrong += [] if right else [f"the product of {size} x {size}"]
        context.progress(3 + done, steps)
    for part in (_graph, _items):
        if not context.stopping and (part is _items or context.on_gpu):
            wrong += part(context)
    context.progress(steps, steps)
    if wrong:
        return context.fail(f"Wrong results: {', '.join(wrong)}.")
    return context.ok(told)


def _launches(context: Context, number: Any) -> float:
    """How long the host takes to start a kernel; the first of a process are told apart. Returns seconds."""
    context.step(
        f"{_LAUNCHES} tiny additions are started, one after another. The first ones of a fresh process are slower, "
        "because code is loaded and caches are filled: measure nothing without warming up."
    )

    def once() -> float:
        began = time.perf_counter()
        for _ in range(_LAUNCHES):
            number.add_(1)
        took = time.perf_counter() - began
        context.synchronize()
        return took / _LAUNCHES

    context.synchronize()
    first, rest = once(), [once() for _ in range(_ROUNDS)]
    rounds = _ROUNDS + 1
    context.checked += 1
    if float(number) != rounds * _LAUNCHES:
        raise ArithmeticError(f"{rounds * _LAUNCHES} additions of 1 gave {float(number):.0f}")
    launch = timing.median(rest)
    context.figure("first_launches", first * 1e6, "us", _LAUNCHES)
    context.figure("launch_overhead", launch * 1e6, "us", _ROUNDS * _LAUNCHES)
    context.step(f"A launch takes {_said(launch)} of the host's time; the first {_LAUNCHES} took {_said(first)} each.")
    return launch


def _empty(context: Context, number: Any, launch: float) -> None:
    """A kernel with next to nothing to do."""
    found = _Timed(context, lambda: number.add_(1), context.parameters.repetitions)
    _tell(context, "empty", "a kernel that does next to nothing", found, launch)


class _Matrices:
    """Operands of small whole numbers, whose products float32 holds exactly, in pieces of memory taken once."""

    def __init__(self, context: Context, largest: int) -> None:
        torch = context.torch
        generator = torch.Generator(device=context.device).manual_seed(_SEED)
        self._context = context
        self._held = [torch.empty(largest**2, dtype=torch.float32, device=context.device) for _ in range(3)]
        for each in self._held[:2]:
            each.random_(-1, 2, generator=generator)

    def measure(self, size: int, launch: float) -> tuple[str, bool]:
        """Times one product; returns the sentence about it, and whether it was right."""
        left, right, out = (each[: size**2].view(size, size) for each in self._held)
        torch = self._context.torch
        found = _Timed(self._context, lambda: torch.mm(left, right, out=out), self._context.parameters.repetitions)
        told = _tell(self._context, str(size), f"a product of {size} x {size} matrices in float32", found, launch)
        vector = torch.arange(size, device=self._context.device).remainder(7).add(1).to(torch.float32)
        self._context.checked += 1
        # A wrong element anywhere shows in its row of the product with a vector that holds no zero.
        return told, bool(torch.equal(torch.mv(out, vector), torch.mv(left, torch.mv(right, vector))))


def _tell(context: Context, name: str, what: str, found: _Timed, launch: float) -> str:
    """Events and figures of one piece of work; returns what it teaches."""
    error, count = found.done / max(found.returned, 1e-9), found.repetitions
    context.timing(what, found.returned, found.done)
    context.figure(f"returned_{name}", found.returned * 1e6, "us", count)
    context.figure(f"done_{name}", found.done * 1e6, "us", count)
    context.figure(f"events_{name}", found.events * 1e6, "us", count)
    context.figure(f"naive_error_{name}", error, "x", count)
    if not context.on_gpu:
        told = (
            f"For {what} the call returned after {_said(found.returned)}. On the CPU a call returns when its work is "
            "done, so there is nothing to wait for and a plain timing is right."
        )
        context.step(told)
        return told
    told = (
        f"For {what} the call returned after {_said(found.returned)}, the device was done after {_said(found.done)}: "
        f"a timing without synchronize would have been {error:,.0f} x too fast."
    )
    if found.events < launch:
        bound = "shorter than its launch: launch-bound, a faster GPU would not help"
    else:
        bound = "longer than a launch: the GPU sets the pace"
    context.step(f"{told} By events the device worked for {_said(found.events)}, {bound}.")
    return told


def _graph(context: Context) -> list[str]:
    """The same tiny additions one by one, and as one captured graph. Returns what was wrong."""
    context.step(
        f"{_LAUNCHES} tiny additions are queued one by one, then captured once in a CUDA graph and replayed: the host "
        "starts a graph with a single call, so the additions follow each other without waiting for it."
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
    right = float(number) == expected == _ROUNDS * _LAUNCHES
    context.checked += 1
    one, other = timing.median(eager), timing.median(replayed)
    context.figure("eager_per_operation", one * 1e6, "us", _ROUNDS * _LAUNCHES)
    context.figure("graph_per_operation", other * 1e6, "us", _ROUNDS * _LAUNCHES)
    context.step(f"One by one an addition takes {_said(one)}, in a graph {_said(other)}: {one / other:.1f} x faster.")
    return [] if right else ["the additions of the graph"]


def _captured(context: Context, work: Callable[[], object]) -> Any:
    """``work`` as a graph. Other threads of this process may go on using CUDA meanwhile."""
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
    """Reads a number after every step, or once at the end. Returns what was wrong."""
    context.step(
        f"A loss is read with .item() after each of {_ITEMS} steps, then only once at the end: each .item() waits "
        "until the device has done everything, and the next step cannot be queued meanwhile."
    )
    loss = context.torch.ones(1, device=context.device)

    def every_step() -> float:
        return sum(float(loss.mul(2).item()) for _ in range(_ITEMS))

    def at_the_end() -> float:
        total = context.torch.zeros(1, device=context.device)
        for _ in range(_ITEMS):
            total += loss.mul(2)
        return float(total.item())

    each, each_total = _per_item(context, every_step)
    end, end_total = _per_item(context, at_the_end)
    context.checked += 1
    context.figure("item_each_step", each * 1e6, "us", _ROUNDS * _ITEMS)
    context.figure("item_at_the_end", end * 1e6, "us", _ROUNDS * _ITEMS)
    context.step(f"A step with .item() takes {_said(each)}, without {_said(end)}.")
    return [] if each_total == end_total == 2 * _ITEMS else ["the sums that .item() read"]


def _per_item(context: Context, work: Callable[[], float]) -> tuple[float, Optional[float]]:
    """Seconds of one step, the median of several rounds after one that warms up, and the last total."""
    work()
    took, total = [], None
    for _ in range(_ROUNDS):
        context.synchronize()
        began = time.perf_counter()
        total = work()
        took.append((time.perf_counter() - began) / _ITEMS)
    return timing.median(took), total


def _said(seconds: float) -> str:
    """A time with a unit that suits it."""
    if seconds < 1e-4:
        return f"{seconds * 1e6:.3g} us"
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


WORKLOAD = Workload(
    name="sync",
    purpose="Shows what torch.cuda.synchronize() changes: when a call returns, and when the device has done the work.",
    needs="One GPU or the CPU, and memory for three matrices.",
    uses=_uses,
    run=_run,
    parameters=(
        integer("max_size", 8192, 64, 16384, "Largest matrices that are multiplied.", default_cpu=1024),
        integer("repetitions", 20, 1, 200, "How often each is timed; the median counts.", default_cpu=5),
    ),
)
