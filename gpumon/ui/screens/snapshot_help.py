"""The terms of the snapshot screen, which its help explains."""

from typing import Final

SNAPSHOT_LEGEND: Final = """\
A memory snapshot of PyTorch: who allocated what.

TERMS
  allocated      held by tensors, as requested; PyTorch rounds each request
                 up to 512 bytes or more
  reserved       obtained from the driver, in segments
  free           reserved and not in use; torch.cuda.empty_cache() releases
                 empty segments to the driver
  fragmentation  share of the free memory outside the largest hole
  before the history began
                 the history is a ring buffer: memory allocated before its
                 first event has no stack, unless its block has one
  no stack was recorded
                 allocated outside of Python, for example in the backward
                 pass
  ▼ ✗            the peak; an out-of-memory error
"""
