"""Where data is moved and where the host waits: hidden synchronizations of a training loop, by their lines."""

from __future__ import annotations

import inspect
import io
import itertools
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from _kit import LOWER, DeclaredMetric, UnsupportedError, Uses, Verdict, Workload, integer
from _kit.timing import median

if TYPE_CHECKING:
    from _kit.context import Context

_SEED = 20260
_BATCHES = 4
_CLASSES = 10
_LAYERS = 4
_LEARNING_RATE = 1e-3
_HARD_LOSS = 2.3
"""About the loss of a guess among ten classes: some samples are above it, others below."""
_MARK = "  # hidden: "
_WATCHED_STEPS = 4
_TOLERANCE = 1e-3
"""Relative: all loops run the same operations on the same data, and only the order of some additions differs."""
_SPARE_BYTES = 256 << 20
_MAX_SHARE_OF_FREE = 0.9
_MAX_CODE_CHARACTERS = 60

Loader = Callable[[], Iterable[Any]]
"""Returns endless batches, on the device."""


@dataclass
class Collected:
    """What a training loop collects, on the GPU or on the host."""

    losses: list[Any]
    predictions: list[Any]
    printed: list[Any]
    hard: Any
    best: Any


def training_loop(model: Any, optimizer: Any, batches: Iterable[Any], hidden: Iterable[str]) -> Collected:
    """Trains, with the synchronizations named in ``hidden``; in ``else``: the same without waiting for the GPU."""
    import torch
    from torch.nn import functional

    device, log = next(model.parameters()).device, io.StringIO()
    losses: list[Any] = []
    predictions, printed = [], []
    hard, best = torch.zeros((), device=device), torch.full((), float("inf"), device=device)
    for inputs, labels in batches:
        logits = model(inputs)
        per_sample = functional.cross_entropy(logits, labels, reduction="none")
        loss = per_sample.mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

        if "item" in hidden:
            losses.append(loss.item())  # hidden: item
        else:
            losses.append(loss.detach())  # torch.stack(losses).tolist() after the loop
        if "cpu" in hidden:
            predictions.append(logits.argmax(dim=1).cpu())  # hidden: cpu
        else:
            predictions.append(logits.argmax(dim=1))  # torch.cat(predictions).cpu() after the loop
        if "print" in hidden:
            print(f"loss {loss:.4f}", file=log)  # hidden: print
        else:
            printed.append(loss.detach())  # print every hundredth step, or after the loop
        if "mask" in hidden:
            hard += per_sample.detach()[per_sample > _HARD_LOSS].sum()  # hidden: mask
        else:
            hard += (per_sample.detach() * (per_sample > _HARD_LOSS)).sum()  # the shape does not depend on the data
        if "if" in hidden:
            if loss < best:  # hidden: if
                best = loss.detach()
        else:
            best = torch.minimum(best, loss.detach())
    return Collected(losses, predictions, printed or log.getvalue().split("\n")[:-1], hard, best)


@contextmanager
def synchronizations(*functions: Callable[..., object]) -> Iterator[Counter[int]]:
    """Counts, by line of the functions, the calls in which the host waits for the GPU."""
    import torch

    lines: Counter[int] = Counter()
    codes = {function.__code__ for function in functions}

    def note(message: Warning | str, *_: object, **__: object) -> None:
        frame = inspect.currentframe()
        while frame is not None and frame.f_code not in codes:
            frame = frame.f_back  # the call may be in torch, as for print(tensor)
        if frame is not None and "synchronizing CUDA operation" in str(message):
            lines[frame.f_lineno] += 1

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = note
        torch.cuda.set_sync_debug_mode("warn")
        try:
            yield lines
        finally:
            torch.cuda.set_sync_debug_mode("default")


def moved_batches(host_batches: list[Any], device: Any) -> Iterator[Any]:
    """Moves a complete batch in each step, from pageable memory."""
    for inputs, labels in itertools.cycle(host_batches):
        yield inputs.to(device), labels.to(device)


def pinned_batches(host_batches: list[Any], device: Any) -> Iterator[Any]:
    """Moves a complete batch in each step, from pinned memory and without waiting for it."""
    for inputs, labels in itertools.cycle(host_batches):
        yield inputs.to(device, non_blocking=True), labels.to(device, non_blocking=True)


def moved_samples(host_batches: list[Any], device: Any) -> Iterator[Any]:
    """Moves every sample by itself, and builds the batch on the device."""
    import torch

    for inputs, labels in itertools.cycle(host_batches):
        yield torch.stack([sample.to(device) for sample in inputs]), labels.to(device)


def moved_model(model: Any, batches: list[Any], device: Any) -> Iterator[Any]:
    """Moves the model to the host and back in each step; the batches stay on the device."""
    for batch in itertools.cycle(batches):
        model.to("cpu")
        model.to(device)
        yield batch


def planted_lines() -> dict[str, int]:
    """Returns the line of each synchronization in `training_loop`, by its name, from the marks in the source."""
    source, first = inspect.getsourcelines(training_loop)
    return {
        line.partition(_MARK)[2].strip(): number for number, line in enumerate(source, start=first) if _MARK in line
    }


