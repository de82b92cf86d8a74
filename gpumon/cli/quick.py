"""`gpumon status --format` for bars and prompts: a running exporter of this host answers, before click is imported.

What it does not answer, or not at once, `gpumon.cli.commands` does, which also prints all errors. A prompt waits for
this module: it imports little, and not `typing`, which takes as long as the interpreter's start.
"""

import os
import sys

_TIMEOUT_SECONDS = 0.5
_MAX_BYTES = 1 << 20
_OPTIONS = {"--format", "--gpu"}


def is_answered(argv: list[str]) -> bool:
    """Print the answer of the exporter to a command line, if it is such a one and nothing else sets its options."""
    options = dict(zip(argv[1::2], argv[2::2], strict=False))
    if argv[:1] != ["status"] or len(argv) % 2 == 0 or "--format" not in options or options.keys() - _OPTIONS:
        return False
    if _is_configured() or sys.stdout is None:
        return False
    try:
        text = _answer(options)
        if not text.replace("\n", "").isprintable():  # any user may listen on a port
            return False
        sys.stdout.write(text)
        sys.stdout.flush()
    except (OSError, ValueError):
        return False
    return True


def _is_configured() -> bool:
    """Whether a variable or the configuration file may set an option of the command."""
    if any(name.startswith("GPUMON_STATUS_") for name in os.environ):
        return True
    folder = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")  # noqa: PTH111 - pathlib costs 5 ms
    try:
        file = os.open(f"{folder}/gpumon/config.toml", os.O_RDONLY | os.O_NONBLOCK)  # a pipe is not waited for
        try:
            return b"status" in os.read(file, 1 << 16)
        finally:
            os.close(file)
    except OSError:
        return False


def _answer(options: dict[str, str]) -> str:
    """The lines of an exporter that listens on its default address or on ``GPUMON_EXPORTER_LISTEN``.

    Raises:
        OSError: No exporter answers.
        ValueError: The address or the answer cannot be read.
    """
    host, _, port = os.environ.get("GPUMON_EXPORTER_LISTEN", "127.0.0.1:19440").rpartition(":")
    with open("/proc/sys/kernel/random/boot_id", "rb") as file:  # noqa: PTH123
        boot = file.read().decode().strip()  # through a forwarded port, the exporter of another host may answer
    fields = {"format": options["--format"], "gpu": options.get("--gpu", ""), "boot": boot}
    query = "&".join(name + "=" + "".join(f"%{byte:02x}" for byte in text.encode()) for name, text in fields.items())
    address = host.strip("[]").encode() or b"127.0.0.1"  # bytes: for a text, a codec is imported
    answer = _response(address, int(port), f"GET /status?{query} HTTP/1.0\r\n\r\n".encode())
    head, _, body = answer.partition(b"\r\n\r\n")
    if b" 200 " not in head.partition(b"\r\n")[0] or b"\r\nX-Gpumon: status" not in head:
        raise OSError("no answer")
    return body.decode()


def _response(host: bytes, port: int, request: bytes) -> bytes:
    """The first answer to a request from an address of the host.

    Raises:
        OSError: None answers in time, or its answer is too long.
    """
    import _socket  # without the imports of socket, which take longer than the answer; other commands need neither

    for family, kind, protocol, _, target in _socket.getaddrinfo(host, port, 0, _socket.SOCK_STREAM):
        connection = _socket.socket(family, kind, protocol)
        try:
            connection.settimeout(_TIMEOUT_SECONDS)
            connection.connect(target)
            connection.sendall(request)
            answer = bytearray()
            while len(answer) <= _MAX_BYTES:
                if not (data := connection.recv(1 << 16)):
                    return bytes(answer)
                answer += data
        except OSError:
            continue
        finally:
            connection.close()
    raise OSError("no address answers")
