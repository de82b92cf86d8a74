"""A part of a workload in a process of its own, for what can be set only before torch starts."""

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
    """Runs a part to its end; its events are passed on, and its answer is returned.

    Raises:
        RuntimeError: It ended without an answer.
    """
    reading, writing = os.pipe()
    command = [sys.executable, str(_RUN), file, "--part", part, "--events", str(writing), "--device", device]
    command += ["--parameters", json.dumps(dict(parameters))]
    answer, trouble = None, "it told none"
    with subprocess.Popen(command, env=dict(environment), pass_fds=(writing,)) as process:
        os.close(writing)
        try:
            with os.fdopen(reading, "rb") as events:
                for line in events:
                    try:
                        said = json.loads(line)
                    except ValueError:  # it was ended while it wrote
                        continue
                    if said.get("event") == "answer":
                        answer = said["found"]
                    else:
                        reporter.relay(line)
                        if said.get("event") == "error" and not said.get("expected"):
                            trouble = f"{said['class']}: {said['text']}"
        except BaseException:
            process.kill()
            raise
    if answer is None:
        raise RuntimeError(f"A fresh process for {part!r} ended with exit code {process.returncode}: {trouble}")
    return dict(answer)
