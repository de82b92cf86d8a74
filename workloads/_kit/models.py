"""Small models of the kinds that people train, with random data of the right shape and the operations of a step.

The sizes: ``tiny`` for tests, ``small`` for the CPU, ``base`` for a GPU. All weights and all data depend only on the
seed, so the same model starts from the same weights on every device and in every precision.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

KINDS = ("cnn", "rnn", "lstm", "gru", "transformer", "mlp")
SIZES = ("tiny", "small", "base")

_CLASSES = {"tiny": 10, "small": 100, "base": 1000}


@dataclass(frozen=True)
class _CnnSizes:
    pixels: int
    channels: tuple[int, ...]
    blocks: int


_CNN = {
    "tiny": _CnnSizes(8, (8, 16), 1),
    "small": _CnnSizes(32, (16, 32, 64), 2),
    "base": _CnnSizes(224, (64, 128, 256, 512), 2),
}
_RECURRENT = {
    "tiny": {"steps": 4, "features": 8, "width": 16, "layers": 2},
    "small": {"steps": 32, "features": 64, "width": 128, "layers": 2},
    "base": {"steps": 128, "features": 512, "width": 1024, "layers": 2},
}
_TRANSFORMER = {
    "tiny": {"steps": 8, "vocabulary": 32, "width": 16, "heads": 2, "layers": 2},
    "small": {"steps": 64, "vocabulary": 512, "width": 128, "heads": 4, "layers": 2},
    "base": {"steps": 512, "vocabulary": 16384, "width": 1024, "heads": 16, "layers": 8},
}
_MLP = {
    "tiny": {"features": 16, "width": 32, "layers": 2},
    "small": {"features": 256, "width": 512, "layers": 3},
    "base": {"features": 4096, "width": 4096, "layers": 6},
}
TWICE_THE_WIDTH = " of twice the width"
"""Ends the name of a size that is not offered, but measured for comparison."""
for _sizes in (_RECURRENT, _TRANSFORMER, _MLP):
    _sizes.update({f"{name}{TWICE_THE_WIDTH}": {**_sizes[name], "width": 2 * _sizes[name]["width"]} for name in SIZES})
_CNN.update({
    f"{name}{TWICE_THE_WIDTH}": replace(_CNN[name], channels=tuple(2 * count for count in _CNN[name].channels))
    for name in SIZES
})  # fmt: skip
_CLASSES.update({f"{name}{TWICE_THE_WIDTH}": _CLASSES[name] for name in SIZES})


@dataclass(frozen=True)
class Model:
    """A model to train.

    Attributes:
        kind: One of `KINDS`.
        about: What it is, in words, such as ``ResNet of 4 stages, images of 224 x 224``.
        module: The module, on the CPU, in float32 and training mode.
        make_batch: Returns inputs and targets on the CPU; arguments: the number of samples, and a seed.
        loss: Returns the loss of outputs and targets.
        forward_flops: Floating-point operations of the forward pass of one sample.
        step_flops: Floating-point operations of the forward and the backward pass of one sample.
    """

    kind: str
    about: str
    module: Any
    make_batch: Callable[[int, int], tuple[Any, Any]]
    loss: Callable[[Any, Any], Any]
    forward_flops: int
    step_flops: int

    @property
    def parameter_count(self) -> int:
        """Number of trained values."""
        return sum(parameter.numel() for parameter in self.module.parameters())


def build(torch: Any, kind: str, size: str = "base", seed: int = 20260) -> Model:
    """Returns a model with random weights.

    Args:
        torch: The torch module.
        kind: One of `KINDS`.
        size: One of `SIZES`, also with `TWICE_THE_WIDTH`.
        seed: Seed of the weights.
    """
    torch.manual_seed(seed)
    builders = {"cnn": _cnn, "transformer": _transformer, "mlp": _mlp}
    module, make_batch, about = builders.get(kind, _recurrent)(torch, kind, size)
    forward_flops, step_flops = count_flops(torch, module, make_batch(1, seed)[0])

    def loss(outputs: Any, targets: Any) -> Any:
        # The logits of all tokens of a sequence are one dimension more than those of a class.
        return torch.nn.functional.cross_entropy(outputs.flatten(0, -2).float(), targets.flatten())

    return Model(kind, about, module, make_batch, loss, forward_flops, step_flops)


def count_flops(torch: Any, module: Any, inputs: Any) -> tuple[int, int]:
    """Returns the floating-point operations of the forward pass, and of forward and backward pass together.

    Matrix products, convolutions, recurrent layers and attention count, a multiply-add as two operations; the rest is
    below a percent. The backward pass computes as many again for the gradients of the weights, and as many again for
    those of the inputs, which the first layer does not need. Attention counts all pairs of tokens, as
    ``torch.utils.flop_counter`` does, although a causal mask needs only half of them.

    Args:
        torch: The torch module.
        module: A module with layers of torch and `CausalAttention`, on any device.
        inputs: Its input.
    """
    forward, backward = [0], [0]

    def count(layer: Any, arguments: tuple[Any, ...], output: Any) -> None:
        for operations, again in _operations(torch, layer, arguments[0], output):
            forward[0] += operations
            backward[0] += again

    was_training = module.training
    handles = [layer.register_forward_hook(count) for layer in module.modules()]
    try:
        module.eval()  # statistics of normalization layers must not change
        with torch.enable_grad():  # whether an input needs a gradient is known only then
            module(inputs)
    finally:
        module.train(was_training)
        for handle in handles:
            handle.remove()
    return forward[0], forward[0] + backward[0]


def _operations(torch: Any, layer: Any, inputs: Any, output: Any) -> list[tuple[int, int]]:
    """Returns the operations of each product of a layer in the forward and in the backward pass."""
    factor = 2 if inputs.requires_grad else 1
    if isinstance(layer, torch.nn.Linear):
        count = 2 * output.numel() * layer.in_features
        return [(count, factor * count)]
    if isinstance(layer, torch.nn.Conv2d):
        count = 2 * output.numel() * layer.in_channels // layer.groups * layer.kernel_size[0] * layer.kernel_size[1]
        return [(count, factor * count)]
    if isinstance(layer, torch.nn.RNNBase):
        gates = {"LSTM": 4, "GRU": 3}.get(layer.mode, 1) * layer.hidden_size
        samples, steps = inputs.shape[0], inputs.shape[1]
        products = []
        for number in range(layer.num_layers):
            count = 2 * samples * steps * gates * (layer.hidden_size if number else layer.input_size)
            products.append((count, count * (2 if number else factor)))
            once = 2 * samples * gates * layer.hidden_size
            products.append((steps * once, (2 * steps - 1) * once))  # the first state is zero and needs no gradient
        return products
    if type(layer).__name__ == "CausalAttention":
        samples, steps, width = output.shape
        count = 4 * samples * steps * steps * width  # queries by keys, and weights by values
        return [(count, 2 * count)]
    return []


def _mlp(torch: Any, _: str, size: str) -> tuple[Any, Any, str]:
    nn, sizes, classes = torch.nn, _MLP[size], _CLASSES[size]
    layers: list[Any] = [nn.Linear(sizes["features"], sizes["width"]), nn.ReLU()]
    for _number in range(sizes["layers"] - 1):
        layers += [nn.Linear(sizes["width"], sizes["width"]), nn.ReLU()]
    layers.append(nn.Linear(sizes["width"], classes))
    about = f"MLP of {sizes['layers'] + 1} layers, width {sizes['width']}"
    return nn.Sequential(*layers), _numbers(torch, (sizes["features"],), classes), about


def _cnn(torch: Any, _: str, size: str) -> tuple[Any, Any, str]:
    nn, sizes, classes = torch.nn, _CNN[size], _CLASSES[size]

    class ResidualBlock(nn.Module):  # type: ignore[name-defined,misc]
        """Two convolutions, added to their input."""

        def __init__(self, before: int, after: int, stride: int) -> None:
            super().__init__()
            self.main = nn.Sequential(
                nn.Conv2d(before, after, 3, stride, 1, bias=False), nn.BatchNorm2d(after), nn.ReLU(),
                nn.Conv2d(after, after, 3, 1, 1, bias=False), nn.BatchNorm2d(after),
            )  # fmt: skip
            self.skip = nn.Identity()
            if stride != 1 or before != after:
                self.skip = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))

        def forward(self, x: Any) -> Any:
            """Returns the sum of both ways."""
            return torch.relu(self.main(x) + self.skip(x))

    channels, pixels = sizes.channels, sizes.pixels
    is_large = pixels >= 128  # as in ResNet, large images are made smaller first
    layers: list[Any] = [
        nn.Conv2d(3, channels[0], 7 if is_large else 3, 2 if is_large else 1, 3 if is_large else 1, bias=False),
        nn.BatchNorm2d(channels[0]), nn.ReLU(), nn.MaxPool2d(3, 2, 1) if is_large else nn.Identity(),
    ]  # fmt: skip
    for number, after in enumerate(channels):
        before = channels[max(0, number - 1)]
        layers.append(ResidualBlock(before, after, 2 if number else 1))
        layers += [ResidualBlock(after, after, 1) for _number in range(sizes.blocks - 1)]
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels[-1], classes)]
    about = f"ResNet of {len(channels)} stages, images of {pixels} x {pixels}"
    return nn.Sequential(*layers), _numbers(torch, (3, pixels, pixels), classes), about


def _recurrent(torch: Any, kind: str, size: str) -> tuple[Any, Any, str]:
    nn, sizes, classes = torch.nn, _RECURRENT[size], _CLASSES[size]

    class RecurrentClassifier(nn.Module):  # type: ignore[name-defined,misc]
        """Recurrent layers, and a class from the last step."""

        def __init__(self) -> None:
            super().__init__()
            layer = getattr(nn, kind.upper())
            self.layers = layer(sizes["features"], sizes["width"], sizes["layers"], batch_first=True)
            self.head = nn.Linear(sizes["width"], classes)

        def forward(self, x: Any) -> Any:
            """Returns the logits of the classes."""
            return self.head(self.layers(x)[0][:, -1])

    about = f"{kind.upper()} of {sizes['layers']} layers, width {sizes['width']}, sequences of {sizes['steps']}"
    return RecurrentClassifier(), _numbers(torch, (sizes["steps"], sizes["features"]), classes), about


def _transformer(torch: Any, _: str, size: str) -> tuple[Any, Any, str]:
    nn, sizes = torch.nn, _TRANSFORMER[size]
    width, heads, steps, vocabulary = (sizes[name] for name in ("width", "heads", "steps", "vocabulary"))

    class CausalAttention(nn.Module):  # type: ignore[name-defined,misc]
        """Attention of each token to those before it."""

        def forward(self, query: Any, key: Any, value: Any) -> Any:
            """Returns the weighted values; all shapes are samples, tokens, width."""
            split = [x.unflatten(-1, (heads, width // heads)).transpose(1, 2) for x in (query, key, value)]
            mixed = nn.functional.scaled_dot_product_attention(*split, is_causal=True)
            return mixed.transpose(1, 2).flatten(2)

    class DecoderBlock(nn.Module):  # type: ignore[name-defined,misc]
        """Attention and a feed-forward network, each added to its input."""

        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
            self.project, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width)
            self.attention = CausalAttention()
            self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

        def forward(self, x: Any) -> Any:
            """Returns tokens of the same shape."""
            x = x + self.out(self.attention(*self.project(self.first(x)).chunk(3, dim=-1)))
            return x + self.feed(self.second(x))

    class TransformerDecoder(nn.Module):  # type: ignore[name-defined,misc]
        """Predicts the next token of each token."""

        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(steps, width)
            self.blocks = nn.Sequential(*(DecoderBlock() for _number in range(sizes["layers"])))
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

        def forward(self, tokens: Any) -> Any:
            """Returns the logits of the next tokens."""
            x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
            return self.head(self.norm(self.blocks(x)))

    def make_batch(samples: int, seed: int) -> tuple[Any, Any]:
        generator = torch.Generator().manual_seed(seed)
        text = torch.randint(vocabulary, (samples, steps + 1), generator=generator)
        return text[:, :-1].contiguous(), text[:, 1:].contiguous()

    about = f"Transformer of {sizes['layers']} layers, width {width}, {steps} tokens per sample"
    return TransformerDecoder(), make_batch, about


def _numbers(torch: Any, shape: tuple[int, ...], classes: int) -> Callable[[int, int], tuple[Any, Any]]:
    """Returns a function that makes normally distributed inputs of a shape, and random classes."""

    def make_batch(samples: int, seed: int) -> tuple[Any, Any]:
        generator = torch.Generator().manual_seed(seed)
        inputs = torch.randn(samples, *shape, generator=generator)
        return inputs, torch.randint(classes, (samples,), generator=generator)

    return make_batch
