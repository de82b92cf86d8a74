"""A command of gpumon on several hosts through the user's ssh, or in pods; what it prints is not trusted."""

from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Generic, NamedTuple, TypeVar

from gpumon.core.problems import CommandError, ExitCode, Problem, ProblemCode
from gpumon.core.text import safe_text
from gpumon.fleet.model import FleetError
from gpumon.fleet.slurm import read_jobs
from gpumon.fleet.slurm_answer import answer
from gpumon.operations.fleet.ssh import parse_hosts
from gpumon.streams.remote.stream import SSH, SSH_FAILED, SshConnection, end_ssh, start_ssh

_MAX_BYTES: Final = 32 << 20
_NOT_INSTALLED: Final = 127
_SLURM, _PODS, _POD = "slurm:", "pods:", "pod/"
_KUBECTL: Final = "kubectl"
T = TypeVar("T")


class HostAnswer(NamedTuple, Generic[T]):
    """What one host answers.

    Attributes:
        host: The host as the user named it.
        value: What the command printed, parsed; None if it is unknown.
        problem: Why it is, or None.
    """

    host: str
    value: T | None = None
    problem: Problem | None = None


def find_hosts(text: str) -> list[str]:
    """The hosts of a list, those of ``slurm:JOB``, or the pods of ``pods:SELECTOR`` in kubectl's namespace.

    Raises:
        CommandError: There are none, or Slurm or Kubernetes cannot be asked.
    """
    try:
        if text.startswith(_PODS):
            options = ["get", "pods", f"--selector={text.removeprefix(_PODS)}", "--output=name"]
            names = answer(_KUBECTL, [*options, "--field-selector=status.phase=Running"]).decode(errors="replace")
            return [_POD + name for name in parse_hosts(names.replace(_POD, "").replace("\n", ","), None)]
        if text.startswith(_SLURM):
            text = ",".join(host for job in read_jobs(text.removeprefix(_SLURM)) for host in job.hosts)
    except FleetError as error:
        raise CommandError(error.problem, ExitCode.MISSING_PREREQUISITE) from None
    return parse_hosts(text, None)


def run_on_hosts(  # noqa: PLR0917 - the same for all callers
    hosts: Sequence[str],
    command: str,
    parse: Callable[[bytes, str], T],
    exit_codes: Collection[int],
    seconds: float,
    ssh: Sequence[str] = SSH,
) -> list[HostAnswer[T]]:
    """Run a command on all hosts at the same time.

    Args:
        hosts: As for ssh, or from `find_hosts`.
        command: Of the shell there.
        parse: Turns the output and the host into a value; raises ValueError.
        exit_codes: With which there is output.
        seconds: How long a host may take.
        ssh: The program and its options; other ones in tests.
    """

    def run(host: str) -> HostAnswer[T]:
        try:
            in_pod = [_KUBECTL, "exec", "--stdin", host, "--", "sh", "-c"]
            process = start_ssh([*(in_pod if host.startswith(_POD) else [*ssh, "--", host]), f"exec {command}"])
        except OSError as error:
            return _failed(host, f"cannot be reached: {error.strerror or error}.")
        connection = SshConnection(process)
        try:
            output = connection.read_all(_MAX_BYTES, seconds)
            if output and connection.exit_code in exit_codes:
                return HostAnswer(host, parse(output, host))
            return _failed(host, _exit_text(connection))
        except TimeoutError:
            return _failed(host, f"sent no complete report within {seconds:g} s.")
        except ValueError as error:
            return _failed(host, f"sent no report: {safe_text(str(error), 200)}.")
        finally:
            end_ssh(process)
            connection.close()

    with ThreadPoolExecutor(len(hosts)) as pool:
        return list(pool.map(run, hosts))


def _failed(host: str, reason: str) -> HostAnswer[T]:
    return HostAnswer(host, None, Problem(ProblemCode.NOT_READ, f"{host} {reason}"))


def _exit_text(connection: SshConnection) -> str:
    last = connection.error_text() or "no reason was given"
    if connection.exit_code == _NOT_INSTALLED:
        return "has no gpumon on the PATH that ssh or kubectl gets there."
    if connection.exit_code == SSH_FAILED:
        return f"cannot be reached: {last}."
    return f"failed with exit code {connection.exit_code}: {last}."
