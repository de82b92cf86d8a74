"""Errors of the host that are not about the GPU: limits of threads and watches, memory, and its file systems."""

from typing import Final

from gpumon.diagnosis.catalogue import sources
from gpumon.diagnosis.catalogue.wording import NOT_ABOUT_MEMORY, literal
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

SECTION: Final = "Limits of the host"

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="host-allocation",
        section=SECTION,
        title="Host has no memory for an array",
        summary="An allocation in host memory failed, so that the program received an error instead of being killed.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "Unable to allocate",
                r"Unable to allocate (?P<size>[\d.]{1,8} [KMGTPE]?i?B(?:ytes)?) for an array with shape"
                r" (?P<shape>\([\d, ]{0,60}\))",
            ),
            Pattern("MemoryError", r"^(?:numpy\.\S{0,40}\.)?MemoryError$"),
            Pattern("Errno 12] Cannot allocate memory", r"Errno 12\] Cannot allocate memory"),
            Pattern("std::bad_alloc", r"^(?:\w{1,20}Error: )?std::bad_alloc$"),
            Pattern("std::bad_alloc", r"what\(\): {1,3}std::bad_alloc"),
            Pattern(": Cannot allocate memory", r"\b(?:mmap|fork|malloc): Cannot allocate memory"),
            Pattern(
                "DefaultCPUAllocator: ",
                r"DefaultCPUAllocator: (?:can't allocate memory|not enough memory): you tried to allocate"
                r" (?P<requested>\d{1,20}) bytes",
            ),
            Pattern(
                "__vm_enough_memory",
                r"__vm_enough_memory: pid: (?P<pid>\d{1,10}), comm:"
                r" (?P<process>[^,\n]{1,40})",
            ),
            Pattern("unable to allocate backing store", r"unable to allocate backing store"),
            Pattern(
                "unable to mmap ", r"unable to mmap (?P<requested>\d{1,16}) bytes from file <(?!/?torch_|/dev/shm)"
            ),
        ),
        causes=(
            "The data set, the checkpoint or a copy of it does not fit into the memory of the host.",
            "The limit of the container, of the job or of `ulimit -v` is lower than the memory of the host.",
            "A size was computed wrongly, so that one array is far larger than intended.",
            "The kernel does not promise more memory than it has: vm.overcommit_memory is 2.",
        ),
        fixes=(
            Fix("Show how much memory is free, and the limits.", "free -h; cat /sys/fs/cgroup/memory.max; ulimit -v"),
            Fix(
                "Read large files in parts, or map them instead of loading them.",
                'import numpy\n\nvalues = numpy.load("data.npy", mmap_mode="r")',
            ),
            Fix(
                "Use smaller types: float32 instead of float64, uint8 for images.", "values = values.astype('float32')"
            ),
            Fix("Use fewer workers, each with its own copy.", "loader = DataLoader(dataset, num_workers=2)"),
        ),
        empty_cache="No effect: host memory ran out, not GPU memory.",
        sources=("https://numpy.org/doc/stable/reference/generated/numpy.memmap.html", sources.DATA_LOADING),
        said_by="NumPy 1.26-2.3, Python 3.9-3.13",
    ),
    KnownError(
        id="static-tls",
        section=SECTION,
        title="Library was loaded too late",
        summary="The system keeps little room for the thread-local data of libraries that are loaded while a program"
        " runs,"
        " and it is full.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "cannot allocate memory in static TLS block",
                r"(?P<library>[\w.+/-]{1,160}\.so[\w.]{0,12}): cannot allocate memory in static TLS block",
            ),
        ),
        causes=("OpenCV, scikit-learn or another package was imported before the library; common on ARM and Jetson.",),
        fixes=(
            Fix("Import the package that fails first, before the others.", "import torch\nimport cv2"),
            Fix(
                "Or load the library that the message names at the start.",
                "LD_PRELOAD=/usr/lib/aarch64-linux-gnu/libgomp.so.1 python train.py",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/opencv/opencv/issues/14884",),
        said_by="glibc 2.27-2.35",
    ),
    KnownError(
        id="threads",
        section=SECTION,
        title="No more threads or processes",
        summary="The user, the container or the job has reached its limit of threads, and no further one can start.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            literal("can't start new thread"),
            Pattern("pthread_create failed", r"pthread_create failed[^\n]{0,40}: ?Resource temporarily unavailable"),
            Pattern("Thread creation failed", r"libgomp: Thread creation failed: Resource temporarily unavailable"),
            Pattern("Resource temporarily unavailable", r"what\(\): {1,3}Resource temporarily unavailable"),
            Pattern(
                ": Resource temporarily unavailable",
                r"\bfork: (?:retry: )?(?:\w{1,12}: )?Resource temporarily unavailable",
            ),
        ),
        causes=(
            "Every rank and every DataLoader worker starts as many threads as the host has cores.",
            "The limit of processes is low: `ulimit -u`, or the `pids` limit of the container.",
            "Processes of an earlier run still exist.",
            "In a container: Docker before 20.10.10 forbids the call with which a newer glibc starts threads.",
        ),
        fixes=(
            Fix(
                "Start fewer threads per process.", "export OMP_NUM_THREADS=4 OPENBLAS_NUM_THREADS=4 MKL_NUM_THREADS=4"
            ),
            Fix("Use fewer workers.", "loader = DataLoader(dataset, num_workers=4)"),
            Fix(
                "Show the limits and the number of threads.", "ulimit -u; cat /sys/fs/cgroup/pids.max; ps -eLf | wc -l"
            ),
            Fix("Start the container with a higher limit.", "docker run --rm --gpus all --pids-limit -1 IMAGE"),
            Fix(
                "If no thread starts in a container, upgrade Docker on the host; to test, start it without seccomp.",
                "docker run --rm --gpus all --security-opt seccomp=unconfined IMAGE",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://docs.kernel.org/admin-guide/cgroup-v2.html", sources.DATA_LOADING),
        said_by="Python 3.9-3.13, OpenBLAS 0.3, libgomp",
    ),
    KnownError(
        id="file-watches",
        section=SECTION,
        title="Too many watched files",
        summary="The limit of files or folders that programs can watch (inotify) was reached; editors and loggers use"
        " it.",
        context=ContextState.ALIVE,
        patterns=(
            literal("inotify watch limit reached"),
            literal("inotify instance limit reached"),
            Pattern(
                "ystem limit for number of file watchers reached", r"ystem limit for number of file watchers reached"
            ),
            Pattern("nable to create new inotify", r"nable to create new inotify (?:object|instance)"),
            Pattern("failed to create fsnotify watcher", r"failed to create fsnotify watcher: too many open files"),
        ),
        causes=("An editor, a notebook, a logger or Kubernetes watches folders with very many files.",),
        fixes=(
            Fix(
                "Raise the limits, now and after a reboot.",
                "printf 'fs.inotify.max_user_watches=1048576\\nfs.inotify.max_user_instances=8192\\n' | sudo tee"
                " /etc/sysctl.d/60-inotify.conf && sudo sysctl --system",
            ),
            Fix("Exclude data and checkpoints from what the editor watches."),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://docs.kernel.org/filesystems/inotify.html",),
        said_by="watchdog 2-6, Visual Studio Code",
    ),
    KnownError(
        id="storage-failed",
        section=SECTION,
        title="Storage failed",
        summary="The disk or the network file system did not carry out a read or write.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern("[Errno 5] Input/output error", r"\[Errno 5\] Input/output error"),
            Pattern("Input/output error (os error 5)", r"(?<!\")Input/output error \(os error 5\)"),
            Pattern("Read-only file system (os error 30)", r"Read-only file system \(os error 30\)"),
            Pattern("not responding, still trying", r"nfs: server \S{1,80} not responding, still trying"),
            Pattern(
                "Transport endpoint is not connected",
                r"\[Errno 107\] Transport endpoint is not connected: '[^'\n]{1,200}'",
            ),
            Pattern("[Errno 112] Host is down: '", r"\[Errno 112\] Host is down: '[^'\n]{1,200}'"),
        ),
        causes=(
            "The disk or its connection fails; the kernel then mounts the file system read-only.",
            "The server of the network file system is gone, or its mount has expired.",
            "A container has the folder mounted read-only.",
        ),
        fixes=(
            Fix(
                "Read what the kernel says about the disk.",
                "sudo dmesg -T | grep -i -E 'i/o error|ext4|xfs|nvme|nfs' | tail -20",
            ),
            Fix(
                "Check how the folder is mounted.",
                "findmnt -T FOLDER; df -h FOLDER",
                first_for=("Read-only", "Transport endpoint"),
            ),
            Fix(
                "Write caches and checkpoints to a folder that is writable.",
                "export HF_HOME=/scratch/hf TMPDIR=/scratch/tmp",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://docs.python.org/3/library/errno.html",),
        said_by="Python 3.9-3.13",
    ),
    KnownError(
        id="cache-permission",
        section=SECTION,
        title="Cache or device file is not accessible",
        summary="The user of the process may not write to a cache, or may not open a device file.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "[Errno 13] Permission denied: '",
                r"PermissionError: \[Errno 13\] Permission denied:"
                r" '(?P<path>[^'\n]{0,120}(?:/\.cache|huggingface|\.triton"
                r"|torch_extensions|torchinductor|flashinfer|/dev/shm|/dev/nvidia|/dev/kfd|/dev/infiniband)"
                r"[^'\n]{0,160})'",
            ),
            Pattern(
                "ermission denied (os error 13)",
                r"(?:Data processing error: I/O error: Permission denied \(os error 13\)"
                r"|Permission denied \(os error 13\)[^\n]{0,200}(?:huggingface|\.cache))",
            ),
            Pattern(
                "Permission denied: '/",
                r"\[Errno 13\] Permission denied: '(?P<path>/(?:homeless-shelter|nonexistent)[^'\n]{0,160})'",
            ),
            Pattern("PermissionError at ", r"PermissionError at (?P<path>\S{1,200}) when downloading"),
        ),
        causes=(
            "The cache was written by another user before, for example by root in a container.",
            "The container runs as a user without a home folder.",
            "The device file belongs to a group of which the user is no member.",
        ),
        fixes=(
            Fix(
                "Put the caches into a folder of this user.",
                "export HF_HOME=$PWD/hf TRITON_CACHE_DIR=$PWD/triton XDG_CACHE_HOME=$PWD/cache",
            ),
            Fix("Or give the folder back to the user.", 'sudo chown -R "$USER" ~/.cache/huggingface'),
            Fix(
                "In a container, run as the user of the host.",
                "docker run --rm --gpus all --user $(id -u):$(id -g) -e HOME=/tmp IMAGE",
            ),
            Fix("For a device file, check its group.", "ls -l /dev/nvidia* /dev/kfd /dev/infiniband; id"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://huggingface.co/docs/huggingface_hub/package_reference/environment_variables",),
        said_by="Python 3.9-3.13, huggingface_hub 0.20-1.0",
    ),
    KnownError(
        id="host-hang",
        section=SECTION,
        title="Host hangs: a task or a CPU is stuck",
        summary="The kernel reports that a program has waited for minutes inside the kernel, or that a CPU does not"
        " respond.",
        context=ContextState.UNKNOWN,
        patterns=(
            Pattern(
                "blocked for more than",
                r"INFO: task (?P<task>(?:python|pt_|nvidia|nv_|nvc|VLLM|ray|torchrun|sglang|ollama|llama)"
                r"[\w.:/-]{0,40}):(?P<pid>\d{1,10}) blocked for more than (?P<seconds>\d{1,6})"
                r" seconds",
            ),
            Pattern(
                "BUG: soft lockup - CPU#",
                r"BUG: soft lockup - CPU#(?P<cpu>\d{1,4}) stuck for (?P<seconds>\d{1,6})s! \[(?P<task>[^\]\n]{1,40})\]",
            ),
            Pattern("uvm_spin_loop", r"\b(?P<function>uvm_spin_loop)\+0x"),
            Pattern("uvm_ioctl+0x", r"\b(?P<function>uvm_ioctl)\+0x"),
            Pattern("os_acquire_rwlock", r"\b(?P<function>os_acquire_rwlock_\w{4,5})\+0x"),
            Pattern("RC watchdog: GPU is probably locked", r"RC watchdog: GPU is probably locked"),
        ),
        causes=(
            "A task that uses the GPU: the driver waits for a GPU that no longer responds; an Xid is next to it.",
            "A task that reads files: the disk or the network file system does not answer.",
            "The host has no free memory and swaps.",
        ),
        fixes=(
            Fix(
                "Look for an Xid, or an error of a disk, at the same time.",
                "sudo dmesg -T | grep -i -E 'xid|nvrm|i/o error|nfs' | tail -20",
            ),
            Fix("Show in which function of the kernel the program waits.", "sudo cat /proc/PID/stack"),
            Fix(
                "The program waits inside the driver, where no signal ends it: reboot, and upgrade the driver.",
                "sudo dmesg -T | grep -i -E 'xid|nvrm' | tail -20; sudo reboot",
                first_for=("uvm_spin_loop", "uvm_ioctl", "os_acquire_rwlock"),
                hidden_otherwise=True,
            ),
            Fix(
                "If the GPU is the reason, end the programs and reset it; if that hangs, power the host off and on.",
                "sudo nvidia-smi --gpu-reset -i 0",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://docs.kernel.org/admin-guide/lockup-watchdogs.html",),
        said_by="Linux 5.15-6.17",
    ),
)
