"""The HTTP server of the exporter: a page of metrics, with optional TLS and basic authentication."""

import base64
import hmac
import socket
import ssl
import threading
from dataclasses import dataclass
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Final, cast

from prometheus_client import MetricsHandler
from prometheus_client.registry import Collector

_REQUEST_SECONDS: Final = 10.0
"""A client that is slower than this loses its connection."""
_MAX_REQUESTS: Final = 16


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


class _Handler(MetricsHandler):
    """Answers one client."""

    timeout = _REQUEST_SECONDS

    def do_GET(self) -> None:  # noqa: N802 - http.server's name
        """Send the metrics to a client that may read them, unless many are being served."""
        server = cast("MetricsServer", self.server)
        if not server.admits(self.headers.get("Authorization", "")):
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="gpumon"')
            self.end_headers()
        elif not server.slots.acquire(blocking=False):
            self.send_error(503, "Too many requests at the same time")
        else:
            try:
                super().do_GET()
            finally:
                server.slots.release()


class MetricsServer(ThreadingHTTPServer):
    """Serves metrics until it is shut down; each request is answered in a thread.

    Args:
        host: Address to listen on.
        port: TCP port; 0 for a free one.
        collector: Collects the metrics of each request.
        security: TLS and authentication.

    Raises:
        OSError: The address is in use or not one of this host, or a certificate cannot be read.
    """

    daemon_threads = True

    def __init__(self, host: str, port: int, collector: Collector, security: ServerSecurity) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.slots = threading.BoundedSemaphore(_MAX_REQUESTS)
        credentials = f"{security.user}:{security.password}".encode()
        self._authorization = f"Basic {base64.b64encode(credentials).decode()}" if security.user else ""
        super().__init__((host, port), _Handler.factory(collector))
        if security.certificate is not None:
            try:
                context = _tls_context(security)
            except OSError:
                self.server_close()
                raise
            # The handshake is part of the request's thread: a silent client must not block the others.
            self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)

    @property
    def url(self) -> str:
        """Where the metrics are."""
        host, port = self.server_address[:2]
        scheme = "https" if isinstance(self.socket, ssl.SSLSocket) else "http"
        return f"{scheme}://{f'[{host!s}]' if ':' in str(host) else host!s}:{port}/metrics"

    def admits(self, authorization: str) -> bool:
        """Whether a client with this header may read the page."""
        return not self._authorization or hmac.compare_digest(authorization.encode(), self._authorization.encode())

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore a client that has gone, or that has no valid certificate."""


def _tls_context(security: ServerSecurity) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(str(security.certificate), None if security.key is None else str(security.key))
    if security.client_authority is not None:
        context.load_verify_locations(str(security.client_authority))
        context.verify_mode = ssl.CERT_REQUIRED
    return context
