"""Runs a part of a workload in a new process, for settings that take effect only before torch is imported."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from _kit.events import Reporter

_RUN = Path(__file__).resolve().parents[1] / "_run.py"


def run_part(
    file: str, part: str, device: str, parameters: Mapping[str, Any], environment: Mapping[str, str], reporter: Reporter
) -> dict[str, Any]:
    """Runs a part to its end, relays its events and returns its answer.

    Raises:
        RuntimeError: The process ended without an answer.
    """
    read_end, write_end = os.pipe()
    command = [sys.executable, str(_RUN), file, "--part", part, "--events", str(write_end), "--device", device]
    command += ["--parameters", json.dumps(dict(parameters))]
    answer, failure = None, "it reported no error"
    with subprocess.Popen(command, env=dict(environment), pass_fds=(write_end,)) as process:
        os.close(write_end)
        try:
            with os.fdopen(read_end, "rb") as events:
                for line in events:
                    try:
                        event = json.loads(line)
                    except ValueError:  # the process was killed while it wrote
                        continue
                    if event.get("event") == "answer":
                        answer = event["value"]
                    else:
                        reporter.relay(line)
                        if event.get("event") == "error" and not event.get("expected"):
                            failure = f"{event['class']}: {event['text']}"
        except BaseException:
            process.kill()
            raise
    if answer is None:
        raise RuntimeError(f"The process for {part!r} ended with exit code {process.returncode}: {failure}")
    return dict(answer)
