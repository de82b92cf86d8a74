"""Collectives of torch.distributed between all GPUs: bandwidth and latency as nccl-tests defines them, and a straggler.

Bandwidths follow nccl-tests. The size S is that of the largest buffer of the operation, the algorithm bandwidth is S
/ time, and the bus bandwidth is the algorithm bandwidth times 2 (n - 1) / n for all-reduce, (n - 1) / n for all-
gather and reduce-scatter, and 1 for broadcast and send-receive, in which every rank sends to the next one and
receives from the one before. The bus bandwidth does not depend on the number of ranks n, so it can be compared with
the limit of a link. NVLink SHARP, where NCCL uses it, reduces in the switch and may exceed that limit. Times are
means over the ranks, as in nccl-tests, of calls queued back to back from Python; those of small messages include a
call of torch.distributed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Optional

from _kit import (
    HIGHER,
    LOWER,
    DeclaredMetric,
    Result,
    UnsupportedError,
    Uses,
    Verdict,
    Workload,
    choice,
    integer,
    number,
)
from _kit.collective import (
    OPERATIONS,
    Operation,
    all_gather,
    all_reduce,
    broadcast,
    expected,
    fill,
    reduce_scatter,
    send_receive,
)  # fmt: skip
from _kit.memory import size_text
from _kit.rank import gathered, process_group
from _kit.ranks import RENDEZVOUS, rendezvous
from _kit.ranks_failure import RanksError
from _kit.timing import batch_seconds, median, time_text
from _kit.training import PartTimer

if TYPE_CHECKING:
    from _kit.context import Context

KIBIBYTE, MEBIBYTE = 1 << 10, 1 << 20
_ELEMENT_BYTES = 4
_SPARE_BYTES = 512 * MEBIBYTE
"""Device memory for comparing results chunk by chunk, and for the matrices of the straggler measurement."""
_CHUNK = 4 * MEBIBYTE
"""Elements that are compared at a time."""
_SAMPLES = 3
_MAX_CALLS = 500
_PACE_ROUNDS = 9
_PACE_PRODUCTS = 8
_STRAGGLER_FACTOR = {"cuda": 1.1, "cpu": 2.0}
"""Ranks on the CPU share cores, so that their times differ more."""
_HIGH_SHARE = 0.8
_START_SECONDS = 25
_JOIN_SECONDS = 300


def sizes_up_to(largest: int) -> list[int]:
    """Returns sizes in bytes from 1 KiB by factors of four, with the largest as the last."""
    sizes = [KIBIBYTE]
    while sizes[-1] * 4 < largest:
        sizes.append(sizes[-1] * 4)
    return [*sizes, largest]


@dataclass
class RankResults:
    """What one rank returns; the results are the same on all ranks, and only those of one are reported.

    Attributes:
        ranks: Number of ranks of all hosts.
        results: Arguments of ``Context.result``.
        wrong: Sentences about wrong data on this rank.
        checked: Number of comparisons on this rank.
        curve: Bus bandwidth of all-reduce in GB/s by size, and seconds.
        slowest: The slowest rank.
        factor: Its time for the same work, divided by the median of the other ranks.
        bus_id: PCI address of the GPU of this rank, if it is known.
    """

    ranks: int = 0
    results: list[dict[str, Any]] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    checked: int = 0
    curve: list[tuple[int, float, float]] = field(default_factory=list)
    slowest: int = 0
    factor: float = 1.0
    bus_id: str = ""


def _measure(context: Context) -> dict[str, Any]:
    """Measures everything in one rank."""
    largest = int(context.parameters.max_mebibytes * MEBIBYTE)
    context.cap_memory(2 * largest + _SPARE_BYTES)
    torch, done = context.torch, RankResults()
    with process_group(context) as dist:
        done.ranks = dist.get_world_size()
        sizes = sizes_up_to(largest)
        names = [name for name in OPERATIONS if context.parameters.operation in ("all", name)]
        buffers = [torch.empty(largest // _ELEMENT_BYTES, device=context.device) for _ in range(2)]
        limit_source = _limit_source(context)
        for step, name in enumerate(names):
            context.step(f"{name}: {size_text(sizes[0])} to {size_text(largest)} between {done.ranks} ranks.")
            for index, size in enumerate(sizes):
                context.position(f"{name}, {size_text(size)}")
                if not _point(context, done, name, size, buffers, limit_source if size == largest else None):
                    break
                context.progress(step * len(sizes) + index + 1, len(names) * len(sizes) + 1)
        buffers.clear()
        context.step("Every rank computes the same products before each all-reduce, to find a rank that is slower.")
        context.position("own work and all_reduce")
        _find_straggler(context, done)
        context.progress(1, 1)
    done.checked = context.checked
    done.bus_id = (context.chip and context.chip.pci_bus_id) or ""
    # The columns of the table: bandwidths of the sweep first, then its times.
    ordered = sorted(context.results, key=lambda result: (result.position is None, result.name.endswith("_time")))
    done.results += [asdict(result) for result in ordered]
    return asdict(done)


def _limit_source(context: Context) -> str:
    """Returns which link limits the ranks: NVLink or PCIe for GPUs of one host, otherwise unknown."""
    if not context.on_gpu or context.parameters.hosts > 1:
        return ""
    cuda = context.torch.cuda
    others = [other for other in range(cuda.device_count()) if other != context.device.index]
    return "nvlink" if all(cuda.can_device_access_peer(context.device.index, other) for other in others) else "pcie"


def _point(
    context: Context, done: RankResults, name: str, size: int, buffers: list[Any], limit_source: Optional[str]
) -> bool:
    """Measures and checks an operation at one size; returns False if the backend does not support it.

    Args:
        context: The run.
        done: Receives the results.
        name: Name of the operation.
        size: Size in bytes, rounded down to a multiple of the number of ranks.
        buffers: Two buffers of the largest size.
        limit_source: At the largest size, the link that limits it; otherwise None.
    """
    operation, dist, ranks = OPERATIONS[name], context.torch.distributed, done.ranks
    count = max(1, size // _ELEMENT_BYTES // ranks) * ranks
    source = buffers[0][: count // ranks if operation.splits_source else count]
    target = buffers[1][: count // ranks if operation.splits_target else count]
    call = partial(operation.call, dist, source, target)
    try:
        seconds, calls = _seconds_per_call(context, call)
    except RuntimeError as error:
        if context.on_gpu or "support" not in str(error):
            raise
        context.step(f"{name} is skipped: {str(error).splitlines()[0]}")
        return False
    _check(context, done, name, size, operation, source, target)
    times = [row[0] for row in gathered(context, [seconds])]
    mean = sum(times) / len(times)
    algorithm = count * _ELEMENT_BYTES / mean / 1e9
    bus = algorithm * operation.bus_factor(ranks)
    context.metric(f"rank {dist.get_rank()}", bus * mean / seconds)
    context.result(name, bus, repetitions=calls, case=size_text(size), position=size)
    context.result(f"{name}_time", mean * 1e6, repetitions=calls, case=size_text(size), position=size)
    if name == "all_reduce":
        done.curve.append((size, bus, mean))
    if size == KIBIBYTE:
        context.result(f"{name}_latency", mean * 1e6, repetitions=calls)
    if limit_source is not None:
        context.result(f"{name}_bus_bandwidth", bus, repetitions=calls, limit_source=limit_source)
        context.result(f"{name}_algorithm_bandwidth", algorithm, repetitions=calls)
    return True


def _seconds_per_call(context: Context, call: Callable[[], object]) -> tuple[float, int]:
    """Returns the time of one call on this rank, and the number of timed calls, which is equal on all ranks."""
    torch, dist = context.torch, context.torch.distributed
    start = torch.zeros(1, device=context.device)
    batch_seconds(context, call, 2)
    dist.all_reduce(start)
    slowest = max(row[0] for row in gathered(context, [batch_seconds(context, call, 3) / 3]))
    seconds = context.parameters.milliseconds / 1e3 / _SAMPLES
    calls = max(2, min(_MAX_CALLS, round(seconds / max(slowest, 1e-7))))
    samples = []
    for _ in range(_SAMPLES):
        dist.all_reduce(start)  # all ranks start at the same time
        samples.append(batch_seconds(context, call, calls) / calls)
    return median(samples), _SAMPLES * calls


def _check(
    context: Context, done: RankResults, name: str, size: int, operation: Operation, source: Any, target: Any
) -> None:
    """Runs the operation once more on known data, and compares every element."""
    torch, dist = context.torch, context.torch.distributed
    rank, device = dist.get_rank(), context.device
    target.fill_(-1)
    filled = target if operation.in_place else source
    for start in range(0, filled.numel(), _CHUNK):
        fill(torch, filled[start : start + _CHUNK], rank, start)
    operation.call(dist, source, target)
    part = min(source.numel(), target.numel())
    wrong, first = 0, -1
    for start in range(0, target.numel(), _CHUNK):
        piece = target[start : start + _CHUNK]
        right = expected(torch, name, rank, done.ranks, part, start, piece.numel(), device)
        if not torch.equal(piece, right):
            differs = piece.ne(right)
            wrong += int(differs.sum())
            first = start + int(differs.to(torch.uint8).argmax()) if first < 0 else first
    context.checked += 1
    if wrong:
        done.wrong.append(
            f"Rank {rank}: {wrong} of {target.numel()} elements of {name}, {size_text(size)}, are wrong, "
            f"the first at {first}."
        )


def own_work(context: Context) -> Callable[[], None]:
    """Returns the work that every rank does by itself: a few products of matrices."""
    torch = context.torch
    size, dtype = (4096, torch.float16) if context.on_gpu else (128, torch.float32)
    left, right = (torch.randn(size, size, device=context.device, dtype=dtype) for _ in range(2))

    def work() -> None:
        for _ in range(_PACE_PRODUCTS):
            torch.mm(left, right)

    return work


def _find_straggler(context: Context, done: RankResults) -> None:
    """Measures how long each rank works by itself before an all-reduce, and how long it waits there for the others.

    In a collective all ranks finish together: a slow rank appears in the waiting times of the others. Its own time,
    from the end of one all-reduce to the start of the next, needs no common clock.
    """
    torch, dist = context.torch, context.torch.distributed
    timer, work, token = PartTimer(torch, context.device), own_work(context), torch.zeros(1, device=context.device)
    for _ in range(2):
        work()
        dist.all_reduce(token)
    timer.mark("start")
    for _ in range(_PACE_ROUNDS):
        work()
        timer.mark("own")
        dist.all_reduce(token)
        timer.mark("waiting")
    times = timer.seconds()
    own, waiting = median(times["own"]), median(times["waiting"])
    rows = gathered(context, [own, waiting])
    for rank, (own_seconds, waiting_seconds) in enumerate(rows):
        context.result("own_work", own_seconds * 1e3, repetitions=_PACE_ROUNDS, case=f"rank {rank}")
        context.result("waiting", waiting_seconds * 1e3, repetitions=_PACE_ROUNDS, case=f"rank {rank}")
    by_rank = [row[0] for row in rows]
    done.slowest = by_rank.index(max(by_rank))
    done.factor = by_rank[done.slowest] / median(by_rank[: done.slowest] + by_rank[done.slowest + 1 :])
    context.result("straggler", done.slowest, repetitions=_PACE_ROUNDS)
    context.result("straggler_factor", done.factor, repetitions=_PACE_ROUNDS)


def devices_of(context: Context) -> list[str]:
    """Returns the device of each local rank, that of the run first.

    Raises:
        UnsupportedError: There are fewer GPUs than ranks, or a collective would have one rank.
    """
    requested, hosts = context.parameters.ranks, context.parameters.hosts
    if not context.on_gpu:
        count = requested or 2
        devices = ["cpu"] * count
    else:
        visible = int(context.torch.cuda.device_count())
        if requested > visible:
            raise UnsupportedError(f"{requested} ranks need {requested} GPUs; torch finds {visible}. Choose ranks=0.")
        count = requested or visible
        devices = [f"cuda:{(context.device.index + number) % visible}" for number in range(count)]
    if count * hosts < 2:
        raise UnsupportedError(
            "A collective needs two ranks, and there is one GPU here. Set CUDA_VISIBLE_DEVICES to several GPUs, use "
            "several hosts (--set hosts=2), or try it with --device cpu, where Gloo connects two processes."
        )
    return devices


def other_hosts_text(context: Context) -> str:
    """Returns the command for the other hosts, in a sentence."""
    parameters = context.parameters
    settings = " ".join(
        f"--set {name}={getattr(parameters, name)}" for name in ("hosts", "ranks", "operation", "max_mebibytes")
    )
    return (
        f"Waiting for {parameters.hosts} hosts. On each other host, run: {RENDEZVOUS}={rendezvous()} gpumon run "
        f"collectives --device {context.device_text} {settings}. {RENDEZVOUS} is torchrun's --rdzv-endpoint; set it "
        "here too if the other hosts cannot resolve this name."
    )


def verdict_of(context: Context, answers: list[RankResults]) -> Verdict:
    """Returns the verdict: wrong data fails, a straggler warns."""
    wrong = [sentence for answer in answers for sentence in answer.wrong]
    if wrong:
        return context.fail(" ".join(wrong))
    done = answers[0]
    checks = sum(answer.checked for answer in answers)
    remarks = [f"All {checks} checks of the data are correct."]
    if not context.on_gpu:
        remarks.append("Gloo on the CPU shows that it works, not how fast GPUs are.")
    if done.curve:
        remarks.insert(0, _all_reduce_text(context, done))
    if done.factor < _STRAGGLER_FACTOR[context.device.type]:
        return context.ok(" ".join(remarks))
    bus_id = answers[done.slowest].bus_id if len(answers) == done.ranks else ""
    return context.warn(
        f"Rank {done.slowest}{f' (GPU {bus_id})' if bus_id else ''} takes {done.factor:.2f}x as long as the others for "
        "the same work, and in every step they wait for it: compare its clocks, temperature and processes with theirs. "
        + " ".join(remarks)
    )


def _all_reduce_text(context: Context, done: RankResults) -> str:
    """Returns what the curve of all-reduce means for gradients."""
    best = max(bus for _, bus, _ in done.curve)
    knee = next(size for size, bus, _ in done.curve if bus >= _HIGH_SHARE * best)
    size, bus, seconds = done.curve[-1]
    text = (
        f"All-reduce between {done.ranks} ranks: {bus:.3g} GB/s of bus bandwidth, so the gradients of a billion "
        f"parameters in bf16 take {time_text(2e9 / (size / seconds))} per step."
    )
    if not context.on_gpu:
        return text
    return (
        f"{text} Messages from {size_text(knee)} on reach {_HIGH_SHARE:.0%} of the best, and one of "
        f"{size_text(KIBIBYTE)} takes {time_text(done.curve[0][2])}: send few large messages; DDP's bucket_cap_mb "
        f"should be at least {max(1, -(-knee // MEBIBYTE))} (its default is 25)."
    )


def _uses(context: Context) -> Uses:
    largest = int(context.parameters.max_mebibytes * MEBIBYTE)
    count = len(devices_of(context))
    if context.on_gpu and (free := context.free_memory()[0]) < 2 * largest + _SPARE_BYTES:
        raise UnsupportedError(
            f"Two buffers of {size_text(largest)} per GPU do not fit into {size_text(free)} of free memory. Choose a "
            "smaller max_mebibytes."
        )
    operations = len(OPERATIONS) if context.parameters.operation == "all" else 1
    seconds = _START_SECONDS + operations * len(sizes_up_to(largest)) * (0.02 + context.parameters.milliseconds / 500)
    seconds += _JOIN_SECONDS if context.parameters.hosts > 1 else 0
    host_bytes = 0 if context.on_gpu else count * (2 * largest + 16 * _CHUNK)
    return Uses(2 * largest + _SPARE_BYTES if context.on_gpu else 0, seconds, host_bytes, peers=context.on_gpu)


def _run(context: Context) -> Verdict:
    devices = devices_of(context)
    hosts = context.parameters.hosts
    if hosts > 1:
        context.step(other_hosts_text(context))
    else:
        where = ", ".join(sorted(set(devices))) if context.on_gpu else "the CPU"
        context.step(f"torchrun starts {len(devices)} ranks on this host, on {where}.")
    try:
        answers = [RankResults(**answer) for answer in context.ranks("measure", devices, hosts)]
    except RanksError as error:
        return context.fail(str(error))
    for result in answers[0].results:
        context.results.append(Result(**result))
    context.checked += sum(answer.checked for answer in answers)
    return verdict_of(context, answers)


WORKLOAD = Workload(
    name="collectives",
    purpose="Measures all-reduce and other collectives between GPUs, checks their data, and names a straggler.",
    needs="Two GPUs, on one host or several; 2.5 GiB of memory on each at the default size. On the CPU: Gloo.",
    uses=_uses,
    run=_run,
    main_metric="all_reduce_bus_bandwidth",
    metrics=(
        DeclaredMetric("own_work", "ms"),
        DeclaredMetric("waiting", "ms", LOWER),
        DeclaredMetric("straggler", "rank", format="count"),
        DeclaredMetric("straggler_factor", "x", LOWER),
        DeclaredMetric("*_time", "us", LOWER),
        DeclaredMetric("*_latency", "us", LOWER),
        DeclaredMetric("*", "GB/s", HIGHER),
    ),
    parameters=(
        choice("operation", "all", ["all", *OPERATIONS], "The collective to measure."),
        integer("ranks", 0, 0, 1024, "Ranks on this host, one per GPU; 0 means all GPUs.", default_cpu=2),
        number("max_mebibytes", 1024, 0.0625, 8192, "The largest message.", unit="MiB", default_cpu=1),
        number("milliseconds", 60, 1, 5000, "Approximate measurement time per size.", unit="ms", default_cpu=20),
        number("timeout_seconds", 60, 1, 3600, "How long a rank waits for the others.", unit="s", default_cpu=30),
        integer("hosts", 1, 1, 1024, "Number of hosts; each runs the same command."),
    ),
    parts={"measure": _measure},
    code=(all_reduce, all_gather, reduce_scatter, broadcast, send_receive),
)
