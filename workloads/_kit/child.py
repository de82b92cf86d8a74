"""The main function of a workload's process, from its arguments to the last event."""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import json
import os
import platform
import select
import signal
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Optional

from _kit.description import Uses, Workload
from _kit.events import Outcome, Reporter, UnsupportedError, Verdict
from _kit.guard import start_guard

if TYPE_CHECKING:
    from _kit.context import Context

EXIT_BAD = 1
EXIT_UNSUPPORTED = 3
_MEMORY_PERIOD_SECONDS = 0.5
_CONFIRMATION_TICK_SECONDS = 0.1
_SUMMARY_EVERY = 4
"""Every fourth memory event also carries the memory summary, a text of several kilobytes."""


def main(argv: list[str]) -> int:
    """Runs or describes workloads; returns the exit code."""
    parser = argparse.ArgumentParser(prog="_run.py", allow_abbrev=False)
    parser.add_argument("files", nargs="+")
    parser.add_argument("--describe", action="store_true")
    parser.add_argument("--events", type=int)
    parser.add_argument("--control", type=int)
    parser.add_argument("--part")
    parser.add_argument("--ranks", help="socket of the process that started this one as a rank, instead of --events")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--parameters", default="{}")
    arguments = parser.parse_args(argv)
    if arguments.describe:
        return _describe(arguments.files)
    if arguments.ranks is not None:
        from _kit.rank import device_of_rank, join

        arguments.events, arguments.device = join(arguments.ranks), device_of_rank(arguments.device)
    if arguments.events is None:
        parser.error("--events is missing")
    return _Run(arguments).run()


def _describe(files: list[str]) -> int:
    """Prints one JSON line per file: its description, or the error that loading it raised."""
    for file in files:
        try:
            document = {"file": file, **_load(file).document()}
        except Exception as error:  # noqa: BLE001 - one user file that fails must not affect the other files
            document = {"file": file, "error": f"{type(error).__name__}: {error}"}
        print(f"\n{json.dumps(document)}", flush=True)  # on a separate line, whatever the file has printed
    return 0


def _load(file: str) -> Workload:
    path = Path(file)
    name = f"gpumon_workload_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path.name} is not a Python file")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    workload = getattr(module, "WORKLOAD", None)
    if not isinstance(workload, Workload):
        raise TypeError("the file defines no Workload named WORKLOAD")
    return workload


