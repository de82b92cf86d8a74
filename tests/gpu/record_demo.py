"""Records the bundled demo on a host with eight GPUs: ``python -m tests.gpu.record_demo OUT.jsonl.gz [SECONDS]``.

Starts a mixed load on all GPUs, records it anonymized, and stops everything.
"""

import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LOAD = Path(__file__).with_name("load.py")
LEAD_SECONDS = 20.0  # the jobs start before the recording, so that it begins with a load
JOBS = (
    # program, role, GPU, start and duration (shares of the recording), UID
    ("pretrain.py", "matmul", 0, 0.0, 1.0, 65534),
    ("pretrain.py", "matmul", 1, 0.0, 1.0, 65534),
    ("finetune.py", "training", 2, 0.0, 1.0, 1),
    ("finetune.py", "growing", 3, 0.05, 0.95, 1),
    ("serve.py", "serving", 4, 0.0, 1.0, 2),
    ("evaluate.py", "bursts", 5, 0.1, 0.8, 1),
    ("preprocess.py", "copies", 6, 0.0, 0.7, 2),
    ("notebook.py", "holding", 6, 0.0, 1.0, 2),
    ("sweep.py", "training", 7, 0.35, 0.5, 2),
)


def main() -> int:
    """Record for the given time; returns the exit code of gpumon."""
    out, seconds = Path(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 180.0
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        started: list[subprocess.Popen[bytes]] = []
        recording_start = time.monotonic() + LEAD_SECONDS
        command = [sys.executable, "-m", "gpumon", "record", str(out), "--duration", str(seconds), "--anonymize"]
        recorder: subprocess.Popen[bytes] | None = None
        try:
            for program, role, gpu, start, share, uid in sorted(JOBS, key=lambda job: job[3]):
                if start and recorder is None:
                    time.sleep(max(0.0, recording_start - time.monotonic()))
                    recorder = subprocess.Popen(command)
                time.sleep(max(0.0, recording_start + start * seconds - time.monotonic()) if start else 0)
                script = shutil.copy(LOAD, Path(folder, program))
                options = [role, str(gpu), str(LEAD_SECONDS * (not start) + share * seconds), str(uid)]
                started.append(subprocess.Popen([sys.executable, script, *options], stdout=subprocess.DEVNULL))
            assert recorder is not None, "some jobs start during the recording"
            return recorder.wait(seconds + 60)
        finally:
            for process in [*started, *([recorder] if recorder else [])]:
                process.terminate()
            for process in started:
                process.wait(10)


if __name__ == "__main__":
    sys.exit(main())
