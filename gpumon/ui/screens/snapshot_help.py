"""What the keys of a snapshot's screen do, and what its words mean."""

from typing import Final

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.widgets import Static

from gpumon.ui.screens.help import HelpScreen

HELP: Final = """\
A memory snapshot of PyTorch: who allocated what.

KEYS
  enter  right   open a frame; left closes it, or goes to the one above
  i              begin at the other end of the stacks: with the frame that
                 allocated, or with the start of the program
  /              only stacks with a text in a frame; escape ends it
  e              what is allocated in the end, when the file was written
  p              what was allocated at the peak of the history
  a              all that was ever allocated in the history
  s              the segments, as maps of their blocks
  d              what has changed between two files
  x              the chart over events, or over time
  v              the next device
  t  q           theme; quit

WORDS
  allocated      held by tensors, as it was asked for; PyTorch rounds it up
                 to 512 bytes or more
  reserved       taken from the driver, in segments
  free           reserved and not in use; what is in empty segments is what
                 torch.cuda.empty_cache() gives back
  fragmentation  share of what is free that lies outside the largest hole
  before the history began
                 the history is a ring: what was allocated before its first
                 event has no stack, unless its block has kept one
  no stack was recorded
                 allocated outside of Python, such as in the backward pass
  ▼ ✗            the peak; memory ran out
"""


class SnapshotHelpScreen(HelpScreen):
    """A page of text, as the other one looks."""

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            yield Static(HELP, markup=False)
