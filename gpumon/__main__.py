"""Run the command line as ``python -m gpumon``."""

from gpumon.cli import main

if __name__ == "__main__":
    main()
