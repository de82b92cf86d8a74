"""Runs inside the process that is attached to, as a script of its own: starts the probe, and says what came of it.

`gpumon.probe.attach.handover` hands it over as text, with a call of `begin` at its end. Python runs it on the main
thread, between two steps of the program, where it must neither raise nor print; so even what it imports, it does late.
"""

import sys
from types import ModuleType

NAME = "_gpumon_probe_agent"
"""What the probe is called among the process's modules; under gpumon watch as well, so that it is there but once."""


def begin(folder: str, path: str, source: str) -> None:
    """Starts the probe, leaves the outcome in the folder, and takes the folder away if nobody waits for it.

    Args:
        folder: A folder of its own, which whoever waits for the outcome holds locked.
        path: Where the probe's file lies, which need not be readable from here.
        source: What is in that file.
    """
    from contextlib import suppress

    with suppress(Exception):  # the program goes on; who waits says that nothing came back
        _leave(folder, _started(path, source))


def _started(path: str, source: str) -> dict[str, object]:
    """The outcome: whether there was a probe, whether there is one now, or why not."""
    was_there = _has_probe()
    try:
        _probe(path, source).start()
    except Exception as error:  # noqa: BLE001 - whatever it is, it is told
        return {"was_there": was_there, "runs": False, "reason": f"{type(error).__name__}: {error}"}
    return {"was_there": was_there, "runs": _has_probe(), "reason": None}


def _has_probe() -> bool:
    import os

    return getattr(sys, "_gpumon_probe_pid", None) == os.getpid()


def _probe(path: str, source: str) -> ModuleType:
    """The probe's module, loaded unless it is there."""
    if NAME in sys.modules:
        return sys.modules[NAME]
    module = sys.modules[NAME] = ModuleType(NAME)
    module.__file__ = path
    try:
        exec(compile(source, path, "exec"), vars(module))  # noqa: S102 - gpumon's own file
    except BaseException:
        del sys.modules[NAME]
        raise
    return module


def _leave(folder: str, outcome: dict[str, object]) -> None:
    """Who waits lets go of the lock and then looks a last time: so one of the two always takes the folder away."""
    import fcntl
    import json
    import os
    import shutil
    from contextlib import suppress
    from pathlib import Path

    unfinished = Path(folder, "unfinished")
    unfinished.write_text(json.dumps(outcome), "utf-8")
    unfinished.rename(Path(folder, "outcome"))
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(BlockingIOError):  # somebody waits, and takes it away
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(descriptor)
