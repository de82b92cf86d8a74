"""How gpumon writes JSON: lines of a stream or a log, and documents for people and scripts.

Text stays as it is, except for halves of surrogate pairs, which no file can contain and which become question marks.
NaN and infinity are not JSON: a missing value is null, so a document that contains one of them is an error of gpumon.
"""

import json
from typing import Any, Final

_LINE: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, check_circular=False, separators=(",", ":"))
_DOCUMENT: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, indent=2)


def json_line(document: Any) -> str:  # noqa: ANN401 - any document
    """A document on one line, without the line feed.

    Raises:
        ValueError: It contains a number that is not finite.
    """
    return _writable(_LINE.encode(document))


def json_bytes(document: Any) -> bytes:  # noqa: ANN401 - any document
    """A document as a line of a stream or a file, with the line feed.

    Raises:
        ValueError: It contains a number that is not finite.
    """
    return json_line(document).encode() + b"\n"


def json_document(document: Any) -> str:  # noqa: ANN401 - any document
    """A document as ``--json`` prints it, over several lines.

    Raises:
        ValueError: It contains a number that is not finite.
    """
    return _writable(_DOCUMENT.encode(document))


def _writable(text: str) -> str:
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
