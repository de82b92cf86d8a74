"""The format of entries, and what a message decides: which fixes and causes are shown, with which values."""

import pytest

from gpumon.errors.conditions import condition
from gpumon.errors.documents import explanation_document
from gpumon.errors.entry import KnownError, Wording
from gpumon.errors.explain import explain_text
from gpumon.errors.load import parse
from gpumon.errors.match import Match
from gpumon.errors.narrative import sections
from gpumon.errors.rank import case_of, causes_of, fixes_of
from tests.errors.texts import samples_of

NO_KERNEL = "CUDA error: no kernel image is available for execution on the device"


def cause_of(text: str) -> Match:
    match = explain_text(text).cause
    assert match is not None
    return match


def entry(fixes: str) -> KnownError:
    """An entry with some fixes."""
    return parse(
        "error x fatal context n/a\nsection  X\ntitle    X\nmeans    X.\nsays     {number:int} of X\n" + fixes, "x.txt"
    )


FIXES = """\
fix prefer when text has "A", "B" and not log has "C" and not {number} matches "30."
         First for A.
fix      General.
         | python -c 'print({{n:d}})' {number:7}; {run}
fix when {number} > 5 or ({number} in 1, 2 and platform Windows)
         Number {number}.
fix only when not program vLLM
         | x {number}
"""


@pytest.mark.parametrize(
    ("text", "values", "texts"),
    [
        ("A", {}, ["First for A.", "General.", ""]),
        ("a", {}, ["First for A.", "General.", ""]),
        ("A", {"number": "302"}, ["Number 302.", "First for A.", "General.", ""]),
        ("x", {"number": "2"}, ["First for A.", "General.", ""]),
        ("x", {"number": "2", "platform": "Windows"}, ["Number 2.", "First for A.", "General.", ""]),
        ("B", {"number": "9", "program": "vLLM"}, ["First for A.", "Number 9.", "General."]),
    ],
)
def test_conditions_decide_which_fixes_are_shown_in_which_order(
    text: str, values: dict[str, str], texts: list[str]
) -> None:
    error = entry(FIXES)
    assert [fix.text for fix in fixes_of(error, case_of(error, text, {"number": "3", **values}))] == texts


def test_a_value_stands_in_code_only_if_it_is_safe() -> None:
    error = entry(FIXES)
    codes = [fix.code for fix in fixes_of(error, case_of(error, "x", {"number": "$(reboot)"}))]
    assert codes == [""]
    codes = [fix.code for fix in fixes_of(error, case_of(error, "x", {"program": "vLLM"}))]
    assert codes == ["", "python -c 'print({n:d})' 7; vllm serve MODEL"]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("fixes    X", "x.txt:6: no field is called 'fixes'"),
        ("says     {a:number}", "x.txt:6: no type of slots is called 'number'"),
        ("use      no-such", "x.txt:6: fixes.txt has no group 'no-such'"),
        ("title    Y", "x.txt:6: a second 'title'"),
        ("fix      X.\n         | y\n         Z.", "x.txt:8: text below code: 'Z.'"),
        ("Fix it.", "x.txt:6: no field is called 'Fix'"),
    ],
)
def test_an_error_in_an_entry_names_its_line(lines: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        entry(lines)


@pytest.mark.parametrize(
    "text", ["text has", "a or", "(trains", "{a} about 3", "trains so", "no such name", "log has x)"]
)
def test_an_error_in_a_condition_is_reported(text: str) -> None:
    with pytest.raises(ValueError, match=" in "):
        condition(text)


@pytest.mark.parametrize(
    ("says", "regex"),
    [
        ("a.b {n:int}", r"a\.b\ (?P<n>\d{1,20})"),
        ("{:a|b.c} {{x}} {:s|}", r"(?:a|b\.c)\ \{x\}\ (?:s)?"),
        ("word cudaError", r"\bcudaError\b"),
        ("start {rest:rest9}", r"^(?P<rest>[^\n]{1,9})"),
        ("case {name} {:size}", r"(?P<name>\w{1,60})\ [\d.]{1,16} (?:bytes|[KMGT]i?B)"),
    ],
)
def test_a_wording_with_slots_is_a_regular_expression(says: str, regex: str) -> None:
    assert entry(f"says     {says}").wordings[-1] == Wording(regex, is_case_sensitive=says.startswith("case"))


def test_causes_that_the_message_contradicts_are_not_listed() -> None:
    (text,) = (text for text in samples_of("container-cli") if "load library failed" in text)
    match = cause_of(text)
    assert len(match.causes) == 2
    assert "Docker Desktop" in match.causes[0]
    assert explanation_document(explain_text(text))["matches"][0]["causes"] == list(match.causes)
    assert causes_of(match.error, case_of(match.error)) == match.error.causes


@pytest.mark.parametrize(
    ("first", "second", "written"),
    [
        ("2026-11-20 12:00:01 step 9", "", None),
        ("", "E1120 12:00:02.5 1 a.cpp:1] ", "12:00:02.5"),
        ("", "2026-11-20 12:00:02 ", "2026-11-20 12:00:02"),
    ],
)
def test_only_the_time_of_the_line_itself_is_shown(first: str, second: str, written: str | None) -> None:
    explanation = explain_text(f"{first}\n{second}{NO_KERNEL}")
    assert explanation_document(explanation)["matches"][0]["time"] == written
    assert f"Line 2{'' if written is None else f', {written}'}." in sections(explanation)[0].blocks[2].text
