"""Errors of JAX in several processes or hosts: the coordination service and collectives that wait for a process."""

from typing import Final

from gpumon.diagnosis.catalogue import fixes
from gpumon.diagnosis.catalogue.wording import NOT_ABOUT_MEMORY, literal
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

SECTION: Final = "JAX in several processes"

_MULTI_PROCESS: Final = "https://docs.jax.dev/en/latest/multi_process.html"
_FAULT_TOLERANCE: Final = "https://docs.jax.dev/en/latest/fault_tolerance.html"
ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="jax-process-lost",
        section=SECTION,
        title="JAX: another process ended or stopped answering",
        summary="JAX's coordination service lost a process and ended the others; that process's log has the cause.",
        context=ContextState.DEAD,
        patterns=(
            Pattern(
                "Terminating process because the JAX distributed service detected",
                r"Terminating process because the JAX distributed service detected (?:fatal errors|failure)",
            ),
            Pattern(
                "The following tasks are unhealthy",
                r"The following tasks are unhealthy \(stopped sending heartbeats\)",
            ),
            Pattern("heartbeat timeout. This indicates", r"/task:(?P<task>\d{1,6}) heartbeat timeout\. This indicates"),
            Pattern(
                "arrier timed out. ",
                r"[Bb]arrier timed out\. (?:Id|Barrier_id): (?P<barrier>[^\n.\[]{1,80}?)(?:::\d|\.|\[|$)",
            ),
            Pattern(
                "Shutdown barrier in coordination service",
                r"Shutdown barrier in coordination service has (?:failed|timed out)",
            ),
        ),
        causes=(
            "A process crashed, was killed for lack of host memory, or was preempted.",
            "A process was busy longer than the timeout, for example with compiling or allocating pinned memory.",
            "One process ended its program earlier than the others.",
        ),
        fixes=(
            Fix("Find the earliest error in the logs of all processes, first that of the task that is named."),
            Fix(
                "If no process failed, wait longer for a sign of life.",
                "jax.distributed.initialize(heartbeat_timeout_seconds=600)",
            ),
            Fix("Show all output before the end.", "python -u train.py"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(_FAULT_TOLERANCE, "https://github.com/jax-ml/jax/issues/23599"),
        said_by="JAX 0.4.30-0.7",
        is_echo=True,
    ),
    KnownError(
        id="jax-incarnation",
        section=SECTION,
        title="JAX: a process connected twice",
        summary="A process with the same number was already connected: one restarted, or two jobs use one coordinator.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            literal("unexpectedly tried to connect with a different incarnation"),
            literal("unexpectedly tried to connect while it is already in error"),
        ),
        causes=(
            "Two jobs on one host use the same address and port of the coordinator.",
            "One process was restarted by the scheduler while the others still ran.",
            "Child processes, such as those of a data loader, import the program and initialize JAX again.",
        ),
        fixes=(
            Fix(
                "Give each job its own port.",
                'jax.distributed.initialize("HOST:12346", num_processes=2, process_id=0)',
            ),
            Fix("After a failure, restart all processes together, with a new coordinator."),
            Fix(
                "Initialize JAX only in the main program, not when a child process imports it.",
                'if __name__ == "__main__":\n    jax.distributed.initialize()',
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(_MULTI_PROCESS, "https://github.com/google/grain/issues/802"),
        said_by="JAX 0.4.30-0.7",
    ),
    KnownError(
        id="jax-coordinator",
        section=SECTION,
        title="JAX: the coordinator cannot be reached",
        summary="A process could not connect to the process 0 of its job, or not all processes did in time.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "CoordinationService/",
                r"tensorflow\.CoordinationService/(?P<call>RegisterTask|GetKeyValue|Barrier|WaitForAllTasks)",
            ),
            Pattern(
                "atchTasksAsync failed for task",
                r"WatchTasksAsync failed for task (?P<task>\d{1,6}): (?P<status>[A-Z_]{1,24})",
            ),
            Pattern(
                "connect to all addresses; last error",
                r"(?:UNAVAILABLE|DEADLINE_EXCEEDED)[^\n]{0,24}?failed to connect to all addresses; last error",
            ),
            literal("coordinator_address should be defined"),
            literal("distributed.initialize should only be called once"),
            literal("jax.distributed.initialize() must be called before any JAX calls"),
            literal("distributed.initialize() must be called before any JAX computations are executed"),
            literal("Getting local topologies timed out"),
        ),
        causes=(
            "The address is not that of process 0, or a firewall closes its port.",
            "Process 0 has not started, or ended; fewer processes were started than num_processes.",
            "JAX was used before jax.distributed.initialize(), or it was called twice.",
        ),
        fixes=(
            Fix(
                "Call it first in the program, with the same address in every process.",
                'jax.distributed.initialize("HOST:12345", num_processes=2, process_id=0)',
            ),
            Fix("Check from the other host whether the port is open while process 0 waits.", "nc -vz HOST 12345"),
            Fix(
                "If processes start late, wait longer.",
                "jax.distributed.initialize(initialization_timeout=900)",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(_MULTI_PROCESS,),
        said_by="JAX 0.4.30-0.7",
    ),
    KnownError(
        id="xla-rendezvous",
        section=SECTION,
        title="XLA waits for a device that does not come",
        summary="The threads of all devices meet before a collective, and at least one has not arrived.",
        context=ContextState.UNKNOWN,
        patterns=(
            Pattern(
                "This thread has been waiting for",
                r"This thread has been waiting for (?:`(?P<what>[^`\n;]{1,160})|\d{1,9}ms for and may be stuck)",
            ),
            Pattern("Termination timeout for", r"Termination timeout for `(?P<what>[^`\n;]{1,160})"),
            literal("not all of them arrived on time"),
        ),
        causes=(
            "Another host has failed, or its NCCL cannot connect; its log contains the cause.",
            "The processes run different programs, or one of them a step more.",
            "Many devices are simulated on few CPU cores.",
        ),
        fixes=(
            fixes.FIRST_RANK,
            Fix("Show how NCCL connects the hosts.", "NCCL_DEBUG=INFO python train.py"),
            Fix("Name the network interface that connects the hosts.", "NCCL_SOCKET_IFNAME=eth0 python train.py"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/jax-ml/jax/issues/22740",),
        said_by="JAX 0.4.30-0.7",
    ),
)
