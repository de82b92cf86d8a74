"""What explaining a large log costs: ``python -m tests.perf.explain [MEGABYTES]``.

Writes a log of a busy training run, with a few errors near its end, explains it in a process of its own, and prints how
long that took and the most memory that the process had; then the same with a rank before every line.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final, NamedTuple

from tests.diagnosis.corpus import noise
from tests.diagnosis.texts import WORDINGS

_LINES: Final = 20_000
_MEGABYTE: Final = 1_000_000


class Cost(NamedTuple):
    """What a process took: time on the clock and on a processor, and resident memory at most."""

    seconds: float
    processor_seconds: float
    memory_bytes: int


def main() -> None:
    """Measures a plain log and one of eight ranks."""
    megabytes = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    for name, prefix in (("plain", ""), ("of eight ranks", "[rank{}]: ")):
        with tempfile.TemporaryDirectory() as folder:
            log = Path(folder) / "train.log"
            write(log, megabytes * _MEGABYTE, prefix)
            cost = explained(log)
        print(
            f"{megabytes} MB {name}: {cost.seconds:.1f} s, {cost.processor_seconds:.1f} s of a processor, "
            f"at most {cost.memory_bytes >> 20} MiB"
        )


def write(log: Path, size: int, prefix: str) -> None:
    """Fills a file with noise, and puts errors before its last lines."""
    lines = [prefix.format(number % 8) + line + "\n" for number, line in enumerate(noise(_LINES, 1))]
    piece = "".join(lines).encode()
    with log.open("wb") as file:
        for _ in range(size // len(piece)):
            file.write(piece)
        file.writelines((text + "\n").encode() for _, text in WORDINGS[:3])
        file.write(piece)


def explained(log: Path) -> Cost:
    """Explains it in a process of its own."""
    begun = time.perf_counter()
    child = subprocess.Popen([sys.executable, "-m", "gpumon", "explain", str(log), "--json"], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        sys.exit(f"explain ended with {child.returncode}")
    return Cost(time.perf_counter() - begun, usage.ru_utime + usage.ru_stime, usage.ru_maxrss << 10)


if __name__ == "__main__":
    main()
