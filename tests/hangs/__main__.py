"""Prints what gpumon says of planted hangs and healthy jobs: ``python -m tests.hangs [--cases a,b] [--plain]``.

Each job is a few processes with torch on the CPU; all of them take about ten minutes on two cores.
"""

import argparse
import sys

from tests.hangs.cases import HANGS, HEALTHY
from tests.hangs.runner import mistakes, run


def main() -> int:
    """Run the cases, and return 1 if a verdict is wrong."""
    parser = argparse.ArgumentParser(description="Verdicts on planted hangs and on healthy jobs.")
    parser.add_argument("--cases", default="", help="names, separated by commas; all by default")
    parser.add_argument("--plain", action="store_true", help="start the jobs without gpumon watch")
    parser.add_argument("--verbose", action="store_true", help="the evidence and the output of each job too")
    arguments = parser.parse_args()
    names = set(filter(None, arguments.cases.split(",")))
    cases = [case for case in (*HANGS, *HEALTHY) if not names or case.name in names]
    right = 0
    for case in cases:
        outcome = run(case, is_plain=arguments.plain)
        wrong = mistakes(case, outcome, is_plain=arguments.plain)
        right += not wrong
        print(f"{'ok   ' if not wrong else 'WRONG'} {case.name:22} {outcome.seconds:5.1f} s", end="  ")
        print("; ".join(wrong) or (outcome.verdict.summary if outcome.verdict else ""), flush=True)
        if wrong and outcome.verdict:
            print(f"      {outcome.verdict.summary}")
        if arguments.verbose:
            print("\n".join(f"      {line}" for line in (outcome.verdict.evidence if outcome.verdict else ())))
            print("\n".join(f"      | {line}" for line in outcome.output.splitlines()[-12:]))
    print(f"{right} of {len(cases)} are right")
    return 0 if right == len(cases) else 1


if __name__ == "__main__":
    sys.exit(main())
