"""Python imports this module at its start, because `gpumon watch` puts its folder first in ``PYTHONPATH``.

It asks PyTorch, as soon as the program imports it, to start the probe at the first CUDA context. A program that never
creates one has no additional thread, no socket and almost no cost. Child processes inherit ``PYTHONPATH``, and with it
the probe. The user's own ``sitecustomize``, which this one shadows, runs as usual.

Every Python that the program starts runs this module, Python 2 too, so that its syntax is that of Python 2. It imports
nothing that Python has not imported already: each start of each Python would pay for it.
"""

import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))
_NAME = "_gpumon_probe_agent"
_MIN_VERSION = (3, 8)


class _TorchImportObserver:
    """A finder that finds no module. It only sees which modules of torch are imported, and when torch.cuda is there.

    It stays in `sys.meta_path`: Python iterates over that list during an import, and would skip a finder if this one
    were removed.
    """

    is_done = False

    def find_spec(self, name, path=None, target=None):
        # type: (str, object, object) -> None
        """Queue a call for the first CUDA context, once; start the probe now if this torch has no such queue."""
        cuda = None if self.is_done or not name.startswith("torch") else sys.modules.get("torch.cuda")
        names = getattr(cuda, "__dict__", {})  # reading the dict triggers no lazy import, reading an attribute may
        if "_lazy_init" in names:
            self.is_done = True
            queue = names.get("_queued_calls")
            if isinstance(queue, list):
                queue.append((_call_agent, []))
            else:
                _call_agent("start")


def _call_agent(function="start_at_cuda_init"):
    # type: (str) -> None
    """Load the probe and call one of its functions."""
    try:
        if _NAME not in sys.modules:
            _load()
        getattr(sys.modules[_NAME], function)()
    except Exception:  # the program goes on without a probe
        if os.environ.get("GPUMON_PROBE_DEBUG"):
            raise


def _load():
    # type: () -> None
    """Import the probe by its path: gpumon is not installed here."""
    from importlib.util import module_from_spec, spec_from_file_location

    spec = spec_from_file_location(_NAME, os.path.join(os.path.dirname(_HERE), "agent", "__init__.py"))
    assert spec is not None
    assert spec.loader is not None
    agent = sys.modules[_NAME] = module_from_spec(spec)
    try:
        spec.loader.exec_module(agent)
    except BaseException:
        del sys.modules[_NAME]
        raise


def _observe_imports():
    # type: () -> None
    """Observe the imports of the program, unless another installation of gpumon does."""
    names = [type(finder).__name__ for finder in sys.meta_path]
    if "_TorchImportObserver" not in names:
        sys.meta_path.insert(0, _TorchImportObserver())


def _run_shadowed():
    # type: () -> None
    """Import the sitecustomize that Python would have found without this one, which leaves `sys.modules` to it.

    Without one, this raises the ImportError that Python expects then.
    """
    position = sys.path.index(_HERE)
    del sys.path[position]
    own = sys.modules.pop("sitecustomize")  # noqa: F841 - without a reference, Python 2 clears this module at once
    try:
        __import__("sitecustomize")  # another one: this folder is not in the path
    finally:
        sys.path.insert(position, _HERE)


if sys.version_info >= _MIN_VERSION and os.environ.get("GPUMON_PROBE") != "0":
    _observe_imports()
if _HERE in sys.path and sys.modules.get("sitecustomize") is not None:
    _run_shadowed()
