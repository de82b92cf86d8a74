"""Keys: the table of their meanings, the bindings of all screens, and the keys that the user chooses.

Each key has one meaning in the entire program, and each meaning a place in the footer. The last part of a binding's id
is its meaning: ``time.zoom-in`` and ``trace.zoom-in`` are both bound to ``z``.
"""

import importlib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from textual.binding import Binding
from textual.dom import DOMNode
from textual.keys import _character_to_key, format_key  # Textual has no public name for the first one

from gpumon.present.top_line import TABS


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
_MOVING_KEYS: Final = frozenset({"up", "down", "k", "j", "pageup", "pagedown", "home", "end", "tab", "shift+tab"})
_KEY_NAMES: Final = {"enter": "enter", "escape": "escape", "tab": "tab", "space": "space"}
"""Written as words here, with symbols by Textual."""

TAB_BINDINGS: Final = tuple(
    Binding(
        ",".join(key for key, meaning in KEY_MEANINGS.items() if meaning == tab.name.lower()),
        f"open_screen('{tab.name.lower()}')",
        tab.name,
        id=tab.name.lower(),
        show=False,
        tooltip=tab.help,
    )
    for tab in TABS
)
"""The screens with a digit; the top line shows them, not the footer."""


def meaning_of(binding_id: str) -> str:
    """The name of the meaning of a binding: the last part of its id."""
    return binding_id.rpartition(".")[2]


def footer_rank(binding: Binding) -> int:
    """The place of a binding in the footer; a binding of Textual comes last."""
    return _RANKS.get("palette" if is_palette(binding) else meaning_of(binding.id or ""), _MOVE_RANK)


def is_palette(binding: Binding) -> bool:
    """Whether a binding is Textual's key of the command palette, which has no id."""
    return binding.action == "command_palette"


def palette_title(binding: Binding) -> str:
    """The name of a binding in the palette: its meaning in words; empty for keys that only move a cursor."""
    if binding.key in _MOVING_KEYS:
        return ""
    words = meaning_of(binding.id or "").replace("-", " ").replace("gpu", "GPU")
    return words[:1].upper() + words[1:]


def key_text(key: str) -> str:
    """A key as a user knows it, such as ``ctrl+p`` or ``?``."""
    *modifiers, name = key.split("+")
    return "+".join([*modifiers, _KEY_NAMES.get(name) or format_key(name)])


class OwnedBinding(NamedTuple):
    """A binding and the class that defines it."""

    owner: type[DOMNode]
    binding: Binding


def all_bindings() -> Iterator[OwnedBinding]:
    """Every binding that a class of gpumon defines, found by importing every module of the package."""
    import pkgutil  # only the tests and the user's keys need it

    package = importlib.import_module("gpumon.ui")
    for module_info in pkgutil.walk_packages(package.__path__, "gpumon.ui."):
        module = importlib.import_module(module_info.name)
        for owner in vars(module).values():
            if isinstance(owner, type) and issubclass(owner, DOMNode) and owner.__module__ == module.__name__:
                for binding in vars(owner).get("BINDINGS", ()):
                    assert isinstance(binding, Binding), f"{owner.__name__} has a binding without id and tooltip"
                    yield OwnedBinding(owner, binding)


# The keys that the user chooses


class CheckedKeymap(NamedTuple):
    """What of a keymap can be applied.

    Attributes:
        keys: The accepted keys by the id of the binding, separated by commas.
        problems: Why the other entries are not applied, one sentence for each.
    """

    keys: dict[str, str]
    problems: list[str]


def check_keymap(keymap: Mapping[str, str]) -> CheckedKeymap:
    """Accept the entries that keep one meaning per key.

    Args:
        keymap: Keys, separated by commas, by the id of a binding, or by a meaning for all bindings that have it.
    """
    from difflib import get_close_matches  # few sessions need it

    defaults = {binding.id: binding.key.split(",") for _, binding in all_bindings() if binding.id}
    wanted: dict[str, list[str]] = {}
    problems = []
    for name, text in keymap.items():
        ids = [item for item in defaults if name in (item, meaning_of(item))]
        keys = [_normalized(key.strip()) for key in text.split(",") if key.strip()]
        if not ids:
            similar = get_close_matches(name, {*defaults, *map(meaning_of, defaults)}, n=1, cutoff=0.7)
            problems.append(f"There is no key binding {name!r}{f'; did you mean {similar[0]}?' if similar else '.'}")
        elif not keys:
            problems.append(f"The key binding {name!r} has no key.")
        else:
            wanted.update(dict.fromkeys(ids, keys))
    while clash := _clash(defaults, wanted):
        key, first, second = clash
        refused = {item for item, keys in wanted.items() if key in keys}
        wanted = {item: keys for item, keys in wanted.items() if item not in refused}
        names = ", ".join(sorted(refused))
        problems.append(f"{key!r} would mean both {first} and {second}; the keys of {names} stay as they were.")
    return CheckedKeymap({item: ",".join(keys) for item, keys in wanted.items()}, problems)


def default_keys() -> dict[str, str]:
    """The default keys, separated by commas, by meaning."""
    keys: dict[str, dict[str, None]] = defaultdict(dict)
    for _, binding in all_bindings():
        if binding.id:
            keys[meaning_of(binding.id)].update(dict.fromkeys(binding.key.split(",")))
    return {meaning: ",".join(names) for meaning, names in keys.items()}


def _clash(defaults: Mapping[str, list[str]], wanted: Mapping[str, list[str]]) -> tuple[str, str, str] | None:
    """A key with two meanings, and those, or None."""
    meanings: dict[str, set[str]] = defaultdict(set)
    for item, keys in {**defaults, **wanted}.items():
        for key in keys:
            meanings[key].add(meaning_of(item))
    for key, names in meanings.items():
        if len(names) > 1:
            first, second, *_ = sorted(names)
            return key, first, second
    return None


def _normalized(key: str) -> str:
    """A key as Textual names it: ``?`` is ``question_mark``."""
    return _character_to_key(key) if len(key) == 1 else key
