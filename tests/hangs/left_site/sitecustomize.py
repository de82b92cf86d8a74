"""Makes a process leave what NCCL's watchdog and a user would: its flight recorder and its stacks.

The recorder is written when a file named ``now`` appears in the folder, the stacks when SIGUSR1 arrives.
"""

import faulthandler
import os
import signal
import sys
import threading
import time
from pathlib import Path

FOLDER = Path(os.environ["HANGS_LEFT"])


def _wait() -> None:
    while not (FOLDER / "now").exists():
        time.sleep(0.2)
    library = sys.modules.get("torch._C._distributed_c10d")
    rank = os.environ.get("RANK")
    if library is not None and rank is not None:
        part = FOLDER / f".part{os.getpid()}"
        part.write_bytes(library._dump_fr_trace(True, False))  # with stacks, it does not return in this thread
        part.rename(FOLDER / f"nccl_trace_rank_{rank}")


if os.environ.get("RANK") is not None:
    _stacks = (FOLDER / f"stacks_rank_{os.environ['RANK']}.txt").open("w")
    faulthandler.register(signal.SIGUSR1, file=_stacks, all_threads=True)
    threading.Thread(target=_wait, daemon=True).start()
