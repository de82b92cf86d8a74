"""Why a probe cannot be loaded into a process of Python: a sentence of cause and one of remedy each."""

from pathlib import Path
from typing import Final

from gpumon.core.exits import CommandError, ExitCode
from gpumon.core.problems import Problem, ProblemCode
from gpumon.core.text import safe_text
from gpumon.probe.attach.target import Target, not_there

LEAST_VERSION: Final = (3, 14)
"""The first Python that runs a script for another process."""

_OTHER_WAYS: Final = (
    "Start it again with `gpumon watch -- COMMAND`, or put `import gpumon.probe; gpumon.probe.start()` into it."
)
_DISABLED: Final = "PYTHON_DISABLE_REMOTE_DEBUG"
_OPTION: Final = "disable-remote-debug"
_USUAL_FOLDER: Final = Path("/tmp")  # noqa: S108 - it is only asked whose it is
_NOBODY: Final = "3"
_SCOPES: Final = {
    "1": "only parents touch the memory of their children",
    "2": "only root touch the memory of other processes",
    _NOBODY: "nobody touch the memory of other processes",
}
"""Who may, by the value of kernel.yama.ptrace_scope; with 0, as without it, all of the same user."""


def too_old(target: Target, version: tuple[int, ...]) -> CommandError:
    """Its Python runs no scripts for others.

    Args:
        target: The process.
        version: Major, minor and, where it is known, micro.
    """
    return not_there(
        ProblemCode.NOT_SUPPORTED,
        f"{target} runs Python {_dotted(version)}, and a probe can be loaded into a running process only from Python "
        f"{_dotted(LEAST_VERSION)} on.",
        _OTHER_WAYS,
    )


def elsewhere(target: Target) -> CommandError:
    """It lives in another file system."""
    return not_there(
        ProblemCode.NOT_SUPPORTED,
        f"{target} runs in another file system, as in a container: its {_program(target)} is not the one here.",
        f"Run `gpumon attach {target.own_pid}` in its container, where gpumon must be installed too: docker exec, or "
        f"nsenter --target {target.pid} --mount --pid.",
    )


def no_folder(error: OSError) -> CommandError:
    """There is no place for the script."""
    return not_there(
        ProblemCode.NOT_WRITTEN,
        f"gpumon has no place for its temporary file: {safe_text(error.strerror or str(error), 200)}.",
        "Set TMPDIR to a folder that can be written to.",
    )


def sees_no_folder(target: Target, folder: Path) -> CommandError:
    """The script cannot be handed to it."""
    return not_there(
        ProblemCode.NOT_SUPPORTED,
        f"{target} does not see gpumon's temporary folder in {safe_text(str(folder), 200)}, as a service does not that "
        "has a /tmp of its own.",
        "Set TMPDIR to a folder that both see.",
    )


def no_interpreter(target: Target) -> CommandError:
    """It is a program with Python inside, and gpumon's own Python is another one."""
    version = _dotted(target.named_version or ())
    return not_there(
        ProblemCode.NOT_FOUND,
        f"{target} is a program with Python {version} inside, which cannot be asked to load something into itself.",
        f"Run gpumon with Python {version}: then it can.",
    )


def cannot_run(target: Target, said: str) -> CommandError:
    """Its interpreter does not run a second time.

    Args:
        target: The process.
        said: What it or the kernel said to that.
    """
    if target.is_replaced:
        what = f"The Python of {target.name} was replaced or removed since it started"
    else:
        what = f"The Python of {target.name}, {_program(target)}, cannot be run by gpumon"
    return not_there(ProblemCode.NOT_SUPPORTED, _with(what, said), _OTHER_WAYS)


def refused(target: Target, errors: tuple[str, ...], *, is_forbidden: bool) -> CommandError:
    """Python did not hand the script over. The cause is looked for only now: nothing is refused that would have worked.

    Args:
        target: The process.
        errors: What `sys.remote_exec` raised, the outermost first.
        is_forbidden: Whether the kernel forbade it.
    """
    if target.state is None:
        return ended(target)
    if is_forbidden:
        return _forbidden(target)
    if "not enabled" in errors[0]:
        return not_there(
            ProblemCode.NOT_SUPPORTED, f"{target} lets nothing be loaded: {_disabled_by(target)}.", _OTHER_WAYS
        )
    replaced = ", whose Python was replaced or removed since it started," if target.is_replaced else ""
    said = ", from ".join(dict.fromkeys((errors[0], errors[-1])))
    return not_there(ProblemCode.UNKNOWN, _with(f"{target}{replaced} could not be reached", said), _OTHER_WAYS)


