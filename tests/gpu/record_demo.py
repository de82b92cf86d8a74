"""Makes the bundled recording, from two visits to a host with four GPUs.

``python -m tests.gpu.record_demo --set 1 OUT.jsonl.gz`` starts real training runs and servers, one or two a GPU,
records them anonymized, and stops everything; ``--set 2`` does the same with others. On any host,
``python -m tests.gpu.record_demo --merge ONE TWO OUT`` puts two recordings side by side, as one host with the GPUs of
both: what each GPU shows was measured, but not at the same time, and the host's own values are those of the first.
"""

import argparse
import dataclasses
import gzip
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from gpumon.core.frames import decode, encode
from gpumon.core.model import Device, Frame
from gpumon.session.host_reports import moved_reports
from gpumon.streams.recording import RecordingReader

ROOT: Final = Path(__file__).parents[2]
PROGRAMS: Final = Path(__file__).with_name("demo_programs.py")
LEAD_SECONDS: Final = 25.0
"""The programs start this long before the recording, so that it begins with a load."""
END_SECONDS: Final = 10.0
DEFAULT_SECONDS: Final = 642.0
STEP: Final = 4
"""Added to the indices of the GPUs of the second recording."""
PID_STEP: Final = 100_000
"""Added to the PIDs of the second recording."""


class Job(NamedTuple):
    """A program of the recording.

    Attributes:
        program: Its name, which also says what it does.
        config: Its option ``--config``.
        gpus: The GPUs that it sees.
        uid: Its user.
        has_probe: Whether it runs under ``gpumon watch``: only as the user of gpumon.
    """

    program: str
    config: str
    gpus: tuple[int, ...]
    uid: int = 0
    has_probe: bool = False


SETS: Final = {
    1: (
        Job("pretrain", "llama-700m.yaml", (0,), has_probe=True),
        Job("train_lstm", "speech.yaml", (1,), uid=1),
        Job("serve", "assistant.yaml", (1,), uid=2),
        Job("train_cnn", "pictures.yaml", (2, 3), has_probe=True),
    ),
    2: (
        Job("finetune", "long-context.yaml", (0,), has_probe=True),
        Job("notebook", "explore.yaml", (1,), uid=1),
        Job("pretrain_ddp", "llama-1b.yaml", (2, 3), has_probe=True),
    ),
}


