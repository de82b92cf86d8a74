"""Run the command line as ``python -m gpumon``, or by the path of this file where gpumon is not on ``sys.path``."""

import sys

if not __package__:
    from pathlib import Path  # late: a prompt waits for gpumon.cli.quick, which needs none

    sys.path[0] = str(Path(__file__).resolve().parents[1])

from gpumon.cli import main

if __name__ == "__main__":
    main()
