"""The memory that a collector and its parent share.

While a driver call runs, its name stands there in ASCII, padded with zeros to `CRUMB_BYTES`; between calls the first
byte is zero. It outlives the collector, so the parent can tell which call was running when the collector died. Calls
that wait for events run beside all others, so they have a place of their own, behind that of the others.
"""

from typing import Final

CRUMB_BYTES: Final = 64
BREADCRUMB_BYTES: Final = 2 * CRUMB_BYTES
