"""A message is recognized however the log has changed it; an ordinary log contains no known error."""

import random
import re
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpumon.errors.entry import KnownError
from gpumon.errors.explain import explain_text
from gpumon.errors.load import ERRORS
from tests.errors.broken import CHANGES, Change, embedded, interleaved
from tests.errors.corpus import logs
from tests.errors.each_error import found_in, some_errors
from tests.errors.texts import WORDINGS, samples_of

ordinary = cache(logs)

wordings = st.sampled_from(WORDINGS)
changes = st.sets(st.sampled_from(CHANGES), min_size=1).map(lambda chosen: sorted(chosen, key=CHANGES.index))
rankless = wordings.filter(lambda wording: "ank" not in wording[1])
"""A text that names a rank can be printed by that rank only."""
chances = st.integers(0, 1 << 32).map(random.Random)


def test_the_number_of_ordinary_logs() -> None:
    assert len(set(ordinary().values())) >= 200


def known_errors(text: str) -> set[str]:
    """The errors in a text that are errors anywhere in a log."""
    return {
        error_id for error_id in found_in(text) if not any(wording.is_last for wording in ERRORS[error_id].wordings)
    }


def test_an_ordinary_log_has_no_known_error() -> None:
    assert {name: wrong for name, text in ordinary().items() if (wrong := known_errors(text))} == {}
    assert all(explain_text(text).cause is None for text in ordinary().values())


def test_concatenated_ordinary_logs_have_no_known_error() -> None:
    assert known_errors("\n".join(ordinary().values())) == set()


@some_errors
def test_every_wording_is_its_own_error_only(error: KnownError) -> None:
    texts = samples_of(error.id)
    log = "step 7 of 9\n{}\nstep 8 of 9"
    assert {text: found_in(log.format(text)) for text in texts} == {text: {error.id} for text in texts}


@settings(max_examples=100)
@given(wording=wordings, chosen=changes, chance=chances)
def test_a_changed_message_is_recognized(wording: tuple[str, str], chosen: list[Change], chance: random.Random) -> None:
    error_id, text = wording
    for change in chosen:
        text = change(text, chance)
    log = embedded(text, chance, 40)
    assert error_id in found_in(log)


@pytest.mark.parametrize(
    ("error_id", "lines"),
    [
        ("cublas-exec", "RuntimeError: CUBLAS_STATUS_INTERNAL_\nERROR when calling `cublasCreate(handle)`"),
        ("xid-13", "kernel: [  966.503025] NVRM: Xid (00\n00:01:00): 13, 0005 00000000\n 0000502d"),
        ("lib-missing", "ImportError: libcudart.so.1\n2: cannot open shared objec\nt file: No such file or dir"),
    ],
)
def test_the_rest_of_a_broken_line_may_look_like_a_prefix(error_id: str, lines: str) -> None:
    assert found_in(lines) == {error_id}


def test_a_broken_message_may_have_to_end_a_line() -> None:
    lines = "step 2\nAssertionError: 151936 is not divisible b\ny 3\n  16%|##    | 16/10000 [00:16<12:30, 3.2it/s]"
    assert found_in(lines) == {"tensor-parallel-size"}


@given(wording=wordings, chance=chances)
def test_a_message_may_be_cut_off_after_its_pattern(wording: tuple[str, str], chance: random.Random) -> None:
    error_id, text = wording
    shortest = next(size for size in range(len(text) + 1) if found_in(text[:size]) == {error_id})
    ends = [word.end() for word in re.finditer(r"\S+", text) if word.end() >= shortest]
    assert error_id in found_in(text[: chance.choice(ends)])


@settings(max_examples=50)
@given(several=st.lists(rankless, min_size=2, max_size=8), chance=chances)
def test_interleaved_ranks_are_separated(several: list[tuple[str, str]], chance: random.Random) -> None:
    wrapped = [f"{CHANGES[0](text, chance)}\nstep is done" for _, text in several]
    assert found_in(interleaved(wrapped, chance)) >= {error_id for error_id, _ in several}


@pytest.mark.long
@given(text=st.text(max_size=400))
def test_any_text_can_be_read(text: str) -> None:
    explain_text(text)


@given(data=st.binary(max_size=400))
def test_any_bytes_can_be_read(data: bytes) -> None:
    explain_text(data.decode("latin-1"))
