"""The HTTP server of the exporter: a page of metrics, with optional TLS and basic authentication.

Clients are not trusted. One that has sent its headers, or a record of TLS, has a thread, which the loop that accepts
connections ends by shutting its socket down: when its time is over, or to make room for a new client. A scrape sends
its request at once, so that it is not the oldest client that still has to send one, however many slow ones there are.
"""

import base64
import errno
import gzip
import hmac
import resource
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BufferedReader
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import parse_qs

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from gpumon.cli.first_bytes import MAX_SILENT, FirstBytes
from gpumon.core.tls_files import load_tls_files

REQUEST_SECONDS: Final = 10.0
"""From the connection to the last byte of the answer; a client that is slower loses its connection."""
MAX_CONNECTIONS: Final = 64
"""At most half of the descriptors that the process may open."""
_MIN_SECONDS: Final = 0.05
"""Every client has this long after its first message, however many come."""
_REQUEST_BYTES: Final = 64 << 10
_WAITING_CONNECTIONS: Final = 4096
"""Connections that the kernel keeps until they are accepted; it uses net.core.somaxconn if that is lower."""
_PAUSE_SECONDS: Final = 0.1
_PAGE_SECONDS: Final = 0.25
"""How long a page is sent again to whoever asks for it."""
_MAX_PAGES: Final = 16
_NO_SERIES: Final = b"No series has the name that name[] selects. The page without name[] has all of them.\n"


@dataclass(frozen=True, slots=True)
class ServerSecurity:
    """How the server protects the page.

    Attributes:
        certificate: Certificate chain in PEM format, or None for plain HTTP.
        key: Its private key; None if it is in the same file.
        client_authority: If given, clients need a certificate that this authority has signed.
        user: User name of basic authentication; empty for none.
        password: Its password.
    """

    certificate: Path | None = None
    key: Path | None = None
    client_authority: Path | None = None
    user: str = ""
    password: str = ""


@dataclass(slots=True)
class _Client:
    """A connection.

    Attributes:
        address: Where it comes from.
        accepted: Monotonic seconds.
        is_answered: Whether its request is complete and its answer is being made, so that it waits for this program.
    """

    address: str
    accepted: float
    is_answered: bool = False


class _RequestReader:
    """Reads lines of a request, up to a number of bytes.

    Args:
        file: What the client sends.
    """

    def __init__(self, file: BufferedReader) -> None:
        self._file = file
        self._left = _REQUEST_BYTES

    def readline(self, size: int) -> bytes:
        """The next line or a part of it; empty at the end.

        Raises:
            ConnectionAbortedError: The request is too long.
        """
        if self._left <= 0:
            raise ConnectionAbortedError
        line = self._file.readline(min(size, self._left))
        self._left -= len(line)
        return line

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class _Handler(BaseHTTPRequestHandler):
    """Answers one client."""

    def setup(self) -> None:
        """Bound what is read."""
        super().setup()
        self.rfile = cast("BufferedReader", _RequestReader(cast("BufferedReader", self.rfile)))

    def do_GET(self) -> None:
        """Send the metrics, or those that ``name[]`` selects, to a client that may read them."""
        server = cast("MetricsServer", self.server)
        if not server.admits(self.headers.get("Authorization", "")):
            self._send(401, b"", {"WWW-Authenticate": 'Basic realm="gpumon"'})
            return
        path, _, query = self.path.partition("?")
        if path == "/status":
            self._send_status(parse_qs(query))
            return
        names = parse_qs(query).get("name[]", [])
        with server.answering(self.connection):
            page, content_type = server.page(self.headers.get("Accept", ""), names)
        if not page:
            self._send(404, _NO_SERIES, {"Content-Type": "text/plain; charset=utf-8"})
        elif "gzip" in self.headers.get("Accept-Encoding", ""):
            self._send(200, gzip.compress(page), {"Content-Type": content_type, "Content-Encoding": "gzip"})
        else:
            self._send(200, page, {"Content-Type": content_type})

    def _send_status(self, query: dict[str, list[str]]) -> None:
        """Send the lines of ``gpumon status --format`` to a client on this host."""
        server = cast("MetricsServer", self.server)
        with server.answering(self.connection):
            text = server.status_lines({name: values[0] for name, values in query.items()})
        self._send(404 if text is None else 200, (text or "").encode(), {"X-Gpumon": "status"})

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's name
        """Log nothing."""

    def _send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class _Selection:
    """Some metrics of a collector at one moment.

    Args:
        collector: All of them.
        names: Names of series; without any, all of them.

    Attributes:
        families: Those that have such a series.
    """

    def __init__(self, collector: Collector, names: frozenset[str]) -> None:
        self.families = list(collector.collect())
        if names:
            for family in self.families:
                family.samples = [sample for sample in family.samples if sample.name in names]
            self.families = [family for family in self.families if family.samples]

    def collect(self) -> Iterable[Metric]:
        """The metrics, for an encoder."""
        return self.families


