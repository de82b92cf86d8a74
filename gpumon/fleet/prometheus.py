"""Queries to Prometheus over HTTP. Answers are read in pieces and bounded: 16,384 GPUs are 30 MB of JSON."""

import base64
import http.client
import json
import os
import socket
import ssl
import urllib.error
import urllib.parse
import urllib.request
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from email.message import Message
from functools import partial
from pathlib import Path
from typing import IO, Any, Final, cast

from gpumon.core.deadline import Deadline
from gpumon.core.problems import CommandError, Problem, ProblemCode
from gpumon.core.source_file import open_input
from gpumon.core.text import safe_text
from gpumon.core.tls_files import load_tls_files
from gpumon.fleet.model import FleetError
from gpumon.fleet.settings import PrometheusAddress

ANSWER_SECONDS: Final = 60.0
"""Longest time from the name of the server to the last byte of its answer, however steadily that arrives."""
MAX_SERIES: Final = 400_000
"""Most results of an answer; the query of the screen has about ten of each GPU."""
MAX_RESULT_BYTES: Final = 16 << 20
"""Largest single result; a complete answer may be as large if its JSON has spaces between results."""
_PIECE_BYTES: Final = 1 << 18
_BETWEEN: Final = b'},{"metric":'
"""Between two results. It cannot be part of a label: there, quotation marks are escaped."""
_START: Final = b'"result":['
_MAX_ERROR_BYTES: Final = 4096
_FEWER: Final = "Select fewer GPUs with --match."
_INVALID: Final = "is not a URL such as http://prometheus:9090."
Sample = tuple[Mapping[str, str], float]
Series = tuple[Mapping[str, str], list[tuple[float, float]]]


