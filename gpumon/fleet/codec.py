"""Snapshots as lines of JSON, from the process that reads Prometheus to the one that shows them."""

import base64
import json
from array import array
from collections.abc import Sequence

from gpumon.core.json_text import json_bytes
from gpumon.core.problems import Problem, ProblemCode
from gpumon.fleet.model import FleetError, FleetGpu, FleetSnapshot


class SnapshotEncoder:
    """Encodes snapshots; GPUs that are the same as before are not repeated."""

    def __init__(self) -> None:
        self._gpus: tuple[FleetGpu, ...] | None = None

    def encode(self, snapshot: FleetSnapshot) -> bytes:
        """One line."""
        gpus = None if snapshot.gpus == self._gpus else snapshot.gpus
        self._gpus = snapshot.gpus
        document = {
            "time_seconds": snapshot.time_seconds,
            "gpus": gpus,
            "values": {metric_id: _text(column) for metric_id, column in snapshot.values.items()},
            "silent_hosts": snapshot.silent_hosts,
            "lost_gpus": dict(snapshot.lost_gpus),
            "exporters": dict(snapshot.exporters),
            "missing": {name: list(metric_ids) for name, metric_ids in snapshot.missing.items()},
            "host_problems": {host: _fields(problem) for host, problem in snapshot.host_problems.items()},
            "seconds": snapshot.seconds,
            "answer_bytes": snapshot.answer_bytes,
        }
        return json_bytes(document)


class SnapshotDecoder:
    """Decodes what `SnapshotEncoder` and `encode_problem` have written, in order."""

    def __init__(self) -> None:
        self._gpus: tuple[FleetGpu, ...] = ()

    def decode(self, line: bytes) -> FleetSnapshot:
        """The snapshot of a line.

        Raises:
            FleetError: The line is about a problem.
        """
        document = json.loads(line)
        if "problem" in document:
            raise FleetError(_problem(document["problem"]))
        if document["gpus"] is not None:
            self._gpus = tuple(FleetGpu(*fields) for fields in document["gpus"])
        return FleetSnapshot(
            document["time_seconds"],
            self._gpus,
            {metric_id: _column(text) for metric_id, text in document["values"].items()},
            tuple(document["silent_hosts"]),
            document["lost_gpus"],
            document["exporters"],
            document["missing"],
            {host: _problem(fields) for host, fields in document["host_problems"].items()},
            seconds=document["seconds"],
            answer_bytes=document["answer_bytes"],
        )


def encode_problem(problem: Problem) -> bytes:
    """A line that says why there is no snapshot."""
    return json_bytes({"problem": _fields(problem)})


def _fields(problem: Problem) -> Sequence[str]:
    return problem.code.value, problem.reason, problem.remedy


def _problem(fields: Sequence[str]) -> Problem:
    code, reason, remedy = fields
    return Problem(ProblemCode(code), reason, remedy)


def _text(column: "array[float]") -> str:
    return base64.b64encode(column.tobytes()).decode()


def _column(text: str) -> "array[float]":
    column = array("d")
    column.frombytes(base64.b64decode(text))
    return column
