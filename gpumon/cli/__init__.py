"""The command line: commands, options and exit codes.

The collector starts before the screen's library is imported, so that the first values arrive while the screen opens.
"""

from gpumon.cli.commands import gpumon
from gpumon.cli.entry import main

__all__ = ["gpumon", "main"]
