"""A stand-in for NCCL's RAS service: speaks its protocol and writes JSON as ``src/ras/client_support.cc`` does."""

import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple


class FakeRank(NamedTuple):
    """A rank in a report."""

    rank: int
    pid: int
    host: str = "10.0.0.1"
    all_reduces: int = 50
    init_state: int = 0


class FakeService:
    """What the service answers, and what it was asked."""

    def __init__(self, report: bytes, greeting: bytes = b"SERVER PROTOCOL 2\n") -> None:
        self.report = report
        self.greeting = greeting
        self.has_json = True
        self.stays_open = False
        self.commands: list[str] = []
        self.connections = 0
        self.open_at_once = 0
        self._open = 0

    def serve(self, connection: socket.socket) -> None:
        """Answer one client until the report is sent."""
        for _ in range(100):  # those that their clients have closed end by themselves
            if not self._open:
                break
            time.sleep(0.01)
        self._open += 1
        self.connections += 1
        self.open_at_once = max(self.open_at_once, self._open)
        try:
            with connection, connection.makefile("rb") as lines:
                for line in lines:
                    command = line.decode().strip()
                    self.commands.append(command)
                    if command.startswith("CLIENT PROTOCOL"):
                        connection.sendall(self.greeting)
                    elif command.startswith("SET FORMAT") and not self.has_json:
                        connection.sendall(f"ERROR: Unknown command {command}\n".encode())
                    elif command.endswith("STATUS"):
                        connection.sendall(self.report)
                        if not self.stays_open:
                            return
                    else:
                        connection.sendall(b"OK\n")
        except OSError:
            pass
        finally:
            self._open -= 1


@contextmanager
def serving(service: FakeService) -> Iterator[str]:
    """Serve on a free port; yields the address."""
    listener = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=service.serve, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def report_json(ranks: Sequence[FakeRank], missing: Sequence[FakeRank] = (), comma: str = ",") -> bytes:
    """A report with one communicator, in NCCL's own layout.

    Args:
        ranks: The ranks that have answered.
        missing: The other ones.
        comma: What stands before the status of a missing rank; nothing before NCCL 2.29.
    """
    rank_text = ",\n".join(
        f"""        {{
          "rank": {rank.rank},
          "host": "{rank.host}",
          "pid": {rank.pid},
          "cuda_dev": {rank.rank},
          "nvml_dev": {rank.rank},
          "status": {{
            "init_state": {rank.init_state},
            "async_error": 0,
            "finalize_called": false,
            "destroy_flag": false,
            "abort_flag": false
          }},
          "collective_counts": {{
            "Broadcast": 1,
            "Reduce": 0,
            "AllGather": 0,
            "ReduceScatter": 0,
            "AllReduce": {rank.all_reduces},
            "SendRecv": 0,
            "Send": 0,
            "Recv": 0
          }}
        }}"""
        for rank in ranks
    )
    missing_text = ",\n".join(
        f"""        {{
          "rank": {rank.rank},
          "host": "{rank.host}",
          "pid": {rank.pid},
          "cuda_dev": {rank.rank},
          "nvml_dev": {rank.rank}{comma}
          "status": {{
            "unresponsive": true,
            "considered_dead": true
          }}
        }}"""
        for rank in missing
    )
    return f"""{{
  "nccl_version": "2.28.9+cuda13.0",
  "cuda_runtime_version": 13000,
  "cuda_driver_version": 13000,
  "timestamp": "2026-05-01 12:00:00",
  "communicators_count": 1,
  "communicators": [
    {{
      "hash": "0x9b2e7d2a35d83bdf",
      "secondary_hash": "0x1:0x2",
      "size": {len(ranks) + len(missing)},
      "ranks_count": {len(ranks)},
      "missing_ranks_count": {len(missing)},
      "ranks": [
{rank_text}
      ],
      "missing_ranks": [
{missing_text}
      ]
    }}
  ],
  "ras": {{
    "collection_time_sec": 0.000,
    "timeouts_count": 0
  }}
}}
""".encode()
