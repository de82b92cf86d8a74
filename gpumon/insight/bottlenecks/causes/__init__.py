"""The causes that are looked for, by topic."""

from typing import Final

from gpumon.insight.bottlenecks.causes.cores import CORES
from gpumon.insight.bottlenecks.causes.data import LOADING
from gpumon.insight.bottlenecks.causes.device import DEVICE
from gpumon.insight.bottlenecks.causes.loop import LOOP
from gpumon.insight.bottlenecks.causes.other_ranks import RANKS
from gpumon.insight.bottlenecks.causes.settings import SETTINGS

CAUSES: Final = (*SETTINGS, *LOADING, *LOOP, *CORES, *DEVICE, *RANKS)
"""Every cause; of those with the same cost, the first one is the more specific one."""
