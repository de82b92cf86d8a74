"""`gpumon exporter`: the measurements of this host for Prometheus, over HTTP or in a text file."""

import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import click

from gpumon.cli.options import debug_option, interval_option, options
from gpumon.core.problems import SIGNAL_BASE, CommandError, ExitCode, Problem, ProblemCode

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import MetricReader
    from prometheus_client.core import Metric
    from prometheus_client.registry import Collector, CollectorRegistry

    from gpumon.cli.metrics_server import ServerSecurity
    from gpumon.session.host_monitor import HostMonitor

_FIRST_FRAME_SECONDS: Final = 10.0
_LAST_PUSH_SECONDS: Final = 3.0
_WAKE_SECONDS: Final = 0.5
_MAX_PORT: Final = 65535


class Address(click.ParamType[str]):
    """An address and a port such as ``127.0.0.1:19440`` or ``[::1]:19440``."""

    name = "address"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The text, if it is an address and a port."""
        _, colon, port = value.rpartition(":")
        if not colon or not (port.isascii() and port.isdecimal()) or int(port) > _MAX_PORT:
            self.fail(f"{value!r} is not an address and a port such as 127.0.0.1:19440.", param, ctx)
        return value


def _host_and_port(address: str) -> tuple[str, int]:
    """The parts of an `Address`."""
    host, _, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    return host or "0.0.0.0", int(port)  # noqa: S104 - only if the user leaves the address out, as in ":19440"


@click.command(short_help="Serve this host's values to Prometheus.")
@click.option(
    "--listen",
    type=Address(),
    default="127.0.0.1:19440",
    show_default=True,
    metavar="ADDRESS:PORT",
    help="Where to serve the metrics.",
)
@options("exporter")
@interval_option
@debug_option
def exporter(  # noqa: PLR0917 - click passes them by name
    listen: str,
    textfile: Path | None,
    otlp: str | None,
    names: str,
    processes: bool,
    tls_certificate: Path | None,
    tls_key: Path | None,
    tls_client_ca: Path | None,
    user: str,
    password_file: Path | None,
    interval: float,
) -> int:
    """Serve GPUs, processes, alerts and PyTorch memory of this host to Prometheus until interrupted.

    Only this host can connect, unless --listen says otherwise. The page "Fleet and Prometheus", which ctrl+p in gpumon
    opens, describes the metrics.
    """
    if bool(user) != (password_file is not None):
        raise click.UsageError("Basic authentication needs both --user and --password-file.")
    if (tls_key or tls_client_ca) and tls_certificate is None:
        raise click.UsageError("--tls-key and --tls-client-ca need --tls-certificate.")
    if otlp is not None and textfile is not None:
        raise click.UsageError("--otlp and --textfile exclude each other.")
    make_reader = None if otlp is None else _otlp_reader(otlp)
    from gpumon.cli.group import thresholds
    from gpumon.cli.metrics_server import ServerSecurity
    from gpumon.core.heap import limit_heap
    from gpumon.fleet.prometheus import read_secret
    from gpumon.session.host_monitor import HostMonitor
    from gpumon.streams.live import LiveStream

    limit_heap()  # each request has a thread, which would get a separate heap
    security = ServerSecurity(tls_certificate, tls_key, tls_client_ca, user, read_secret(password_file, ""))
    monitor = HostMonitor(LiveStream(interval), thresholds())
    with ending_signals() as stop:
        monitor.start()
        try:
            registry = _registry(monitor, names, with_processes=processes)
            if make_reader is not None:
                _push(make_reader(), monitor, stop)
            elif textfile is not None:
                _write_file(textfile, registry, interval, stop)
            else:
                _serve(_host_and_port(listen), registry, security, stop, _status_lines(monitor))
        finally:
            monitor.close()
    return SIGNAL_BASE + stop.number


class _Stop(threading.Event):
    """Set by the signal that ends the exporter.

    Attributes:
        number: The signal.
    """

    number = 0

    def receive(self, number: int, _: FrameType | None) -> None:
        """Handle a signal."""
        self.number = number
        self.set()


@contextmanager
def ending_signals() -> Iterator[_Stop]:
    """Report the signals that end this command, so that it stops its collector first."""
    stop = _Stop()
    before = {number: signal.signal(number, stop.receive) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _registry(monitor: "HostMonitor", names: str, *, with_processes: bool) -> "CollectorRegistry":
    """A registry with the metrics of this host alone, after the first frame or some seconds without one."""
    from prometheus_client import CollectorRegistry

    from gpumon.present.dcgm import dcgm_families
    from gpumon.present.prometheus import metric_families

    class HostCollector:
        def collect(self) -> "Iterable[Metric]":
            if names == "dcgm":
                return dcgm_families(monitor.state())
            return metric_families(monitor.state(), with_processes=with_processes)

    monitor.wait_for_frame(_FIRST_FRAME_SECONDS)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(HostCollector())
    return registry


def _status_lines(monitor: "HostMonitor") -> Callable[[dict[str, str]], str | None]:
    """What ``gpumon status --format`` prints; None where the client has to find out itself, such as on another host."""
    from gpumon.operations.device_selection import select_devices
    from gpumon.operations.pick_reservations import boot_id
    from gpumon.present.prometheus import is_frame_current
    from gpumon.present.text.status import formatted

    def lines(query: dict[str, str]) -> str | None:
        state = monitor.state()
        frame = state.frame
        if query.get("boot") != boot_id() or frame is None or not frame.devices or "driver" in frame.problems:
            return None
        if state.problem is not None or not is_frame_current(frame, state.age_seconds):
            return None
        try:
            chosen = replace(frame, devices=select_devices(query.get("gpu") or "all", frame.devices))
            return "".join(f"{line}\n" for line in formatted(chosen, query.get("format", "")))
        except CommandError:
            return None

    return lines


def _serve(
    address: tuple[str, int],
    registry: "Collector",
    security: "ServerSecurity",
    stop: _Stop,
    status: Callable[[dict[str, str]], str | None],
) -> None:
    """Serve until a signal arrives.

    Raises:
        CommandError: The address cannot be used, or a certificate cannot be read.
    """
    from gpumon.cli.metrics_server import MetricsServer

    host, port = address
    try:
        server = MetricsServer(host, port, registry, security, status)
    except OSError as error:
        text = error.strerror or str(error)
        what = f"serve {host}:{port}" if error.filename is None else f"use {error.filename}"
        remedy = "Choose another address with --listen, and check the files of the --tls options."
        raise CommandError.missing(ProblemCode.NOT_SUPPORTED, f"The exporter cannot {what}: {text}.", remedy) from error
    with server:
        threading.Thread(target=server.serve_forever, name="gpumon-exporter", daemon=True).start()
        click.echo(f"Serving {server.url}", err=True)
        if not _is_loopback(host) and not security.user and security.client_authority is None:
            text = "Everyone who reaches this address can read user names and jobs. See --user and --tls-client-ca."
            click.echo(f"gpumon: {text}", err=True)
        while not stop.wait(_WAKE_SECONDS):
            pass  # Python handles a signal that another thread has received only when the main thread wakes up
        server.shutdown()


def _otlp_reader(url: str) -> "Callable[[], MetricReader]":
    """Starts what sends metrics to a collector, at the interval in OpenTelemetry's variables.

    Raises:
        CommandError: The extra is not installed.
    """
    try:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
    except ImportError as error:
        reason = "The Python packages of OpenTelemetry are not installed."
        remedy = "Install them next to gpumon: pip install 'gpumon-tui[otlp]'"
        raise CommandError.missing(ProblemCode.NOT_FOUND, reason, remedy) from error
    endpoint = url if urlsplit(url).path.strip("/") else f"{url.rstrip('/')}/v1/metrics"
    return lambda: PeriodicExportingMetricReader(OTLPMetricExporter(endpoint))


def _push(reader: "MetricReader", monitor: "HostMonitor", stop: _Stop) -> None:
    """Send metrics until a signal arrives."""
    from gpumon.present.otlp import meter_provider

    provider = meter_provider(reader, monitor.state)
    while not stop.wait(_WAKE_SECONDS):
        pass  # as in _serve
    provider.shutdown(timeout_millis=_LAST_PUSH_SECONDS * 1000)


def _write_file(file: Path, registry: "Collector", interval: float, stop: _Stop) -> None:
    """Write the file at every interval until a signal arrives, and remove it then.

    Raises:
        CommandError: The file cannot be written the first time; later failures are reported and tried again.
    """
    from prometheus_client import write_to_textfile

    has_written = False
    reported = ""
    while not stop.is_set():
        try:
            write_to_textfile(str(file), registry)
            has_written, reported = True, ""
        except OSError as error:
            problem = Problem(ProblemCode.NOT_WRITTEN, f"{file} cannot be written: {error.strerror or error}.")
            if not has_written:
                raise CommandError(problem, ExitCode.MISSING_PREREQUISITE) from error
            if str(problem) != reported:
                reported = str(problem)
                click.echo(f"gpumon: {problem}", err=True)
        stop.wait(interval)
    with suppress(OSError):
        file.unlink()  # values without updates would look current


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
