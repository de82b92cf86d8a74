"""Puts the hooks that observe a training run into PyTorch, and takes them out again.

| event | where |
|---|---|
| a step of an optimizer | one entry in PyTorch's table of hooks that run after each step of any optimizer |
| a wait for a batch | `_BaseDataLoaderIter.__next__` |
| a step that GradScaler leaves out | `GradScaler.update` |
| a backward pass | `torch.autograd.backward` |
| a replay of a CUDA graph, which may be a complete step | `CUDAGraph.replay` |
| a garbage collection | `gc.callbacks` |

Nothing is imported for it: what the program has not imported yet is looked for again with the next sample.
"""

from __future__ import annotations

import sys

from .collections_log import CollectionsLog
from .debug import log_exception
from .instrument import InstrumentedFunction
from .training import BackwardCounter, DataTimer, GraphReplay, ScalerUpdate, Training

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    StepCall = Callable[[object], None]

_STEP_CALLS = "_gpumon_probe_steps"
"""Attribute of `sys` with a list: the function that PyTorch calls after each step of an optimizer and, unless gpumon
watch has added it, the hook that calls it. A process has one hook, because removing one while it runs would raise an
exception in the program."""
_TABLE = "_global_optimizer_post_hooks"


class Hooks:
    """The hooks of one probe.

    Args:
        training: What they report to.
    """

    def __init__(self, training: Training) -> None:
        self._training = training
        self._functions: list[InstrumentedFunction] = []
        backwards = BackwardCounter(training)
        self._wanted: list[tuple[str, str, Any]] = [
            ("torch.utils.data.dataloader", "_BaseDataLoaderIter.__next__", DataTimer(training)),
            ("torch.amp.grad_scaler", "GradScaler.update", ScalerUpdate(training)),
            ("torch.autograd", "backward", backwards),
            ("torch.cuda.graphs", "CUDAGraph.replay", GraphReplay(training, backwards)),
        ]

    def add_step_hook(self) -> None:
        """Count the steps of optimizers, from any thread; see `install`."""
        set_step_call(self._training.on_step)

    def install(self) -> None:
        """Put in the hooks that are missing and whose modules the program has imported completely."""
        if not self._functions:
            _hide_from_dynamo(_ignore, Training, CollectionsLog, DataTimer, BackwardCounter, GraphReplay, ScalerUpdate)
        if _STEP_CALLS not in vars(sys):
            _register_step_hook()
        self.add_step_hook()
        self._training.collections.start()
        for wanted in list(self._wanted):
            module, path, manager = wanted
            function = _function(module, path)
            if function is not None:
                self._wanted.remove(wanted)
                try:
                    self._functions.append(InstrumentedFunction(function, manager))
                except Exception:  # a torch without its source; what this function would report is missing
                    log_exception()

    def remove(self) -> None:
        """Take the hooks out."""
        self._training.collections.stop()
        set_step_call(_ignore)
        for function in self._functions:
            function.restore()
        self._functions.clear()


def set_step_call(call: StepCall) -> None:
    """Have PyTorch call a function after each step of an optimizer, in place of the one before."""
    calls = vars(sys).get(_STEP_CALLS)
    if calls is not None:
        calls[0] = call


def _register_step_hook() -> None:
    """Add the hook to PyTorch's table, unless the program is in the middle of going through it.

    `torch.compile` evaluates `is_compiling` and compiles the rest away. Where it has compiled something already, a new
    hook could make it compile again; then the backward passes are the steps.
    """
    optimizer, compiler = (_namespace(name) for name in ("torch.optim.optimizer", "torch.compiler"))
    register, is_compiling = optimizer.get("register_optimizer_step_post_hook"), compiler.get("is_compiling")
    if register and is_compiling and not optimizer.get(_TABLE, True) and not _has_compiled():
        calls: list[StepCall] = [_ignore]

        def count_step(optimizer: object, *_: object) -> None:
            if not is_compiling():
                calls[0](optimizer)

        _hide_from_dynamo(count_step)
        register(count_step)
        calls.append(count_step)
        vars(sys)[_STEP_CALLS] = calls


def forget_step_hook() -> None:
    """Take the hook out of PyTorch's table, if the probe has put it there and it is the only one.

    The program may be in the middle of going through the table, which therefore is replaced, not changed.
    """
    optimizer = _namespace("torch.optim.optimizer")
    table, calls = optimizer.get(_TABLE) or {}, vars(sys).get(_STEP_CALLS, ())
    if len(calls) > 1 and list(table.values()) == calls[1:] and not _has_compiled():
        optimizer[_TABLE] = type(table)()
        del vars(sys)[_STEP_CALLS]


def _has_compiled() -> bool:
    """Whether `torch.compile` has compiled something, which it may do again when PyTorch's table changes."""
    counters = _namespace("torch._dynamo.utils").get("counters", {})
    return bool(counters.get("frames")) if isinstance(counters, dict) else True


def _hide_from_dynamo(*owners: Any) -> None:
    """Have `torch.compile` run functions as they are: it would compile what runs between two compiled parts.

    Args:
        owners: Functions, and classes with methods.
    """
    names = _namespace("torch._C._dynamo.eval_frame")
    for function in (function for owner in owners for function in (owner, *vars(owner).values())):
        code = getattr(getattr(function, "fget", function), "__code__", None)
        if code is not None and "skip_code" in names:
            names["skip_code"](code)
        elif code is not None and "_FrameExecStrategy" in names:
            skip = names["_FrameAction"].SKIP
            names["set_code_exec_strategy"](code, names["_FrameExecStrategy"](skip, skip))


def _ignore(_: object) -> None:
    """Do nothing: the probe has stopped."""


def _function(module: str, path: str) -> Any:
    """A function of a module by its name, or None while the program has not imported it."""
    names = _namespace(module)
    *classes, name = path.split(".")
    for item in classes:
        names = getattr(names.get(item), "__dict__", {})
    function = names.get(name)
    return function if hasattr(function, "__code__") else None


def _namespace(module: str) -> Any:
    """The names in a module; reading them triggers no lazy import."""
    return getattr(sys.modules.get(module), "__dict__", {})
