"""The short name of what a command line runs."""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from gpumon.core.text import ELLIPSIS
from gpumon.core.units import MISSING

_MAX_PROGRAMS: Final = 4096
_PYTHON: Final = re.compile(r"(?:python|pypy)[\d.]*t?")
_OPTIONS_WITH_VALUE: Final = frozenset({"-X", "-W", "--check-hash-based-pycs"})
_LAUNCHERS: Final = frozenset(
    {"torchrun", "accelerate", "deepspeed", "torch.distributed.run", "torch.distributed.launch", "horovodrun"}
)
_GENERIC_NAMES: Final = frozenset({"__main__", "main", "cli", "run", "launch", "app", "server", "api_server"})
"""Names that mean something only together with what contains them."""
_NOTEBOOKS: Final = ("ipykernel", "ipykernel_launcher", "colab_kernel_launcher", "jupyter", "ipython")
_SERVERS: Final = (
    *("vllm", "sglang", "tritonserver", "tgi", "text-generation-server", "ollama", "llama-server", "lmdeploy"),
)


@lru_cache(maxsize=_MAX_PROGRAMS)
def program_name(command: str) -> str:
    """The short name of what a command runs: the script, the module, ``notebook``, or ``vllm serve``."""
    words = command.split()
    if not words:
        return MISSING
    program = _base_name(words[0])
    if _PYTHON.fullmatch(program):
        target, rest = _python_target(words[1:])
        if target is None:
            return program
        program = _base_name(target)
        if program not in _LAUNCHERS:
            return _named(target)
        words = [target, *rest]
    if program in _LAUNCHERS:
        return _named(_launched(words[1:]) or program)
    if "::" in program:  # the title that a process of Ray or vLLM gives itself
        is_vllm = program.startswith("VLLM")
        return _named(program.partition("::")[0].lower()) if is_vllm else program.replace("::", " ").strip() or program
    return _named(program.rstrip(":") or program)


def without_interpreter(command: str) -> str:
    """A command line that begins with what it runs: ``train.py --lr 3`` for ``python -u /home/ada/train.py --lr 3``.

    The interpreter stays where it runs a text (``python -c``), or nothing. Folders of the program are left out.
    """
    program, _space, arguments = command.partition(" ")
    program = _base_name(program)
    if _PYTHON.fullmatch(program):
        target, rest = _python_target(arguments.split())
        if target is not None and target != "-c":
            return " ".join((_base_name(target), *rest))
    return f"{program} {arguments}".rstrip()


def _base_name(path: str) -> str:
    return path.rpartition("/")[2] or path


def _python_target(arguments: Sequence[str]) -> tuple[str | None, Sequence[str]]:
    """The script or module that Python runs, and its arguments; None for an interactive Python."""
    index = 0
    while index < len(arguments):
        word = arguments[index]
        if word == "-m" and index + 1 < len(arguments):
            return arguments[index + 1], arguments[index + 2 :]
        if word == "-c" or not word.startswith(("-", ELLIPSIS)):  # an anonymized option is an ellipsis
            return word, arguments[index + 1 :]
        index += 2 if word in _OPTIONS_WITH_VALUE else 1
    return None, ()


def _launched(arguments: Sequence[str]) -> str | None:
    """The script or module that a launcher runs; the launcher's own options come first, some with a value."""
    for word, following in zip(arguments, (*arguments[1:], ""), strict=True):
        if word == "-m" and following:
            return following
        if word.endswith(".py"):
            return word
    return None


def _named(target: str) -> str:
    """The last meaningful part of a path or a module, or what a well-known program does."""
    if target == "-c":
        return "python -c"
    path = [part for part in target.removesuffix(".py").split("/") if part]
    parts = path if "/" in target else target.removesuffix(".py").split(".")
    known = {part.lower() for part in parts}
    if not known.isdisjoint(_NOTEBOOKS):
        return "notebook"
    server = next((server for server in _SERVERS if server in known), None)
    if server is not None:
        return f"{server.partition('-server')[0]} serve"
    name = parts[-1] if parts else target
    if name in _GENERIC_NAMES and len(parts) > 1:
        return parts[-2] if name == "__main__" else f"{parts[-2]}/{name}"
    return name or target
