"""The table of keys: each key has one meaning in the entire program, and each meaning a place in the footer.

The last part of a binding's id is its meaning: ``device.zoom-in`` and ``memory.zoom-in`` are both bound to ``z``.
"""

from typing import Final, NamedTuple

from textual.binding import Binding


class Meaning(NamedTuple):
    """What a key does, wherever it does something.

    Attributes:
        name: The last part of the ids of its bindings.
        keys: The keys, as Textual names them.
        rank: Its place in the footer: where room is short, a higher rank is left out first.
        text: What it does, in a few words.
    """

    name: str
    keys: tuple[str, ...]
    rank: int
    text: str


_SCREEN_RANK: Final = 90
_MOVE_RANK: Final = 99

MEANINGS: Final = (
    Meaning("gpus", ("1",), _SCREEN_RANK, "GPUs"),
    Meaning("processes", ("2",), _SCREEN_RANK, "Processes"),
    Meaning("memory", ("3", "m"), _SCREEN_RANK, "Memory of the selected GPU"),
    Meaning("jobs", ("4",), _SCREEN_RANK, "Jobs"),
    Meaning("workloads", ("5",), _SCREEN_RANK, "Workloads"),
    Meaning("alerts", ("6",), _SCREEN_RANK, "Alerts"),
    Meaning("explain", ("7",), _SCREEN_RANK, "Explain an error"),
    Meaning("doctor", ("8",), _SCREEN_RANK, "Doctor"),
    Meaning("fleet", ("9",), _SCREEN_RANK, "Fleet"),
    Meaning("open", ("enter",), 10, "Open; in a form, change a choice or a tick"),
    Meaning("back", ("escape",), 2, "Back, cancel or close"),
    Meaning("previous-gpu", ("left_square_bracket",), 3, "Previous GPU"),
    Meaning("next-gpu", ("right_square_bracket",), 3, "Next GPU"),
    Meaning("earlier", ("left", "shift+left"), 24, "Earlier"),
    Meaning("later", ("right", "shift+right"), 24, "Later"),
    Meaning("zoom-in", ("z",), 23, "Less time in a chart"),
    Meaning("zoom-out", ("x",), 23, "More time in a chart"),
    Meaning("now", ("n",), 25, "Follow the newest values"),
    Meaning("filter", ("slash",), 15, "Filter or find"),
    Meaning("sort", ("s",), 16, "Sort"),
    Meaning("choose", ("c",), 22, "Choose columns or metrics"),
    Meaning("scope", ("g",), 17, "This GPU or all GPUs"),
    Meaning("mark", ("insert", "asterisk"), 19, "Mark a row"),
    Meaning("tree", ("t",), 21, "Tree of processes"),
    Meaning("signal", ("K",), 18, "Send a signal"),
    Meaning("notify-when", ("N",), 28, "Notify me when ..."),
    Meaning("copy", ("y",), 41, "Copy the row or the text"),
    Meaning("save", ("S",), 40, "Save the screen, or the values that it shows"),
    Meaning("empty-cache", ("E",), 18, "Empty the cache of PyTorch"),
    Meaning("pause", ("space",), 30, "Pause or resume"),
    Meaning("faster", ("plus", "equals_sign"), 31, "Faster"),
    Meaning("slower", ("minus",), 31, "Slower"),
    Meaning("rewind", ("comma",), 32, "Ten seconds back in a recording"),
    Meaning("forward", ("full_stop",), 32, "Ten seconds forward in a recording"),
    Meaning("help", ("question_mark", "f1"), 0, "Help"),
    Meaning("quit", ("q",), 4, "Quit"),
    Meaning("quit-now", ("ctrl+c",), _MOVE_RANK, "Quit without a question"),
    Meaning("redraw", ("ctrl+l",), _MOVE_RANK, "Redraw"),
    Meaning("palette", ("ctrl+p",), 20, "All commands"),
    Meaning("suspend", ("ctrl+z",), _MOVE_RANK, "Suspend"),
    Meaning("cost", ("C",), 60, "Cost of gpumon"),
    Meaning("topology", ("L",), 58, "Links: topology of the GPUs"),
    Meaning("demo", ("d",), 59, "Demo"),
    Meaning("theme", ("T",), 61, "Next theme"),
    Meaning("view", ("v",), 19, "Next view of the same data"),
    Meaning("run", ("r",), 12, "Run, check or read again"),
    Meaning("stop", ("X",), 11, "Stop a run"),
    Meaning("why", ("w",), 14, "Why a training run is slow"),
    Meaning("explain-selected", ("e",), 13, "Explain what is selected"),
    Meaning("overlay", ("o",), 26, "GPUs to draw in one chart"),
    Meaning("acknowledge", ("a",), 18, "Acknowledge an alert"),
    Meaning("invert", ("i",), 20, "Invert the stacks"),
    Meaning("axis", ("u",), 27, "Axis of a chart: time or events"),
    Meaning("next-field", ("tab",), _MOVE_RANK, "Next table or field"),
    Meaning("previous-field", ("shift+tab",), _MOVE_RANK, "Previous table or field"),
    Meaning("up", ("up", "k"), _MOVE_RANK, "Up"),
    Meaning("down", ("down", "j"), _MOVE_RANK, "Down"),
    Meaning("page-up", ("pageup",), _MOVE_RANK, "Page up"),
    Meaning("page-down", ("pagedown",), _MOVE_RANK, "Page down"),
    Meaning("top", ("home",), _MOVE_RANK, "First row"),
    Meaning("bottom", ("end",), _MOVE_RANK, "Last row"),
    Meaning("start", ("f5", "ctrl+s"), 1, "Start"),
    Meaning("new", ("ctrl+n",), 12, "New text"),
)
"""Every meaning; those of screens that do not exist yet reserve their keys."""

KEY_MEANINGS: Final = {key: meaning.name for meaning in MEANINGS for key in meaning.keys}
"""The meaning of every key."""
_RANKS: Final = {meaning.name: meaning.rank for meaning in MEANINGS}


def meaning_of(binding_id: str) -> str:
    """The name of the meaning of a binding: the last part of its id."""
    return binding_id.rpartition(".")[2]


def footer_rank(binding: Binding) -> int:
    """The place of a binding in the footer; a binding of Textual comes last."""
    return _RANKS.get("palette" if is_palette(binding) else meaning_of(binding.id or ""), _MOVE_RANK)


def is_palette(binding: Binding) -> bool:
    """Whether a binding is Textual's key of the command palette, which has no id."""
    return binding.action == "command_palette"
