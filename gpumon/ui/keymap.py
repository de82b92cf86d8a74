"""Keys: the table of their meanings, the bindings of all screens, and the keys that the user chooses.

Each key has one meaning in the entire program, and each meaning a place in the footer. The last part of a binding's id
is its meaning: ``time.zoom-in`` and ``trace.zoom-in`` are both bound to ``z``.
"""

import importlib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from textual.binding import Binding, BindingType
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
        where: What the user must do first, or where the key has an effect, for a screen on which it has none.
    """

    name: str
    keys: tuple[str, ...]
    rank: int
    text: str
    where: str = ""


_MOVE_RANK: Final = 99


def _meanings() -> Iterator[Meaning]:
    """The rows of ``keys.txt``."""
    for row in Path(__file__).with_name("keys.txt").read_text("utf-8").splitlines()[1:]:
        name, keys, rank, text, *where = (cell.strip() for cell in row.split(" | "))
        yield Meaning(name, tuple(keys.split()), int(rank), text, *where)


MEANINGS: Final = tuple(_meanings())
"""Every meaning; those of screens that do not exist yet reserve their keys."""

KEY_MEANINGS: Final = {key: meaning.name for meaning in MEANINGS for key in meaning.keys}
"""The meaning of every key."""
_WHERE: Final = {meaning.name: meaning.where for meaning in MEANINGS}
_RANKS: Final = {meaning.name: meaning.rank for meaning in MEANINGS}
_MOVING_KEYS: Final = frozenset({"up", "down", "k", "j", "pageup", "pagedown", "home", "end", "tab", "shift+tab"})
_KEY_NAMES: Final = {"enter": "enter", "escape": "esc", "tab": "tab", "space": "space"}
"""Written as words here, with symbols by Textual."""

Bindings = list[BindingType]
"""What a class of Textual has as ``BINDINGS``."""


def meaning_of(binding_id: str) -> str:
    """The name of the meaning of a binding: the last part of its id."""
    return binding_id.rpartition(".")[2]


def key(
    name: str,
    label: str,
    tooltip: str,
    action: str = "",
    *,
    keys: str = "",
    show: bool = True,
    display: str | None = None,
    priority: bool = False,
) -> Binding:
    """A binding of the keys of a meaning.

    Args:
        name: The id, whose last part is the meaning.
        label: What the footer says.
        tooltip: What the help says.
        action: What it does; by default what the meaning is called.
        keys: Those keys of the meaning that are bound, if not all.
        show: Whether the footer shows it.
        display: The keys as the footer shows them.
        priority: Whether it precedes the keys of the widget that has the focus.
    """
    meaning = meaning_of(name)
    keys = keys or ",".join(bound for bound, its_meaning in KEY_MEANINGS.items() if its_meaning == meaning)
    action = action or meaning.replace("-", "_")
    return Binding(keys, action, label, show, display, priority, tooltip, name)


TAB_BINDINGS: Final = tuple(
    key(tab.name.lower(), tab.name, tab.help, f"open_screen('{tab.name.lower()}')", show=False) for tab in TABS
)
"""The screens with a digit; the top line shows them, not the footer."""


def without_effect(key: str) -> str:
    """What a key without an effect on a screen says; empty for keys that only move a cursor."""
    if key in _MOVING_KEYS or key.startswith("ctrl+"):
        return ""
    meaning = KEY_MEANINGS.get(key)
    where = "no such key; ? shows all" if meaning is None else _WHERE[meaning] or "no effect here"
    return f"{key_text(key)}: {where}"


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