class Prometheus:
    """A Prometheus server.

    Args:
        address: How to reach it.

    Attributes:
        read_bytes: Size of the last answer, decompressed.

    Raises:
        FleetError: The URL is not valid, or a file of TLS cannot be read.
    """

    def __init__(self, address: PrometheusAddress) -> None:
        parts = _parts(address.url)
        if parts.username or parts.password:
            reason = "The URL contains a password, which other users of this host could read in the list of processes."
            raise FleetError(_problem(reason, "Use --user and --password-file, or --token-file."))
        self.read_bytes = 0
        self._address = address
        self._base = address.url.rstrip("/")
        self._tls = _tls_context(address) if parts.scheme == "https" else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)

    def query(self, expression: str) -> Iterator[Sample]:
        """Run an instant query; yields the labels and the value of each result.

        Raises:
            FleetError: There is no complete answer. What was yielded before may be used or dropped.
        """
        for result in self._results("query", {"query": expression}):
            try:
                labels, value = result["metric"], float(result["value"][1])
            except (KeyError, IndexError, TypeError, ValueError):
                raise FleetError(_not_prometheus(self._base)) from None
            yield labels, value

    def query_range(self, expression: str, start: float, end: float, step: float) -> Iterator[Series]:
        """Run a range query; yields the labels and the points of each series.

        Args:
            expression: PromQL.
            start: Unix time of the first point.
            end: Unix time of the last point.
            step: Seconds between two points.

        Raises:
            FleetError: There is no complete answer.
        """
        fields = {"query": expression, "start": f"{start:.3f}", "end": f"{end:.3f}", "step": f"{step:.3f}"}
        for result in self._results("query_range", fields):
            try:
                points = [(float(seconds), float(value)) for seconds, value in result["values"]]
                labels = result["metric"]
            except (KeyError, TypeError, ValueError):
                raise FleetError(_not_prometheus(self._base)) from None
            yield labels, points

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Around the code that uses results: labels that are no texts are the fault of the server.

        Raises:
            FleetError: The code raised what such labels cause.
        """
        try:
            yield
        except (AttributeError, TypeError, ValueError) as error:
            raise FleetError(_not_prometheus(self._base)) from error

    def _results(self, path: str, fields: Mapping[str, str]) -> Iterator[dict[str, Any]]:
        """Yield every result of an answer."""
        self.read_bytes = series = 0
        buffer = b""
        has_started = False
        deadline = Deadline(ANSWER_SECONDS, self._address.timeout_seconds)
        try:
            with self._open(f"{self._base}/api/v1/{path}", fields, deadline) as answer:
                for piece in self._pieces(answer):
                    buffer += piece
                    if len(buffer) > MAX_RESULT_BYTES:
                        raise FleetError(self._too_large(f"{MAX_RESULT_BYTES >> 20} MiB in one result"))
                    if not has_started:
                        position = buffer.find(_START)
                        if position < 0:
                            continue
                        has_started = True
                        buffer = buffer[position + len(_START) :]
                    last = buffer.rfind(_BETWEEN)
                    if last >= 0:
                        results = json.loads(b"[" + buffer[: last + 1] + b"]")
                        series += len(results)
                        if series > MAX_SERIES:
                            raise FleetError(self._too_large(f"{MAX_SERIES:,} series"))
                        yield from results
                        buffer = buffer[last + 2 :]
            if not has_started:
                raise FleetError(_not_prometheus(self._base))
            yield from self._last_results(buffer)
        except (OSError, http.client.HTTPException, zlib.error) as error:
            raise FleetError(self._failure(error, deadline)) from error
        except (ValueError, RecursionError) as error:
            raise FleetError(_not_prometheus(self._base)) from error

    def _last_results(self, buffer: bytes) -> list[dict[str, Any]]:
        """What follows the last boundary: at least the end of the list, otherwise the answer was cut."""
        try:
            results: list[dict[str, Any]] = json.JSONDecoder().raw_decode("[" + buffer.decode())[0]
        except ValueError:
            raise FleetError(_cut(self._base)) from None
        return results

    def _open(self, url: str, fields: Mapping[str, str], deadline: Deadline) -> "http.client.HTTPResponse":
        headers = {"Accept-Encoding": "gzip", "User-Agent": "gpumon"}
        address = self._address
        if address.token:
            headers["Authorization"] = f"Bearer {address.token}"
        elif address.user:
            credentials = base64.b64encode(f"{address.user}:{address.password}".encode()).decode()
            headers["Authorization"] = f"Basic {credentials}"
        body = urllib.parse.urlencode(fields).encode()
        request = urllib.request.Request(url, body, headers)  # noqa: S310 - the scheme was checked
        opener = urllib.request.build_opener(_NoRedirect(), _DeadlineHandler(deadline, self._tls))
        return opener.open(request)  # type: ignore[no-any-return]

    def _pieces(self, answer: "http.client.HTTPResponse") -> Iterator[bytes]:
        """Yield the body, decompressed and bounded."""
        inflate = zlib.decompressobj(31) if answer.headers.get("Content-Encoding") == "gzip" else None
        while piece := answer.read1(_PIECE_BYTES):
            while piece:
                plain = piece if inflate is None else inflate.decompress(piece, _PIECE_BYTES)
                piece = b"" if inflate is None else inflate.unconsumed_tail
                self.read_bytes += len(plain)
                if self.read_bytes > self._address.max_bytes:
                    raise FleetError(self._too_large(f"{self._address.max_bytes >> 20} MiB"))
                yield plain

    def _too_large(self, limit: str) -> Problem:
        return _problem(f"{self._base} sent more than {limit}, which is the limit of gpumon.", _FEWER)

    def _failure(self, error: Exception, deadline: Deadline) -> Problem:
        """Why there is no answer."""
        base = self._base
        if isinstance(error, urllib.error.HTTPError):
            with error:
                return _http_problem(base, error)
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        if isinstance(reason, ssl.SSLCertVerificationError):
            text = f"The certificate of {base} is not trusted: {safe_text(reason.verify_message, 120)}."
            return _problem(text, "Name its authority with --ca-file.", ProblemCode.NO_PERMISSION)
        if isinstance(reason, ssl.SSLError):
            return _problem(f"TLS with {base} failed: {safe_text(str(reason.reason), 120)}.")
        if isinstance(reason, TimeoutError):
            text = f"{base} sent nothing for {self._address.timeout_seconds:g} s."
            if deadline.has_passed:
                text = f"{base} has not completed its answer within {deadline.seconds:g} s."
            return _problem(text, "It may be overloaded; --match selects fewer GPUs.", ProblemCode.UNRESPONSIVE)
        if isinstance(reason, http.client.IncompleteRead):
            return _cut(base)
        text = getattr(reason, "strerror", None) or str(reason) or type(reason).__name__
        return _problem(f"{base} cannot be reached: {safe_text(text, 120)}.", "Check the URL, and the proxy variables.")


class _HttpConnection(http.client.HTTPConnection):
    """A connection that is over, and all that arrives over it, at a deadline."""

    def __init__(self, deadline: Deadline, host: str, **options: Any) -> None:  # noqa: ANN401 - http.client's types
        super().__init__(host, **options)
        self._create_connection = lambda address, *_: deadline.connect(address)
        self.response_class = cast("type[http.client.HTTPResponse]", partial(_Response, deadline))


class _TlsConnection(_HttpConnection, http.client.HTTPSConnection):
    """The same with TLS."""


class _Response(http.client.HTTPResponse):
    """An answer that is over at a deadline, its headers included."""

    def __init__(self, deadline: Deadline, sock: socket.socket, **options: Any) -> None:  # noqa: ANN401 - http.client's types
        super().__init__(sock, **options)
        unlimited, self.fp = self.fp, deadline.reader(sock)
        unlimited.close()


class _DeadlineHandler(urllib.request.HTTPSHandler, urllib.request.HTTPHandler):
    """Opens such connections for urllib.

    Args:
        deadline: When they are over.
        tls: How the server is verified.
    """

    def __init__(self, deadline: Deadline, tls: ssl.SSLContext) -> None:
        super().__init__(context=tls)
        self._deadline = deadline
        self._tls = tls

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        """Open a connection."""
        return self.do_open(cast("type[http.client.HTTPConnection]", partial(_HttpConnection, self._deadline)), req)

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        """Open a connection with TLS."""
        connect = cast("type[http.client.HTTPConnection]", partial(_TlsConnection, self._deadline))
        return self.do_open(connect, req, context=self._tls)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: it could send the token to another host."""

    def redirect_request(  # noqa: PLR0917 - urllib passes them by position
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Message, newurl: str
    ) -> None:
        del req, fp, code, msg, headers, newurl


