"""What a screen is given to draw."""

from typing import NamedTuple

from gpumon.core.model import Frame
from gpumon.core.store import Store
from gpumon.diagnosis.health import DEFAULTS, Alert, OverAlert, Thresholds


class Scene(NamedTuple):
    """One moment, ready to be drawn.

    Attributes:
        store: Histories.
        frame: The moment.
        alerts: What is wrong, worst first.
        source: Where the frames come from and how it stands, such as ``live every 1 s``.
        silence_seconds: How long no frame has come, if that is too long; everything shown is older by as much.
        is_this_machine: Whether the GPUs are those of the machine that gpumon runs on.
        workloads_running: How many workloads gpumon runs now.
        alerts_over: What was wrong and is no more, oldest first.
        thresholds: From which values on a figure deserves attention.
    """

    store: Store
    frame: Frame
    alerts: tuple[Alert, ...]
    source: str
    silence_seconds: float = 0.0
    is_this_machine: bool = False
    workloads_running: int = 0
    alerts_over: tuple[OverAlert, ...] = ()
    thresholds: Thresholds = DEFAULTS
