"""The probe: runs inside a training process, and serves what it sees of PyTorch there on a Unix socket.

It must not disturb the program. It never imports torch and never creates a CUDA context: it waits until the program has
done both. It resets no statistics, prints nothing and receives no signals, and an error in it ends the probe, never the
program.

The package needs Python 3.8 or later, the standard library, and nothing of gpumon, which is not installed in the
training environment. `gpumon watch` and `gpumon attach` load it under the name `_gpumon_probe_agent`, which it also
registers when it is imported as `gpumon.probe.agent`, so that a process has one probe, whoever loads it.
"""

import sys

from .startup import start, start_at_cuda_init, start_at_training, stop

__all__ = ["start", "start_at_cuda_init", "start_at_training", "stop"]

sys.modules.setdefault("_gpumon_probe_agent", sys.modules[__name__])
