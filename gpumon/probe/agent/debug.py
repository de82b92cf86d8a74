"""Reports the probe's own errors: the program's streams are not the probe's to write to."""

from __future__ import annotations

import os


def log_exception() -> None:
    """Append the exception that is being handled to the file named by GPUMON_PROBE_DEBUG, if that is set."""
    path = os.environ.get("GPUMON_PROBE_DEBUG")
    if path:
        try:
            import traceback

            with open(path, "a", encoding="utf-8") as file:
                traceback.print_exc(file=file)
        except Exception:  # such as no free descriptor
            return
