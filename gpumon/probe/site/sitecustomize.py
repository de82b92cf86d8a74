"""Python imports this module at its start, because `gpumon watch` puts its folder first in ``PYTHONPATH``.

As soon as the program imports PyTorch, it asks it to start the probe at the first CUDA context, or earlier at the first
step of an optimizer, the first DataLoader iterator or the first process group. A program that does none of this has no
additional thread, no socket and almost no cost. Child processes inherit ``PYTHONPATH``, and with it the probe. The
user's own ``sitecustomize``, which this one shadows, runs as usual.

Every Python that the program starts runs this module, Python 2 too, so that its syntax is that of Python 2. It imports
nothing that Python has not imported already: each start of each Python would pay for it.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any  # noqa: F401 - in comments

_HERE = os.path.dirname(os.path.abspath(__file__))
_NAME = "_gpumon_probe_agent"
_MIN_VERSION = (3, 8)
_STEP_CALLS = "_gpumon_probe_steps"


class _TorchImportObserver:
    """A finder that finds no module. It only sees which modules of torch are imported, and when those are there.

    It stays in `sys.meta_path`: Python iterates over that list during an import, and would skip a finder if this one
    were removed.
    """

    def __init__(self):
        # type: () -> None
        self.pending = [
            (_wait_for_cuda, ()),
            (_wait_for_step, ()),
            (_wait_for_call, ("torch.utils.data.dataloader", "_get_distributed_settings")),
            (_wait_for_call, ("torch.distributed.distributed_c10d", "rendezvous")),
            (_wait_for_call, ("torch.distributed.distributed_c10d", "_update_default_pg")),
        ]  # type: list[tuple[Any, tuple[str, ...]]]

    def find_spec(self, name, path=None, target=None):
        # type: (str, object, object) -> None
        """Wait for what starts the probe, as soon as the module is there in which that happens."""
        if self.pending and name.startswith("torch"):
            self.pending = [(wait, arguments) for wait, arguments in self.pending if not wait(*arguments)]


def _wait_for_cuda():
    # type: () -> bool
    """Queue a call for the first CUDA context; start the probe now if this torch has no such queue."""
    names = _names("torch.cuda")
    if "_lazy_init" not in names:
        return False
    queue = names.get("_queued_calls")
    if isinstance(queue, list):
        queue.append((_call_agent, []))
    else:
        _call_agent("start")
    return True


def _wait_for_step():
    # type: () -> bool
    """Have PyTorch call a function after each step of an optimizer. `torch.compile` compiles the call away."""
    register = _names("torch.optim.optimizer").get("register_optimizer_step_post_hook")
    is_compiling = _names("torch.compiler").get("is_compiling")
    if register is None or is_compiling is None:
        return False
    if _STEP_CALLS not in vars(sys):
        calls = vars(sys)[_STEP_CALLS] = [_start_at_training]  # the probe replaces the function

        def count_step(optimizer, *_):
            # type: (object, object) -> None
            if not is_compiling():
                calls[0](optimizer)

        _hide_from_dynamo(count_step)
        register(count_step)
    return True


def _wait_for_call(module, name):
    # type: (str, str) -> bool
    """Have the first call of a function of PyTorch start the probe, before it does its work."""
    names = _names(module)
    function = names.get(name)
    if function is None:
        return False

    def first(*args, **kwargs):
        # type: (object, object) -> Any
        if names.get(name) is first:
            names[name] = function
        _start_at_training()
        return function(*args, **kwargs)

    for attribute in ("__module__", "__name__", "__qualname__", "__doc__"):
        setattr(first, attribute, getattr(function, attribute))
    vars(first)["__wrapped__"] = function  # for inspect
    _hide_from_dynamo(first)
    names[name] = first
    return True


def _names(module):
    # type: (str) -> Any
    """The names in a module if it is imported; reading them triggers no lazy import, reading an attribute may."""
    return getattr(sys.modules.get(module), "__dict__", {})


def _start_at_training(*_):
    # type: (object) -> None
    """Start the probe of a program that trains, with or without CUDA. `torch.compile` compiles nothing meanwhile."""
    set_eval_frame = _names("torch._C._dynamo.eval_frame").get("set_eval_frame", lambda _: None)
    callback = set_eval_frame(None)
    try:
        _call_agent("start_at_training")
    finally:
        set_eval_frame(callback)


def _hide_from_dynamo(function):
    # type: (Any) -> None
    """Have `torch.compile` run a function, and what it calls, as it is: it would compile what hooks call otherwise."""
    names = _names("torch._C._dynamo.eval_frame")
    if "skip_code" in names:
        names["skip_code"](function.__code__)
    elif "_FrameExecStrategy" in names:
        skip = names["_FrameAction"].SKIP
        names["set_code_exec_strategy"](function.__code__, names["_FrameExecStrategy"](skip, skip))


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
