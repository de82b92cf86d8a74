"""Data parallelism: one model under DistributedDataParallel and FSDP2 on 1, 2, 4 and 8 GPUs.

torchrun starts the ranks again for each number of GPUs, and each rank trains the same number of samples (weak
scaling). The efficiency is the throughput of n ranks divided by n times that of one rank without any wrapper. The
time in communication is how much longer a step takes, not how long the links are busy: communication that overlaps
with the backward pass costs nothing. Under DDP it is the time of a step less that of the same step under ``no_sync``;
the two are measured one after the other, because ``no_sync`` lets the replicas diverge. FSDP2 has no such switch
(without its collectives a rank has no complete weights), so its step is compared with that of FSDP2 on one rank,
where the collectives are copies; slower clocks, when several GPUs are busy, count as communication too. Both wrappers
communicate float32; the precision is that of autocast.
"""

from __future__ import annotations

import copy
import gc
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from _kit import HIGHER, LOWER, DeclaredMetric, UnsupportedError, Uses, Verdict, Workload, choice, integer, number
from _kit.models import build
from _kit.rank import gathered, process_group
from _kit.ranks_failure import RanksError
from _kit.timing import batch_seconds, median
from _kit.training import StepOptions, Trainer, float32_mode, training_step, why_not

if TYPE_CHECKING:
    from _kit.context import Context

GIBIBYTE = 1 << 30
STRATEGIES = ("ddp", "fsdp2")
_NAMES = {"ddp": "DDP", "fsdp2": "FSDP2"}
_SEED = 20260
_ROUNDS = 3
_LOSS_TOLERANCE = 0.05
"""Both strategies start from the same weights with the same data; sums in another order round differently."""
_LOW_EFFICIENCY = 0.8
_MAX_SHARE_OF_FREE = 0.8
_LAUNCH_SECONDS = 12


def replicate(torch: Any, module: Any, device: Any) -> Any:
    """Returns the module under DDP: a replica on every rank, whose gradients are averaged in the backward pass."""
    ordinals = [device.index] if device.type == "cuda" else None
    return torch.nn.parallel.DistributedDataParallel(module, device_ids=ordinals)


