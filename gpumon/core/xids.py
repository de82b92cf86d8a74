"""Meanings of Xid numbers, the error codes that the NVIDIA driver logs for a GPU."""

from typing import Final

from gpumon.core.text_table import table

XID_MEANINGS: Final = {
    int(number): meaning for number, _, meaning in (row.partition(" ") for row in table("gpumon.core", "xids"))
}
"""Short descriptions, based on NVIDIA's Xid catalog."""


def xid_text(number: int) -> str:
    """An Xid with its meaning, such as ``Xid 79: GPU has fallen off the bus``."""
    meaning = XID_MEANINGS.get(number)
    return f"Xid {number}: {meaning}" if meaning else f"Xid {number}"
