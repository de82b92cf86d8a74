"""What the screen shows and what the keys do."""

from typing import ClassVar, Final

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from gpumon.ui.screens.drawn import SteadyScreen

HELP: Final = """\
The NVIDIA GPUs of this machine, or a recording of another one.

KEYS
  q  ctrl+c      quit
  space          pause: a recording stops; live, the history goes on
  + -            live: shorter or longer interval; recording: speed
  , .            recording: ten seconds back or forth
  tab  arrows    from table to table, and inside one (also j k g G, mouse)
  enter          a GPU over time; every value of the row, its meaning,
                 or why it is missing
  m              where a GPU's memory is, and what PyTorch does with it
  w              workloads: run diagnoses on a GPU or the CPU, watch them
  a              alerts: what is wrong, since when, what to do
  e              paste an error or a log: what it means, what mends it
  r              doctor: is this machine fit for PyTorch
  c              what gpumon itself costs
  d              play the bundled recording, and back to live
  t              theme: dark, light, ansi (your terminal's own colours)
  ctrl+p         all commands           ctrl+z   suspend (back with fg)

A GPU
  Util           share of time in which a kernel or a copy ran; it says
                 nothing of how much of the chip worked
  GPU            1:0 is the first instance (MIG) of GPU 1
  Memory GiB     held by processes / installed, the driver's reserve apart;
                 ~ the host's memory, which the chip shares
  Power W        drawn / limit          SM MHz   clock / maximum
  MemCtl         share of time in which device memory was read or written
  PCIe           generation x lanes     Perf     P0 is the fastest state
  State          why the clocks are lowered; a power cap in work is fine
                 no SM work: busy, but only with copies, or stuck
                 UNRESPONSIVE 12s: no answer from the driver since then
                 LOST: GPU or driver has gone     STALE 5s: an old value
  Util 52s       the last 52 seconds, on a scale to 100 % or all memory;
                 _ is idle, a dot is a gap: nothing could be measured;
                 ┆ here a workload of gpumon began or ended
  !  before a value: look at it         –  no value: enter tells why
                                        ?  an answer that cannot be true

A GPU OVER TIME
  m              choose the charts      z x      zoom in and out
  left right     back and forth through history; n returns to now
  power cap ...  when the clocks were lowered, and why; under it events:
                 ┆ workload of gpumon, ! the GPU or an alert, X an Xid
                 error, x the driver
  s              save what the charts show as a CSV file
  M              where its memory is

A GPU'S MEMORY
  ▞ ▒ ? ·        the driver's, a process without a probe, nobody's, free
  ▄ █ ▓          context and libraries; tensors; freed, a stream's yet
  ░ ▚            cached: can be given back; fragmented: cannot
                 To see inside a process: gpumon watch -- python train.py
                 or import gpumon.probe; gpumon.probe.start()
  left right     the GPU before or after      z x   zoom in and out
  s              segments: the allocator's memory as a map of its blocks;
                 there, r reads it again, m shows all of memory_summary()
  e              have the process give back its cache; it asks first
  o              why a process ran out of memory
  chart          ⣿ allocated in ⠒ reserved in ⠐ all that NVML counts;
                 ▲ peak, R retry: memory was short, X out of memory

A WORKLOAD
  w enter        choose one, set its parameters, start it with F5
  x  r           stop it; run it again with the same parameters
  m  l           all of torch's memory summary; what it has printed
  e              what its errors mean, and what mends them
                 It asks first where others work, and says what it takes

A PROCESS
  Type           C compute, G graphics, M client of MPS
  CPU%           100 is one processor of the host
"""


class HelpScreen(SteadyScreen[None], ModalScreen[None]):
    """A page of text."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,question_mark,f1", "dismiss", "Close", id="help.close", tooltip="Close the help"),
    ]

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            yield Static(HELP, markup=False)
