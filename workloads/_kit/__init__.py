"""What workloads share: their description, events, caps, timing and peak rates. Standard library; torch when one runs.

A workload is one file with a `Workload` called ``WORKLOAD``. It runs on Python 3.9 and later, in the interpreter of a
training environment, and imports nothing but this, the standard library and, inside its functions, torch.
"""

from _kit.description import Parameter, Uses, Workload, choice, flag, integer, number
from _kit.events import Figure, NotHereError, Verdict, VerdictKind

__all__ = [
    "Figure",
    "NotHereError",
    "Parameter",
    "Uses",
    "Verdict",
    "VerdictKind",
    "Workload",
    "choice",
    "flag",
    "integer",
    "number",
]
