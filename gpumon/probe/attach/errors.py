"""Why a probe cannot be loaded into a Python process: one function per cause, each with a reason and a remedy."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from gpumon.core.problems import CommandError, ProblemCode
from gpumon.core.procfs import find_command, read_status
from gpumon.core.text import safe_text
from gpumon.probe.attach.target import RefusalError, Target

MIN_VERSION: Final = (3, 8)
"""The first Python into which the probe can be loaded while it runs."""
REMOTE_EXEC_VERSION: Final = (3, 14)
"""The first Python with `sys.remote_exec`, which gpumon uses from there on."""

WITHOUT_GIL: Final = "runs a free-threaded build of Python, into which the probe can be loaded from Python 3.14 on"
NO_SYMBOLS: Final = "has no CPython with dynamic symbols: a static build, a stripped one, or another Python"
_ALTERNATIVES: Final = (
    "Restart the process with `gpumon watch -- COMMAND`, or add `import gpumon.probe; gpumon.probe.start()` to it."
)
_DISABLED: Final = "PYTHON_DISABLE_REMOTE_DEBUG"
_OPTION: Final = "disable-remote-debug"
_DEFAULT_FOLDER: Final = Path("/tmp")  # noqa: S108 - only compared with the one that the process sees
NO_ATTACH: Final = "3"
"""The value of kernel.yama.ptrace_scope that forbids everything, to root too, until the next boot."""
_PTRACE_SCOPES: Final = {
    "1": "only parent processes to access the memory of their children",
    "2": "only root to access the memory of other processes",
    NO_ATTACH: "no process to access the memory of another one",
}
"""What kernel.yama.ptrace_scope allows, by its value; with 0, and without Yama, all processes of the same user may."""


def too_old(target: Target, version: tuple[int, ...]) -> CommandError:
    """The process runs a Python without `sys.remote_exec`.

    Args:
        target: The process.
        version: Major, minor and, if known, micro version.
    """
    return RefusalError.because(
        "Python too old",
        ProblemCode.NOT_SUPPORTED,
        f"{target} runs Python {_dotted(version)}. Loading the probe into a running process requires Python "
        f"{_dotted(MIN_VERSION)} or later.",
        _ALTERNATIVES,
    )


def other_file_system(target: Target) -> CommandError:
    """The process has another root file system."""
    return RefusalError.because(
        "other file system",
        ProblemCode.NOT_SUPPORTED,
        f"{target} runs in another file system, such as a container. gpumon does not run its {_program(target)} here.",
        f"Run `gpumon attach {target.own_pid}` inside its container, where gpumon must be installed: use docker exec, "
        f"or nsenter --target {target.pid} --mount --pid.",
    )


def no_temporary_folder(error: OSError) -> CommandError:
    """The folder for the script cannot be created."""
    return RefusalError.because(
        "no TMPDIR",
        ProblemCode.NOT_WRITTEN,
        f"gpumon cannot create its temporary folder: {safe_text(error.strerror or str(error), 200)}.",
        "Set TMPDIR to a writable folder.",
    )


def other_temporary_folder(target: Target, folder: Path) -> CommandError:
    """The process does not see the folder for the script."""
    return RefusalError.because(
        "other /tmp",
        ProblemCode.NOT_SUPPORTED,
        f"{target} does not see gpumon's temporary folder in {safe_text(str(folder), 200)}. It may be a service with a "
        "private /tmp.",
        "Set TMPDIR to a folder that both processes see, and in which no other user can replace files.",
    )


def no_interpreter(target: Target) -> CommandError:
    """The process is a program that embeds Python, and gpumon runs another version of Python."""
    version = _dotted(target.named_version or ())
    return RefusalError.because(
        "embeds Python",
        ProblemCode.NOT_FOUND,
        f"{target} is a program that embeds Python {version}. gpumon needs a Python {version} interpreter to load the "
        "probe into it.",
        f"Run gpumon with Python {version}.",
    )


def cannot_run(target: Target, output: str) -> CommandError:
    """The interpreter of the process does not run in a second process.

    Args:
        target: The process.
        output: What the interpreter printed, or the kernel's error.
    """
    if target.is_replaced:
        reason = f"The Python interpreter of {target.name} was replaced or removed since it started"
    else:
        reason = f"gpumon cannot run {_program(target)}, the Python interpreter of {target.name}"
    return RefusalError.because("not accepted", ProblemCode.NOT_SUPPORTED, _with_detail(reason, output), _ALTERNATIVES)


def not_accepted(target: Target, errors: tuple[str, ...], *, is_forbidden: bool) -> CommandError:
    """`sys.remote_exec` failed. The cause is looked up only now, so that no attempt that would succeed is rejected.

    Args:
        target: The process.
        errors: What `sys.remote_exec` raised, the outermost exception first.
        is_forbidden: Whether the kernel denied access to the process.
    """
    if target.state is None:
        return ended(target)
    if is_forbidden:
        return forbidden(target)
    if "not enabled" in errors[0]:
        return RefusalError.because(
            "not accepted",
            ProblemCode.NOT_SUPPORTED,
            f"{target} does not allow remote debugging: {_disabled_by(target)}.",
            _ALTERNATIVES,
        )
    replaced = ", whose Python interpreter was replaced or removed since it started" if target.is_replaced else ""
    detail = ", from ".join(dict.fromkeys((errors[0], errors[-1])))
    return RefusalError.because(
        "not accepted",
        ProblemCode.UNKNOWN,
        _with_detail(f"gpumon cannot reach {target.name}{replaced}", detail),
        _ALTERNATIVES,
    )


def failed(target: Target, reason: str) -> CommandError:
    """The probe raised an exception when it started."""
    return RefusalError.because(
        "failed",
        ProblemCode.UNKNOWN,
        _with_detail(f"The probe could not start in {target.name}", reason),
        _ALTERNATIVES,
    )


def disabled(target: Target) -> CommandError:
    """The environment of the process disables the probe."""
    return RefusalError.because(
        "disabled",
        ProblemCode.NOT_SUPPORTED,
        f"{target} has GPUMON_PROBE=0 in its environment, which disables the probe.",
        "Restart the process without that variable.",
    )


def ended(target: Target) -> CommandError:
    """The process ended before it ran the script."""
    return RefusalError.because("ended", ProblemCode.NOT_FOUND, f"{target} ended before the probe was loaded.")


def unreadable(pid: int) -> CommandError:
    """/proc blocks when the process is read."""
    return RefusalError.because(
        "hangs",
        ProblemCode.UNRESPONSIVE,
        f"/proc does not respond for process {pid}, which hangs in the kernel or in a driver.",
        "Run gpumon doctor to check the driver.",
    )


def keeps_probe(target: Target, seconds: float) -> CommandError:
    """The probe has not ended in time, or does not know the request."""
    return CommandError.failure(
        ProblemCode.UNRESPONSIVE,
        f"The probe of {target.name} has not ended within {seconds:g} s.",
        "It ends when its thread gets the GIL, which a library may hold. A probe of an older gpumon stays until the "
        "process ends.",
    )


def timed_out(target: Target, seconds: float, *, has_run: bool) -> CommandError:
    """Nothing failed, but the probe does not answer yet.

    Args:
        target: The process.
        seconds: How long gpumon has waited.
        has_run: Whether the process has run the script, and only the answer is missing.
    """
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


def forbidden(target: Target) -> CommandError:
    """The kernel does not let gpumon access the memory of the process."""
    scope = ptrace_scope(target)
    allowed = _PTRACE_SCOPES.get(scope)
    if allowed is None:
        return RefusalError.because(
            "needs SYS_PTRACE",
            ProblemCode.NO_PERMISSION,
            f"The kernel does not allow gpumon to access the memory of {target.name}.",
            _capability_remedy(target),
        )
    return RefusalError.because(
        f"ptrace_scope {scope}",
        ProblemCode.NO_PERMISSION,
        f"The kernel allows {allowed} (kernel.yama.ptrace_scope is {scope}), so gpumon cannot reach {target.name}.",
        _ALTERNATIVES if scope == NO_ATTACH else _scope_remedy(target, scope),
    )


def _scope_remedy(target: Target, scope: str) -> str:
    attach = f"sudo gpumon attach {target.pid}"
    if scope == "1":
        attach += (
            f", or allow it until the next boot (sudo sysctl kernel.yama.ptrace_scope=0) and set it to {scope} again"
        )
    return f"Run {attach}. For programs that you start later, run gpumon enable once: then nothing has to be attached."


def _capability_remedy(target: Target) -> str:
    """How this host gives the capability."""
    if os.geteuid() != 0 and not _is_in_container():
        return f"Run sudo gpumon attach {target.pid}."
    if os.environ.get("KUBERNETES_SERVICE_HOST"):
        return (
            'Give the container the capability: securityContext: {capabilities: {add: ["SYS_PTRACE"]}}; or run gpumon '
            "in kubectl debug --profile=sysadmin --target=CONTAINER."
        )
    if os.environ.get("SLURM_JOB_ID"):
        return f"Run it in the job: srun --overlap --jobid {os.environ['SLURM_JOB_ID']} gpumon attach {target.pid}."
    return "Run gpumon as root with the capability SYS_PTRACE (docker run --cap-add SYS_PTRACE)."


def _is_in_container() -> bool:
    return "KUBERNETES_SERVICE_HOST" in os.environ or any(map(os.path.exists, ("/.dockerenv", "/run/.containerenv")))


def unsuitable(target: Target, word: str, clause: str) -> CommandError:
    """The process is not one in which calls can be made.

    Args:
        target: The process.
        word: Why, for a column.
        clause: Why, with the process as its subject.
    """
    return RefusalError.because(word, ProblemCode.NOT_SUPPORTED, f"{target} {clause}.", _ALTERNATIVES)


def traced(target: Target, tracer: int) -> CommandError:
    """Another process traces the process already; the kernel allows one."""
    name = find_command(target.proc / str(tracer), 80)
    return RefusalError.because(
        "traced",
        ProblemCode.NO_PERMISSION,
        f"{target} is traced by process {tracer} ({name}), such as a debugger, strace or another gpumon.",
        "Run gpumon attach again when that has ended.",
    )


def denied(target: Target) -> CommandError:
    """The kernel does not let gpumon trace the process."""
    with suppress(OSError, KeyError, ValueError):
        tracer = int(read_status(target.proc / str(target.pid))["TracerPid"])
        if tracer:
            return traced(target, tracer)
    return forbidden(target)


def not_now(target: Target, reason: str) -> CommandError:
    """The main thread is where it must not be used, and was not used.

    Args:
        target: The process.
        reason: Why, as a clause.
    """
    return RefusalError.because(
        "not now", ProblemCode.UNRESPONSIVE, f"{target} stays as it is: {reason}.", "Run gpumon attach again."
    )


def not_stopped(target: Target) -> CommandError:
    """The main thread does not return from the kernel, or this host is overloaded."""
    return RefusalError.because(
        "in the kernel",
        ProblemCode.UNRESPONSIVE,
        f"The main thread of {target.name} does not return from the kernel or from a lock, so it stays as it is.",
        "Run gpumon attach again when it does; a driver call or an overloaded host may delay it.",
    )


def stopped(target: Target) -> CommandError:
    """The process is stopped by a signal, and would not run the request."""
    return RefusalError.because(
        "stopped",
        ProblemCode.NOT_SUPPORTED,
        f"{target} is stopped by a signal, and stays as it is.",
        f"Continue it with kill -CONT {target.pid}, then run gpumon attach again.",
    )


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(str(number) for number in version)


def _program(target: Target) -> str:
    return safe_text(target.program, 200)


def _with_detail(sentence: str, detail: str) -> str:
    """A sentence that ends with the text of another program, if there is one."""
    return f"{sentence}: {safe_text(detail, 300).rstrip('.')}." if detail else f"{sentence}."