class _Run:
    """One run of a workload, or of one part of it."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._file: str = arguments.files[0]
        self._part: Optional[str] = arguments.part
        self._device: str = arguments.device
        self._parameters: dict[str, Any] = json.loads(arguments.parameters)
        self._control: Optional[int] = arguments.control
        self._reporter = Reporter(arguments.events)
        self._context: Optional[Context] = None
        self._cancelled = False

    def run(self) -> int:
        """Runs the workload and returns the exit code; sends a result event unless a signal ends the process."""
        signal.signal(signal.SIGTERM, self._on_terminate)
        if self._control is not None:
            os.set_inheritable(self._control, False)
            start_guard(self._control)
        if self._part is None:
            python = f"{platform.python_implementation()} {platform.python_version()}"
            self._reporter.send(
                "hello", workload=Path(self._file).stem, pid=os.getpid(), python=python, executable=sys.executable
            )
        try:
            return self._execute()
        except UnsupportedError as error:
            self._reporter.send("error", **{"class": "UnsupportedError"}, text=str(error), expected=False)
            return EXIT_UNSUPPORTED
        except Exception as error:  # noqa: BLE001 - every exception becomes an error event
            return self._report_failure(error)
        finally:
            if self._part is None:
                self._reporter.send("bye")
                self._reporter.close()

    def _execute(self) -> int:
        from _kit.context import judged, result_fields
        from _kit.host import busy_notes

        workload = _load(self._file)
        if self._device == "cpu" and workload.why_not_cpu:
            raise UnsupportedError(workload.why_not_cpu)
        context = self._context = self._open(workload)
        if self._cancelled:
            context.cancel()
        if self._part is not None:
            self._watch_memory(context)
            self._reporter.send("answer", value=workload.parts[self._part](context))
            return 0
        notes = [] if context.on_gpu else busy_notes()
        self._plan(workload.uses(context))
        self._watch_memory(context)
        verdict = Verdict(Outcome.CANCELLED, "")
        if self._wait_for_confirmation():
            verdict = _run_workload(workload, context)
        elif not context.cancelled:
            raise UnsupportedError("The start was not confirmed.")
        verdict = judged(verdict, context, notes)
        context.report_memory()
        results = sorted(context.results, key=lambda result: result.name != workload.main_metric)
        self._send_result(result_fields(verdict, results))
        return EXIT_BAD if verdict.kind in (Outcome.FAIL, Outcome.CANCELLED) else 0

    def _open(self, workload: Workload) -> Context:
        """Imports torch and opens the device."""
        try:
            import torch
        except ImportError as error:
            raise UnsupportedError(
                f"{sys.executable} cannot import torch: {error}. Choose the interpreter of your training environment "
                "with --python, or install torch there."
            ) from error
        from _kit.chip import chip_of
        from _kit.context import Context

        chip = None
        if self._device != "cpu":
            chip = chip_of(torch, int(self._device.partition(":")[2] or 0), can_use_cpu=not workload.why_not_cpu)
            torch.cuda.set_device(chip.ordinal)
        parameters = {parameter.name: parameter.default_on(self._device) for parameter in workload.parameters}
        parameters.update(self._parameters)
        return Context(self._reporter, torch, self._device, parameters, chip, self._file, workload.metrics)

    def _plan(self, uses: Uses) -> None:
        context = self._context
        assert context is not None
        torch, chip = context.torch, context.chip
        free, total = context.free_memory() if chip is not None else (None, None)
        self._reporter.send(
            "plan",
            torch=torch.__version__,
            cuda=torch.version.cuda,
            device=self._device,
            chip=None if chip is None else chip.document(),
            memory_free_bytes=free,
            memory_total_bytes=total,
            uses={
                "memory_bytes": uses.memory_bytes,
                "host_memory_bytes": uses.host_memory_bytes,
                "seconds": uses.seconds,
                "peers": uses.peers,
                "asks": uses.asks,
            },
            parameters=vars(context.parameters),
        )

    def _wait_for_confirmation(self) -> bool:
        """Waits until gpumon, which first checks for other processes on this GPU, lets the workload start."""
        if self._control is None:
            return True
        assert self._context is not None
        while not self._context.cancelled:
            if select.select([self._control], [], [], _CONFIRMATION_TICK_SECONDS)[0]:
                return os.read(self._control, 64).startswith(b"go")
        return False

    def _watch_memory(self, context: Context) -> None:
        threading.Thread(target=self._report_memory, args=(context,), name="memory", daemon=True).start()

    def _report_memory(self, context: Context) -> None:
        with suppress(RuntimeError):  # the run itself reports an error that destroyed the CUDA context
            for count in itertools.count():
                if context.is_elsewhere:
                    time.sleep(_MEMORY_PERIOD_SECONDS)
                    continue
                summary = None if count % _SUMMARY_EVERY else _summary(context)
                self._reporter.send("memory", **context.memory(), **({} if summary is None else {"summary": summary}))
                time.sleep(_MEMORY_PERIOD_SECONDS)

    def _on_terminate(self, _: int, __: Optional[FrameType]) -> None:
        """Requests a stop; a second signal, or one while torch is imported, ends the process at once."""
        if self._cancelled or self._context is None:
            os._exit(128 + signal.SIGTERM)
        self._cancelled = True
        self._context.cancel()

    def _report_failure(self, error: Exception) -> int:
        """Sends the exception that ended the run; returns the exit code."""
        text = str(error)[:4000]
        self._reporter.send("error", **{"class": type(error).__name__}, text=text, expected=False)
        if self._part is None:
            first = text.strip().splitlines()[0] if text.strip() else "no text"
            results = [] if self._context is None else self._context.results
            verdict = Verdict(Outcome.FAIL, f"{type(error).__name__}: {first}")
            from _kit.context import result_fields

            self._send_result(result_fields(verdict, results))
        return EXIT_BAD

    def _send_result(self, fields: dict[str, Any]) -> None:
        self._reporter.send("result", workload=Path(self._file).stem, device=self._device, **fields)


def _run_workload(workload: Workload, context: Context) -> Verdict:
    """Runs the workload and returns its verdict; an exception after a cancellation is not a failure."""
    try:
        verdict = workload.run(context)
    except Exception:
        if context.cancelled:
            return Verdict(Outcome.CANCELLED, "")
        raise
    if not isinstance(verdict, Verdict):
        raise TypeError("run() must return a Verdict: context.ok(why), context.warn(why) or context.fail(why)")
    return verdict


def _summary(context: Context) -> Optional[str]:
    from _kit.memory import summary_of

    if not context.on_gpu:
        return None
    try:
        return summary_of(context.torch, context.device)
    except (KeyError, RuntimeError):  # before the first allocation, or after the context was destroyed
        return None
