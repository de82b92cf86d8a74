"""The words of language that gpumon does not use."""

from tests.hygiene.language import CHECKED, ROOT, hits, hits_in_text


def test_no_banned_word() -> None:
    """Strings, docstrings, comments, names and documents use the standard terms."""
    assert [str(hit) for hit in hits([ROOT / name for name in CHECKED])] == []


def test_the_guard_sees_a_banned_word_and_lets_a_true_use_pass() -> None:
    """The guard can fail."""
    assert [(offset, word) for offset, word, _ in hits_in_text("The driver\ntells somebody, of course.")] == [
        (1, "tells"),
        (1, "somebody"),
    ]
