"""The causes that are looked for, by topic."""

from typing import Final

from gpumon.diagnosis.bottlenecks.causes.cores import CORES
from gpumon.diagnosis.bottlenecks.causes.data import LOADING
from gpumon.diagnosis.bottlenecks.causes.device import DEVICE
from gpumon.diagnosis.bottlenecks.causes.loop import LOOP
from gpumon.diagnosis.bottlenecks.causes.ranks import RANKS
from gpumon.diagnosis.bottlenecks.causes.settings import SETTINGS

CAUSES: Final = (*SETTINGS, *LOADING, *LOOP, *CORES, *DEVICE, *RANKS)
"""Every cause; of those with the same cost, the first one is the more specific one."""
