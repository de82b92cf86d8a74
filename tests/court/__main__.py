"""Compares `gpumon why` with training runs whose causes are known.

``python -m tests.court [--cases a,b] [--device cuda|cpu] [--seconds N] [--json FILE]`` starts one case at a time: the
slow run, which `gpumon why` looks at, and the cured run, which shows the true bound.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from tests.court.cases import CASES, Case
from tests.court.process import REPOSITORY, SkippedError, TrainingError, TrainingProcess, device_of
from tests.court.report import Outcome, judged, table

WHY: Final = (sys.executable, "-m", "gpumon", "why")
_MIN_CORES_TO_PREPARE: Final = 8
"""On smaller hosts, a process that starts would slow down the one that is measured."""
_WHY_SECONDS: Final = 120.0
_MAX_SECONDS: Final = 200.0
_NO_STEPS: Final = 3
_ATTEMPTS: Final = 4
_SETTLE_SECONDS: Final = 0.5
_VERDICTS: Final = (0, 1)


@dataclass(frozen=True)
class Options:
    """How cases run.

    Attributes:
        device: "cuda" or "cpu".
        seconds: How long the two runs of a case are measured; the cured one half of it.
        python: The interpreter that has torch.
        why: The command that is given a PID and `--json`.
        prepares: Whether the next process starts, and waits, while one is measured.
        ranks: How many ranks a job has.
    """

    device: str
    seconds: float
    python: str = sys.executable
    why: Sequence[str] = WHY
    prepares: bool = False
    ranks: int = 2


class Prepared:
    """The two processes of a case, which exist from the time that the case is due."""

    def __init__(self, case: Case, options: Options) -> None:
        self.case = case
        self._options = options
        self._processes: dict[bool, TrainingProcess] = {}
        if options.prepares:
            self.process(is_cured=False)

    def process(self, *, is_cured: bool) -> TrainingProcess:
        """The slow or the cured run."""
        if is_cured not in self._processes:
            device = device_of(self.case, self._options.device) or self._options.device
            seconds = self._options.seconds / 2 if is_cured else _MAX_SECONDS
            python, ranks = self._options.python, self._options.ranks
            self._processes[is_cured] = TrainingProcess(
                self.case, device, is_cured=is_cured, seconds=seconds, python=python, ranks=ranks
            )
        return self._processes[is_cured]

    def close(self) -> None:
        """End both."""
        for process in self._processes.values():
            process.close()


def try_case(prepared: Prepared, options: Options) -> Outcome:
    """Run one case."""
    case = prepared.case
    try:
        sick = prepared.process(is_cured=False)
        pid = sick.first_steps()
        if options.prepares and not case.is_healthy:
            prepared.process(is_cured=True)
        job = ask(pid, (*options.why, "--job")) if case.has_ranks else None  # before a trace slows launches down
        start = time.monotonic()
        answer = ask(pid, options.why)
        why_seconds = time.monotonic() - start
        end = sick.end()
        sick.close()
        cured = None
        if not case.is_healthy:
            process = prepared.process(is_cured=True)
            process.first_steps()
            cured = process.result(options.seconds)
        return replace(judged(case, answer, end, cured, job), why_seconds=why_seconds)
    except SkippedError as error:
        return Outcome(case, problem=f"skipped: {error}.")
    except (TrainingError, KeyError, TypeError, ValueError, subprocess.SubprocessError) as error:
        return Outcome(case, problem=f"{type(error).__name__}: {error}")
    finally:
        prepared.close()


def ask(pid: int, why: Sequence[str]) -> dict[str, Any]:
    """The answer of `gpumon why`; tried again while the probe has not seen any steps.

    Raises:
        TrainingError: It gave no answer.
    """
    for attempt in range(_ATTEMPTS):
        time.sleep(_SETTLE_SECONDS + attempt)
        command = [*why, str(pid), "--json"]
        done = subprocess.run(
            command, cwd=REPOSITORY, capture_output=True, text=True, timeout=_WHY_SECONDS, check=False
        )
        if done.returncode != _NO_STEPS:
            break
    if done.returncode not in _VERDICTS:
        text = (done.stderr or done.stdout).strip().splitlines()
        raise TrainingError(f"gpumon why ended with {done.returncode}: {text[-1] if text else 'no message'}")
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def run_cases(cases: Sequence[Case], options: Options) -> Generator[Outcome, None, None]:
    """Run the cases one after the other."""
    following: Prepared | None = None
    try:
        for number, case in enumerate(cases):
            current = following or Prepared(case, options)
            is_last = number + 1 == len(cases)
            following = None if is_last or not options.prepares else Prepared(cases[number + 1], options)
            yield try_case(current, options)
    finally:
        if following is not None:
            following.close()


def _short(outcome: Outcome) -> str:
    if outcome.problem:
        return outcome.problem
    return f"{'right' if outcome.is_right else 'WRONG'}: {outcome.summary} {outcome.line}".rstrip()


def selected(names: str, device: str) -> list[Case]:
    """The cases of that name or module, or all, that can run on the device.

    Raises:
        SystemExit: A name is unknown.
    """
    wanted = set(filter(None, names.split(",")))
    unknown = wanted - {name for case in CASES for name in (case.name, case.module)}
    if unknown:
        raise SystemExit(f"Unknown cases: {', '.join(sorted(unknown))}.")
    return [case for case in CASES if (not wanted or wanted & {case.name, case.module}) and device_of(case, device)]


def main() -> None:
    """Run the cases, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default="", help="names of cases or of their modules, with commas between them")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda" if shutil.which("nvidia-smi") else "cpu")
    parser.add_argument(
        "--seconds", type=float, default=6.0, help="measured time of each case; the cured run has half of it"
    )
    parser.add_argument("--json", type=Path, help="write the results to this file")
    parser.add_argument("--python", default=sys.executable, help="the interpreter that has torch")
    parser.add_argument("--ranks", type=int, default=2, help="ranks of each job")
    parser.add_argument("--why", default="", help="another command instead of gpumon why")
    chosen = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the blocks that end processes are left
    why = chosen.why.split() or WHY
    prepares = len(os.sched_getaffinity(0)) >= _MIN_CORES_TO_PREPARE
    options = Options(chosen.device, chosen.seconds, chosen.python, why, prepares, chosen.ranks)
    start = time.monotonic()
    cases = selected(chosen.cases, chosen.device)
    outcomes: list[Outcome] = []
    with closing(run_cases(cases, options)) as results:
        for outcome in results:
            outcomes.append(outcome)
            print(f"{len(outcomes)}/{len(cases)} {outcome.case.name}: {_short(outcome)}", file=sys.stderr, flush=True)
            if chosen.json:  # also if the time of this command ends before the last case
                chosen.json.write_text(json.dumps([outcome.document() for outcome in outcomes], indent=1) + "\n")
    print(table(outcomes))
    load, cores = os.getloadavg()[0], len(os.sched_getaffinity(0))
    print(f"{len(outcomes)} cases in {time.monotonic() - start:.0f} s; load average {load:.1f} on {cores} cores.")


if __name__ == "__main__":
    main()
