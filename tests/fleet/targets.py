"""Many hosts for a real Prometheus: one HTTP server that answers as the exporter of each host does."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

MIB = 1 << 20
BLANK = 9223372036854775794
DCGM_METRICS = (
    ("DCGM_FI_DEV_SM_CLOCK", "gauge", "SM clock frequency (in MHz)."),
    ("DCGM_FI_DEV_GPU_TEMP", "gauge", "GPU temperature (in C)."),
    ("DCGM_FI_DEV_POWER_USAGE", "gauge", "Power draw (in W)."),
    ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "counter", "Total energy consumption since boot (in mJ)."),
    ("DCGM_FI_DEV_GPU_UTIL", "gauge", "GPU utilization (in %)."),
    ("DCGM_FI_DEV_XID_ERRORS", "gauge", "Value of the last XID error encountered."),
    ("DCGM_FI_DEV_FB_FREE", "gauge", "Framebuffer memory free (in MiB)."),
    ("DCGM_FI_DEV_FB_USED", "gauge", "Framebuffer memory used (in MiB)."),
    ("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "gauge", "Ratio of cycles the tensor (HMMA) pipe is active."),
    ("DCGM_FI_PROF_DRAM_ACTIVE", "gauge", "Ratio of cycles the device memory interface is active."),
)
"""As dcgm-exporter renders its default counters."""


@dataclass
class FakeHost:
    """A host with GPUs.

    Attributes:
        name: Its name.
        values: Value by metric of DCGM and GPU; what is missing has a plausible value.
        gpus: Number of GPUs.
        uuid_label: ``UUID``, or ``uuid`` as older versions write it.
        host_label: ``Hostname``, or ``hostname``.
        labels: More labels of every sample, such as a pod.
        is_down: Whether scrapes fail.
        age_seconds: Age of the samples, which then have a timestamp.
    """

    name: str
    values: dict[tuple[str, int], float] = field(default_factory=dict)
    gpus: int = 8
    uuid_label: str = "UUID"
    host_label: str = "Hostname"
    labels: dict[str, str] = field(default_factory=dict)
    is_down: bool = False
    age_seconds: float = 0.0

    def uuid(self, gpu: int) -> str:
        """The UUID of a GPU, unique among all hosts."""
        number = int("".join(filter(str.isdecimal, self.name)) or 0)
        return f"GPU-{number:08x}-4d6f-5b6b-8c01-{gpu:012x}"

    def value(self, metric: str, gpu: int) -> float:
        """A value in the unit of DCGM."""
        usual = {
            "DCGM_FI_DEV_SM_CLOCK": 1980.0,
            "DCGM_FI_DEV_GPU_TEMP": 40.0 + gpu,
            "DCGM_FI_DEV_POWER_USAGE": 612.5,
            "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": 5.5e9,
            "DCGM_FI_DEV_GPU_UTIL": 90.0 + gpu,
            "DCGM_FI_DEV_XID_ERRORS": 0.0,
            "DCGM_FI_DEV_FB_FREE": 1000.0,
            "DCGM_FI_DEV_FB_USED": 80000.0,
            "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": 0.55,
            "DCGM_FI_PROF_DRAM_ACTIVE": 0.25,
        }
        return self.values.get((metric, gpu), usual[metric])

    def text(self) -> str:
        """The answer to a scrape."""
        extra = "".join(f',{name}="{value}"' for name, value in self.labels.items())
        stamp = f" {1000 * (time.time() - self.age_seconds):.0f}" if self.age_seconds else ""
        lines = []
        for metric, kind, text in DCGM_METRICS:
            lines += [f"# HELP {metric} {text}", f"# TYPE {metric} {kind}"]
            for gpu in range(self.gpus):
                labels = f'gpu="{gpu}",{self.uuid_label}="{self.uuid(gpu)}",pci_bus_id="00000000:{gpu:02X}:00.0"'
                labels += f',device="nvidia{gpu}",modelName="NVIDIA H200",{self.host_label}="{self.name}"{extra}'
                value = self.value(metric, gpu)
                shown = str(BLANK) if value == BLANK else f"{value:g}"
                lines.append(f"{metric}{{{labels}}} {shown}{stamp}")
        return "\n".join(lines) + "\n"


@contextmanager
def serving(hosts: dict[str, FakeHost], texts: dict[str, Callable[[], str]] | None = None) -> Iterator[int]:
    """Serve every host, and other texts, under a path with its name; yields the port."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            name = self.path.strip("/")
            host = hosts.get(name)
            other = (texts or {}).get(name)
            if (host is None or host.is_down) and other is None:
                self.send_error(503)
                return
            body = (other() if other is not None else host.text() if host is not None else "").encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()


def write_targets(file: Path, port: int, names: list[str], **labels: str) -> None:
    """Write the targets, with further labels, in the format of Prometheus's file_sd."""
    groups = [
        {
            "targets": [f"127.0.0.1:{port}"],
            "labels": {"__metrics_path__": f"/{name}", "instance": f"{name}:9400", "job": "gpus", **labels},
        }
        for name in names
    ]
    partial = file.with_suffix(".partial")
    partial.write_text(json.dumps(groups))
    partial.rename(file)
