"""One question to NCCL's RAS service, which every NCCL job offers on a port of its host.

The first process of a job on a host that creates a communicator listens on ``localhost:28028``, or where
``NCCL_RAS_ADDR`` says. The protocol is lines of text; the service closes the connection after its report.
"""

import ipaddress
import re
import socket
from collections.abc import Collection
from io import BufferedReader
from pathlib import Path
from typing import Final

from gpumon.core.deadline import Deadline
from gpumon.core.problems import Problem, ProblemCode
from gpumon.core.text import safe_bytes, safe_text
from gpumon.distributed.ras_report import MAX_REPORT_BYTES, RasReport, parse_report

_PROTOCOL: Final = 2
_CONNECT_SECONDS: Final = 1.0
_PEERS_SECONDS: Final = 3
"""How long the service waits for other processes of the job."""
READ_SECONDS: Final = 10.0
"""Longest time of a complete question."""
_LINE_BYTES: Final = 1024
_READ_BYTES: Final = 1 << 16
_ADDRESS: Final = re.compile(
    r"(?:\[(?P<six>[0-9a-fA-F:.]{2,45})\]|(?P<name>[\w.-]{1,253})):(?P<port>\d{1,5})", re.ASCII
)
_MAX_SOCKETS_BYTES: Final = 16 << 20
_LISTENING: Final = "0A"


class RasError(Exception):
    """The service gave no report."""

    def __init__(self, code: ProblemCode, reason: str) -> None:
        super().__init__(reason)
        self.problem = Problem(code, f"NCCL's RAS service: {reason}")


def read_report(address: str, seconds: float = READ_SECONDS) -> RasReport:
    """Ask for the report.

    Raises:
        RasError: There is no service, or it sent no report.
    """
    data = read_text(address, seconds)
    try:
        return parse_report(data)
    except ValueError as error:
        raise RasError(ProblemCode.DAMAGED, f"{safe_text(str(error), 200)}.") from None


def read_text(address: str, seconds: float = READ_SECONDS) -> bytes:
    """The report as the service sends it; for its arguments and errors see `read_report`."""
    deadline, peer = Deadline(seconds), socket_address(address)
    try:
        with Deadline(min(_CONNECT_SECONDS, seconds)).connect(peer) as connection, deadline.reader(connection) as lines:
            service = _Service(connection, deadline, lines)
            greeting = service.ask(f"CLIENT PROTOCOL {_PROTOCOL}")
            if not greeting.upper().startswith("SERVER PROTOCOL "):
                raise RasError(ProblemCode.INVALID_VALUE, "another program listens on its port.")
            if service.ask(f"TIMEOUT {_PEERS_SECONDS}") != "OK" or service.ask("SET FORMAT json") != "OK":
                raise RasError(ProblemCode.NOT_SUPPORTED, "this NCCL has no report in JSON (before 2.28.7).")
            return service.report("VERBOSE STATUS")
    except TimeoutError:
        raise RasError(ProblemCode.UNRESPONSIVE, f"no report within {seconds:g} s.") from None
    except OSError as error:
        raise RasError(ProblemCode.NOT_FOUND, f"{safe_text(error.strerror or str(error), 100)}.") from None


def socket_address(address: str) -> tuple[str, int]:
    """The address to connect to: the service listens on this host, so an unspecified address is the loopback.

    Raises:
        RasError: The text is not an address, or needs a name server.
    """
    match = _ADDRESS.fullmatch(address or "localhost:28028")
    if match is None or not 0 < int(match["port"]) < 1 << 16:
        raise RasError(ProblemCode.INVALID_VALUE, f"{safe_text(address, 60)!r} in NCCL_RAS_ADDR is not an address.")
    host, port = match["six"] or match["name"], int(match["port"])
    if host == "localhost":
        return host, port
    try:
        number = ipaddress.ip_address(host)
    except ValueError:
        reason = f"NCCL_RAS_ADDR has the name {safe_text(host, 60)!r}; gpumon connects to numeric addresses only."
        raise RasError(ProblemCode.INVALID_VALUE, reason) from None
    if number.is_unspecified:
        return ("127.0.0.1" if number.version == 4 else "::1"), port
    return str(number), port


def is_listening(port: int, uids: Collection[int], proc: Path = Path("/proc")) -> bool:
    """Whether a process of one of some users listens on a TCP port of this host; nothing is sent to it."""
    owners = {str(uid) for uid in uids}
    for name in ("tcp", "tcp6"):
        try:
            with (proc / "net" / name).open("rb") as file:
                lines = file.read(_MAX_SOCKETS_BYTES).decode("ascii", "replace").splitlines()[1:]
        except OSError:
            continue
        listening = [fields for fields in map(str.split, lines) if len(fields) > 7 and fields[3] == _LISTENING]
        if any(fields[1].endswith(f":{port:04X}") and fields[7] in owners for fields in listening):
            return True
    return False


class _Service:
    """A connection to the service."""

    def __init__(self, connection: socket.socket, deadline: Deadline, answers: BufferedReader) -> None:
        self._socket = connection
        self._deadline = deadline
        self._answers = answers

    def ask(self, command: str) -> str:
        """Send a command; returns the line that answers it."""
        self._deadline.send(self._socket, f"{command}\n".encode())
        line = self._answers.readline(_LINE_BYTES)
        if not line.endswith(b"\n"):
            raise RasError(ProblemCode.DAMAGED, "it closed the connection, or sent no line.")
        return safe_bytes(line.rstrip(b"\r\n"))

    def report(self, command: str) -> bytes:
        """Send a command; returns everything until the service closes the connection."""
        self._deadline.send(self._socket, f"{command}\n".encode())
        data = self._answers.read(MAX_REPORT_BYTES + 1)
        if len(data) > MAX_REPORT_BYTES:
            raise RasError(ProblemCode.DAMAGED, "its report is too large.")
        return data
