"""Vanishing and exploding gradients: the gradient of each layer of a deep network, and what cures it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Optional

from _kit import LOWER, DeclaredMetric, Uses, Verdict, Workload, integer

if TYPE_CHECKING:
    from _kit.context import Context

_BATCH = 64
_MAX_CHANGE = 100.0
"""Largest ratio between the gradients of two layers of a network that is well initialized."""
_SMALLEST = 1e-30
_LEARNING_RATE = 2.0


@dataclass(frozen=True)
class _Network:
    """A network, and how its steps are computed.

    Attributes:
        name: Its name.
        gain: Standard deviation of the weights, times the square root of the width.
        activation: ``Sigmoid`` or ``Tanh``.
        is_normalized: Whether each layer normalizes its sums.
        is_residual: Whether each layer adds its input to its output.
        max_norm: Limit of the norm of all gradients, or None.
    """

    name: str
    gain: float
    activation: str = "Tanh"
    is_normalized: bool = False
    is_residual: bool = False
    max_norm: Optional[float] = None


NETWORKS = (
    _Network("vanishing", 1.0, "Sigmoid"),
    _Network("exploding", 8.0),
    _Network("initialization", 1.0),
    _Network("normalization", 8.0, is_normalized=True),
    _Network("residual", 0.1, is_residual=True),
    _Network("clipping", 8.0, max_norm=1.0),
)
"""Two defects, then what cures them: Glorot's initialization, normalization, residual connections, and clipping."""


def network(torch: Any, variant: _Network, depth: int, width: int) -> Any:
    """Returns a deep network of equal layers."""
    nn = torch.nn

    class Layer(nn.Module):  # type: ignore[misc, name-defined]
        """One layer."""

        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(width, width)
            nn.init.normal_(self.linear.weight, std=variant.gain / math.sqrt(width))
            nn.init.zeros_(self.linear.bias)
            self.norm = nn.LayerNorm(width) if variant.is_normalized else nn.Identity()
            self.activation = getattr(nn, variant.activation)()

        def forward(self, x: Any) -> Any:
            output = self.activation(self.norm(self.linear(x)))
            return x + output if variant.is_residual else output

    return nn.Sequential(*(Layer() for _ in range(depth)))


def layer_gradients(torch: Any, module: Any, batch: Any, target: Any) -> tuple[list[float], float]:
    """Returns the norm of the gradient of each layer's weights, and the loss."""
    module.zero_grad(set_to_none=True)
    loss = torch.nn.functional.mse_loss(module(batch), target)
    loss.backward()
    return [float(layer.linear.weight.grad.norm()) for layer in module], loss.item()


def train(torch: Any, module: Any, batch: Any, target: Any, variant: _Network, steps: int) -> float:
    """Trains with plain SGD; returns the loss at the end relative to that of the start, or infinity if it overflows."""
    optimizer = torch.optim.SGD(module.parameters(), lr=_LEARNING_RATE)
    first = loss = math.nan
    for step in range(steps):
        _, loss = layer_gradients(torch, module, batch, target)
        if variant.max_norm is not None:
            torch.nn.utils.clip_grad_norm_(module.parameters(), variant.max_norm)
        optimizer.step()
        first = loss if step == 0 else first
        if not math.isfinite(loss):
            return math.inf
    return loss / first


def change_of(norms: list[float]) -> float:
    """Returns how much smaller (below 1) or larger the gradient of the first layer is than that of the last."""
    return max(norms[0], _SMALLEST) / max(norms[-1], _SMALLEST)


def _uses(context: Context) -> Uses:
    size = 4 * (context.parameters.depth * context.parameters.width * (3 * context.parameters.width + 8 * _BATCH))
    if not context.on_gpu:
        return Uses(0, 10, host_memory_bytes=2 * size)
    return Uses(size + (256 << 20), 15)


def _run(context: Context) -> Verdict:
    context.cap_memory(_uses(context).memory_bytes)
    torch, depth, width = context.torch, context.parameters.depth, context.parameters.width
    changes: dict[str, float] = {}
    losses: dict[str, float] = {}
    for done, variant in enumerate(NETWORKS):
        if context.stopping:
            break
        torch.manual_seed(20260)
        batch = torch.randn(_BATCH, width, device=context.device)
        target = torch.randn(_BATCH, width, device=context.device).tanh()
        module = network(torch, variant, depth, width).to(context.device)
        norms, _ = layer_gradients(torch, module, batch, target)
        changes[variant.name] = change_of(norms)
        losses[variant.name] = train(torch, module, batch, target, variant, context.parameters.steps)
        for number, norm in enumerate(norms, 1):
            context.result(
                f"gradient_{variant.name}", max(norm, _SMALLEST), repetitions=1, case=f"layer {number}", position=number
            )
        context.checked += 1
        context.step(
            f"{variant.name}: the gradient of the first layer is {changes[variant.name]:.1e} of that of the last; "
            f"after {context.parameters.steps} steps the loss is {_loss_text(losses[variant.name])}."
        )
        context.progress(done + 1, len(NETWORKS))
    for name, loss in losses.items():
        if math.isfinite(loss):
            context.result(f"loss_{name}", 100 * loss, repetitions=context.parameters.steps)
    return _judge(context, changes, losses)


def _loss_text(share: float) -> str:
    return f"{share:.0%} of the first" if math.isfinite(share) else "not a number: the steps overflowed"


def _judge(context: Context, changes: dict[str, float], losses: dict[str, float]) -> Verdict:
    if len(changes) < len(NETWORKS):
        return context.warn("Stopped before all networks were measured.")
    wrong = [
        name
        for name in ("initialization", "normalization", "residual")
        if not 1 / _MAX_CHANGE < changes[name] < _MAX_CHANGE
    ]
    if wrong:
        return context.fail(f"The gradients still change by more than {_MAX_CHANGE:.0f}x with {', '.join(wrong)}.")
    if changes["vanishing"] > 1 / _MAX_CHANGE or changes["exploding"] < _MAX_CHANGE:
        return context.warn("The network is too shallow to show the defects: set a larger depth.")
    cures = ", ".join(f"{name} {_loss_text(losses[name])}" for name in losses if name not in {"vanishing", "exploding"})
    return context.ok(
        f"From the last layer to the first, gradients fall to {changes['vanishing']:.0e} with sigmoid and grow to "
        f"{changes['exploding']:.0e} with large weights; after {context.parameters.steps} steps their losses are "
        f"{_loss_text(losses['vanishing'])} and {_loss_text(losses['exploding'])}. With a cure: {cures}. Clipping "
        "limits the step, and leaves the layers as unequal as before."
    )


WORKLOAD = Workload(
    name="gradients",
    purpose="Shows vanishing and exploding gradients by layer, and measures what cures them.",
    needs="A GPU or the CPU.",
    uses=_uses,
    run=_run,
    main_metric="loss_initialization",
    code=(network, layer_gradients, train),
    metrics=(DeclaredMetric("loss_*", "%", LOWER), DeclaredMetric("gradient_*", "")),
    parameters=(
        integer("depth", 24, 4, 200, "Layers.", default_cpu=16),
        integer("width", 256, 8, 4096, "Width of the layers.", default_cpu=64),
        integer("steps", 50, 2, 10000, "Steps of SGD."),
    ),
)
