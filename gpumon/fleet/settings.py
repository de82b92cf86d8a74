"""What is read from Prometheus, and how it is reached."""

from dataclasses import dataclass, field
from typing import Final

from gpumon.fleet.model import IDLE_SECONDS

MAX_ANSWER_BYTES: Final = 64 << 20
"""Largest answer, decompressed."""
TIMEOUT_SECONDS: Final = 20.0
DEFAULT_INTERVAL_SECONDS: Final = 15.0
HOSTS_INTERVAL_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class PrometheusAddress:
    """How to reach Prometheus. It contains secrets, so it never appears in a command line, in a log or in JSON output.

    Attributes:
        url: Such as ``https://prometheus.example.com/base``.
        token: Bearer token, or empty.
        user: User name of basic authentication, or empty.
        password: Its password.
        ca_file: Certificates of the authorities that are trusted in addition to the system's; empty for none.
        certificate_file: Certificate of this client for mutual TLS, or empty.
        key_file: Its private key, or empty if the certificate's file contains it.
        timeout_seconds: Longest time without data.
        max_bytes: Largest answer, decompressed.
    """

    url: str
    token: str = field(default="", repr=False)
    user: str = ""
    password: str = field(default="", repr=False)
    ca_file: str = ""
    certificate_file: str = ""
    key_file: str = ""
    timeout_seconds: float = TIMEOUT_SECONDS
    max_bytes: int = MAX_ANSWER_BYTES


@dataclass(frozen=True, slots=True)
class FleetSettings:
    """What is read, and how often.

    Attributes:
        address: How to reach Prometheus.
        match: Further label matchers of every metric, such as ``cluster="a"``.
        interval_seconds: Time between two queries.
        idle_seconds: How long a GPU has to be idle until it counts as idle.
    """

    address: PrometheusAddress
    match: str = ""
    interval_seconds: float = DEFAULT_INTERVAL_SECONDS
    idle_seconds: float = IDLE_SECONDS


@dataclass(frozen=True, slots=True)
class HostsSettings:
    """Hosts that are read through ssh.

    Attributes:
        hosts: As for ssh.
        interval_seconds: Time between two frames of a host.
    """

    hosts: tuple[str, ...]
    interval_seconds: float = HOSTS_INTERVAL_SECONDS


FleetSource = FleetSettings | HostsSettings
"""Where a fleet comes from."""
