"""The help of the snapshot screen: its keys and terms."""

from typing import Final

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.widgets import Static

from gpumon.ui.screens.help import HelpScreen

HELP: Final = """\
A memory snapshot of PyTorch: who allocated what.

KEYS
  enter  right   open a frame; left closes it, or goes to its parent
  i              start at the other end of the stacks: at the frame that
                 allocates, or at the start of the program
  /              search for a text in the stacks; escape clears it
  e              memory allocated at the end, when the file was written
  p              memory allocated at the peak of the history
  a              all allocations of the history
  s              the segments, as maps of their blocks
  d              the changes between two files
  x              switch the chart between events and time
  v              next GPU
  t  q           theme; quit

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


class SnapshotHelpScreen(HelpScreen):
    """The help text, in the layout of `HelpScreen`."""

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            yield Static(HELP, markup=False)
