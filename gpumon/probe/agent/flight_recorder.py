"""Reads PyTorch's flight recorder: the latest collectives of every process group of this process.

PyTorch keeps one recorder for NCCL and one for the other backends, both since 2.8; before, only that of NCCL. The
recorder of the other backends notes when a collective has ended by retiring it, and neither its ranks nor its state.
"""

from __future__ import annotations

import json
import re
import sys
from functools import lru_cache

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

_FUNCTIONS = ("_dump_nccl_trace_json", "_dump_fr_trace_json")
_KEPT_PER_GROUP = 16
"""Completed collectives of each group that are reported."""
_MAX_PENDING = 256
"""Collectives of each group that have not completed, the oldest first."""
_MAX_SIZES = 16
_MAX_RANKS = 65536
_NANOSECONDS = 1e9


def recording(is_brief: bool = False) -> dict[str, Any]:
    """The fields of the answer to ``flight_recorder``.

    Args:
        is_brief: Whether to report only how many collectives the groups have entered and completed; this reads no CUDA
            event, and takes less than 0.1 ms.
    """
    return recording_of(list(_dumps(is_brief)), _known_groups())


def recording_of(dumps: list[dict[str, Any]], known: dict[str, dict[str, Any]] | None = None) -> dict[str, Any]:
    """The same fields, from the dumps of a process.

    Args:
        dumps: What the recorders contain, in the format of PyTorch 2.4 and later.
        known: The process groups of the process, with their ranks and backends, if they can be asked.
    """
    known = known or {}
    groups: dict[str, dict[str, Any]] = {}
    collectives: list[dict[str, Any]] = []
    for dump in dumps:
        entries = dump.get("entries") or []
        names = _add_groups(groups, dump, entries, known)
        collectives += _reduced([_collective(entry, names) for entry in entries])
    for name, facts in known.items():
        groups.setdefault(name, {"name": name, **facts, "last_enqueued": None, "last_completed": None})
    is_recording = any(dump.get("entries") or dump.get("pg_status") for dump in dumps)
    return {"is_recording": is_recording, "groups": list(groups.values()), "collectives": collectives}


def _dumps(is_brief: bool) -> Iterable[dict[str, Any]]:
    """What the recorders of this PyTorch contain."""
    library = sys.modules.get("torch._C._distributed_c10d")
    for name in _FUNCTIONS:
        function = getattr(library, name, None)
        if function is not None:
            text = function(False, False) if is_brief else function()
            document = json.loads(text)
            if isinstance(document, dict):
                yield document


def _add_groups(
    groups: dict[str, dict[str, Any]], dump: dict[str, Any], entries: list[Any], known: dict[str, dict[str, Any]]
) -> dict[str, str]:
    """Add the groups of a dump.

    Returns:
        The names of the groups by ``pg_id``, which numbers them in this process.
    """
    names = {str(entry["pg_id"]): _name(*entry["process_group"]) for entry in entries}
    status = dump.get("pg_status") or {}
    config = {key: value for key, value in (dump.get("pg_config") or {}).items() if key}
    ranks = {_name(item.get("name", key), item.get("desc", "")): item.get("ranks") for key, item in config.items()}
    by_number = {name.partition(" ")[0]: name for name in (*ranks, *known)}
    for key in status:
        names.setdefault(key, by_number.get(key, key))
    for key, name in names.items():
        entered = [e["collective_seq_id"] for e in entries if str(e["pg_id"]) == key and not e.get("is_p2p")]
        item = status.get(key) or {}
        facts = known.get(name, {})
        groups[name] = {
            "name": name,
            "ranks": facts.get("ranks") or _numbers(ranks.get(name)),
            "backend": facts.get("backend", ""),
            "last_enqueued": _number(item.get("last_enqueued_collective", max(entered, default=""))),
            "last_completed": _number(item.get("last_completed_collective")),
        }
    return names


def _collective(entry: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    backend, _, name = entry["profiling_name"].rpartition(":")
    completed = entry.get("time_discovered_completed_ns") or 0
    state = entry["state"]
    if backend != "nccl" and entry.get("retired"):
        state = "completed"
    is_point_to_point = bool(entry.get("is_p2p"))
    return {
        "group": names[str(entry["pg_id"])],
        "sequence": entry["p2p_seq_id" if is_point_to_point else "collective_seq_id"],
        "operation": entry.get("op_id"),
        "name": name,
        "state": state,
        "input_sizes": entry.get("input_sizes", [])[:_MAX_SIZES],
        "output_sizes": entry.get("output_sizes", [])[:_MAX_SIZES],
        "dtypes": entry.get("input_dtypes", [])[:_MAX_SIZES],
        "created_seconds": entry["time_created_ns"] / _NANOSECONDS,
        "finished_seconds": completed / _NANOSECONDS or None,
        "is_point_to_point": is_point_to_point,
        "frames": [],
    }


def _reduced(collectives: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those that have not completed and the latest ones of each group, in order."""
    pending: dict[str, int] = {}
    kept: set[int] = set()
    for collective in collectives:
        count = pending.get(collective["group"], 0)
        if collective["state"] != "completed" and count < _MAX_PENDING:
            pending[collective["group"]] = count + 1
            kept.add(id(collective))
    latest: dict[str, int] = {}
    for collective in reversed(collectives):
        count = latest.get(collective["group"], 0)
        if count < _KEPT_PER_GROUP:
            latest[collective["group"]] = count + 1
            kept.add(id(collective))
    return [collective for collective in collectives if id(collective) in kept]


def _known_groups() -> dict[str, dict[str, Any]]:
    """The process groups that `torch.distributed` has, with their ranks and backends."""
    module = sys.modules.get("torch.distributed.distributed_c10d")
    facts = vars(module) if module is not None else {}
    names = dict(facts.get("_pg_names") or {})
    ranks = facts.get("_pg_group_ranks") or {}
    groups = {}
    for group, (backend, _) in dict(facts.get("_pg_map") or {}).items():
        name = _name(names.get(group, ""), getattr(group, "group_desc", ""))
        members = sorted(ranks.get(group, ()))[:_MAX_RANKS]
        groups[name] = {"ranks": members, "backend": str(backend)}
    return groups


def _name(number: object, description: object) -> str:
    text = str(description)
    return str(number) if text in ("", "undefined") else f"{number} ({text})"


def _number(text: object) -> int | None:
    number = int(str(text)) if re.fullmatch(r"-?\d+", str(text)) else -1
    return number if number >= 0 else None


@lru_cache(maxsize=64)
def _numbers(text: object) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", str(text or ""))][:_MAX_RANKS]