def code_of(line: int) -> str:
    """Returns the code of a line of `training_loop`, without its comment."""
    source, first = inspect.getsourcelines(training_loop)
    code = source[line - first].partition("  #")[0].strip()
    return code if len(code) <= _MAX_CODE_CHARACTERS else f"{code[: _MAX_CODE_CHARACTERS - 3]}..."


class PlacementBench:
    """A small model, data in all places, and the training loop.

    Args:
        context: The run.
    """

    def __init__(self, context: Context) -> None:
        torch, parameters = context.torch, context.parameters
        self._context = context
        torch.manual_seed(_SEED)
        width, batch = parameters.width, parameters.batch_size
        layers = [layer for _ in range(_LAYERS) for layer in (torch.nn.Linear(width, width), torch.nn.ReLU())]
        self.model = torch.nn.Sequential(*layers, torch.nn.Linear(width, _CLASSES)).to(context.device)
        self._initial = {name: value.clone() for name, value in self.model.state_dict().items()}
        self._optimizer = torch.optim.SGD(self.model.parameters(), lr=_LEARNING_RATE)
        host = [(torch.randn(batch, width), torch.randint(_CLASSES, (batch,))) for _ in range(_BATCHES)]
        pinned = [tuple(part.pin_memory() for part in pair) for pair in host] if context.on_gpu else host
        resident = [tuple(part.to(context.device) for part in pair) for pair in host]
        self.resident: Loader = partial(itertools.cycle, resident)
        self.loaders: dict[str, Loader] = {
            "each batch .to(), pinned, non_blocking": partial(pinned_batches, pinned, context.device),
            "each batch .to(), pageable": partial(moved_batches, host, context.device),
            "each sample .to()": partial(moved_samples, host, context.device),
            "each step model.to()": partial(moved_model, self.model, resident, context.device),
        }

    def watch(self, hidden: Iterable[str], loader: Loader) -> Counter[int]:
        """Runs some steps; returns how often the host waited for the GPU, by line."""
        functions = (training_loop, moved_batches, pinned_batches, moved_samples, moved_model)
        self._train(hidden, loader, 1)
        with synchronizations(*functions) as lines:
            training_loop(self.model, self._optimizer, itertools.islice(loader(), _WATCHED_STEPS), hidden)
        return lines

    def measure(self, hidden: Iterable[str], loader: Loader) -> tuple[float, dict[str, list[float]]]:
        """Trains from the initial weights; returns seconds per step and the record of the loop."""
        steps = self._context.parameters.steps
        self.model.load_state_dict(self._initial)
        self._context.synchronize()
        start = time.perf_counter()
        collected = self._train(hidden, loader, steps)
        self._context.synchronize()
        return (time.perf_counter() - start) / steps, record_of(collected)

    def _train(self, hidden: Iterable[str], loader: Loader, steps: int) -> Collected:
        return training_loop(self.model, self._optimizer, itertools.islice(loader(), steps), hidden)


def record_of(collected: Collected) -> dict[str, list[float]]:
    """Returns all that a loop has collected, as numbers on the host."""
    printed = [line.split()[-1] if isinstance(line, str) else line for line in collected.printed]
    return {
        "losses": [float(loss) for loss in collected.losses],
        "predictions": [float(label) for batch in collected.predictions for label in batch.tolist()],
        "printed": [float(loss) for loss in printed],
        "hard": [float(collected.hard)],
        "best": [float(collected.best)],
    }


def differences(record: dict[str, list[float]], expected: dict[str, list[float]]) -> list[str]:
    """Returns the names of what two loops have not computed equally."""
    return [name for name, values in expected.items() if not _agree(record[name], values)]


def _agree(values: list[float], expected: list[float]) -> bool:
    if len(values) != len(expected):
        return False
    wrong = sum(abs(value - other) > _TOLERANCE * max(1.0, abs(other)) for value, other in zip(values, expected))
    return wrong <= _TOLERANCE * len(expected)


def _uses(context: Context) -> Uses:
    """Returns the memory of model, gradients and activations.

    Raises:
        UnsupportedError: It does not fit.
    """
    width, batch = context.parameters.width, context.parameters.batch_size
    weights = 4 * (_LAYERS + 1) * width * (width + 1)
    data = 4 * batch * width * (2 * _BATCHES + 4 * _LAYERS)
    required = 4 * weights + data + _SPARE_BYTES
    if context.on_gpu and required > context.free_memory()[0] * _MAX_SHARE_OF_FREE:
        raise UnsupportedError(
            f"The model and its data need {required / 2**30:.1f} GiB; {context.free_memory()[0] / 2**30:.1f} GiB are "
            "free. Choose a smaller width."
        )
    return Uses(required if context.on_gpu else 0, 20, host_memory_bytes=weights + 2 * data)


