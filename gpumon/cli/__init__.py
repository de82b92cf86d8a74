"""The command line: what can be asked of gpumon, and the exit codes.

The collector is started before the screen's library is imported, so that the first values are there when the screen is.
"""

from gpumon.cli.commands import gpumon
from gpumon.cli.entry import main

__all__ = ["gpumon", "main"]
