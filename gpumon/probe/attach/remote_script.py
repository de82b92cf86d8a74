"""The script that runs inside the target process: it starts the probe and reports the outcome.

`gpumon.probe.attach.script_dir` copies this module as text and appends a call of `run`. Python executes the script on
the main thread, between two bytecode instructions of the program, where it must not raise or print anything. All
imports are therefore inside functions.
"""

import sys
from types import ModuleType

AGENT = "_gpumon_probe_agent"
"""Name of the probe's package in `sys.modules`; the same under gpumon watch, so that a process has one probe."""


def run(folder: str, agent_folder: str, sources: "dict[str, str]") -> None:
    """Start the probe, write the outcome into a folder, and remove the folder if gpumon does not wait any longer.

    Args:
        folder: A private folder; gpumon holds a lock on it while it waits for the outcome.
        agent_folder: Where the probe's package is installed; this process may have no access to it.
        sources: The source of every module of that package, by file name.
    """
    from contextlib import suppress

    with suppress(Exception):  # the program goes on; gpumon reports that there is no outcome
        _write_outcome(folder, _start(agent_folder, sources))


def _start(agent_folder: str, sources: "dict[str, str]") -> "dict[str, object]":
    """The outcome: whether there was a probe before, whether there is one now, and why not."""
    was_there = _has_probe()
    try:
        _agent(agent_folder, sources).start()
    except Exception as error:  # noqa: BLE001 - gpumon reports every failure
        return {"was_there": was_there, "runs": False, "reason": f"{type(error).__name__}: {error}"}
    return {"was_there": was_there, "runs": _has_probe(), "reason": None}


def _has_probe() -> bool:
    import os

    return getattr(sys, "_gpumon_probe_pid", None) == os.getpid()


def _agent(agent_folder: str, sources: "dict[str, str]") -> ModuleType:
    """The probe's package, imported from the sources unless the process has it."""
    if AGENT not in sys.modules:
        try:
            _import(agent_folder, sources)
        except BaseException:
            for name in [name for name in sys.modules if name.partition(".")[0] == AGENT]:
                del sys.modules[name]
            raise
    return sys.modules[AGENT]


def _import(agent_folder: str, sources: "dict[str, str]") -> None:
    """Import the package without a finder in `sys.meta_path`, which would stay there for the program to see.

    A lazy loader runs each module when another one first uses it, so the order of their imports does not matter here.
    """
    import os
    from importlib.machinery import ModuleSpec
    from importlib.util import LazyLoader, module_from_spec

    class SourceLoader:
        def __init__(self, file: str) -> None:
            self.file = file

        def create_module(self, spec: object) -> None:
            """Have Python create the module."""

        def exec_module(self, module: ModuleType) -> None:
            """Run the source of the module."""
            path = os.path.join(agent_folder, self.file)  # noqa: PTH118 - as few imports as possible
            vars(module)["__file__"] = path
            exec(compile(sources[self.file], path, "exec"), vars(module))  # noqa: S102 - gpumon's own source

    modules = []
    for file in sorted(sources, reverse=True):  # __init__.py is the last one, and imports the others
        name = AGENT if file == "__init__.py" else f"{AGENT}.{file.removesuffix('.py')}"
        loader = LazyLoader(SourceLoader(file))  # type: ignore[arg-type] # a subclass of Loader needs importlib.abc
        spec = ModuleSpec(name, loader, is_package=name == AGENT)
        module = sys.modules[name] = module_from_spec(spec)
        loader.exec_module(module)
        modules.append(module)
    for module in reversed(modules):  # a module that is still lazy would run at any time, in any thread of the program
        module.__doc__  # noqa: B018 - runs the module


def _write_outcome(folder: str, outcome: "dict[str, object]") -> None:
    """Write the outcome. gpumon releases its lock and then reads a last time, so one of the two removes the folder."""
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
        with suppress(BlockingIOError):  # gpumon waits and removes the folder
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(descriptor)