def _run(context: Context) -> Verdict:
    context.cap_memory(_uses(context).memory_bytes)
    bench, planted = PlacementBench(context), planted_lines()
    context.step('torch.cuda.set_sync_debug_mode("warn") reports each call in which the host waits for the GPU.')
    lines, clean = bench.watch(tuple(planted), bench.resident), bench.watch((), bench.resident)
    for line, count in sorted(lines.items()):
        context.step(f"Line {line} waits {count / _WATCHED_STEPS:.3g}x per step: {code_of(line)}")
    context.checked += 1
    missing = sorted(set(planted.values()) - set(lines))
    if missing:
        return context.fail(
            f"{len(planted) - len(missing)} of {len(planted)} hidden synchronizations were found; not reported: lines "
            f"{', '.join(map(str, missing))}."
        )
    cases: dict[str, tuple[tuple[str, ...], Loader]] = {"none hidden": ((), bench.resident)}
    cases["all hidden"] = (tuple(planted), bench.resident)
    cases.update({case_of(line): ((name,), bench.resident) for name, line in planted.items()})
    cases.update({case: ((), loader) for case, loader in bench.loaders.items()})
    waits = {case: sum(bench.watch(*settings).values()) / _WATCHED_STEPS for case, settings in cases.items()}
    seconds = _measure(context, bench, cases)
    if isinstance(seconds, Verdict):
        return seconds
    base = median(seconds["none hidden"])
    for case, values in seconds.items():
        count = len(values) * context.parameters.steps
        context.result("step", median(values) * 1e3, repetitions=count, case=case)
        context.result("lost", (median(values) - base) * 1e3, repetitions=count, case=case)
        context.result("waits", waits[case], repetitions=_WATCHED_STEPS, case=case)
    others = sorted((set(lines) | set(clean)) - set(planted.values()))
    return judge_placement(context, {case: median(values) for case, values in seconds.items()}, planted, others)


def case_of(line: int) -> str:
    """Returns the name of the case of a line."""
    return f"line {line}: {code_of(line)}"


def _measure(
    context: Context, bench: PlacementBench, cases: dict[str, tuple[tuple[str, ...], Loader]]
) -> dict[str, list[float]] | Verdict:
    """Returns seconds per step of each case, or the verdict that a case computed something else."""
    context.step("Each line and each placement is measured by itself, against the loop in which nothing waits.")
    seconds: dict[str, list[float]] = {case: [] for case in cases}
    repetitions = context.parameters.repetitions
    expected = bench.measure((), bench.resident)[1]
    for done, (_, (case, settings)) in enumerate(itertools.product(range(repetitions), cases.items()), start=1):
        if context.stopping:
            break
        step, record = bench.measure(*settings)
        context.checked += 1
        wrong = differences(record, expected)
        if wrong:
            return context.fail(f"{case}: {', '.join(wrong)} differ from those of the loop without it.")
        seconds[case].append(step)
        context.metric("step", step * 1e3)
        context.progress(done, repetitions * len(cases))
    if not all(seconds.values()):
        return context.fail("The run ended before every case was measured.")
    return seconds


def judge_placement(context: Context, steps: dict[str, float], planted: dict[str, int], others: list[int]) -> Verdict:
    """Returns the verdict.

    Args:
        context: The run.
        steps: Seconds per step of each case.
        planted: The line of each hidden synchronization.
        others: Lines that wait although they should not.
    """
    none, everything = steps["none hidden"], steps["all hidden"]
    by_line = {line: steps[case_of(line)] - none for line in planted.values()}
    worst = max(by_line, key=lambda line: by_line[line])
    samples, model = (steps[case] - none for case in ("each sample .to()", "each step model.to()"))
    text = (
        f"{len(planted)} of {len(planted)} hidden synchronizations were found, in lines "
        f"{', '.join(map(str, sorted(planted.values())))}. Without them the loop makes {1 / none:,.0f} instead of "
        f"{1 / everything:,.0f} steps/s ({everything / none:.2f}x). The most expensive one alone is line {worst}, "
        f"{code_of(worst)}: {by_line[worst] * 1e3:.3f} ms per step. Collect on the GPU and read after the loop, and "
        'find the lines of your loop with torch.cuda.set_sync_debug_mode("warn"). Move the model once and complete '
        f"batches: sample by sample a step takes {samples * 1e3:.1f} ms longer, and with model.to() in each step "
        f"{model * 1e3:.1f} ms."
    )
    if others:
        return context.warn(f"{text} With this torch, these lines wait too: {', '.join(map(str, others))}.")
    return context.ok(text)


WORKLOAD = Workload(
    name="placement",
    purpose="Finds hidden synchronizations of a training loop by line, and measures what they and moving data cost.",
    needs="A GPU with CUDA and 0.6 GiB of GPU memory at the default size.",
    why_not_cpu="placement finds lines where the host waits for a GPU; on the CPU each call does its work at once.",
    uses=_uses,
    run=_run,
    metrics=(DeclaredMetric("waits", "per step", LOWER), DeclaredMetric("*", "ms", LOWER)),
    parameters=(
        integer("batch_size", 512, 1, 65536, "Samples per step."),
        integer("width", 2048, 8, 16384, "Width of the five layers of the model."),
        integer("steps", 50, 2, 10000, "Steps per measurement."),
        integer("repetitions", 5, 1, 50, "Measurements per case; the median is reported."),
    ),
    code=(training_loop, synchronizations, moved_batches, pinned_batches, moved_samples, moved_model),
)
