"""Text from outside is data, whatever it holds."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.core.text import ELLIPSIS, safe_bytes, safe_text

ANY_TEXT = st.text(st.characters(codec=None))


@pytest.mark.parametrize(
    ("hostile", "harmless"),
    [
        ("python train.py", "python train.py"),
        ("a\tb\r\n\n c", "a b  c"),
        ("\x1b]0;pwned\x07", "\ufffd]0;pwned\ufffd"),
        ("\x9b2J", "\ufffd2J"),
        ("gpu\u202efdp.exe", "gpu\ufffdfdp.exe"),
        ("\ud800x", "\ufffdx"),
        ("nul\x00", "nul\ufffd"),
        ("[/] [bold red]", "[/] [bold red]"),
        ("Größe 日本", "Größe 日本"),
        ("", ""),
    ],
)
def test_safe_text(hostile: str, harmless: str) -> None:
    assert safe_text(hostile) == harmless


@given(ANY_TEXT, st.integers(1, 40))
def test_result_is_bounded_and_free_of_controls(text: str, limit: int) -> None:
    result = safe_text(text, limit)
    assert len(result) <= limit
    assert not any(unicodedata.category(character) in {"Cc", "Cs"} for character in result)
    assert not any(unicodedata.bidirectional(character) in {"RLO", "LRO", "RLE", "LRE", "RLI"} for character in result)
    result.encode()


@given(ANY_TEXT)
def test_making_safe_twice_changes_nothing(text: str) -> None:
    assert safe_text(safe_text(text)) == safe_text(text)


def test_a_cut_is_visible() -> None:
    assert safe_text("abcdef", 4) == "abc…"
    assert safe_text("abcd", 4) == "abcd"


@given(st.binary())
def test_safe_bytes_takes_anything(data: bytes) -> None:
    assert len(safe_bytes(data, 20)) <= 20


def test_safe_bytes_does_not_read_what_it_cannot_show() -> None:
    assert safe_bytes(b"x" * (2 << 20), 10) == "x" * 9 + "…"


def test_bytes_of_four_byte_characters_are_cut_with_an_ellipsis() -> None:
    assert safe_bytes("\N{GRINNING FACE}".encode() * 600) == "\N{GRINNING FACE}" * 511 + ELLIPSIS
    assert safe_bytes("\N{GRINNING FACE}".encode() * 512) == "\N{GRINNING FACE}" * 512
