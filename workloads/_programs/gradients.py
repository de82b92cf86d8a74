"""The gradient of each layer: vanishing with sigmoids, and cured by an initialization and residual connections."""

import torch
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"
DEPTH, WIDTH = 12, 64


def gradients(activation, gain: float, is_residual: bool) -> list[float]:
    """The norm of the gradient of each layer's weights."""
    torch.manual_seed(0)
    layers = [nn.Linear(WIDTH, WIDTH).to(device) for _ in range(DEPTH)]
    x = torch.randn(32, WIDTH, device=device)
    for layer in layers:
        nn.init.normal_(layer.weight, std=gain / WIDTH**0.5)
        output = activation(layer(x))
        x = x + output if is_residual else output
    x.square().mean().backward()
    return [layer.weight.grad.norm().item() for layer in layers]


for name, activation, gain, is_residual in (
    ("sigmoid", torch.sigmoid, 1.0, False),
    ("large weights", torch.tanh, 8.0, False),
    ("tanh, gain 1", torch.tanh, 1.0, False),
    ("residual", torch.tanh, 0.1, True),
):
    norms = gradients(activation, gain, is_residual)
    print(f"{name}: first layer {norms[0]:.1e}, last layer {norms[-1]:.1e}, ratio {norms[0] / norms[-1]:.1e}")
