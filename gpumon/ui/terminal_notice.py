"""Escape sequences that make a terminal notify its user."""

from collections.abc import Mapping
from typing import Final

from gpumon.core.text import safe_text

_BELL: Final = "\a"
_ESCAPE: Final = "\x1b"


def notice_sequence(text: str, *, bell: bool, terminal: str, environment: Mapping[str, str]) -> str:
    """What to write to the terminal for a notification.

    Args:
        text: One sentence.
        bell: Whether to ring the bell.
        terminal: ``osc9`` (iTerm2, kitty, WezTerm, Windows Terminal), ``osc777`` (rxvt, foot, Ghostty), or empty.
        environment: Variables of the environment: tmux passes on only what is wrapped.
    """
    safe = safe_text(text)
    sequence = ""
    if terminal == "osc9":
        sequence = f"{_ESCAPE}]9;gpumon: {safe}{_BELL}"
    elif terminal == "osc777":
        sequence = f"{_ESCAPE}]777;notify;gpumon;{safe.replace(';', ',')}{_BELL}"
    if sequence and environment.get("TMUX"):
        sequence = f"{_ESCAPE}Ptmux;{sequence.replace(_ESCAPE, _ESCAPE * 2)}{_ESCAPE}\\"
    return f"{sequence}{_BELL if bell else ''}"
