"""An HTTP server in place of Prometheus: it sends what a test wants, as slowly and as wrongly as it wants."""

import ssl
import threading
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Respond = Callable[[BaseHTTPRequestHandler, Mapping[str, str]], None]


@dataclass
class FakePrometheus:
    """What the server does, and what it was asked.

    Attributes:
        respond: Answers a request.
        queries: The fields of every request.
        headers: The headers of every request.
        url: Its address.
    """

    respond: Respond
    queries: list[Mapping[str, str]] = field(default_factory=list)
    headers: list[Mapping[str, str]] = field(default_factory=list)
    url: str = ""


def body(content: bytes, status: int = 200, **headers: str) -> Respond:
    """Send a complete answer."""

    def respond(handler: BaseHTTPRequestHandler, _: Mapping[str, str]) -> None:
        handler.send_response(status)
        for name, value in {"Content-Type": "application/json", **headers}.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content)

    return respond


@contextmanager
def serving(respond: Respond, context: ssl.SSLContext | None = None) -> Iterator[FakePrometheus]:
    """Serve on loopback."""
    fake = FakePrometheus(respond)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            text = self.rfile.read(int(self.headers.get("Content-Length", "0"))).decode()
            fake.queries.append(dict(urllib.parse.parse_qsl(text)))
            fake.headers.append(dict(self.headers))
            try:
                fake.respond(self, fake.queries[-1])
            except (BrokenPipeError, ConnectionResetError):
                self.close_connection = True

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            """A client that ends a TLS handshake is no error of a test."""

    server = Server(("127.0.0.1", 0), Handler)
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    scheme = "http" if context is None else "https"
    fake.url = f"{scheme}://127.0.0.1:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield fake
    finally:
        server.shutdown()
        server.server_close()
