"""The command line: commands, options and exit codes.

The collector starts before the screen's library is imported, so that the first values arrive while the screen opens.
"""

import gc
import sys

from gpumon.cli.quick import is_answered

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn


def main() -> "NoReturn":
    """Entry point of the ``gpumon`` command."""
    if is_answered(sys.argv[1:]):
        sys.exit()
    gc.disable()  # imports make no garbage
    from gpumon.cli.entry import main as run  # late: click takes longer to import than a prompt waits

    gc.enable()
    run()
