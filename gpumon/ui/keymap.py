"""The user's keys: a mapping of ids of bindings to keys is checked before it is applied."""

from collections import defaultdict
from collections.abc import Mapping
from difflib import get_close_matches
from typing import NamedTuple

from textual.keys import _character_to_key  # Textual has no public name for it

from gpumon.ui.bindings import all_bindings
from gpumon.ui.key_table import meaning_of


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
