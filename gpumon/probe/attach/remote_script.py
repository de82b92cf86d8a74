"""What runs inside the target process: it starts the probe and reports the outcome.

`gpumon.probe.attach.script_text` copies this module as text and appends a call of `run` or `run_on_thread`. Python
executes it on the main thread, between two bytecode instructions of the program, where it must not raise or print
anything. It is written for Python 3.8. All imports are inside functions.
"""

import sys
from types import ModuleType

AGENT = "_gpumon_probe_agent"
"""Name of the probe's package in `sys.modules`; the same under gpumon watch, so that a process has one probe."""
OUTCOME = "gpumon-attach"
"""Name of the file in memory with the outcome of `run_on_thread`."""
IMPORTING = "modules that the probe needs are being imported"
_OUTCOME_SECONDS = 2.0
"""How long that file exists."""


def run(
    pid: int, folder: str, agent_folder: str, sources: "dict[str, str]", imports: "list[str]", *, deadline: float
) -> None:
    """Start the probe, write the outcome into a folder, and remove the folder if gpumon does not wait any longer.

    Args:
        pid: The process that was asked, in its own PID namespace; a child that it has forked since does nothing.
        folder: A private folder; gpumon holds a lock on it while it waits for the outcome.
        agent_folder: Where the probe's package is installed; this process may have no access to it.
        sources: The source of every module of that package by file name, in an order in which they can be imported.
        imports: The modules of the standard library that the package needs.
        deadline: Until when the probe is started, in seconds since the epoch.
    """
    import os
    import time
    from contextlib import suppress

    if os.getpid() != pid:
        return
    with suppress(Exception):  # the program goes on; gpumon reports that there is no outcome
        reason = "the process ran no Python code in time" if time.time() > deadline else ""
        reason = reason or ("" if _are_imported(imports) else IMPORTING)
        failed = {"was_there": _has_probe(), "runs": False, "reason": reason}
        _write_outcome(folder, failed if reason else _start(agent_folder, sources))


def run_on_thread(pid: int, agent_folder: str, sources: "dict[str, str]", imports: "list[str]") -> None:
    """Start the probe on a thread, so that the main thread goes on at once.

    Args:
        pid: The process that was asked, in its own PID namespace; a child that it has forked since does nothing.
        agent_folder: Where the probe's package is installed.
        sources: As for `run`.
        imports: The modules of the standard library that the package needs. They are imported here: the child of a fork
            would wait forever for a module that a thread was importing.
    """
    import _thread
    import os

    threading = sys.modules.get("threading")
    is_ending = threading is not None and not threading.main_thread().is_alive()
    if os.getpid() != pid or sys.is_finalizing() or is_ending:
        return
    if _are_imported(imports):
        _thread.start_new_thread(_start_and_report, (agent_folder, sources))
    else:
        sources.clear()
        outcome = f'{{"was_there": false, "runs": false, "reason": "{IMPORTING}"}}'
        _thread.start_new_thread(_report, (outcome,))


def _are_imported(imports: "list[str]") -> bool:
    """Import modules; whether they are complete now: the main thread may be importing one of them."""
    try:
        for name in imports:
            __import__(name)
        specs = [getattr(sys.modules[name], "__spec__", None) for name in imports]
        return not any(getattr(spec, "_initializing", False) for spec in specs)
    except Exception:  # noqa: BLE001 - such a module may lack what another one needs
        return False


def _start_and_report(agent_folder: str, sources: "dict[str, str]") -> None:
    import json

    outcome = json.dumps(_start(agent_folder, sources))
    sources.clear()
    _report(outcome)


def _report(outcome: str) -> None:
    """Keep the outcome for a moment in a file in memory, which gpumon reads through /proc."""
    import os
    import time

    try:
        descriptor = os.memfd_create(OUTCOME)
        identity = os.fstat(descriptor)
        os.write(descriptor, outcome.encode())
        time.sleep(_OUTCOME_SECONDS)
        if os.path.samestat(identity, os.fstat(descriptor)):  # the program may have closed all descriptors
            os.close(descriptor)
    except Exception:  # noqa: BLE001, S110 - Python would print it; gpumon reports that there is no outcome
        pass


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
    """The probe's package, imported from the sources unless the process has it completely."""
    if not hasattr(sys.modules.get(AGENT), "start"):
        try:
            _import(agent_folder, sources)
        except BaseException:
            for name in [name for name in sys.modules if name.partition(".")[0] == AGENT]:
                del sys.modules[name]
            raise
    return sys.modules[AGENT]


def _import(agent_folder: str, sources: "dict[str, str]") -> None:
    """Import the package without a finder in `sys.meta_path`, which would stay there for the program to see."""
    import os
    from importlib.machinery import ModuleSpec
    from importlib.util import module_from_spec

    def new(name: str, file: str) -> ModuleType:
        module = module_from_spec(ModuleSpec(name, None, is_package=name == AGENT))
        module.__file__ = os.path.join(agent_folder, file)  # noqa: PTH118 - as few imports as possible
        return module

    def execute(module: ModuleType, file: str) -> None:
        exec(compile(sources[file], str(module.__file__), "exec"), vars(module))  # noqa: S102 - gpumon's own source

    package = sys.modules[AGENT] = new(AGENT, "__init__.py")
    for file in sources:
        if file != "__init__.py":
            name = file[: -len(".py")]
            module = new(f"{AGENT}.{name}", file)
            execute(module, file)
            sys.modules[module.__name__] = module
            setattr(package, name, module)
    execute(package, "__init__.py")


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
