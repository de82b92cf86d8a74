"""Python runs this at its start, since `gpumon watch` puts this folder first in ``PYTHONPATH``; children inherit it.

It asks PyTorch, as soon as that is imported, to start the probe with its first CUDA context. Programs that never get so
far have no thread, no socket and next to no cost from it. The user's own ``sitecustomize``, which this one hides, runs
as ever.
"""

import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))
_AGENT = os.path.join(os.path.dirname(_HERE), "agent.py")
_NAME = "_gpumon_probe_agent"


class _AtImportOfTorch:
    """Finds nothing. It only sees which parts of torch are looked for, and that torch.cuda is there by then.

    It stays: Python goes through the finders while it looks, and would pass one over if this one went.
    """

    has_seen = False

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """Leaves a call with torch.cuda for its first context, once; a torch that takes none gets the probe now."""
        cuda = None if self.has_seen or not name.startswith("torch") else sys.modules.get("torch.cuda")
        names = getattr(cuda, "__dict__", {})  # which, other than asking for a name, loads nothing
        if "_lazy_init" in names:
            self.has_seen = True
            queue = names.get("_queued_calls")
            if isinstance(queue, list):
                queue.append((_begin, []))
            else:
                _begin("start")


def _begin(how: str = "begin") -> None:
    """Loads the probe by its path: gpumon is not installed here."""
    try:
        if _NAME not in sys.modules:
            _load()
        getattr(sys.modules[_NAME], how)()
    except Exception:  # the program goes on without a probe
        if os.environ.get("GPUMON_PROBE_DEBUG"):
            raise


def _load() -> None:
    from importlib.util import module_from_spec, spec_from_file_location

    spec = spec_from_file_location(_NAME, _AGENT)
    assert spec is not None
    assert spec.loader is not None
    agent = sys.modules[_NAME] = module_from_spec(spec)
    try:
        spec.loader.exec_module(agent)
    except BaseException:
        del sys.modules[_NAME]
        raise


def _run_hidden() -> None:
    """Runs the sitecustomize that Python would have found, under its own name.

    It can only come after this one, which may be there more than once: several gpumon may watch one program.
    """
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    after = sys.path.index(_HERE) + 1 if _HERE in sys.path else len(sys.path)
    spec = PathFinder.find_spec("sitecustomize", sys.path[after:])
    if spec is not None and spec.loader is not None:
        hidden = sys.modules["sitecustomize"] = module_from_spec(spec)
        spec.loader.exec_module(hidden)


if os.environ.get("GPUMON_PROBE") != "0":
    sys.meta_path.insert(0, _AtImportOfTorch())
_run_hidden()
