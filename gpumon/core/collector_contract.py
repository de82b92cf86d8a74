"""The contract between a collector and its parent: shared memory that names the running driver call, and an exit code.

While a driver call runs, its name is in the shared memory (the breadcrumb) in ASCII, padded with zeros to
`CRUMB_BYTES`; between calls the first byte is zero. The breadcrumb outlives the collector, so the parent can see which
call was running when the collector died. Calls that wait for events run concurrently with all other calls, so their
names have a separate slot after the first one.
"""

from typing import Final

CRUMB_BYTES: Final = 64
"""Size of one slot."""
BREADCRUMB_BYTES: Final = 2 * CRUMB_BYTES

COLLECTOR_OUTDATED: Final = 75
"""Exit code of a collector after the driver was replaced: only a new process can load the matching NVML library."""
