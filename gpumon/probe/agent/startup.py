"""Starts and stops the probe of this process: when called, when it trains or uses CUDA, around a fork, at exit."""

from __future__ import annotations

import atexit
import os
import sys
from functools import partial

from . import no_collections
from .debug import log_exception
from .hooks import forget_step_hook, set_step_call
from .sampler import Sampler

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

_MARK = "_gpumon_probe_pid"
"""Attribute of `sys` with the PID of a process that has a probe."""
_LASTING = "_gpumon_probe_calls"
"""Attribute of `sys` with what Python and PyTorch keep until the process ends: a `partial` for each, whose function is
that of the latest probe, or nothing after `_forget`."""
_NAME = "_gpumon_probe_agent"
_STOP_TIMEOUT_SECONDS = 0.5
"""Longest time that the exit of the program waits for the probe; stopping takes about a millisecond."""
_PAUSE_TIMEOUT_SECONDS = 0.5
_WARNS_OF_THREADS = (3, 12)
"""From this release on, Python warns if a process with several threads forks: a DeprecationWarning, maybe an error."""
_WARNS_LATE = (3, 13)
"""From this release on, Python counts the threads after the functions that a program runs after a fork."""
_RESUME = b"try:\n __import__('sys')._gpumon_probe_calls['resume']()\nexcept BaseException:\n pass\n"
"""What the main thread runs when the fork has returned, in ``__main__``, where it binds no name."""

_has_hooks = False
_is_observing = False


def start(opens_at: str = "waiting_for_torch") -> None:
    """Start the probe of this process, unless GPUMON_PROBE is 0; if there is one, it opens its socket as early as said.

    Args:
        opens_at: When the probe opens its socket: at once, from ``cpu_only`` on (PyTorch is imported), or from
            ``live`` on (PyTorch has created a CUDA context).

    Raises:
        OSError: The process has no free descriptor.
        RuntimeError: The process cannot start a thread.
    """
    global _sampler, _has_hooks  # noqa: PLW0603 - a process has one probe
    if os.environ.get("GPUMON_PROBE") == "0":
        return
    if vars(sys).get(_MARK) == os.getpid():
        _sampler.open_from(opens_at)
        _resume()
        return
    vars(sys)[_MARK] = os.getpid()
    _sampler = Sampler(opens_at, _observe, _forget)
    if not _has_hooks:
        _has_hooks = True
        atexit.register(_at_exit)
        lasting = {"before": _before_fork, "after_in_parent": _after_fork_in_parent, "after_in_child": _after_fork}
        added = _redirect(lasting)
        if added:
            os.register_at_fork(**added)
        _resume_after_forks()
    try:
        _sampler.start()
    except BaseException:  # also what a signal handler of the program raises, which may be after the start
        if not _sampler.has_started:
            del vars(sys)[_MARK]
        raise


def stop() -> None:
    """Stop the probe. It can be started again."""
    _sampler.stop(_STOP_TIMEOUT_SECONDS)
    vars(sys).pop(_MARK, None)


def _redirect(functions: dict[str, Callable[..., None]]) -> dict[str, Any]:
    """Have lasting callables call these functions; return those that did not exist and have to be registered."""
    calls = vars(sys).setdefault(_LASTING, {})
    added = {name: partial(function) for name, function in functions.items() if name not in calls}
    calls.update(added)
    for name, function in functions.items():
        calls[name].__setstate__((function, (), {}, {}))
    return added


def _resume_after_forks() -> None:
    """Have the main thread call `_resume` after each fork has returned, if Python counts the threads that late.

    It has to be a function in C that asks for the call: after one in Python, the call would come at once.
    """
    if sys.version_info >= _WARNS_LATE and _redirect({"resume": _resume}):
        try:
            import ctypes

            python = ctypes.PyDLL(None)
            call = partial(python.Py_AddPendingCall, python.PyRun_SimpleString, ctypes.c_char_p(_RESUME))
            os.register_at_fork(after_in_parent=call)
        except (ImportError, OSError, AttributeError):  # a Python without ctypes, which PyTorch needs
            log_exception()


