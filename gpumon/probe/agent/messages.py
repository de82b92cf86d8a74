"""The JSON lines of the probe's protocol. `gpumon.probe.protocol` describes and reads them."""

from __future__ import annotations

import json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

SCHEMA = 1
MAX_REQUEST_BYTES = 4096
"""Of one request."""
MIN_INTERVAL, DEFAULT_INTERVAL, MAX_INTERVAL = 0.1, 1.0, 60.0
"""Seconds between two messages ``statistics``; the default applies to a client that has not sent ``pace``."""


class RequestError(OSError):
    """A client sent something that is not a request; its connection is closed."""


class RefusedError(Exception):
    """A request cannot be answered; the text is a sentence for the user."""


def encode(message: dict[str, Any]) -> bytes:
    """A message as a line."""
    return json.dumps(message, separators=(",", ":")).encode("utf-8", "replace") + b"\n"


def decode_requests(lines: Iterable[bytes]) -> list[dict[str, Any]]:
    """The requests in complete lines; JSON that is not an object is ignored.

    Raises:
        RequestError: A line is not JSON.
    """
    try:
        documents = [json.loads(line) for line in lines if line.strip()]
    except (ValueError, RecursionError):
        raise RequestError("a request is not JSON") from None
    return [document for document in documents if isinstance(document, dict)]