def failed(target: Target, reason: str) -> CommandError:
    """The probe did not start in it."""
    return not_there(ProblemCode.UNKNOWN, _with(f"The probe could not start in {target.name}", reason), _OTHER_WAYS)


def unwanted(target: Target) -> CommandError:
    """It keeps probes out."""
    return not_there(
        ProblemCode.NOT_SUPPORTED,
        f"{target} has GPUMON_PROBE=0 in its environment, which keeps probes out.",
        "Start it again without that variable.",
    )


def ended(target: Target) -> CommandError:
    """It has ended meanwhile."""
    return not_there(ProblemCode.NOT_FOUND, f"{target} ended before the probe was in it.")


def unreadable(pid: int) -> CommandError:
    """The kernel does not say what it is."""
    return not_there(
        ProblemCode.UNRESPONSIVE,
        f"/proc does not answer for process {pid}, which hangs in the kernel or in a driver.",
        "gpumon doctor says whether the driver is well.",
    )


def late(target: Target, seconds: float, *, has_run: bool) -> CommandError:
    """Nothing is wrong, but it takes longer.

    Args:
        target: The process.
        seconds: How long it was waited for.
        has_run: Whether the probe was started, and only does not answer.
    """
    if has_run and not target.sees(_USUAL_FOLDER):
        reason = f"The probe was started in {target.name}, but may listen in its {_USUAL_FOLDER}, which is another one."
        remedy = "Start the process again with GPUMON_PROBE_DIR set, as for gpumon, to a folder that both see."
    elif has_run:
        reason = f"The probe was started in {target.name} and has not answered for {seconds:g} s."
        remedy = "It answers when its thread gets to run, which a library may keep from it: open gpumon and press m."
    elif target.state in {"T", "t"}:
        reason = f"{target} is stopped, so the probe is not in it yet."
        remedy = f"It starts when the process goes on, as after kill -CONT {target.pid}."
    else:
        reason = (
            f"{target} has run no Python code on its main thread for {seconds:g} s, as while that waits or is in a "
            "long call of a library, so the probe is not in it yet."
        )
        remedy = "It starts as soon as Python code runs again: then open gpumon and press m."
    return CommandError(Problem(ProblemCode.UNRESPONSIVE, reason, remedy), ExitCode.BAD_VERDICT)


def _disabled_by(target: Target) -> str:
    if target.environment().get(_DISABLED):
        return f"{_DISABLED} is set in its environment"
    if any(_OPTION in argument for argument in target.arguments()):
        return f"it was started with -X {_OPTION}"
    return "its Python was built without remote debugging"


def _forbidden(target: Target) -> CommandError:
    try:
        scope = (target.proc / "sys/kernel/yama/ptrace_scope").read_text().strip()
    except OSError:
        scope = ""
    allowed = _SCOPES.get(scope)
    if allowed is None:
        return not_there(
            ProblemCode.NO_PERMISSION,
            f"The kernel does not let gpumon touch the memory of {target.name}.",
            "Run it as root with the capability SYS_PTRACE (docker run --cap-add SYS_PTRACE).",
        )
    lift = f"As root, set it to 0 (sysctl kernel.yama.ptrace_scope=0), attach, and set it to {scope} again."
    return not_there(
        ProblemCode.NO_PERMISSION,
        f"The kernel is set to let {allowed} (kernel.yama.ptrace_scope is {scope}), so gpumon cannot reach "
        f"{target.name}.",
        _OTHER_WAYS if scope == _NOBODY else lift,
    )


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(str(each) for each in version)


def _program(target: Target) -> str:
    return safe_text(target.program, 200)


def _with(sentence: str, said: str) -> str:
    """A sentence with what somebody said at its end."""
    return f"{sentence}: {safe_text(said, 300).rstrip('.')}." if said else f"{sentence}."