class MetricsServer(ThreadingHTTPServer):
    """Serves metrics until it is shut down; each request is answered in a thread.

    Args:
        host: Address to listen on.
        port: TCP port; 0 for a free one.
        collector: Collects the metrics of each request.
        security: TLS and authentication.
        status: Returns the lines of ``gpumon status`` for the options in a request, or None.

    Raises:
        OSError: The address is in use or not one of this host, or a certificate cannot be read.
    """

    daemon_threads = True
    request_queue_size = _WAITING_CONNECTIONS

    def __init__(
        self,
        host: str,
        port: int,
        collector: Collector,
        security: ServerSecurity,
        status: Callable[[dict[str, str]], str | None] = lambda _: None,
    ) -> None:
        self.status_lines = status
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._collector = collector
        self._making_page = threading.Lock()
        self._pages: dict[tuple[str, frozenset[str]], bytes] = {}
        self._pages_end = 0.0
        self._clients: dict[socket.socket, _Client] = {}
        """The connections that are open, the oldest first; one that is being ended is no longer in here."""
        self._lock = threading.Lock()
        descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self._max_clients = min(MAX_CONNECTIONS, descriptors // 2)
        self._tls: ssl.SSLContext | None = None
        credentials = f"{security.user}:{security.password}".encode()
        self._authorization = f"Basic {base64.b64encode(credentials).decode()}" if security.user else ""
        super().__init__((host, port), _Handler)
        self._silent = FirstBytes(self.socket, min(MAX_SILENT, descriptors // 4))
        if security.certificate is not None:
            try:
                self._tls = _tls_context(security)
            except OSError:
                self.server_close()
                raise

    @property
    def url(self) -> str:
        """Where the metrics are."""
        host, port = self.server_address[:2]
        scheme = "http" if self._tls is None else "https"
        return f"{scheme}://{f'[{host!s}]' if ':' in str(host) else host!s}:{port}/metrics"

    def admits(self, authorization: str) -> bool:
        """Whether a client with this header may read the page."""
        return not self._authorization or hmac.compare_digest(authorization.encode(), self._authorization.encode())

    @contextmanager
    def answering(self, connection: socket.socket) -> Iterator[None]:
        """Around what takes time for a client although it is not slow; the client keeps its connection meanwhile."""
        client = self._clients.get(connection, _Client("", 0.0))
        client.is_answered = True
        try:
            yield
        finally:
            client.is_answered = False

    def page(self, accept: str, names: Iterable[str]) -> tuple[bytes, str]:
        """The metrics as text, and the content type; the text is empty if there is none of the names.

        Args:
            accept: The header of the request.
            names: Names of series; without any, all of them.
        """
        encode, content_type = choose_encoder(accept)
        key = content_type, frozenset(names)
        with self._making_page:  # one at a time: many clients at once must not need the memory of as many pages
            now = time.monotonic()
            if now >= self._pages_end or len(self._pages) >= _MAX_PAGES:
                self._pages, self._pages_end = {}, now + _PAGE_SECONDS
            if key not in self._pages:
                selection = _Selection(self._collector, key[1])
                self._pages[key] = encode(cast("CollectorRegistry", selection)) if selection.families else b""
            return self._pages[key], content_type

    def fileno(self) -> int:
        """What is readable when `get_request` has something to do."""
        return self._silent.events.fileno()

    def get_request(self) -> tuple[Any, Any]:
        """Accept a connection; without a descriptor for it, end the oldest one and wait a moment.

        Raises:
            OSError: There is no connection now.
        """
        try:
            connection, address = self._silent.next()
        except OSError as error:
            if error.errno in {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}:
                with self._lock:
                    if self._clients:
                        self._end(next(iter(self._clients)))
                time.sleep(_PAUSE_SECONDS)  # the connection still waits to be accepted: this would be a busy loop
            raise
        if self._tls is not None:  # the handshake is part of the request's thread
            connection = self._tls.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
        return connection, address

    def process_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - socketserver's types
        """Answer in a thread, and end another connection if there are too many."""
        with self._lock:
            self._clients[request] = _Client(client_address[0], time.monotonic())
        super().process_request(request, client_address)
        while (seconds := self._make_room()) > 0:
            time.sleep(seconds)

    def service_actions(self) -> None:
        """End every connection whose time is over; called after each connection, and at least twice a second."""
        too_old = time.monotonic() - REQUEST_SECONDS
        with self._lock:
            for connection, client in list(self._clients.items()):
                if client.accepted < too_old and not client.is_answered:
                    self._end(connection)
        self._silent.end(REQUEST_SECONDS)

    def shutdown(self) -> None:
        """Stop accepting connections, and end those that have no thread yet."""
        super().shutdown()
        self._silent.end()

    def shutdown_request(self, request: Any) -> None:  # noqa: ANN401 - socketserver's type
        """Close a connection."""
        with self._lock:  # nothing ends a connection while its descriptor is closed and perhaps used again
            self._clients.pop(request, None)
        super().shutdown_request(request)

    def _make_room(self) -> float:
        """End a connection if there are too many: of the address with the most, the oldest one whose client is slow.

        Returns how many seconds that one still has, or none.
        """
        with self._lock:
            waiting = [known for known, client in self._clients.items() if not client.is_answered]
            if len(self._clients) <= self._max_clients or not waiting:
                return 0.0
            counts = Counter(client.address for client in self._clients.values())
            surplus = max(waiting, key=lambda connection: counts[self._clients[connection].address])
            seconds = self._clients[surplus].accepted + _MIN_SECONDS - time.monotonic()
            if seconds <= 0:
                self._end(surplus)
            return seconds

    def _end(self, connection: socket.socket) -> None:
        """End a connection: its thread, wherever it waits, gets an error and closes it."""
        del self._clients[connection]
        with suppress(OSError):  # not that of SSLSocket, after which the thread would write without encryption
            socket.socket.shutdown(connection, socket.SHUT_RDWR)

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore a client that has gone, or that has no valid certificate."""


def _tls_context(security: ServerSecurity) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority, certificate, key = security.client_authority, security.certificate, security.key
    load_tls_files(context, *(str(file or "") for file in (authority, certificate, key)))
    if authority is not None:
        context.verify_mode = ssl.CERT_REQUIRED
    return context
