"""How the user arranged the tables, remembered in a file of the user's state folder.

The user's ``config.toml`` is never written: its table ``[columns]`` names the columns that a table starts with. What
the user chose in gpumon holds until that entry changes.
"""

import io
import json
import os
import re
import stat
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeGuard

from gpumon.core.json_text import json_bytes
from gpumon.core.ownership import ownership_problem
from gpumon.core.problems import Problem
from gpumon.core.state_file import lock_file, save_state, state_file
from gpumon.session.background import RunInBackground

SCHEMA: Final = 1
MAX_BYTES: Final = 64 << 10
_LOCK_SECONDS: Final = 3.0
_MAX_TABLES: Final = 100
_MAX_COLUMNS: Final = 100
_ID: Final = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*", re.ASCII)
_MAX_ID: Final = 40


class TableState(NamedTuple):
    """How one table is arranged.

    Attributes:
        sort_column: Id of the column by which the rows are sorted; empty for their natural order.
        is_descending: Whether the largest values come first.
        columns: Ids of the columns that the user chose; empty for the default columns.
        filter_text: The filter; it is not remembered.
    """

    sort_column: str = ""
    is_descending: bool = False
    columns: tuple[str, ...] = ()
    filter_text: str = ""


class KeptTable(NamedTuple):
    """What is remembered of a table: its state, and the columns that the configuration named at that time."""

    state: TableState
    configured: tuple[str, ...] = ()


class TableMemory:
    """The states of all tables. The file is read and written in threads: it may be on a network file system.

    Args:
        in_background: Runs what may take seconds.
        configured: The columns that the configuration names, by table.
    """

    def __init__(self, in_background: RunInBackground, configured: Mapping[str, Sequence[str]]) -> None:
        self._in_background = in_background
        self._configured = {table: tuple(columns) for table, columns in configured.items()}
        self._kept: dict[str, KeptTable] = {}
        self._waiting: list[tuple[str, Callable[[TableState], None]]] | None = None
        self._is_loaded = False
        self._unsaved: dict[str, KeptTable] = {}
        self._is_saving = False
        self._has_failed = False
        self._report: Callable[[Problem], object] | None = None

    def restore(self, table: str, then: Callable[[TableState], None]) -> None:
        """Call a function with the state of a table once the file was read, at once if it was."""
        if self._is_loaded:
            then(self.state(table))
        elif self._waiting is not None:
            self._waiting.append((table, then))
        else:
            self._waiting = [(table, then)]
            self._in_background(load_tables, self._finish_loading)

    def state(self, table: str) -> TableState:
        """The state of a table, without a filter."""
        configured = self._configured.get(table, ())
        kept = self._kept.get(table, KeptTable(TableState(columns=configured), configured))
        return kept.state if kept.configured == configured else kept.state._replace(columns=configured)

    def keep(self, table: str, state: TableState, report: Callable[[Problem], object]) -> None:
        """Remember a state, now and in the file.

        Args:
            table: Id of the table.
            state: Its state.
            report: Called with the reason if the file cannot be written, but not again while that lasts.
        """
        kept = KeptTable(state._replace(filter_text=""), self._configured.get(table, ()))
        if kept.state == self.state(table):
            return
        self._kept[table] = self._unsaved[table] = kept
        self._report = report
        self._save()

    def _finish_loading(self, tables: Mapping[str, KeptTable]) -> None:
        self._kept = {**tables, **self._kept}
        self._is_loaded = True
        for table, then in self._waiting or ():
            then(self.state(table))
        self._waiting = None

    def _save(self) -> None:
        """Save what has changed; changes during that time are saved together after it."""
        if self._unsaved and not self._is_saving:
            self._is_saving = True
            unsaved, self._unsaved = self._unsaved, {}
            self._in_background(partial(save_tables, unsaved), self._finish_saving)

    def _finish_saving(self, problem: Problem | None) -> None:
        if problem is not None and not self._has_failed and self._report is not None:
            self._report(problem)
        self._has_failed = problem is not None
        self._is_saving = False
        self._save()


def tables_file() -> Path:
    """Path of the file.

    Raises:
        RuntimeError: The user has no home folder.
    """
    return state_file("tables.json").absolute()


def load_tables() -> dict[str, KeptTable]:
    """Read the file; what is not valid in it is left out."""
    with suppress(OSError, RuntimeError, ValueError, RecursionError):
        path = tables_file()
        if ownership_problem(path) is None:
            return _parsed(json.loads(_read(path)))
    return {}


def save_tables(tables: Mapping[str, KeptTable]) -> Problem | None:
    """Replace these tables in the file; returns why that is not possible."""
    return save_state(tables_file, partial(_add_tables, tables), "The tables are not remembered")


def _add_tables(tables: Mapping[str, KeptTable], path: Path) -> None:
    from gpumon.core.new_files import replace_file  # late: the first values must not wait for it

    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        lock_file(folder, _LOCK_SECONDS)  # another gpumon may add its tables between the next two lines
        content = {table: _document(kept) for table, kept in {**load_tables(), **tables}.items()}
        replace_file(path, json_bytes({"schema": SCHEMA, "tables": content}))
    finally:
        os.close(folder)


def _document(kept: KeptTable) -> dict[str, Any]:
    return {
        "sort": kept.state.sort_column,
        "descending": kept.state.is_descending,
        "columns": kept.state.columns,
        "configured": kept.configured,
    }


def _read(path: Path) -> bytes:
    """The content of the file, which is never waited for.

    Raises:
        OSError: It cannot be read, or is not a regular file.
        ValueError: It is too large.
    """
    with io.FileIO(path, opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError("not a regular file")
        content = file.read(MAX_BYTES + 1) or b""
    if len(content) > MAX_BYTES:
        raise ValueError("too large")
    return content


def _parsed(document: Any) -> dict[str, KeptTable]:  # noqa: ANN401 - any JSON
    """The valid tables of the document."""
    tables = document.get("tables") if isinstance(document, dict) and document.get("schema") == SCHEMA else None
    items = list(tables.items())[:_MAX_TABLES] if isinstance(tables, dict) else []
    return {table: _kept_table(raw) for table, raw in items if _is_id(table) and isinstance(raw, dict)}


def _kept_table(raw: Mapping[str, Any]) -> KeptTable:
    sort = next(iter(_ids([raw.get("sort")])), "")
    state = TableState(sort, raw.get("descending") is True, _ids(raw.get("columns")))
    return KeptTable(state, _ids(raw.get("configured")))


def _ids(raw: object) -> tuple[str, ...]:
    return tuple(filter(_is_id, raw[:_MAX_COLUMNS])) if isinstance(raw, list) else ()


def _is_id(raw: object) -> TypeGuard[str]:
    return isinstance(raw, str) and len(raw) <= _MAX_ID and _ID.fullmatch(raw) is not None
