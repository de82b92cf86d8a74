"""How records look in a notebook: a table of values that they name; a missing one has its reason as a tooltip."""

from collections.abc import Sequence
from typing import ClassVar


class NotebookTable:
    """A record that a notebook shows as a table.

    Attributes:
        shown: What is shown: fields, properties, and metrics of a device.
    """

    __slots__ = ()
    shown: ClassVar[tuple[str, ...]] = ()

    def table_rows(self) -> "Sequence[NotebookTable]":
        """The records of the rows."""
        return (self,)

    def table_title(self) -> str:
        """A sentence above the table; may be empty."""
        return ""

    def _repr_html_(self) -> str:
        """The table; all text in it is escaped."""
        from html import escape  # late: only a notebook asks for it

        title = f"<p>{escape(self.table_title())}</p>" if self.table_title() else ""
        rows = self.table_rows()
        if not rows:
            return title
        head = "".join(f"<th>{escape(name.replace('_', ' '))}</th>" for name in rows[0].shown)
        body = "".join(f"<tr>{''.join(map(row.table_cell, row.shown))}</tr>" for row in rows)
        return f"{title}<table><tr>{head}</tr>{body}</table>"

    def table_cell(self, name: str) -> str:
        """The cell of one of the values that are shown."""
        from html import escape

        from gpumon.core.metrics import METRICS
        from gpumon.core.units import MISSING, bytes_text, value_text

        value = getattr(self, "readings", {}).get(name) if name in METRICS else getattr(self, name)
        if value is None:
            reason = getattr(self, "problems", {}).get(name, "")
            return f'<td title="{escape(str(reason))}">{MISSING}</td>'
        if name in METRICS:
            text = value_text(value, METRICS[name].unit)
        elif name.endswith("_bytes"):
            text = bytes_text(value)
        elif isinstance(value, float):
            text = f"{value:.3g}"
        else:
            text = str(getattr(value, "value", value))  # of an enum
        return f'<td style="text-align: left; white-space: pre-wrap">{escape(text)}</td>'
