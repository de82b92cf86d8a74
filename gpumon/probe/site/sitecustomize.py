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
    """Finds nothing. It only sees which parts of torch are looked for, and that torch.cuda is there by then."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """Leaves a call with torch.cuda for its first context, once; a torch that takes none gets the probe now."""
        cuda = sys.modules.get("torch.cuda") if name.startswith("torch") else None
        if cuda is not None and "_lazy_init" in vars(cuda):
            sys.meta_path.remove(self)
            queue = vars(cuda).get("_queued_calls")
            if isinstance(queue, list):
                queue.append((_begin, []))
            else:
                _begin("start")


def _begin(how: str = "begin") -> None:
    """Loads the probe by its path: gpumon is not installed here."""
    try:
        from importlib.util import module_from_spec, spec_from_file_location

        spec = spec_from_file_location(_NAME, _AGENT)
        assert spec is not None
        assert spec.loader is not None
        agent = sys.modules[_NAME] = module_from_spec(spec)
        spec.loader.exec_module(agent)
        getattr(agent, how)()
    except Exception:  # the program goes on without a probe
        if os.environ.get("GPUMON_PROBE_DEBUG"):
            raise


def _run_hidden() -> None:
    """Runs the sitecustomize that Python would have found, under its own name."""
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    elsewhere = [folder for folder in sys.path if os.path.abspath(folder) != _HERE]
    spec = PathFinder.find_spec("sitecustomize", elsewhere)
    if spec is not None and spec.loader is not None:
        hidden = sys.modules["sitecustomize"] = module_from_spec(spec)
        spec.loader.exec_module(hidden)


if os.environ.get("GPUMON_PROBE") != "0":
    sys.meta_path.insert(0, _AtImportOfTorch())
_run_hidden()
