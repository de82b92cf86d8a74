"""The memory that a collector and its parent share.

While a driver call runs, its name stands there in ASCII, padded with zeros to `BREADCRUMB_BYTES`; between calls the
first byte is zero. It outlives the collector, so the parent can tell which call was running when the collector died.
"""

from typing import Final

BREADCRUMB_BYTES: Final = 64
