"""Errors of the host: memory that ran out, processes that a signal ended, and the reports of launchers about them."""

from typing import Final

from gpumon.diagnosis.catalogue import fixes, sources
from gpumon.diagnosis.catalogue.wording import NOT_ABOUT_MEMORY, literal
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

SECTION: Final = "Host and launcher"

_NOT_GPU_MEMORY: Final = "No effect: host memory ran out, not GPU memory."

_KERNEL_KILLS: Final = Fix(
    "Check which process the kernel killed, when, and how much memory the process had.",
    "sudo dmesg -T | grep -i -E 'out of memory|oom-kill'",
)

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="host-oom",
        section=SECTION,
        title="Host out of memory",
        summary=(
            "A process was killed (signal 9), nearly always because the host, the container or the job reached its "
            "memory limit."
        ),
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "Out of memory: Killed process",
                r"Out of memory: Killed process (?P<pid>\d{1,10}) \((?P<process>[^)\n]{1,40})\)",
            ),
            Pattern(
                "Memory cgroup out of memory: Kill",
                r"Memory (?P<cgroup>cgroup) out of memory: Kill(?:ed)? process (?P<pid>\d{1,10})"
                r" \((?P<process>[^)\n]{1,40})\)",
            ),
            Pattern("oom-kill:constraint=", r"oom-kill:constraint=(?P<constraint>\w{1,40})"),
            Pattern(
                "kill event",
                r"etected (?P<killed_processes>\d{1,6}) oom[_-]kill event(?:s|\(s\))? in (?:StepId|step)"
                r" ?=?(?P<step>\d{1,12}(?:[.+]\w{1,20}){0,2})",
            ),
            Pattern("OOMKilled", r"\bOOMKilled\b"),
            Pattern("exceeded memory limit (", r"slurmstepd: error: (?:Job|Step) \S{1,30} exceeded memory limit \("),
            Pattern("Exceeded job memory limit", r"slurmstepd: error: Exceeded job memory limit(?! at some)"),
            Pattern("low on resource: memory", r"The node was low on resource: memory"),
            Pattern(
                "is killed by signal: Killed",
                r"DataLoader worker \(pid(?:\(s\))? (?P<pids>[\d, ]{1,200})\) is killed by signal: Killed",
            ),
            Pattern("exits with return code = -9", r"exits with return code = -9\b"),
            Pattern("Signal 9 (SIGKILL)", r"Signal 9 \(SIGKILL\) received by PID (?P<pid>\d{1,10})"),
            Pattern("exitcode", r"exitcode {0,3}: -9\b"),
            Pattern("died with <Signals.SIGKILL: 9>", r"died with <Signals\.SIGKILL: 9>"),
            Pattern("returned non-zero exit status 137", r"returned non-zero exit status 137\b"),
            Pattern("Killed", r"(?:^|\d(?:it/s|s/it)\])Killed$"),
            Pattern("zsh: killed", r"zsh: killed {2}\S"),
            Pattern("Killed ", r": line \d{1,6}: {1,4}(?P<pid>\d{1,10}) Killed {2}"),
            literal("Task was killed due to the node running low on memory"),
            Pattern(
                "exceeds the memory usage threshold of",
                r"exceeds the memory usage threshold of (?P<threshold>\d(?:\.\d{1,4})?)",
            ),
            Pattern(
                "killed due to memory pressure",
                r"(?P<workers>\d{1,6}) Workers \([^)\n]{1,80}\) killed due to memory pressure",
            ),
            Pattern(": Out Of Memory", r"srun: error: [^\n]{1,80}: task \d{1,6}: Out Of Memory"),
            Pattern("Failed core proc(s): {", r"Failed core proc\(s\): \{[^}\n]{0,100}: -9\b"),
        ),
        causes=(
            "Every DataLoader worker and every rank holds its own copy of the data set or of the model.",
            "A checkpoint is loaded by every rank at once into host memory, or the model is loaded before it is moved.",
            "DeepSpeed or FSDP keeps weights, gradients or the optimizer's state in host memory (offload).",
            "Memory grows from step to step: a list of results, a Python object per sample, cached batches.",
            "The container's or the job's limit is lower than the host's memory.",
            "A person or the scheduler sent SIGKILL; then the kernel log has no entry about memory.",
        ),
        fixes=(
            Fix(
                "Ray ended it before the kernel did: show which processes hold the most memory. If one of them holds"
                " most of it, let it offload less to the host, or use a smaller model; otherwise start fewer actors and"
                " workers. Or request a node with more memory.",
                "ps -eo pid,rss,args --sort=-rss | head; free -h",
                first_for=("due to memory pressure (OOM)", "node running low on memory"),
                hidden_otherwise=True,
            ),
            _KERNEL_KILLS,
            Fix(
                "Request more memory for the job or the container.",
                "srun --mem=256G python train.py",
                first_for=("illed process", "oom_kill", "oom-kill", "anon-rss"),
            ),
            Fix(
                "Use fewer workers with a smaller prefetch factor.",
                "loader = DataLoader(dataset, num_workers=2, prefetch_factor=2)",
            ),
            Fix(
                "Load checkpoints without a second copy, from a memory-mapped file.",
                'state = torch.load(path, map_location="cpu", mmap=True, weights_only=True)',
            ),
            Fix(
                "Show the limit and the usage of the job.",
                "free -h; cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory.peak",
            ),
        ),
        empty_cache=_NOT_GPU_MEMORY,
        see_more=(
            Fix("On Slurm, show how much memory the job used.", "sacct -j JOBID --format=JobID,State,MaxRSS,ReqMem"),
        ),
        sources=(
            sources.DATA_LOADING,
            "https://docs.kernel.org/admin-guide/cgroup-v2.html",
            "https://slurm.schedmd.com/sacct.html",
        ),
        said_by="torch 1.13-2.13, accelerate 0.25-1.12, Lightning 2.1-2.6",
    ),
    KnownError(
        id="worker-crashed",
        section=SECTION,
        title="Process crashed",
        summary="A process of the job was ended by a fault in native code, not by a Python exception.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "Caught signal ",
                r"\[[\w.-]{1,60}:\d{1,10} {0,2}:\d{1,3}:\d{1,10}\] Caught signal (?P<signal>11|7|6|8|4) \((?P<reason>"
                r"[^:)\n]{1,40})",
            ),
            Pattern("terminated by signal SIG", r"terminated by signal (?P<signal>SIG(?:SEGV|ABRT|BUS|FPE|ILL))\b"),
            Pattern(
                "] Signal: ",
                r"\[[\w.-]{1,60}:\d{1,10}\] Signal: (?P<reason>Segmentation fault|Bus error|Aborted|Floating point"
                r" exception) \((?P<signal>\d{1,2})\)",
            ),
            Pattern("Signal 11 (SIGSEGV)", r"Signal (?P<signal>11) \(SIGSEGV\) received by PID (?P<pid>\d{1,10})"),
            Pattern("Signal 6 (SIGABRT)", r"Signal (?P<signal>6) \(SIGABRT\) received by PID (?P<pid>\d{1,10})"),
            Pattern("Signal 7 (SIGBUS)", r"Signal (?P<signal>7) \(SIGBUS\) received by PID (?P<pid>\d{1,10})"),
            Pattern("Signal 8 (SIGFPE)", r"Signal (?P<signal>8) \(SIGFPE\) received by PID (?P<pid>\d{1,10})"),
            Pattern("exitcode", r"exitcode {0,3}: (?P<exitcode>-(?:4|6|7|8|11))\b"),
            Pattern("exits with return code = -", r"exits with return code = (?P<exitcode>-(?:4|6|7|8|11))\b"),
            Pattern("Fatal Python error:", r"Fatal Python error: (?P<reason>Segmentation fault|Aborted|Bus error)"),
            Pattern(
                "died with <Signals.SIG", r"died with <Signals\.(?P<signal>SIG(?:SEGV|ABRT|BUS|ILL|FPE)): \d{1,2}>"
            ),
            Pattern(
                "(core dumped)",
                r"(?P<reason>Segmentation fault|Bus error|Illegal instruction|Floating point exception)[ \t]{1,40}"
                r"\(core dumped\)",
            ),
            Pattern("Illegal instruction", r"^(?P<reason>Illegal instruction)(?: \([a-z ]{0,12})?$"),
            Pattern("Segmentation fault", r"^(?P<reason>Segmentation fault)(?: \([a-z ]{0,12})?$"),
            Pattern("Floating point exception", r"^(?P<reason>Floating point exception)(?: \([a-z ]{0,12})?$"),
            Pattern("zsh: segmentation fault", r"zsh: segmentation fault\b"),
            Pattern("zsh: bus error", r"zsh: bus error\b"),
            Pattern("zsh: illegal hardware instruction", r"zsh: illegal hardware instruction\b"),
            Pattern("returned non-zero exit status 139", r"returned non-zero exit status 139\b"),
            Pattern(
                "Fatal Python error: ",
                r"Fatal Python error: (?P<reason>none_dealloc[^\n]{0,60}|PyThreadState_Get[^\n]{0,80})",
            ),
            literal("!!!!!!! Segfault encountered !!!!!!!"),
        ),
        causes=(
            "Signal 11: an extension, a driver library or a data library accessed invalid memory.",
            "Signal 6: native code called abort: the lines before contain a failed check or a C++ exception.",
            "Signal 7: shared memory (/dev/shm) or a memory-mapped file on a full or lost file system.",
            "Signal 8: an integer division by zero. Signal 4: a library was built for another CPU.",
        ),
        fixes=(
            Fix(
                "An extension counts references of None wrongly, which Python before 3.12 cannot stand: upgrade"
                " vLLM or that"
                " extension, or use Python 3.12.",
                "pip install --upgrade vllm",
                first_for=("none_dealloc",),
                hidden_otherwise=True,
            ),
            Fix("Read the lines before the report: the last message of that rank is often the reason."),
            Fix(
                "With spconv, install the wheel for the CUDA version of PyTorch, and the cumm that belongs to it.",
                "pip uninstall -y spconv cumm; pip list | grep -E '^(spconv|cumm|torch) *|-cu1'; pip install --upgrade"
                " spconv-cu126",
                first_for=("spconv",),
            ),
            Fix(
                "Print the Python stack of the crash.",
                "PYTHONFAULTHANDLER=1 python train.py",
                first_for=(
                    "Segmentation fault (core",
                    "loating point ex",
                    "signal SIGSEGV",
                    "zsh: segm",
                    "exit status 139",
                ),
            ),
            Fix(
                "For a bus error (signal 7), check the space in shared memory; a container has 64 MB of it by default.",
                "df -h /dev/shm",
                first_for=("us error", "SIGBUS", "exitcode: -7"),
            ),
            Fix("Show the native stack.", "gdb -batch -ex run -ex bt --args python train.py"),
            Fix("Update or reinstall the extension that the stack names."),
            Fix(
                "A library uses instructions that this CPU lacks, such as AVX: show which one crashed, and"
                " install another build of it.",
                "gdb -batch -ex run -ex bt --args python train.py",
                first_for=(
                    "Illegal instruction",
                    "illegal hardware instruction",
                ),
                hidden_otherwise=True,
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        see_more=(fixes.KERNEL_LOG,),
        sources=("https://docs.python.org/3/library/faulthandler.html", sources.TORCHRUN),
        said_by="torch 2.6",
    ),
    KnownError(
        id="signal-ended",
        section=SECTION,
        title="Job was ended from outside",
        summary="A signal ended the processes: the terminal was closed, or the scheduler or a user ended the job.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "got signal: ",
                r"Process \d{1,10} got signal: (?P<signal>1|2|15|SIGHUP|SIGINT|SIGTERM)\b",
            ),
            Pattern(
                "death signal, shutting down workers",
                r"Received (?P<signal>[\w.]{1,30}) death signal, shutting down workers",
            ),
            Pattern("Signal 15 (SIGTERM)", r"Signal (?P<signal>15) \(SIGTERM\) received by PID (?P<pid>\d{1,10})"),
            Pattern("(SIGHUP) received by PID", r"Signal (?P<signal>1) \(SIGHUP\) received by PID (?P<pid>\d{1,10})"),
            Pattern("exitcode", r"exitcode {0,3}: (?P<exitcode>-(?:1|2|15))\b"),
            Pattern(
                "CANCELLED AT ",
                r"\*\*\* (?:STEP|JOB) (?P<job>[\w.+]{1,40}) ON \S{1,80} CANCELLED AT (?:\S{1,30} )?\*\*\*",
            ),
        ),
        causes=(
            "Signal 1: the terminal or the SSH connection from which the job was started was closed.",
            "Signal 15: the scheduler ended or preempted the job, the time limit was reached, or torchrun stopped it.",
            "Signal 2: ctrl+c.",
        ),
        fixes=(
            Fix(
                "Start long jobs so that they survive the terminal.",
                "tmux new -s train 'torchrun --nproc-per-node=gpu train.py'",
            ),
            Fix(
                "Ask the scheduler why the job ended.",
                "sacct -j JOBID --format=JobID,State,Elapsed,Timelimit,ExitCode",
                first_for=("signal: 15", "Received 15 ", "SIGTERM", "CANCELLED"),
            ),
            Fix(
                "Save a checkpoint when the scheduler announces the end.",
                """\
import signal

signal.signal(signal.SIGTERM, lambda *_: save_checkpoint())""",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(sources.TORCHRUN, "https://slurm.schedmd.com/sbatch.html"),
        said_by="torch 1.13-2.13",
        is_echo=True,
    ),
    KnownError(
        id="elastic-failure",
        section=SECTION,
        title="torchrun: a rank failed",
        summary="A process failed, and torchrun ended the others; the error of the first failed rank is the cause.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            literal("torch.distributed.elastic.multiprocessing.errors.ChildFailedError"),
            Pattern(
                "ailed (exitcode: ",
                r"failed \(exitcode: (?P<exitcode>[1-9]\d{0,2})\) local_rank: (?P<local_rank>\d{1,4})",
            ),
            Pattern(
                "Command '['torchrun'",
                r"CalledProcessError: Command '\['torchrun'",
            ),
            Pattern(
                "', '-m', 'torch.distributed.",
                r"Command '\['[^'\n]{1,160}', (?:'-u', )?'-m', 'torch\.distributed\.(?:run|launch)'",
            ),
            Pattern("Root Cause (first observed failure)", r"Root Cause \(first observed failure\)"),
            Pattern(
                "To enable traceback see",
                r"To enable traceback see: https://pytorch\.org/docs/stable/elastic/errors\.html",
            ),
        ),
        causes=(
            "A rank raised an exception; its traceback stands earlier in the log, and `Root Cause` names the rank.",
            "A rank was killed; the exit code is then negative: -9 is usually host memory, -11 a crash.",
        ),
        fixes=(
            Fix(
                "Read the traceback that the failed rank printed above this report; `Root Cause` names the rank.",
                "grep -n -A 40 -m 1 Traceback torchrun.log; grep -n -A 8 'Root Cause' torchrun.log",
            ),
            Fix(
                "The program failed, and the launcher only reports that: read the traceback above, or start the program"
                " without the launcher.",
                "python train.py",
                first_for=("CalledProcessError: Command",),
                hidden_otherwise=True,
            ),
            Fix(
                "Let torchrun record the exception of the first failed rank.",
                """\
from torch.distributed.elastic.multiprocessing.errors import record

@record
def main():
    train()""",
            ),
            Fix(
                "Write one log file per rank.",
                "torchrun --nproc-per-node=gpu --log-dir logs --redirects 3 --tee 3 train.py",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://docs.pytorch.org/docs/stable/elastic/errors.html", sources.TORCHRUN),
        said_by="torch 1.13-2.13",
        is_echo=True,
    ),
)
