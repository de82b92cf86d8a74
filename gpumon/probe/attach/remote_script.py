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
    import _thread
    import posix
    import time

    if posix.getpid() != pid:
        return
    failed: dict[str, object] = {"was_there": False, "runs": False, "reason": IMPORTING}
    try:
        if time.time() > deadline:
            failed["reason"] = "the process ran no Python code in time"
        elif _are_imported(imports):
            _write_outcome(folder, _start(agent_folder, sources))
            return
        _thread.start_new_thread(_write_outcome, (folder, failed))  # it imports modules
    except Exception:  # the program goes on; gpumon reports that there is no outcome
        pass


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
    import posix

    main_thread = getattr(sys.modules.get("threading"), "_main_thread", None)  # absent while it is being imported
    is_ending = main_thread is not None and not main_thread.is_alive()
    if posix.getpid() != pid or sys.is_finalizing() or is_ending:
        return
    if _are_imported(imports):
        _thread.start_new_thread(_start_and_report, (agent_folder, sources))
    else:
        sources.clear()
        outcome = f'{{"was_there": false, "runs": false, "reason": "{IMPORTING}"}}'
        _thread.start_new_thread(_report, (outcome,))


def _are_imported(imports: "list[str]") -> bool:
    """Import modules; whether they are complete now.

    Nothing is imported in the middle of an import: the program may have found just now that the module is missing, and
    would then have it twice, or hold a lock of the import system.
    """
    try:
        missing = [name for name in imports if sys.modules.get(name) is None]
        frame = sys._getframe() if missing else None
        while frame is not None:
            if frame.f_code.co_filename.startswith("<frozen importlib."):
                return False
            frame = frame.f_back
        specs = [getattr(sys.modules.get(name), "__spec__", None) for name in imports]
        if any(getattr(spec, "_initializing", False) for spec in specs):
            return False
        for name in missing:
            __import__(name)
    except Exception:  # such a module may lack what another one needs
        return False
    return True


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
    except Exception:  # Python would print it; gpumon reports that there is no outcome
        pass


def _start(agent_folder: str, sources: "dict[str, str]") -> "dict[str, object]":
    """The outcome: whether there was a probe before, whether there is one now, and why not."""
    was_there = _has_probe()
    try:
        _agent(agent_folder, sources).start()
    except Exception as error:  # gpumon reports every failure
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
        module.__file__ = os.path.join(agent_folder, file)  # as few imports as possible
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

    try:
        with open(f"{folder}/unfinished", "w") as file:
            file.write(json.dumps(outcome))
        os.rename(f"{folder}/unfinished", f"{folder}/outcome")
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for name in os.listdir(folder):
                os.unlink(f"{folder}/{name}")
            os.rmdir(folder)
        finally:
            os.close(descriptor)
    except Exception:  # gpumon waits and removes the folder, or has removed it
        pass
