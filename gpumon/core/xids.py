"""Meanings of Xid numbers, the error codes that the NVIDIA driver logs for a GPU."""

from typing import Final

XID_MEANINGS: Final = {
    13: "graphics engine exception",
    31: "GPU memory page fault",
    32: "invalid or corrupted push buffer stream",
    38: "driver firmware error",
    43: "GPU stopped processing",
    45: "channel removed, for example when its process exits",
    48: "double-bit ECC error",
    61: "internal micro-controller breakpoint",
    62: "internal micro-controller halt",
    63: "row remapping or page retirement recorded",
    64: "row remapping or page retirement failed",
    74: "NVLink error",
    79: "GPU has fallen off the bus",
    92: "high rate of single-bit ECC errors",
    94: "contained memory error",
    95: "uncontained memory error",
    109: "context switch timeout",
    119: "GSP RPC timeout",
    120: "GSP firmware error",
    121: "corrected C2C link error",
    137: "NVLink address error",
    140: "unrecovered ECC error",
    143: "GPU initialization error",
    149: "NVLink error",
    154: "GPU recovery action changed",
    158: "fatal timeout",
    171: "DRAM error",
    172: "SRAM error",
}
"""Short descriptions, based on NVIDIA's Xid catalog."""


def xid_text(number: int) -> str:
    """An Xid with its meaning, such as ``Xid 79: GPU has fallen off the bus``."""
    meaning = XID_MEANINGS.get(number)
    return f"Xid {number}: {meaning}" if meaning else f"Xid {number}"
