"""What a case showed, and the table of all cases."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from tests.court.cases import Case

MAX_BOUND_ERROR: Final = 0.15
MAX_ACCOUNT_ERROR: Final = 0.02
_NONE: Final = "none"


@dataclass(frozen=True)
class Outcome:
    """One case.

    Attributes:
        case: The case.
        problem: Why there is no result; empty if there is one.
        said: The class of the main cause; "none" without a cause, "undecided" without a verdict.
        kind: The finer cause.
        line: The line of the program that the cause names.
        summary: The verdict in a sentence.
        position: The place of the planted cause among the causes, from 1; None if it is not one of them.
        is_right: Whether the planted cause was named, or a healthy run not accused.
        stages: How gpumon looked.
        step_seconds: A step as gpumon reports it.
        measured_seconds: A step as the training run itself measured it, without the window of `gpumon why` having to be
            the same one.
        bound_seconds: A step without the main cause, as gpumon predicts it.
        bound_range_seconds: The least and the most that it takes, if gpumon says that.
        cured_seconds: A step with the cure; None for healthy runs.
        cure_ratio: How many times faster the cure is, for a sample.
        account_ratio: The sum of the account as part of the step.
        why_seconds: How long `gpumon why` took.
        answer: Its complete answer.
        straggler: The rank that `gpumon why --job` named; None if none.
        rank_ratios: The sum of the account of each rank as part of its step.
        job: The complete answer of `gpumon why --job`.
    """

    case: Case
    problem: str = ""
    said: str = ""
    kind: str = ""
    line: str = ""
    summary: str = ""
    position: int | None = None
    is_right: bool = False
    stages: tuple[str, ...] = ()
    step_seconds: float | None = None
    measured_seconds: float | None = None
    bound_seconds: float | None = None
    bound_range_seconds: tuple[float, float] | None = None
    cured_seconds: float | None = None
    cure_ratio: float | None = None
    account_ratio: float | None = None
    why_seconds: float | None = None
    answer: dict[str, Any] = field(default_factory=dict)
    straggler: int | None = None
    rank_ratios: tuple[float, ...] = ()
    job: dict[str, Any] | None = None

    @property
    def is_bound_tested(self) -> bool:
        """Whether the predicted bound can be compared with the cured run."""
        is_known = self.bound_seconds is not None and self.cured_seconds is not None
        return self.is_right and self.case.is_cure_complete and is_known

    @property
    def is_bound_right(self) -> bool:
        """Whether the cured step is as long as predicted: within the range, or near the limit where there is none."""
        if not self.is_bound_tested or not self.bound_seconds or self.cured_seconds is None:
            return False
        if self.bound_range_seconds is not None:
            return self.bound_range_seconds[0] <= self.cured_seconds <= self.bound_range_seconds[1]
        return abs(self.cured_seconds / self.bound_seconds - 1) <= MAX_BOUND_ERROR

    def document(self) -> dict[str, Any]:
        """The result as a JSON object."""
        return {**asdict(self), "is_bound_tested": self.is_bound_tested, "is_bound_right": self.is_bound_right}


def account_ratio(answer: dict[str, Any]) -> float | None:
    """The sum of the account as part of the step; None without one."""
    step = answer.get("step_seconds")
    total = sum(part["seconds"] for part in answer.get("account") or ())
    return total / step if step and total else None


def judged(
    case: Case,
    answer: dict[str, Any],
    sick: dict[str, Any],
    cured: dict[str, Any] | None,
    job: dict[str, Any] | None = None,
) -> Outcome:
    """Compare the answer of `gpumon why` with the case, and with what the training runs measured.

    Args:
        case: The case.
        answer: The JSON of `gpumon why`.
        sick: The end of the run that it was asked about.
        cured: The end of the cured run.
        job: The JSON of `gpumon why --job`, of a job of several ranks.
    """
    verdict = answer["verdict"]
    first = (verdict["causes"] or [{}])[0]
    said = first.get("name") or (_NONE if verdict["is_decided"] else "undecided")
    kind = first.get("kind") or ""
    measured = sick["step_seconds"]
    ratio = None
    if cured is not None:
        ratio = measured / sick["samples_per_step"] / (cured["step_seconds"] / cured["samples_per_step"])
    causes = enumerate(verdict["causes"], 1)
    position = next((place for place, cause in causes if case.accepts(cause["name"], cause.get("kind") or "")), None)
    straggler = ((job or {}).get("straggler") or {}).get("rank")
    ratios = (account_ratio(rank) or 0.0 for rank in (job or {}).get("ranks", ()))
    is_named = not verdict["causes"] if case.is_healthy else position == 1
    return Outcome(
        case,
        position=position,
        said=said,
        kind=kind,
        line=first.get("line") or "",
        summary=verdict["summary"],
        is_right=is_named and (job is None or straggler == case.straggler),
        stages=tuple(answer.get("stages") or ()),
        step_seconds=answer.get("step_seconds"),
        measured_seconds=measured,
        bound_seconds=first.get("bound_seconds"),
        bound_range_seconds=None if not first.get("bound_range_seconds") else tuple(first["bound_range_seconds"]),
        cured_seconds=cured["step_seconds"] if cured else None,
        cure_ratio=ratio,
        account_ratio=account_ratio(answer),
        answer=answer,
        straggler=straggler,
        rank_ratios=tuple(ratios),
        job=job,
    )


def table(outcomes: Sequence[Outcome]) -> str:
    """The table, and the totals."""
    rows: list[tuple[str, ...]] = [
        ("case", "expected", "said", "", "step ms", "measured", "bound", "cured", "cure", "account", "why s")
    ]
    rows += [_row(outcome) for outcome in outcomes]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [_line(row, widths) for row in rows]
    return "\n".join([*lines, "", *totals(outcomes)])


def totals(outcomes: Sequence[Outcome]) -> list[str]:
    """How many causes, healthy runs, bounds and accounts were right, in sentences."""
    results = [outcome for outcome in outcomes if not outcome.problem]
    sick = [outcome for outcome in results if not outcome.case.is_healthy]
    healthy = [outcome for outcome in results if outcome.case.is_healthy]
    bounds = [outcome for outcome in sick if outcome.is_bound_tested]
    accounts = [outcome.account_ratio for outcome in results if outcome.account_ratio is not None]
    accounts += [ratio for outcome in results for ratio in outcome.rank_ratios]
    sums = sum(abs(ratio - 1) <= MAX_ACCOUNT_ERROR for ratio in accounts)
    right_bounds = sum(outcome.is_bound_right for outcome in bounds)
    lines = [
        f"Causes right: {sum(outcome.is_right for outcome in sick)} of {len(sick)}.",
        f"Healthy runs accused: {sum(not outcome.is_right for outcome in healthy)} of {len(healthy)}.",
        f"Cured steps within the range, or {MAX_BOUND_ERROR:.0%} of the bound: {right_bounds} of {len(bounds)}.",
        f"Accounts that add up to the step within {MAX_ACCOUNT_ERROR:.0%}: {sums} of {len(accounts)}.",
    ]
    return lines + [f"{outcome.case.name}: {outcome.problem}" for outcome in outcomes if outcome.problem]


def _row(outcome: Outcome) -> tuple[str, ...]:
    case = outcome.case
    expected = _NONE if case.is_healthy else "/".join(dict.fromkeys((*case.causes[:1], *case.kinds[:1])))
    if outcome.problem:
        return (case.name, expected, "no result", *[""] * 8)
    rank = "" if outcome.straggler is None else f"rank {outcome.straggler}"
    said = "/".join(filter(None, (outcome.said, outcome.kind, rank)))
    mark = "~" if outcome.is_bound_right else "!" if outcome.is_bound_tested else " "
    return (
        case.name,
        expected,
        said,
        "right" if outcome.is_right else "WRONG" if outcome.position is None else f"WRONG ({outcome.position}.)",
        _milliseconds(outcome.step_seconds),
        _milliseconds(outcome.measured_seconds),
        _milliseconds(outcome.bound_seconds) + mark,
        _milliseconds(outcome.cured_seconds),
        "-" if outcome.cure_ratio is None else f"{outcome.cure_ratio:.2f}x",
        "-" if outcome.account_ratio is None else f"{outcome.account_ratio:.1%}",
        "-" if outcome.why_seconds is None else f"{outcome.why_seconds:.1f}",
    )


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    texts, numbers = row[:4], row[4:]
    cells = [text.ljust(width) for text, width in zip(texts, widths, strict=False)]
    cells += [number.rjust(width) for number, width in zip(numbers, widths[4:], strict=True)]
    return "  ".join(cells).rstrip()


def _milliseconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e3:.2f}"