def shard(torch: Any, module: Any, device: Any) -> Any:
    """Returns the module under FSDP2: each rank keeps a part of all weights, and gathers those of a block to use it."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(device.type, (torch.distributed.get_world_size(),))
    for block in getattr(module, "blocks", module):
        if any(True for _ in block.parameters()):
            fully_shard(block, mesh=mesh)
    return fully_shard(module, mesh=mesh)


def counts_up_to(largest: int) -> list[int]:
    """Returns 1, 2, 4 and so on, with the largest as the last."""
    return [*(2**power for power in range(largest.bit_length()) if 2**power < largest), largest]


def _why_not_fsdp2(torch: Any) -> str:
    """Returns why this torch has no FSDP2, in a sentence; empty if it has."""
    try:
        from torch.distributed.fsdp import fully_shard  # noqa: F401
    except ImportError:
        return f"torch {torch.__version__} has no torch.distributed.fsdp.fully_shard (FSDP2), which torch 2.6 added."
    return ""


def _train(context: Context) -> dict[str, Any]:
    """Trains without a wrapper and with both strategies, in one rank."""
    torch, parameters = context.torch, context.parameters
    context.cap_memory(_memory_bytes(context))
    with process_group(context) as dist, float32_mode(torch, parameters.precision):
        context.position("building the model")
        model = build(torch, parameters.model, parameters.size)
        batch = tuple(
            tensor.to(context.device) for tensor in model.make_batch(parameters.batch, _SEED + dist.get_rank())
        )
        ways: dict[str, Callable[[Any, Any, Any], Any]] = {"none": lambda _, module, __: module}
        ways |= {name: way for name, way in (("ddp", replicate), ("fsdp2", shard)) if name in _strategies(context)}
        answer: dict[str, Any] = {"parameters": model.parameter_count, "ways": {}}
        for name, wrap in ways.items():
            context.step(f"{_case(name, dist.get_world_size())}: {model.about}.")
            context.position(f"training with {_NAMES.get(name, 'no wrapper')}")
            module = wrap(torch, copy.deepcopy(model.module).to(context.device), context.device)
            answer["ways"][name] = _train_one(context, name, module, model.loss, batch)
            del module
    return answer


def _train_one(context: Context, name: str, module: Any, loss_function: Any, batch: Any) -> dict[str, Any]:
    """Trains a module; returns its times, its peak memory, and what shows that it did not train."""
    torch = context.torch
    gc.collect()
    if context.on_gpu:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(context.device)
    trainer = Trainer(torch, context.device, module, loss_function, StepOptions(context.parameters.precision))
    losses: list[Any] = []

    def step() -> None:
        losses[:] = [trainer.step(batch)]

    seconds = _seconds_per_step(context, step)
    problem = trainer.problem(losses[0])
    if name == "ddp":
        difference = _difference(context, module)  # a collective: all ranks must call it
        problem = problem or difference
    loss = [row[0] for row in gathered(context, [float(losses[0])])]
    answer = {
        "seconds": seconds,
        "peak_bytes": context.memory().get("peak_allocated_bytes"),
        "problem": problem,
        "loss": sum(loss) / len(loss),
    }
    if name == "ddp":
        with module.no_sync():
            answer["unsynchronized_seconds"] = _seconds_per_step(context, step)
    return answer


def _seconds_per_step(context: Context, step: Callable[[], None]) -> float:
    """Returns the mean over all ranks of the time of a step, after a warm-up."""
    count = context.parameters.steps // _ROUNDS
    batch_seconds(context, step, max(1, count // 2))
    rounds = []
    for _ in range(_ROUNDS):
        gathered(context, [0.0])  # all ranks start at the same time
        context.position("a round of steps")
        rounds.append(batch_seconds(context, step, count) / count)
        context.metric(f"rank {context.torch.distributed.get_rank()}", _rate(context, rounds[-1]))
    times = gathered(context, [median(rounds)])
    return sum(row[0] for row in times) / len(times)


def _case(name: str, ranks: int) -> str:
    return f"{_NAMES.get(name, 'no wrapper')}, {ranks} rank{'s' if ranks > 1 else ''}"


def _rate(context: Context, seconds: float, ranks: int = 1) -> float:
    return float(ranks * context.parameters.batch / seconds)


def _difference(context: Context, module: Any) -> str:
    """Compares every weight with that of rank 0; returns a sentence about those that differ."""
    torch, dist = context.torch, context.torch.distributed
    differing = []
    for name, parameter in module.named_parameters():
        reference = parameter.detach().clone()
        dist.broadcast(reference, src=0)
        if not torch.equal(reference, parameter.detach()):
            differing.append(name)
    if not differing:
        return ""
    return f"{len(differing)} parameter tensors differ from those of rank 0, the first is {differing[0]}."


def problems_of(answers: list[dict[str, Any]]) -> list[str]:
    """Returns sentences about ranks that did not train, and about a strategy that learned something else."""
    problems = [
        f"Rank {rank} of {len(answers)} under {_NAMES.get(name, 'no wrapper')}: {way['problem']}"
        for rank, answer in enumerate(answers)
        for name, way in answer["ways"].items()
        if way["problem"]
    ]
    losses = {name: answers[0]["ways"][name]["loss"] for name in STRATEGIES if name in answers[0]["ways"]}
    if len(losses) == 2 and abs(losses["ddp"] - losses["fsdp2"]) > _LOSS_TOLERANCE * abs(losses["ddp"]):
        problems.append(f"The loss is {losses['ddp']:.4g} under DDP and {losses['fsdp2']:.4g} under FSDP2.")
    return problems


class Scaling:
    """The results of all numbers of ranks.

    Args:
        context: The run.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._alone: dict[str, float] = {}
        """Seconds per step on one rank."""
        self.problems: list[str] = []
        self.last: dict[str, dict[str, float]] = {}
        """Values of each strategy at the largest number of ranks."""
        self.ranks = 0

    def add(self, answers: list[dict[str, Any]]) -> None:
        """Adds the answers of one launch to the results."""
        context, self.ranks = self._context, len(answers)
        self.problems += problems_of(answers)
        ways = answers[0]["ways"]
        if not self._alone:
            self._alone = {name: way["seconds"] for name, way in ways.items()}
            self._report(answers, "none", {"throughput": _rate(context, self._alone["none"])})
        for name in STRATEGIES:
            if name not in ways:
                continue
            seconds = ways[name]["seconds"]
            values = {
                "throughput": _rate(context, seconds, self.ranks),
                "efficiency": 100 * self._alone["none"] / seconds,
            }
            if self.ranks > 1:
                exposed = max(0.0, seconds - ways[name].get("unsynchronized_seconds", self._alone[name]))
                values |= {"communication": exposed * 1e3, "communication_share": 100 * exposed / seconds}
            self.last[name] = self._report(answers, name, values)

    def _report(self, answers: list[dict[str, Any]], name: str, values: dict[str, float]) -> dict[str, float]:
        """Reports the values of a case, and the time and memory that the ranks have measured."""
        ways = [answer["ways"][name] for answer in answers]
        values = {**values, "step_time": ways[0]["seconds"] * 1e3}
        if ways[0]["peak_bytes"] is not None:
            values["peak_memory"] = max(way["peak_bytes"] for way in ways) / GIBIBYTE
        steps = self._context.parameters.steps // _ROUNDS * _ROUNDS
        for value_name, value in values.items():
            self._context.result(value_name, value, repetitions=steps, case=_case(name, self.ranks))
        self._context.checked += len(ways)
        return values

    def verdict(self) -> Verdict:
        """Returns the verdict: a rank that did not train fails, poor scaling warns."""
        context = self._context
        if self.problems:
            return context.fail(" ".join(self.problems))
        if self.ranks == 1:
            return context.warn(
                "One GPU: this is the cost of the wrappers; scaling needs a second GPU, or --device cpu to try it."
            )
        texts = [
            f"{_NAMES[name]} on {self.ranks} ranks: {values['throughput']:.4g} samples/s, {values['efficiency']:.0f}% "
            f"of {self.ranks} times one rank; communication is {values['communication_share']:.0f}% of a step."
            for name, values in self.last.items()
        ]
        if len(self.last) == 2:
            texts.append(self._advice())
        if not context.on_gpu:
            return context.ok(
                " ".join([*texts, "Ranks on the CPU share its cores, so they do not show how GPUs scale."])
            )
        best = max(values["efficiency"] for values in self.last.values()) / 100
        if best < _LOW_EFFICIENCY:
            texts.append(
                "Communication costs too much: raise the batch size per GPU or accumulate gradients, and check the "
                "links with gpumon run collectives."
            )
            return context.warn(" ".join(texts))
        return context.ok(" ".join(texts))

    def _advice(self) -> str:
        """Returns which strategy to use."""
        ddp, fsdp2 = self.last["ddp"], self.last["fsdp2"]
        faster = ddp["throughput"] / fsdp2["throughput"]
        memory = ""
        if "peak_memory" in ddp:
            memory = f" ({fsdp2['peak_memory']:.2f} instead of {ddp['peak_memory']:.2f} GiB per GPU)"
        if faster >= 1:
            return (
                f"Use DDP as long as the model fits: it is {faster:.2f}x as fast as FSDP2, which needs less memory"
                f"{memory}."
            )
        return f"Use FSDP2: it is {1 / faster:.2f}x as fast as DDP{memory}."


