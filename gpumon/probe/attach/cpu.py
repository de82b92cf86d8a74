"""The architecture of this host: `gpumon.probe.attach.x86_64`, or the module with the same names for another one."""

import platform
from typing import TYPE_CHECKING

if TYPE_CHECKING or platform.machine() != "aarch64":
    import gpumon.probe.attach.x86_64 as cpu
else:
    import gpumon.probe.attach.aarch64 as cpu

__all__ = ["cpu"]
