"""Refusals whose cause has to be looked up, or whose sentence depends on the process and on this host."""

import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Final

from gpumon.core.problems import CommandError, ProblemCode
from gpumon.core.procfs import find_command, read_status
from gpumon.core.text import safe_text
from gpumon.probe.attach.refusals import ALTERNATIVES, RefusalError
from gpumon.probe.attach.target import Target

MIN_VERSION: Final = (3, 8)
"""The first Python into which the probe can be loaded while it runs."""
REMOTE_EXEC_VERSION: Final = (3, 14)
"""The first Python with `sys.remote_exec`, which gpumon uses from there on."""

_DISABLED: Final = "PYTHON_DISABLE_REMOTE_DEBUG"
_OPTION: Final = "disable-remote-debug"
_DEFAULT_FOLDER: Final = Path("/tmp")  # noqa: S108 - only compared with the one that the process sees
_SUDO_FOLDERS: Final = frozenset(Path(folder) for folder in ("/usr/local/bin", "/usr/bin", "/bin"))
"""Where sudo finds programs by their names."""
NO_ATTACH: Final = "3"
"""The value of kernel.yama.ptrace_scope that forbids everything, to root too, until the next boot."""
_PTRACE_SCOPES: Final = {
    "1": "only parent processes to access the memory of their children",
    "2": "only root to access the memory of other processes",
    NO_ATTACH: "no process to access the memory of another one",
}
"""What kernel.yama.ptrace_scope allows, by its value; with 0, and without Yama, all processes of the same user may."""


def too_old(target: Target, version: tuple[int, ...]) -> RefusalError:
    """The process runs a Python before `MIN_VERSION`: major, minor and, if known, micro version."""
    return RefusalError("too_old", target=target, version=dotted(version))


def cannot_run(target: Target, output: str) -> RefusalError:
    """The interpreter of the process does not run in a second process; ``output`` is its last line, or the error."""
    if target.is_replaced:
        reason = f"The Python interpreter of {target.name} was replaced or removed since it started"
    else:
        reason = f"gpumon cannot run {safe_text(target.program, 200)}, the Python interpreter of {target.name}"
    return RefusalError("not_runnable", detail=with_detail(reason, output))


def not_accepted(target: Target, errors: tuple[str, ...], *, is_forbidden: bool) -> RefusalError:
    """`sys.remote_exec` raised errors, the outermost first, or the kernel denied access.

    The cause is looked up only now, so that no attempt that would succeed is rejected.
    """
    if target.state is None:
        return RefusalError("ended", target=target)
    if is_forbidden:
        return forbidden(target)
    if "not enabled" in errors[0]:
        return RefusalError("not_enabled", target=target, detail=_disabled_by(target))
    replaced = ", whose Python interpreter was replaced or removed since it started" if target.is_replaced else ""
    detail = ", from ".join(dict.fromkeys((errors[0], errors[-1])))
    return RefusalError("not_reached", detail=with_detail(f"gpumon cannot reach {target.name}{replaced}", detail))


def keeps_probe(target: Target, seconds: float) -> CommandError:
    """The probe has not ended in time, or does not know the request."""
    return CommandError.failure(
        ProblemCode.UNRESPONSIVE,
        f"The probe of {target.name} has not ended within {seconds:g} s.",
        "It ends when its thread gets the GIL, which a library may hold. A probe of an older gpumon stays until the "
        "process ends.",
    )


def timed_out(target: Target, seconds: float, *, has_run: bool) -> CommandError:
    """Nothing failed, but the probe has not answered for some seconds; maybe only the answer is missing."""
    if has_run and not target.sees(_DEFAULT_FOLDER):
        reason = (
            f"The probe was started in {target.name}, but may listen in the {_DEFAULT_FOLDER} of that process, which "
            "is another folder."
        )
        remedy = "Restart the process with GPUMON_PROBE_DIR set, as for gpumon, to a folder that both processes see."
    elif has_run:
        reason = f"The probe was started in {target.name} and has not answered for {seconds:g} s."
        remedy = "The probe answers when its thread gets the GIL, which a library may hold. Run gpumon memory then."
    elif target.state in {"T", "t"}:
        reason = f"{target} is stopped, so the probe is not loaded yet."
        remedy = f"The probe starts when the process continues, for example after kill -CONT {target.pid}."
    else:
        reason = (
            f"The main thread of {target.name} has run no Python code for {seconds:g} s, so the probe is not loaded "
            "yet. The thread may be waiting or in a long library call."
        )
        remedy = (
            "The probe starts if the main thread runs Python code again within an hour. gpumon memory shows it then."
        )
    return CommandError.failure(ProblemCode.UNRESPONSIVE, reason, remedy)


