"""Ticks over the charts of a GPU: the metrics that are drawn over time, and the GPUs that share the charts."""

from collections.abc import Iterable, Sequence
from typing import ClassVar

from gpumon.core.metrics import METRICS
from gpumon.core.model import Device, short_product_name
from gpumon.core.units import value_text
from gpumon.present.device import MAX_CHARTS, MAX_OVERLAY
from gpumon.present.limits import limited_text
from gpumon.ui.screens.choice import ChoiceScreen, TickItem


class ChartChoiceScreen(ChoiceScreen[tuple[str, ...]]):
    """The result is the chosen ids in the order of choosing.

    Args:
        title: The heading.
        choices: What can be chosen.
        chosen: What is chosen now.
        max_chosen: How much can be chosen.
    """

    DEFAULT_CSS = "ChartChoiceScreen { #choice-box { width: 116; } }"
    LABEL_WIDTH: ClassVar[int] = 32

    def __init__(self, title: str, choices: Iterable[TickItem], chosen: Sequence[str], max_chosen: int) -> None:
        super().__init__(f"{title}, at most {max_chosen}", chosen)
        self.max_chosen = max_chosen
        self._choices = list(choices)

    def choices(self) -> Sequence[TickItem]:
        return self._choices

    def result(self) -> tuple[str, ...]:
        return tuple(self.chosen)


def metric_choices(device: Device | None, chosen: Sequence[str]) -> ChartChoiceScreen:
    """Every metric with its current value; without one, its chart would be empty now."""
    values = {} if device is None else device.readings
    items = (
        TickItem(
            metric.id,
            metric.label,
            f"{value_text(values[metric.id], metric.unit) if metric.id in values else '':>13}  {metric.help}",
        )
        for metric in METRICS.values()
    )
    return ChartChoiceScreen("Charts", items, chosen, MAX_CHARTS)


def overlay_choices(devices: Iterable[Device], chosen: Sequence[str]) -> ChartChoiceScreen:
    """Every GPU with its utilization, memory and power."""
    metrics = ("utilization_gpu_percent", "memory_used_bytes", "power_watts")
    items = (
        TickItem(
            device.key,
            f"GPU {device.label}  {short_product_name(device.name)}",
            "  ".join(limited_text(metric, device) for metric in metrics if device.get(metric) is not None),
        )
        for device in devices
    )
    return ChartChoiceScreen("GPUs in the same charts", items, chosen, MAX_OVERLAY)
