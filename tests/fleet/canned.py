"""The answer of a Prometheus for many hosts, without one: for more hosts than a test can have scraped.

`answer` is what a real Prometheus answers to the query of the fleet; a test compares the two.
"""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler
from typing import Any

from gpumon.core.device_use import IDLE_PERCENT
from gpumon.fleet.exporters import DCGM, DCGM_XIDS, HISTORY_ONLY
from gpumon.fleet.query import BUSIEST_OF, PART, TIME_OF, XID
from tests.fleet.fake_prometheus import Respond, body
from tests.fleet.targets import DCGM_METRICS, FakeHost


def results(hosts: Sequence[FakeHost], seconds: float, *, is_watched: bool = True) -> Iterator[dict[str, Any]]:
    """Every result for hosts that all report.

    Args:
        hosts: The hosts.
        seconds: Unix time of the newest samples.
        is_watched: Whether they have reported for longer than the time of idle GPUs.
    """
    metrics = [name for name, metric in DCGM.metrics.items() if name != DCGM.primary and metric.id not in HISTORY_ONLY]
    reported = {name for name, _, _ in DCGM_METRICS}
    for host in hosts:
        target = {"instance": f"{host.name}:9400", host.host_label: host.name}
        yield _result({PART: f"{TIME_OF}{DCGM.name}", **target}, seconds, seconds)
        for gpu in range(host.gpus):
            identity = {host.uuid_label: host.uuid(gpu)}
            labels = {"__name__": DCGM.primary, "gpu": str(gpu), "modelName": "NVIDIA H200"}
            utilization = host.value(DCGM.primary, gpu)
            yield _result({**labels, **target, **identity, **host.labels}, seconds, utilization)
            if utilization < IDLE_PERCENT and is_watched:
                yield _result({PART: f"{BUSIEST_OF}{DCGM.name}", **identity}, seconds, utilization)
            if host.value(DCGM_XIDS, gpu):
                yield _result({PART: XID, **identity}, seconds, host.value(DCGM_XIDS, gpu))
            for metric in reported.intersection(metrics):
                yield _result({"__name__": metric, **identity}, seconds, host.value(metric, gpu))


def answer(hosts: Sequence[FakeHost], seconds: float) -> bytes:
    """The complete answer."""
    return wrapped(results(hosts, seconds))


def wrapped(items: Iterator[dict[str, Any]]) -> bytes:
    """Results in the JSON of Prometheus."""
    body = ",".join(json.dumps(item, separators=(",", ":")) for item in items)
    return f'{{"status":"success","data":{{"resultType":"vector","result":[{body}]}}}}'.encode()


def responding(hosts: Sequence[FakeHost]) -> Respond:
    """Answers to every query of the screen: the fleet, the usage, and a host over the last minutes."""

    def respond(handler: BaseHTTPRequestHandler, fields: Mapping[str, str]) -> None:
        if handler.path.endswith("query_range"):
            content = wrapped(_series(hosts, fields))
        elif "count_over_time" in fields["query"]:
            content = wrapped(_usage(hosts))
        else:
            content = answer(hosts, time.time())
        body(content)(handler, fields)

    return respond


def _usage(hosts: Sequence[FakeHost]) -> Iterator[dict[str, Any]]:
    for job in sorted({host.labels.get("hpc_job", "") for host in hosts}):
        for part, value in (("active", 100.0), ("low", 30.0), ("idle", 20.0), ("energy", 3.6e9)):
            labels = {PART: f"{part} {DCGM.name}"} | ({"hpc_job": job} if job else {})
            yield _result(labels, 1.0, value)


def _series(hosts: Sequence[FakeHost], fields: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    start, end, step = (float(fields[name]) for name in ("start", "end", "step"))
    times = [end - number * step for number in range(min(100, int((end - start) / step) + 1))][
        ::-1
    ]  # enough for a chart
    for host in hosts:
        for gpu in range(host.gpus):
            if host.uuid(gpu) in fields["query"]:
                for metric, _, _ in DCGM_METRICS:
                    labels = {"__name__": metric, host.uuid_label: host.uuid(gpu)}
                    points = [[seconds, str(host.value(metric, gpu))] for seconds in times]
                    yield {"metric": labels, "values": points}


def _result(labels: Mapping[str, str], seconds: float, value: float) -> dict[str, Any]:
    return {"metric": dict(sorted(labels.items())), "value": [round(seconds, 3), f"{value:.17g}"]}
