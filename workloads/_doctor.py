"""Asks the driver, or the torch of a Python, and tells a JSON line a step: one that hangs or crashes costs itself.

    python _doctor.py driver --tell FD --seconds N
    python _doctor.py torch --tell FD --seconds N [--leave-out UUID,UUID|all]

It is run by its path, so that gpumon need not be installed there: Python 3.9 and later, the standard library, and torch
where that is asked. A CUDA context is made in its own process alone, with a few megabytes, and never on a GPU that is
to be left out.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any, Callable, Optional

Answer = dict[str, Any]

_ERROR_TEXT = 500


class Tell:
    """Where the steps are told.

    Args:
        descriptor: An open file descriptor.
    """

    def __init__(self, descriptor: int) -> None:
        self._file = os.fdopen(descriptor, "w")

    def step(self, name: str, ask: Callable[..., Answer], *arguments: Any) -> Optional[Answer]:
        """Tells that a step begins, and then its answer or its error; returns the answer, or None after an error."""
        self._write({"begin": name})
        began = time.monotonic()
        try:
            answer = ask(*arguments)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is what the step found
            text = f"{type(error).__name__}: {error}".strip()
            self._write({"step": name, "seconds": _since(began), "error": text[:_ERROR_TEXT]})
            return None
        self._write({"step": name, "seconds": _since(began), "answer": answer})
        return answer

    def end(self) -> None:
        """Tells that all was asked."""
        self._write({"end": True})

    def _write(self, said: Answer) -> None:
        self._file.write(json.dumps(said) + "\n")
        self._file.flush()


def _since(began: float) -> float:
    return round(time.monotonic() - began, 3)


def main() -> None:
    """Asks what the command line says."""
    parser = argparse.ArgumentParser(prog="_doctor.py", allow_abbrev=False)
    parser.add_argument("subject", choices=("driver", "torch"))
    parser.add_argument("--tell", type=int, required=True)
    parser.add_argument("--seconds", type=int, required=True)
    parser.add_argument("--leave-out", default="")
    given = parser.parse_args()
    signal.alarm(given.seconds)  # it ends even if nobody is left to end it
    folder = Path(__file__).resolve().parent
    sys.path.insert(0, str(folder))
    from _doctor_driver import ask_driver
    from _doctor_torch import ask_torch

    sys.path[:] = [entry for entry in sys.path if not entry or Path(entry).resolve() != folder]
    tell = Tell(given.tell)
    if given.subject == "driver":
        ask_driver(tell.step)
    else:
        ask_torch(tell.step, given.leave_out.split(","))
    tell.end()


if __name__ == "__main__":
    main()
