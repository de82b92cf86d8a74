"""The text that a process runs to start the probe: one text with everything.

The process may have no access to the folder in which gpumon is installed.
"""

import re
from pathlib import Path
from typing import Final

from gpumon.probe.attach.target import Target

REQUEST_SECONDS: Final = 3600.0
"""How long a request waits in a process that runs no Python code; later it does nothing."""
_SCRIPT: Final = Path(__file__).with_name("remote_script.py")
_AGENT: Final = Path(__file__).parents[1] / "agent"
_OWN_IMPORT: Final = re.compile(r"^from \.(\w*) import (.+)$", re.MULTILINE)
_SCRIPT_IMPORTS: Final = frozenset({"fcntl", "importlib.machinery", "importlib.util"})
_IMPORT: Final = re.compile(r"^(?:import|from) (?!__future__)(\w[\w.]*)", re.MULTILINE)


def script_file(target: Target, folder: Path, deadline: float) -> str:
    """The content of a file that `sys.remote_exec` runs.

    Args:
        target: The process.
        folder: The private folder for the outcome.
        deadline: Until when it starts the probe, in seconds since the epoch.
    """
    sources = _sources()
    arguments = f"{target.own_pid}, {str(folder)!r}, {str(_AGENT)!r}, {sources!r}, {_imports(sources)!r}"
    call = f"run({arguments}, deadline={deadline})"
    return f"{_SCRIPT.read_text('utf-8')}\n\n{call}\n"


def pending_text(target: Target) -> str:
    """The text of a pending call. It binds no name in ``__main__``, where it runs, and never raises."""
    sources = _sources()
    call = f"run_on_thread({target.own_pid}, {str(_AGENT)!r}, sources, {_imports(sources)!r})"
    script = f"{_SCRIPT.read_text('utf-8')}\n\n{call}\n"
    names = f"{{'__name__': '_gpumon_attach', 'sources': {sources!r}}}"
    execute = f"__import__('builtins').exec({script!r}, {names})"
    return f"try:\n {execute}\nexcept BaseException:\n pass\n"


def _imports(sources: dict[str, str]) -> list[str]:
    """The modules of the standard library that the probe and the script need."""
    return sorted(_SCRIPT_IMPORTS.union(*map(_IMPORT.findall, sources.values())))


def _sources() -> dict[str, str]:
    """The modules of the probe by file name, each after those that it imports."""
    sources = {path.name: path.read_text("utf-8") for path in sorted(_AGENT.glob("*.py"))}
    ordered: dict[str, str] = {}

    def add(name: str) -> None:
        if name in sources and name not in ordered:
            for module, names in _OWN_IMPORT.findall(sources[name]):
                for other in [module] if module else re.findall(r"\w+", names):
                    add(f"{other}.py")
            ordered[name] = sources[name]

    for name in sources:
        add(name)
    return ordered