def _tls_context(address: PrometheusAddress) -> ssl.SSLContext:
    """A context that verifies the server.

    Raises:
        FleetError: A file cannot be read.
    """
    context = ssl.create_default_context()
    try:
        load_tls_files(context, address.ca_file, address.certificate_file, address.key_file)
    except OSError as error:
        text = f"{error.filename} cannot be used for TLS: {error.strerror}."
        raise FleetError(_problem(safe_text(text, 240))) from error
    return context


def _parts(url: str) -> urllib.parse.SplitResult:
    """The parts of a URL.

    Raises:
        FleetError: It is not one of HTTP.
    """
    try:
        parts = urllib.parse.urlsplit(url)
        is_valid = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_valid = False
    if not is_valid or parts.query or parts.fragment or not url.isprintable() or " " in url:
        raise FleetError(_problem(f"{_without_password(url)} {_INVALID}", code=ProblemCode.INVALID_VALUE))
    return parts


def _without_password(url: str) -> str:
    """A URL that is not valid, for a message: what may be a password is left out."""
    head, at, rest = url.rpartition("@")
    return safe_text(f"{head.partition('//')[0]}//…@{rest}" if at else url, 80)


def _http_problem(base: str, error: urllib.error.HTTPError) -> Problem:
    """What an HTTP status means."""
    if error.code in {401, 403}:
        remedy = "Give a token with --token-file, or a user with --user and --password-file."
        return _problem(f"{base} refuses access (HTTP {error.code}).", remedy, ProblemCode.NO_PERMISSION)
    if 300 <= error.code < 400:
        target = safe_text(error.headers.get("Location", "another address"), 120)
        return _problem(f"{base} redirects to {target}.", "Redirects are not followed: give that address as the URL.")
    if error.code == 404:
        return _problem(f"{base} has no Prometheus API (HTTP 404).", "The URL may lack a prefix, such as /prometheus.")
    try:
        text = _error_text(error.read(_MAX_ERROR_BYTES))
    except (OSError, http.client.HTTPException):
        text = ""
    detail = f": {text}" if text else ""
    return _problem(f"{base} answers with HTTP {error.code}{detail}.", "The values before are kept.")


def _error_text(body: bytes) -> str:
    """The error in an answer of Prometheus."""
    try:
        return safe_text(str(json.loads(body)["error"]), 200).rstrip(".")
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""


def _not_prometheus(base: str) -> Problem:
    return _problem(f"The answer of {base} is not one of Prometheus.", "Check the URL.", ProblemCode.DAMAGED)


def _cut(base: str) -> Problem:
    return _problem(f"The answer of {base} ends early.", "", ProblemCode.DAMAGED)


def _problem(reason: str, remedy: str = "", code: ProblemCode = ProblemCode.NOT_READ) -> Problem:
    return Problem(code, reason, remedy)


def read_secret(file: Path | None, variable: str) -> str:
    """A secret from the first line of a file, else from the environment, else empty.

    Raises:
        CommandError: The file cannot be read or is empty.
    """
    if file is None:
        return os.environ.get(variable, "")
    try:
        with open_input(file) as opened:
            lines = opened.read(1 << 16).decode().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError.usage(ProblemCode.INVALID_VALUE, f"{file} cannot be read: {error}.") from error
    if not lines or not lines[0].strip():
        raise CommandError.usage(ProblemCode.INVALID_VALUE, f"{file} is empty.")
    return lines[0].strip()