def _strategies(context: Context) -> list[str]:
    wanted = context.parameters.strategy
    missing = {"fsdp2"} if _why_not_fsdp2(context.torch) else set()
    return [name for name in STRATEGIES if wanted in ("all", name) and name not in missing]


def _counts(context: Context) -> list[int]:
    """Returns the numbers of ranks to measure.

    Raises:
        UnsupportedError: There are fewer GPUs than ranks.
    """
    requested = context.parameters.ranks
    if not context.on_gpu:
        return counts_up_to(requested or 2)
    visible = int(context.torch.cuda.device_count())
    if requested > visible:
        raise UnsupportedError(f"{requested} ranks need {requested} GPUs; torch finds {visible}. Choose ranks=0.")
    return counts_up_to(requested or visible)


def _memory_bytes(context: Context) -> int:
    limit = int(context.parameters.memory_gibibytes * GIBIBYTE)
    return min(limit, int(context.free_memory()[0] * _MAX_SHARE_OF_FREE)) if context.on_gpu else limit


def _uses(context: Context) -> Uses:
    parameters, counts = context.parameters, _counts(context)
    reason = why_not(context.torch, None if context.chip is None else context.chip.capability, parameters.precision)
    if not reason and parameters.strategy == "fsdp2":
        reason = _why_not_fsdp2(context.torch)
    if reason:
        raise UnsupportedError(reason)
    seconds = len(counts) * (_LAUNCH_SECONDS + 0.1 * parameters.steps)
    if context.on_gpu:
        return Uses(_memory_bytes(context), seconds, peers=counts[-1] > 1)
    return Uses(0, seconds, host_memory_bytes=counts[-1] * GIBIBYTE // 2)


def _run(context: Context) -> Verdict:
    scaling, counts = Scaling(context), _counts(context)
    if (reason := _why_not_fsdp2(context.torch)) and context.parameters.strategy == "all":
        context.step(f"FSDP2 is skipped: {reason}")
    first = context.device.index or 0
    for done, count in enumerate(counts):
        if context.stopping:
            break
        devices = ["cpu"] * count
        if context.on_gpu:
            devices = [f"cuda:{(first + rank) % context.torch.cuda.device_count()}" for rank in range(count)]
        try:
            scaling.add(context.ranks("train", devices))
        except RanksError as error:
            return context.fail(str(error))
        context.progress(done + 1, len(counts))
    return scaling.verdict()


WORKLOAD = Workload(
    name="parallel",
    purpose="Trains one model with DistributedDataParallel and FSDP2 on 1, 2, 4 and 8 GPUs: scaling and memory.",
    needs="Several GPUs of one host; up to 24 GiB of memory on each at the default size. On the CPU: Gloo.",
    uses=_uses,
    run=_run,
    metrics=(
        DeclaredMetric("throughput", "samples/s", HIGHER),
        DeclaredMetric("rank *", "samples/s", HIGHER),
        DeclaredMetric("efficiency", "%", HIGHER),
        DeclaredMetric("communication", "ms", LOWER),
        DeclaredMetric("communication_share", "%", LOWER),
        DeclaredMetric("step_time", "ms", LOWER),
        DeclaredMetric("peak_memory", "GiB", LOWER),
    ),
    parameters=(
        choice("strategy", "all", ["all", *STRATEGIES], "How the ranks share the work."),
        choice("model", "transformer", ["transformer", "mlp", "cnn"], "The model to train.", default_cpu="mlp"),
        choice("size", "base", ["tiny", "small", "base"], "Size of the model.", default_cpu="small"),
        integer("batch", 16, 1, 65536, "Samples per rank and step.", default_cpu=32),
        choice("precision", "bf16", ["fp32", "tf32", "bf16"], "Precision of the products.", default_cpu="fp32"),
        integer("steps", 30, 3, 10000, "Measured steps of each case.", default_cpu=6),
        integer("ranks", 0, 0, 1024, "Largest number of ranks, one per GPU; 0 means all GPUs.", default_cpu=2),
        number("memory_gibibytes", 24, 0.5, 1024, "Upper limit of the memory of each rank.", unit="GiB"),
        number("timeout_seconds", 60, 1, 3600, "How long a rank waits for the others.", unit="s", default_cpu=30),
    ),
    parts={"train": _train},
    code=(replicate, shard, training_step),
)