def _forget() -> None:
    """Leave nothing of the probe in the process, on its thread at its end, except lasting callables that do nothing."""
    global _has_hooks, _is_observing  # noqa: PLW0603 - a process has one probe
    vars(sys).pop(_MARK, None)
    _has_hooks = _is_observing = False
    atexit.unregister(_at_exit)
    for call in vars(sys).get(_LASTING, {}).values():
        call.__setstate__(("".format, (), {}, {}))  # accepts everything; no code of the probe stays referenced
    try:
        forget_step_hook()
    except Exception:  # a release of PyTorch with another table, which keeps a hook that does nothing
        log_exception()
    for name in [name for name in sys.modules if name.partition(".")[0] == _NAME]:
        del sys.modules[name]


def start_at_cuda_init() -> None:
    """Start the probe; PyTorch calls this on the thread that creates its first CUDA context."""
    try:
        start("live")
        _observe()
    except Exception:  # PyTorch would raise it in the program
        log_exception()


def start_at_training() -> None:
    """Start the probe; called at the first step of an optimizer, DataLoader iterator or process group."""
    try:
        if not _is_loader_worker():
            start("cpu_only")
            _sampler.open_from("cpu_only")
    except Exception:  # it would reach the program
        log_exception()


def _is_loader_worker() -> bool:
    """Whether this process loads data for a DataLoader of another one."""
    worker = sys.modules.get("torch.utils.data._utils.worker")
    return getattr(worker, "__dict__", {}).get("_worker_info") is not None


def _observe() -> None:
    """Register the OOM observer with PyTorch; once, because PyTorch keeps observers until the process ends."""
    global _is_observing  # noqa: PLW0603 - the allocator belongs to the process
    if not _is_observing:
        _is_observing = True
        try:
            for observer in _redirect({"out_of_memory": _on_out_of_memory}).values():
                _sampler.torch.observe_out_of_memory(observer)
        except Exception:  # cudaMallocAsync and old releases have no observers
            log_exception()


def _on_out_of_memory(ordinal: int, requested_bytes: int, limit_bytes: int, free_bytes: int) -> None:
    if _MARK in vars(sys):  # PyTorch calls its observers even after the probe was stopped
        _sampler.oom_writer.write(ordinal, requested_bytes, limit_bytes, free_bytes)


def _at_exit() -> None:
    _sampler.stop(_STOP_TIMEOUT_SECONDS)
    _call_kineto("at_exit")


def _call_kineto(function: str) -> None:
    """Call a function of `.kineto` if that was imported, which most processes never do."""
    kineto = sys.modules.get(f"{__package__}.kineto")
    if kineto is not None:
        vars(kineto)[function]()


def _before_fork() -> None:
    try:
        _sampler.stack_timer.pause()
        if sys.version_info >= _WARNS_OF_THREADS:
            _sampler.pause(_PAUSE_TIMEOUT_SECONDS)
    except Exception:  # Python would print it
        log_exception()


def _after_fork_in_parent() -> None:
    _sampler.stack_timer.resume()
    if sys.version_info < _WARNS_LATE:
        _resume()


def _resume() -> None:
    try:
        if vars(sys).get(_MARK) == os.getpid():  # not in a child that was forked before the call
            _sampler.resume()
    except Exception:  # the probe ends silently and the program goes on
        log_exception()


def _after_fork() -> None:
    """Close what a forked child has inherited; the child gets its own probe if it trains or creates a CUDA context."""
    try:
        no_collections.after_fork()
        _sampler.abandon()
        _call_kineto("after_fork")
        if _MARK in vars(sys):
            set_step_call(lambda _: start_at_training())
            if not _sampler.torch.call_on_cuda_init(start_at_cuda_init):
                start("live")
    except Exception:  # the probe ends silently and the program goes on
        log_exception()


_sampler = Sampler("live", _observe, _forget)
