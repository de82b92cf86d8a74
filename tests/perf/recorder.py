"""Cost of `gpumon recorder` on the stand-in driver: ``python -m tests.perf.recorder [SECONDS] [GPUS] [PROCESSES]``.

Prints CPU of the recorder and its collector, and what the files of seven days would take at the sizes of this run.
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from gpumon.core.procfs import read_stat
from gpumon.streams.ring import TIERS, ring_files
from tests.nvml_mock import build
from tests.perf.bench import sleepers
from tests.processes import tree

_WARM_SECONDS = 15.0
_DAYS = 7


def main() -> None:
    """Record for some time and print the costs."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 120.0
    gpus, processes = (int(text) for text in (*sys.argv[2:4], "8", "4")[:2]) if len(sys.argv) != 3 else (8, 4)
    with tempfile.TemporaryDirectory(prefix="gpumon-recorder-") as folder, sleepers(gpus * processes) as pids:
        environment = build(Path(folder)).environment(gpus, pids, NVML_MOCK_PROCS=str(processes))
        ring = Path(folder, "ring")
        command = [sys.executable, "-m", "gpumon", "recorder", "--dir", str(ring)]
        with subprocess.Popen(command, env={**environment, "PYTHONPATH": str(Path.cwd())}) as process:
            time.sleep(_WARM_SECONDS)
            before = {pid: read_stat(f"/proc/{pid}").cpu_seconds for pid in tree(process.pid)}
            time.sleep(seconds)
            used = {pid: read_stat(f"/proc/{pid}").cpu_seconds - before.get(pid, 0.0) for pid in before}
            process.terminate()
        for pid, cpu_seconds in used.items():
            print(f"{'recorder' if pid == process.pid else 'collector'}: {100 * cpu_seconds / seconds:.2f} % of a core")
        print(f"total: {100 * sum(used.values()) / seconds:.2f} %")
        total = 0.0
        for tier, kept in TIERS:
            size = sum(file.path.stat().st_size for file in ring_files(ring) if file.tier == tier)
            frames = (seconds + _WARM_SECONDS) / tier
            whole = size / frames * min(kept, _DAYS * 86_400.0) / tier
            total += whole
            print(f"frames of {tier} s: {size / frames:.0f} bytes each, {whole / 1e6:.1f} MB kept")
        print(f"{_DAYS} days: {total / 1e6:.0f} MB, without events")


if __name__ == "__main__":
    main()