def _disabled_by(target: Target) -> str:
    if target.environment().get(_DISABLED):
        return f"{_DISABLED} is set in its environment"
    if any(_OPTION in argument for argument in target.arguments()):
        return f"it was started with -X {_OPTION}"
    return "its Python was built without remote debugging"


def ptrace_scope(target: Target) -> str:
    """The value of kernel.yama.ptrace_scope; empty without Yama."""
    try:
        return (target.proc / "sys/kernel/yama/ptrace_scope").read_text().strip()
    except OSError:
        return ""


def forbidden(target: Target) -> RefusalError:
    """The kernel does not let gpumon access the memory of the process."""
    scope = ptrace_scope(target)
    allowed = _PTRACE_SCOPES.get(scope)
    if allowed is None:
        return RefusalError("needs_capability", target=target, remedy=_capability_remedy(target))
    if scope == NO_ATTACH:
        remedy = ALTERNATIVES
    else:
        remedy = _capability_remedy(target) if _has_no_more_rights() else _scope_remedy(target, scope)
    return RefusalError("ptrace_scope", target=target, scope=scope, allowed=allowed, remedy=remedy)


def traced(target: Target, tracer: int) -> RefusalError:
    """Another process traces the process already; the kernel allows one."""
    command = find_command(target.proc / str(tracer), 80)
    return RefusalError("traced", target=target, tracer=tracer, command=command)


def _scope_remedy(target: Target, scope: str) -> str:
    allow = ", or allow it until the next boot (sudo sysctl kernel.yama.ptrace_scope=0) and set it to 1 again"
    attach = _as_root(target) + (allow if scope == "1" else "")
    return f"Run {attach}. For programs that you start later, run gpumon enable once: then nothing has to be attached."


def _as_root(target: Target) -> str:
    """The command for root; sudo does not look for programs in virtual environments."""
    program = shutil.which("gpumon") or "gpumon"
    return f"sudo {Path(program).name if Path(program).parent in _SUDO_FOLDERS else program} attach {target.pid}"


def _capability_remedy(target: Target) -> str:
    """How this host gives the capability."""
    if not _has_no_more_rights():
        return f"Run {_as_root(target)}."
    if os.environ.get("KUBERNETES_SERVICE_HOST"):
        return (
            'Give the container the capability: securityContext: {capabilities: {add: ["SYS_PTRACE"]}}; or run gpumon '
            "in kubectl debug --profile=sysadmin --target=CONTAINER."
        )
    if os.environ.get("SLURM_JOB_ID"):
        return f"Run it in the job: srun --overlap --jobid {os.environ['SLURM_JOB_ID']} gpumon attach {target.pid}."
    return "Run gpumon as root with the capability SYS_PTRACE (docker run --cap-add SYS_PTRACE)."


def _has_no_more_rights() -> bool:
    """Whether sudo gives no more rights here: for root, and in a container."""
    is_in_container = any(map(os.path.exists, ("/.dockerenv", "/run/.containerenv")))
    return os.geteuid() == 0 or is_in_container or "KUBERNETES_SERVICE_HOST" in os.environ


def denied(target: Target) -> RefusalError:
    """The kernel does not let gpumon trace the process."""
    with suppress(OSError, KeyError, ValueError):
        tracer = int(read_status(target.proc / str(target.pid))["TracerPid"])
        if tracer:
            return traced(target, tracer)
    return forbidden(target)


def dotted(version: tuple[int, ...]) -> str:
    """A version as text."""
    return ".".join(str(number) for number in version)


def with_detail(sentence: str, detail: str) -> str:
    """A sentence that ends with the text of another program, if there is one."""
    return f"{sentence}: {safe_text(detail, 300).rstrip('.')}." if detail else f"{sentence}."
