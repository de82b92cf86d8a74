"""Compares gpumon with other monitors on a stand-in for the NVIDIA library: ``python -m tests.perf.bench``.

Needs a C compiler. For the other monitors: ``python -m venv peers && peers/bin/pip install nvitop gpustat``, then
``--peers-bin peers/bin``. The monitors take turns, so that other load on this host affects all of them. The results do
not include the time that a real driver spends in the kernel, which is the same for all monitors.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, Final

from tests.nvml_mock import NvmlMock, build
from tests.perf.measure import Result, Size, measure
from tests.perf.monitors import Monitor, find

CASES: Final = "1x4,8x4,64x4,8x128"
MONITORS: Final = "gpumon,gpumon-processes,nvitop,gpustat"
Case = tuple[int, int]
Summary = dict[str, Any]

_COLUMNS: Final = (
    ("first byte s", "first_byte_seconds", ".2f"),
    ("first frame s", "first_frame_seconds", ".2f"),
    ("CPU %", "cpu_percent", ".2f"),
    ("peak PSS MiB", "pss_peak_mebibytes", ".1f"),
    ("terminal B/s", "terminal_bytes_per_second", ".0f"),
    ("NVML calls/GPU/s", "nvml_calls_per_gpu_second", ".1f"),
    ("setters", "nvml_setters", ".0f"),
    ("quit s", "quit_seconds", ".3f"),
    ("exit", "exit_code", ".0f"),
)


def main() -> None:
    """Runs every case and prints a Markdown table."""
    options = _options()
    size = Size(options.rows, options.cols, options.warm, options.seconds)
    monitors = find(options.monitors.split(","), options.peers_bin)
    print("| GPUs x processes | monitor |", " | ".join(title for title, _, _ in _COLUMNS), "|")
    print("|---|---|" + "--:|" * len(_COLUMNS))
    summaries = []
    with tempfile.TemporaryDirectory(prefix="gpumon-bench-") as folder:
        mock = build(Path(folder))
        for case in _cases(options.cases):
            for summary in _compare(mock, monitors, case, size, options.repeat):
                print(_row(summary), flush=True)
                summaries.append(summary)
    if options.json is not None:
        options.json.write_text(json.dumps({"schema": 1, "size": asdict(size), "runs": summaries}, indent=2) + "\n")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.perf.bench", description=__doc__)
    parser.add_argument("--cases", default=CASES, help="comma-separated GPUs x processes per GPU (%(default)s)")
    parser.add_argument("--monitors", default=MONITORS, help="comma-separated names (%(default)s)")
    parser.add_argument("--peers-bin", type=Path, help="folder with the commands of the other monitors; default: PATH")
    parser.add_argument("--repeat", type=int, default=1, help="runs per monitor; the median is printed")
    parser.add_argument("--warm", type=float, default=4.0, help="seconds before the steady window (%(default)s)")
    parser.add_argument("--seconds", type=float, default=10.0, help="length of the steady window (%(default)s)")
    parser.add_argument("--rows", type=int, default=50)
    parser.add_argument("--cols", type=int, default=160)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results to this file")
    return parser.parse_args()


def _cases(text: str) -> list[Case]:
    pairs = (case.split("x") for case in text.split(","))
    return [(int(gpus), int(processes)) for gpus, processes in pairs]


def _compare(mock: NvmlMock, monitors: Sequence[Monitor], case: Case, size: Size, repeat: int) -> list[Summary]:
    runs: dict[str, list[Result]] = {monitor.name: [] for monitor in monitors}
    with sleepers(case[0] * case[1]) as pids:
        for _ in range(repeat):
            for monitor in monitors:
                try:
                    runs[monitor.name].append(_run_once(mock, monitor, case, pids, size))
                except (AssertionError, RuntimeError) as error:
                    print(f"{monitor.name}: {error}", file=sys.stderr)
    gpus, processes = case
    return [
        {"gpus": gpus, "processes_per_gpu": processes, "monitor": name, **_median(results)}
        for name, results in runs.items()
        if results
    ]


def _run_once(mock: NvmlMock, monitor: Monitor, case: Case, pids: Sequence[int], size: Size) -> Result:
    gpus, processes = case
    with tempfile.TemporaryDirectory(prefix="gpumon-bench-") as folder:
        logs = Path(folder, "logs")
        logs.mkdir()
        environment = mock.environment(gpus, pids, log=logs / "%p.json")
        environment |= {"NVML_MOCK_PROCS": str(processes), "XDG_CONFIG_HOME": folder, "HOME": folder}
        return measure(monitor, environment, logs, gpus, size)


@contextmanager
def sleepers(count: int) -> Iterator[list[int]]:
    started = [subprocess.Popen(["sleep", "100000"], stdin=subprocess.DEVNULL) for _ in range(count)]
    try:
        yield [process.pid for process in started]
    finally:
        for process in started:
            process.kill()
        for process in started:
            process.wait()


def _median(results: Sequence[Result]) -> Summary:
    columns = {field.name: [getattr(result, field.name) for result in results] for field in fields(Result)}
    medians = {name: [value for value in values if value is not None] for name, values in columns.items()}
    return {name: statistics.median(values) if values else None for name, values in medians.items()}


def _row(summary: Summary) -> str:
    cells = [f"{summary['gpus']} x {summary['processes_per_gpu']}", summary["monitor"]]
    cells += ["-" if summary[key] is None else format(summary[key], form) for _, key, form in _COLUMNS]
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
