"""Arms Kineto's client for traces on demand in this process: once, late, and without a word from it.

The client is a thread of Kineto that asks a daemon for a configuration once a second; `.kineto` is that daemon. It must
not be armed through the environment at the start of the process, because importing torch would then initialize CUDA.

The call runs on the main thread: Kineto prints a line if it is initialized on another thread than the one that has
imported torch. It is one callable made of C functions only, which the interpreter runs between two bytecodes of the
program (`Py_AddPendingCall`). No Python frame is entered, so no handler of a signal can run in the middle of it, and no
tracer sees it. Variables are set in the environment of C only; ``os.environ`` never contains them.
"""

from __future__ import annotations

import ctypes
import itertools
import operator
import os
import re
import sys
import threading
from contextlib import suppress
from functools import partial

from .messages import RefusedError
from .written_files import new_client_folder, remove_client_folder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .pytorch import Torch

MAX_FOLDER_BYTES = 54
"""Kineto appends a slash, ``dynoconfigclient`` and a UUID, and does not check whether a socket's address has room."""
_MIN_TORCH = (2, 8)
_INIT, _API = "_ZN5torch18global_kineto_initEv", "_ZN9libkineto3apiEv"
_PROFILER_OFFSET, _THREAD_OFFSET = 8, 24
"""Fields of ``libkineto::LibkinetoApi``: the registered profiler, and the thread that has registered torch's client."""
_DAEMON_VARIABLES = ("KINETO_USE_DAEMON", "KINETO_IPC_SOCKET_DIR", "KINETO_ONDEMAND_TRACE_DIR")
_PROFILER_VARIABLES = ("NSYS_PROFILING_SESSION_ID", "CUDA_INJECTION64_PATH", "NV_COMPUTE_PROFILER_PERFWORKS_DIR")
TEARDOWN = "TEARDOWN_CUPTI"
_QUIET_LEVEL = "5"
"""Above Kineto's level for errors: it would otherwise print that it does not reach a daemon between two traces."""


ALREADY_USED = "The program has already used torch.profiler; after that, Kineto records no traces on demand."