def main() -> int:
    """Record or merge; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--set", type=int, choices=SETS, help="Record these programs.")
    parser.add_argument("--merge", action="store_true", help="Merge the two first files into the third.")
    parser.add_argument("--seconds", type=float, default=DEFAULT_SECONDS, help="Time until everything has ended.")
    parser.add_argument("--device", default="cuda", help="cpu to try the programs without a GPU.")
    parser.add_argument("files", type=Path, nargs="+")
    options = parser.parse_args()
    if options.merge:
        merge(*options.files)
        return 0
    return record(SETS[options.set], options.files[0], options.seconds, options.device)


def record(jobs: tuple[Job, ...], out: Path, seconds: float, device: str = "cuda") -> int:
    """Run the jobs and record the host; returns the exit code of the recorder.

    Args:
        jobs: What to run.
        out: The recording; the output of the programs goes to files next to it.
        seconds: Time until everything has ended.
        device: ``cpu`` starts everything for a test, and records what there is.
    """
    lead = LEAD_SECONDS if device == "cuda" else 1.0
    recorded = seconds - lead - (END_SECONDS if device == "cuda" else 1.0)
    command = [
        sys.executable,
        "-m",
        "gpumon",
        "record",
        str(out.absolute()),
        "--duration",
        str(recorded),
        "--anonymize",
    ]
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        started: list[subprocess.Popen[bytes]] = []
        try:
            for job in jobs:
                started.append(start(job, Path(folder), lead + recorded, device, out))
            time.sleep(lead)
            return subprocess.run(command, cwd=ROOT, check=False, timeout=recorded + 30).returncode
        finally:
            stop(started)


def start(job: Job, folder: Path, seconds: float, device: str, out: Path) -> "subprocess.Popen[bytes]":
    """Start a job in its own session."""
    script = folder / f"{job.program}.py"
    shutil.copy(PROGRAMS, script)
    command = [str(script), "--config", f"configs/{job.config}", "--seconds", f"{seconds:g}", "--device", device]
    if len(job.gpus) > 1:
        command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(len(job.gpus)), *command]
    command.insert(0, sys.executable)
    if job.has_probe:
        command = [sys.executable, "-m", "gpumon", "watch", "--", *command]
    visible = ",".join(map(str, job.gpus))
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": visible, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "4"}
    user: dict[str, Any] = {}
    if job.uid and os.geteuid() == 0 and can_import_torch(job.uid):
        user = {"user": job.uid, "group": job.uid, "extra_groups": []}
        environment["HOME"] = str(folder)
    with out.with_name(f"{job.program}.log").open("wb") as log:
        return subprocess.Popen(
            command, stdout=log, stderr=log, env=environment, cwd=folder, start_new_session=True, **user
        )


def can_import_torch(uid: int) -> bool:
    """Whether a user can read the packages of this Python; if not, all programs run as the same user."""
    command = [sys.executable, "-c", "import importlib.util as u; raise SystemExit(u.find_spec('torch') is None)"]
    with suppress(OSError):
        return not subprocess.run(command, user=uid, group=uid, extra_groups=[], check=False, cwd="/").returncode
    return False


def stop(started: "list[subprocess.Popen[bytes]]") -> None:
    """End the sessions of all jobs: torchrun has some seconds to end its ranks."""
    for number, seconds in ((signal.SIGTERM, END_SECONDS / 2), (signal.SIGKILL, 5.0)):
        deadline = time.monotonic() + seconds
        for process in started:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, number)
        for process in started:
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.1, deadline - time.monotonic()))


def merge(first: Path, second: Path, out: Path) -> None:
    """Write a recording of a host with the GPUs of two recordings, as long as the shorter one."""
    pairs = zip(frames(first), frames(second), strict=False)
    with gzip.GzipFile(out, "wb", mtime=0) as file:
        for one, two in pairs:
            document = json.loads(encode(side_by_side(one, two)))
            file.write(json.dumps(_rounded(document), separators=(",", ":"), ensure_ascii=False).encode() + b"\n")


def frames(path: Path) -> Iterator[Frame]:
    """The frames of a recording."""
    with closing(RecordingReader(path)) as reader:
        for record in reader:
            yield record.frame


def side_by_side(one: Frame, two: Frame) -> Frame:
    """The first frame with the devices, events and reports of the second as well, which get other numbers."""
    text = encode(two)
    for device in reversed(two.gpus):
        text = text.replace(f"-{device.index:012d}", f"-{device.index + STEP:012d}")
    moved = decode(text)
    ours, theirs = (moved_reports(frame.reports, one) for frame in (one, moved))
    theirs = _renumbered(theirs)
    lists = {name: [*ours.get(name, ()), *theirs.get(name, ())] for name in ("probes", "jobs", "ooms")}
    return dataclasses.replace(
        one,
        devices=(*one.devices, *(_moved(device) for device in moved.devices)),
        reports={**theirs, **ours, **lists},
        events=(
            *one.events,
            *(dataclasses.replace(event, time_seconds=one.time_seconds, monotonic_seconds=one.monotonic_seconds)
              for event in moved.events),
        ),
    )  # fmt: skip


def _rounded(value: Any, name: str = "") -> Any:  # noqa: ANN401
    """Values with four digits, except times: a third of the file is digits that no screen shows."""
    if isinstance(value, dict):
        return {key: _rounded(item, key) for key, item in value.items()}
    if isinstance(value, list):
        return [_rounded(item, name) for item in value]
    return float(f"{value:.4g}") if isinstance(value, float) and not name.startswith(("time", "monotonic")) else value


def _renumbered(value: Any, name: str = "") -> Any:  # noqa: ANN401
    """Reports with other PIDs, names of jobs and labels of GPUs."""
    if isinstance(value, dict):
        return {key: _renumbered(item, key) for key, item in value.items()}
    if isinstance(value, list):
        return [_renumbered(item, name) for item in value]
    if name in {"pid", "own_pid"}:
        return value + PID_STEP
    if name == "label":
        return str(int(value) + STEP)
    if not isinstance(value, str):
        return value
    text = re.sub(r"\bGPU (\d+)\b(?! %)", lambda match: f"GPU {int(match[1]) + STEP}", value)
    return f"{text}b" if name in {"key", "id"} else text


def _moved(device: Device) -> Device:
    """A device with another index, and other PIDs and bus."""
    processes = device.processes
    return dataclasses.replace(
        device,
        index=device.index + STEP,
        cuda_index=None if device.cuda_index is None else device.cuda_index + STEP,
        pci_bus_id=None if device.pci_bus_id is None else device.pci_bus_id.replace("00000000:", "00000001:"),
        processes=None
        if processes is None
        else tuple(dataclasses.replace(process, pid=process.pid + PID_STEP) for process in processes),
    )


if __name__ == "__main__":
    sys.exit(main())
