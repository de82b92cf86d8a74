"""Queries the driver, or the torch of a Python, and writes JSON lines for each step, so that a hang costs one step.

    python _doctor.py driver --fd FD --seconds N
    python _doctor.py torch --fd FD --seconds N [--exclude UUID,UUID|all]

The script is started by its path, so that gpumon need not be installed in that Python (3.9 or later, standard library,
and torch for the torch steps). It creates a CUDA context only in its own process, with a few megabytes, and never on an
excluded GPU.
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


class StepWriter:
    """Runs steps and writes their outcomes.

    Args:
        descriptor: An open file descriptor.
    """

    def __init__(self, descriptor: int) -> None:
        self._file = os.fdopen(descriptor, "w")

    def step(self, name: str, query: Callable[..., Answer], *arguments: Any) -> Optional[Answer]:
        """Writes that a step begins, then its answer or its error; returns the answer, or None after an error."""
        self._write({"begin": name})
        began = time.monotonic()
        try:
            answer = query(*arguments)
        except Exception as error:  # noqa: BLE001 - any error is the outcome of the step
            text = f"{type(error).__name__}: {error}".strip()
            self._write({"step": name, "seconds": _since(began), "error": text[:_ERROR_TEXT]})
            return None
        self._write({"step": name, "seconds": _since(began), "answer": answer})
        return answer

    def end(self) -> None:
        """Writes that all steps are done, and closes the descriptor."""
        self._write({"end": True})
        self._file.close()

    def _write(self, event: Answer) -> None:
        self._file.write(json.dumps(event) + "\n")
        self._file.flush()


def _since(began: float) -> float:
    return round(time.monotonic() - began, 3)


def main() -> None:
    """Runs the steps of the subject on the command line."""
    parser = argparse.ArgumentParser(prog="_doctor.py", allow_abbrev=False)
    parser.add_argument("subject", choices=("driver", "torch"))
    parser.add_argument("--fd", type=int, required=True)
    parser.add_argument("--seconds", type=int, required=True)
    parser.add_argument("--exclude", default="")
    options = parser.parse_args()
    signal.alarm(options.seconds)  # ends the process even if gpumon was killed
    folder = Path(__file__).resolve().parent
    sys.path.insert(0, str(folder))
    from _doctor_driver import query_driver
    from _doctor_torch import query_torch

    sys.path[:] = [entry for entry in sys.path if not entry or Path(entry).resolve() != folder]
    writer = StepWriter(options.fd)
    if options.subject == "driver":
        query_driver(writer.step)
    else:
        query_torch(writer.step, options.exclude.split(","))
    writer.end()


if __name__ == "__main__":
    main()
