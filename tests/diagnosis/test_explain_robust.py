"""A message is recognised whatever happened to it on its way into the log; an ordinary log never is."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpumon.diagnosis.explain import explain_text
from tests.diagnosis.broken import CHANGES, Change, embedded, interleaved
from tests.diagnosis.corpus import logs
from tests.diagnosis.texts import WORDINGS

ORDINARY = logs()

wordings = st.sampled_from(WORDINGS)
changes = st.sets(st.sampled_from(CHANGES), min_size=1).map(lambda chosen: sorted(chosen, key=CHANGES.index))
rankless = wordings.filter(lambda wording: "ank" not in wording[1])
"""What names a rank by itself is written by that rank alone."""
chances = st.integers(0, 1 << 32).map(random.Random)


def ids(text: str) -> set[str]:
    return {match.error.id for match in explain_text(text).matches}


def cause(text: str) -> str | None:
    """The error that the text is told to be; further lines of a wrapped message may be known by themselves."""
    found = explain_text(text).cause
    return None if found is None else found.error.id


def test_there_are_enough_ordinary_logs() -> None:
    assert len(set(ORDINARY.values())) >= 200


@pytest.mark.parametrize("name", ORDINARY)
def test_an_ordinary_log_is_not_recognised(name: str) -> None:
    assert ids(ORDINARY[name]) == set()


def test_ordinary_logs_one_after_the_other_are_not_recognised() -> None:
    assert ids("\n".join(ORDINARY.values())) == set()


@pytest.mark.parametrize(("error_id", "text"), WORDINGS)
def test_every_wording_is_its_error_alone(error_id: str, text: str) -> None:
    assert ids(text) == {error_id}


@settings(max_examples=300, deadline=None)
@given(wording=wordings, chosen=changes, chance=chances)
def test_what_happens_to_a_message_does_not_change_what_it_is(
    wording: tuple[str, str], chosen: list[Change], chance: random.Random
) -> None:
    error_id, text = wording
    for change in chosen:
        text = change(text, chance)
    assert cause(embedded(text, chance, 40)) == error_id


@pytest.mark.parametrize(
    ("error_id", "lines"),
    [
        ("cublas-exec", "RuntimeError: CUBLAS_STATUS_INTERNAL_\nERROR when calling `cublasCreate(handle)`"),
        ("xid-13", "kernel: [  966.503025] NVRM: Xid (00\n00:01:00): 13, 0005 00000000\n 0000502d"),
        ("lib-missing", "ImportError: libcudart.so.1\n2: cannot open shared objec\nt file: No such file or dir"),
    ],
)
def test_a_broken_line_may_go_on_like_a_prefix(error_id: str, lines: str) -> None:
    assert ids(lines) == {error_id}


@settings(max_examples=25, deadline=None)
@given(wording=wordings, chosen=changes, chance=chances)
def test_a_message_is_found_in_ten_thousand_lines(
    wording: tuple[str, str], chosen: list[Change], chance: random.Random
) -> None:
    error_id, text = wording
    for change in chosen:
        text = change(text, chance)
    assert cause(embedded(text, chance, 10_000)) == error_id


@settings(max_examples=100, deadline=None)
@given(wording=wordings, chance=chances)
def test_a_message_may_be_cut_off_behind_what_makes_it_known(wording: tuple[str, str], chance: random.Random) -> None:
    error_id, text = wording
    shortest = next(size for size in range(len(text) + 1) if ids(text[:size]) == {error_id})
    assert ids(text[: chance.randint(shortest, len(text))]) == {error_id}


@settings(max_examples=50, deadline=None)
@given(several=st.lists(rankless, min_size=2, max_size=8), chance=chances)
def test_ranks_that_write_at_once_are_told_apart(several: list[tuple[str, str]], chance: random.Random) -> None:
    wrapped = [f"{CHANGES[0](text, chance)}\nstep is done" for _, text in several]
    assert ids(interleaved(wrapped, chance)) >= {error_id for error_id, _ in several}


@settings(max_examples=100, deadline=None)
@given(text=st.text(max_size=400))
def test_any_text_can_be_read(text: str) -> None:
    explain_text(text)


@settings(max_examples=100, deadline=None)
@given(data=st.binary(max_size=400))
def test_any_bytes_can_be_read(data: bytes) -> None:
    explain_text(data.decode("latin-1"))
