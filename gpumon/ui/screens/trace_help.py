"""The terms of the trace screen, which its help explains."""

from typing import Final

TRACE_LEGEND: Final = """\
A trace of torch.profiler or Kineto: where the time of a step goes.

CLASSES, at each moment the first one that applies
  compute on tensor cores, without tensor cores, memory-bound, other
                 a kernel runs, classified by its name
  exposed communication
                 only communication kernels (NCCL) run
  copies         only copies run
  waiting for data
                 the GPU is idle while the program waits for a batch
  synchronization
                 the GPU is idle because a call waited for it, such as
                 .item(): at most for the duration of the call
  host-bound     the GPU waits for the next launch
  idle otherwise the next kernel was queued, or nothing is known
TERMS
  at best        the step without a cause; others may then take longer
  ▁▂▃▄▅▆▇█       how busy a stream or a thread was in a cell
"""
