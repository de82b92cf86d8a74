"""Errors that mean that this process has reached a limit: open files, memory, disk space, threads or processes."""

import errno
import resource
from typing import Final

from gpumon.core.problems import Problem, ProblemCode

_MEMORY_WORDS: Final = ("failed to map segment", "cannot allocate memory")
"""Texts of the dynamic linker in an ImportError."""


def limit_problem(error: BaseException) -> Problem | None:
    """Explain an error whose cause is a limit of the system on this process; None for every other error."""
    code = error.errno if isinstance(error, OSError) else None
    text = str(error).lower()
    if code in {errno.EMFILE, errno.ENFILE}:
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        subject = f"more files: the limit of this process is {limit}" if code == errno.EMFILE else "more files"
        return _problem(f"The system does not open {subject}.", "Raise the limit: ulimit -n 1024.")
    is_import = isinstance(error, ImportError) and any(words in text for words in _MEMORY_WORDS)
    if isinstance(error, MemoryError) or code == errno.ENOMEM or is_import:
        return _problem("The system gives this process no more memory.", "Raise the limit: ulimit -v unlimited.")
    if code in {errno.ENOSPC, errno.EDQUOT}:
        return _problem("The disk is full, or the quota of this user is used up.", "Free some space there.")
    if code == errno.EAGAIN or "can't start new thread" in text:
        reason = "The system starts no more threads or processes for gpumon."
        return _problem(reason, "Raise the limits on processes (ulimit -u) and on memory (ulimit -v).")
    return None


def _problem(reason: str, remedy: str) -> Problem:
    return Problem(ProblemCode.NOT_READ, reason, remedy)
