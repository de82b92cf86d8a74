"""Measures what a trace on demand leaves in a process: ``python -m tests.gpu.detaching``, 80 s on one GPU.

For each training loop: the median step before, during and after two traces, whether both have kernels, and the notes.
The third column has to be that of the first, but for ``graph``, whose CUDA graph keeps CUPTI attached: a note says so.
``graph`` runs last: it is the one that a detached CUPTI would end.
"""

import os
import tempfile
from pathlib import Path

from gpumon.traces.reader import read
from tests.probe.traced import training


def main() -> None:
    """Run the loops one after the other."""
    for kind in ("plain", "small", "graph"):
        with tempfile.TemporaryDirectory(dir="/tmp") as name:
            folder = Path(name)
            (folder / "p").mkdir(mode=0o700)
            os.environ["GPUMON_PROBE_DIR"] = str(folder / "p")
            with training(kind, folder, rest_seconds=3.0) as run:
                for _ in range(2):
                    (trace,) = run.trace(500)
                    assert trace.path is not None, trace
                    print(f"  {read(trace.path).trace.kernels} kernels in the median step; notes: {trace.notes}")
                    trace.path.unlink()
                row = run.print_row(run.end())
            print(f"{kind}: {row.medians[2] / row.medians[0] - 1:+.1%} after the traces")


if __name__ == "__main__":
    main()
