"""The library of workloads: description, events, memory caps, timing and peak rates. Standard library and torch.

A workload is one file with a `Workload` called ``WORKLOAD``. It runs on Python 3.9 and later, in the interpreter of a
training environment. It imports only this package, the standard library and, inside its functions, torch.
"""

from _kit.description import HIGHER, LOWER, DeclaredMetric, Parameter, Uses, Workload, choice, flag, integer, number
from _kit.events import Outcome, Result, UnsupportedError, Verdict

__all__ = [
    "HIGHER",
    "LOWER",
    "DeclaredMetric",
    "Outcome",
    "Parameter",
    "Result",
    "UnsupportedError",
    "Uses",
    "Verdict",
    "Workload",
    "choice",
    "flag",
    "integer",
    "number",
]