class KinetoClient:
    """The client in this process. A process has one; it exists until the process ends.

    Args:
        torch: The PyTorch of this process.

    Raises:
        RefusedError: It cannot be armed here.
    """

    def __init__(self, torch: Torch) -> None:
        self._library = _library(torch)
        self._refuse_if_registered()
        self.pid = os.getpid()
        self.folder = new_client_folder(MAX_FOLDER_BYTES)
        self._has_config = "KINETO_CONFIG" in os.environ  # the program's own, which stays
        self._c = ctypes.PyDLL(None)
        self._teardown = ctypes.create_string_buffer(f"{TEARDOWN}=1".encode())  # putenv keeps the pointer
        self._begun: list[int] = []
        self._done: list[int] = []
        self._schedule()

    @property
    def is_armed(self) -> bool:
        """Whether the main thread has made the call."""
        return bool(self._done)

    @property
    def has_begun(self) -> bool:
        """Whether the main thread has come to the call; if it is not armed then, the program was faster."""
        return bool(self._begun)

    def forget_variables(self) -> None:
        """Remove the variables that Kineto has read for good; only the folder of the sockets has to stay."""
        for name in (b"KINETO_ONDEMAND_TRACE_DIR", *(() if self._has_config else (b"KINETO_CONFIG",))):
            self._c.unsetenv(name)

    def detach_cupti(self, *, is_wanted: bool) -> None:
        """Have Kineto detach CUPTI when it has written a trace; it reads the variable only then."""
        if TEARDOWN in os.environ:  # the program's own, which stays
            return
        if is_wanted:
            self._c.putenv(ctypes.addressof(self._teardown))
        else:
            self._c.unsetenv(TEARDOWN.encode())

    def remove_folder(self) -> None:
        """Remove the folder of the sockets, at the end of the process."""
        if self.pid == os.getpid():
            remove_client_folder(self.folder)

    def _refuse_if_registered(self) -> None:
        """Check that Kineto is as torch has left it after its import.

        Raises:
            RefusedError: A second initialization would replace the profiler that the program has used by one that is
                never initialized; its next use would crash the program.
        """
        api = getattr(self._library, _API)
        api.restype = ctypes.c_void_p
        address = api()
        self._profiler = ctypes.c_void_p.from_address(address + _PROFILER_OFFSET)
        if self._profiler.value:
            raise RefusedError(ALREADY_USED)
        main_thread = ctypes.c_int32(threading.main_thread().ident or 0).value
        if ctypes.c_int32.from_address(address + _THREAD_OFFSET).value != main_thread:
            raise RefusedError("PyTorch was not imported by the main thread of this process, or by its parent process.")

    def _schedule(self) -> None:
        """Have the main thread arm the client."""
        config = os.path.join(self.folder, "kineto.conf")
        with open(os.open(config, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write("ON_DEMAND_CONFIG_UPDATE_INTERVAL_SECS=1\n")
        variables = {
            "KINETO_USE_DAEMON": "1",
            "KINETO_IPC_SOCKET_DIR": self.folder,
            "KINETO_CONFIG": config,
            "KINETO_LOG_LEVEL": _QUIET_LEVEL,
            "KINETO_ONDEMAND_TRACE_DIR": "/",  # newer releases of Kineto allow only files in this folder
        }
        level = os.environ.get("KINETO_LOG_LEVEL")
        added = [
            f"{name}={value}" for name, value in variables.items() if name != "KINETO_CONFIG" or not self._has_config
        ]
        restored = [] if level is None else [f"KINETO_LOG_LEVEL={level}"]
        # putenv keeps the pointer, and Kineto the one to the name of its file: these bytes must never be freed.
        self._texts = [ctypes.create_string_buffer(os.fsencode(text)) for text in (*added, *restored)]
        addresses = [ctypes.addressof(text) for text in self._texts]
        removed = [b"KINETO_USE_DAEMON", *([b"KINETO_LOG_LEVEL"] if level is None else [])]
        self._c.putenv.argtypes = [ctypes.c_void_p]
        self._c.unsetenv.argtypes = [ctypes.c_char_p]
        initialize = getattr(self._library, _INIT)
        initialize.restype, initialize.argtypes = None, [ctypes.c_int]
        # `any` makes all calls, because each returns 0 or None; but it ends at once if Kineto is registered by now.
        calls = itertools.chain(
            map(self._begun.append, [1]),
            map(operator.attrgetter("value"), [self._profiler]),
            map(self._c.putenv, addresses[: len(added)]),
            map(initialize, [0]),
            map(self._c.unsetenv, removed),
            map(self._c.putenv, addresses[len(added) :]),
            map(self._done.append, [1]),
        )
        # A pending call must return 0: `all` returns False, at the result of `any` or at the 0 after it.
        self._call = ctypes.CFUNCTYPE(ctypes.c_int)(partial(all, itertools.chain(map(any, [calls]), [0])))
        add = self._c.Py_AddPendingCall
        add.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
        if add(ctypes.cast(self._call, ctypes.c_void_p), None):
            remove_client_folder(self.folder)
            raise RefusedError("The interpreter has too many pending calls; try again.")


def end_without_destructors() -> None:
    """Have a forked child end without C++ destructors: that of Kineto's client would wait for a thread forever.

    The thread exists in the parent only. The exit code stays, and what C has buffered is written.
    """
    c = ctypes.CDLL(None)
    c.on_exit.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    for name in ("_exit", "_IO_flush_all"):  # the last one is called first; _exit gets the exit code
        if hasattr(c, name):
            c.on_exit(ctypes.cast(getattr(c, name), ctypes.c_void_p), None)


def user_profiler_is_active() -> bool:
    """Whether the program's own torch.profiler records now, on whichever thread."""
    return bool(getattr(sys.modules.get("torch.autograd.profiler"), "_is_profiler_enabled", False))


def _library(torch: Torch) -> Any:
    """The library that contains Kineto, which the process has loaded.

    Raises:
        RefusedError: This PyTorch or this process is not one for which that was tested.
    """
    version = re.match(r"(\d+)\.(\d+)", torch.version or "")
    if version is None or (int(version[1]), int(version[2])) < _MIN_TORCH:
        minimum = ".".join(map(str, _MIN_TORCH))
        raise RefusedError(
            f"Traces on demand need PyTorch {minimum} or later; the process has {torch.version or 'none yet'}. Earlier "
            "releases can crash the program."
        )
    if getattr(sys.modules.get("torch.version"), "hip", None):
        raise RefusedError("Traces on demand were tested with CUDA only, and this PyTorch is built for ROCm.")
    if torch.state == "waiting_for_cuda":
        raise RefusedError("The process has no CUDA context.")
    for name in _DAEMON_VARIABLES:
        if name in os.environ:
            raise RefusedError(f"{name} is set: another daemon, such as dynolog, records the traces of this process.")
    for name in _PROFILER_VARIABLES:
        if name in os.environ:
            raise RefusedError(f"{name} is set: another profiler, such as Nsight Systems, is attached to this process.")
    path = os.path.join(os.path.dirname(sys.modules["torch"].__file__ or ""), "lib", "libtorch_cpu.so")
    with suppress(OSError):
        library = ctypes.CDLL(path, os.RTLD_NOW | os.RTLD_NOLOAD)
        if hasattr(library, _INIT) and hasattr(library, _API):
            return library
    raise RefusedError("This build of PyTorch has no Kineto that can be asked for a trace.")
