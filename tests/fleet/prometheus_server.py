"""A real Prometheus on loopback, with its data in a temporary folder."""

import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

PROMETHEUS = shutil.which("prometheus")
needs_prometheus = pytest.mark.skipif(PROMETHEUS is None, reason="prometheus is not installed")
_CONFIG = """
global:
  scrape_interval: {interval}
  scrape_timeout: {interval}
scrape_configs:
  - job_name: gpus
    honor_labels: {honor}
    file_sd_configs:
      - files: ["{targets}"]
        refresh_interval: 1s
{scrape}"""
_START_SECONDS = 30.0


@contextmanager
def prometheus(
    folder: Path, targets: Path, interval: str = "1s", *, honor_labels: bool = False, scrape: str = ""
) -> Iterator[str]:
    """Run Prometheus; yields its URL.

    Args:
        folder: For its data.
        targets: File of targets; see `tests.fleet.targets.write_targets`.
        interval: Scrape interval.
        honor_labels: Whether labels of a target win over those of the configuration.
        scrape: Further lines of the scrape configuration.
    """
    assert PROMETHEUS is not None
    config = folder / "prometheus.yml"
    honor = str(honor_labels).lower()
    config.write_text(_CONFIG.format(interval=interval, targets=targets, honor=honor, scrape=scrape))
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    command = [PROMETHEUS, f"--config.file={config}", f"--storage.tsdb.path={folder / 'data'}"]
    command += [f"--web.listen-address={address}", "--log.level=error"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            _wait_ready(f"http://{address}", process)
            yield f"http://{address}"
        finally:
            process.kill()


def _wait_ready(url: str, process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + _START_SECONDS
    while True:
        assert process.poll() is None, "prometheus has ended"
        try:
            with urllib.request.urlopen(f"{url}/-/ready", timeout=5):
                return
        except (OSError, urllib.error.URLError):
            assert time.monotonic() < deadline
            time.sleep(0.1)
