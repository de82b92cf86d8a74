"""Files of certificates and keys that the user names for TLS."""

import errno
import os
import ssl
from contextlib import ExitStack
from pathlib import Path

from gpumon.core.state_file import open_regular


def load_tls_files(context: ssl.SSLContext, authority: str, certificate: str, key: str) -> None:
    """Load authorities to trust and a certificate with its key; an empty name is no file.

    Raises:
        OSError: A file, which it names, cannot be read, is not a regular one, or is not in PEM format.
    """
    with ExitStack() as stack:

        def opened(file: str) -> str:
            """A path for OpenSSL, which would wait for a pipe."""
            descriptor = open_regular(Path(file), os.O_RDONLY)
            stack.callback(os.close, descriptor)
            return f"/proc/self/fd/{descriptor}"

        files = authority
        try:
            if authority:
                context.load_verify_locations(opened(authority))
            files = " with ".join(filter(None, (certificate, key)))
            if certificate:
                # Without a password, OpenSSL would ask for that of an encrypted key on the terminal.
                context.load_cert_chain(opened(certificate), opened(key) if key else None, lambda: "")
        except ssl.SSLError as error:
            reason = (error.reason or "not in PEM format").lower().replace("_", " ")
            raise OSError(errno.EINVAL, reason, files) from error
