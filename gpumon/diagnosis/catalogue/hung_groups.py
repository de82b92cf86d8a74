"""Errors of process groups that hang: ranks that wait at the start, the watchdog, groups that cannot be ended."""

from typing import Final

from gpumon.diagnosis.catalogue import fixes, sources
from gpumon.diagnosis.catalogue.wording import NOT_ABOUT_MEMORY, literal
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

SECTION: Final = "Hung process groups"

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="nccl-watchdog-stuck",
        section=SECTION,
        title="NCCL's watchdog hangs",
        summary=(
            "The thread that watches the collectives of this rank made no progress, so that PyTorch ended the process:"
            " a call of CUDA or NCCL does not return, or the thread waits for the GIL."
        ),
        context=ContextState.UNKNOWN,
        patterns=(Pattern("watchdog got stuck for", r"watchdog got stuck for (?P<seconds>\d{1,9}) seconds"),),
        causes=(
            "A kernel or a collective on the GPU does not end, such as when another rank is gone.",
            "Another thread holds the GIL inside a CUDA call, or the host is out of memory or CPU time.",
            "The driver or the GPU hangs: an Xid in the kernel log.",
        ),
        fixes=(
            Fix(
                "Print the stacks of the ranks while they hang: the one that stands elsewhere is the cause.",
                "py-spy dump --native --pid $(pgrep -f train.py | head -1)",
            ),
            fixes.KERNEL_LOG,
            Fix(
                "Record the collectives of every rank, to see which one did not take part.",
                "TORCH_FR_BUFFER_SIZE=2000 TORCH_NCCL_DUMP_ON_TIMEOUT=1 torchrun --nproc-per-node=gpu train.py",
            ),
            Fix(
                "If the pause is intended, as while kernels are compiled or a large file is written, allow it.",
                "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC=1800 torchrun --nproc-per-node=gpu train.py",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(sources.TORCH_NCCL_VARIABLES,),
        said_by="torch 2.2-2.13",
    ),
    KnownError(
        id="nccl-abort-stuck",
        section=SECTION,
        title="Process group could not be ended",
        summary="PyTorch tried to abort NCCL, as after an error or in destroy_process_group, and NCCL did not return.",
        context=ContextState.UNKNOWN,
        patterns=(
            Pattern(
                "Future for ProcessGroup ", r"Future for ProcessGroup \w{1,20} timed out after (?P<waited>\d{1,9}) ms"
            ),
            Pattern(
                "thrown when waiting for future ProcessGroup", r"xception thrown when waiting for future ProcessGroup"
            ),
        ),
        causes=(
            "One rank ended or raised an error, and the others wait for it in a collective; its log names the cause.",
            "The ranks called different collectives, so that the GPU still waits when the group is destroyed.",
            "The driver does not answer.",
        ),
        fixes=(
            fixes.FIRST_RANK,
            Fix(
                "End all processes of the job; one that stays keeps its GPU.",
                "nvidia-smi; ps -eo pid,stat,etime,cmd | grep python",
            ),
            Fix(
                "Let every rank finish before the group is destroyed.",
                "torch.cuda.synchronize()\ntorch.distributed.barrier()\ntorch.distributed.destroy_process_group()",
            ),
            fixes.KERNEL_LOG,
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(sources.TORCH_NCCL_VARIABLES, "https://github.com/karpathy/nanochat/issues/554"),
        said_by="torch 2.5-2.13",
        is_echo=True,
    ),
    KnownError(
        id="ranks-wait",
        section=SECTION,
        title="Ranks wait for each other",
        summary="The log has no error, and ends where the processes of a group meet: if it stays there, at least one of"
        " them did not start, did not reach this place, or cannot reach the first one.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                ": GLOBAL_RANK: ",
                r"[Ii]nitializing (?:distributed|ddp|deepspeed distributed): GLOBAL_RANK: (?P<member_rank>\d{1,6}),"
                r" MEMBER: \d{1,6}/(?P<members>(?!1\b)\d{1,6})",
            ),
            Pattern(
                "Initializing TorchBackend in DeepSpeed with backend",
                r"Initializing TorchBackend in DeepSpeed with backend (?P<backend>\w{1,20})",
            ),
            Pattern("| distributed init (rank ", r"\| distributed init \(rank (?P<member_rank>\d{1,6})\): "),
            literal("> initializing torch distributed ..."),
            Pattern("] Rendezvous'ing worker group", r"\] Rendezvous'ing worker group"),
        ),
        causes=(
            "Fewer processes were started than the group expects: devices times nodes, or --nnodes.",
            "A process failed or waits elsewhere, as for a download; its own log shows it.",
            "The hosts cannot reach MASTER_ADDR: another address, interface, port or firewall.",
        ),
        fixes=(
            Fix(
                "Start one process for each GPU: in Lightning under Slurm, --ntasks-per-node is equal to devices, and"
                " --nodes to num_nodes.",
                "srun --nodes=1 --gpus-per-node=2 --ntasks-per-node=2 python train.py",
                first_for=("GLOBAL_RANK",),
            ),
            Fix(
                "Count the processes on every host, and print where the existing ones wait.",
                "ps aux | grep '[t]rain.py'; py-spy dump --pid $(pgrep -f train.py | head -1)",
            ),
            Fix(
                "With several hosts, start the same command on each, with an address of the first one.",
                "torchrun --nnodes=2 --nproc-per-node=gpu --rdzv-backend=c10d --rdzv-endpoint=HOST:29500 train.py",
            ),
            Fix(
                "If all processes run, let NCCL print what it waits for; without peer-to-peer copies it often starts.",
                "NCCL_DEBUG=INFO NCCL_P2P_DISABLE=1 torchrun --nproc-per-node=gpu train.py",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(sources.TORCHRUN, "https://github.com/Lightning-AI/pytorch-lightning/issues/19606"),
        said_by="Lightning 1.5-2.5, DeepSpeed 0.9-0.17, torch 1.13-2.13",
        is_last=True,
    ),
    KnownError(
        id="nccl-start-hangs",
        section=SECTION,
        title="NCCL hangs while it connects the GPUs",
        summary="The log has no error, and ends where NCCL connects the GPUs: if it stays there, data that one GPU or"
        " host sends does not reach the other one.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern("vLLM is using nccl==", r"vLLM is using nccl==(?P<version>[\d.]{1,16})"),
            Pattern("NCCL INFO Using network ", r"NCCL INFO Using network (?P<network>\w{1,40})"),
            Pattern("NCCL INFO Channel ", r"NCCL INFO Channel \d{1,3}(?:/\d{1,3})? : \d{1,6}\["),
            Pattern(" - Init START", r" nranks (?P<ranks>\d{1,6}) [^\n]{1,160} - Init START"),
            Pattern("generating GPU P2P access cache", r"generating GPU P2P access cache"),
        ),
        causes=(
            "Copies between the GPUs do not arrive: the IOMMU or PCIe ACS redirects them, as in virtual machines.",
            "With several hosts, NCCL chose an interface that the others cannot reach: a Docker bridge, a VPN.",
            "A process of an earlier run still holds a GPU, or one of the ranks has ended.",
        ),
        fixes=(
            Fix(
                "Try without peer-to-peer copies: if it then starts, they are the cause.",
                "NCCL_P2P_DISABLE=1 torchrun --nproc-per-node=gpu train.py",
            ),
            Fix(
                "Then repair them: disable the IOMMU in the BIOS or with iommu=pt, and check the topology.",
                "nvidia-smi topo -m; sudo dmesg | grep -i -e iommu -e dmar | head",
            ),
            Fix(
                "With several hosts, choose the interface that connects them.",
                "NCCL_SOCKET_IFNAME=eth0 torchrun --nnodes=2 --nproc-per-node=gpu train.py",
            ),
            Fix("Look for processes of an earlier run.", "nvidia-smi; ps aux | grep python"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(sources.NCCL_TROUBLESHOOTING, "https://docs.vllm.ai/en/latest/usage/troubleshooting/"),
        said_by="NCCL 2.18-2.29, vLLM 0.5-0.19",
        is_last=True,
    ),
    KnownError(
        id="store-barrier",
        section=SECTION,
        title="Some ranks did not take part in the start of a process group",
        summary="This rank reached the store and waited there for the other ranks until the time limit; they did"
        " not come.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "Timed out initializing process group in store based barrier",
                r"Timed out initializing process group in store based barrier on rank:?"
                r" (?P<rank>\d{1,6})(?:[^\n]{0,120}?world_size=(?P<ranks>\d{1,6}), worker_count=(?P<joined>\d{1,6}))?",
            ),
        ),
        causes=(
            "Other ranks failed before, or their processes were never started.",
            "Not all ranks create the group: new_group must be called by every rank, in the same order.",
            "Other ranks are slower than the time limit: they download, compile, or read data.",
        ),
        fixes=(
            fixes.FIRST_RANK,
            Fix(
                "Create every group on all ranks, in the same order, also on those that are no members.",
                "groups = [torch.distributed.new_group(ranks) for ranks in all_groups]",
            ),
            Fix(
                "Allow more time for slow starts.",
                "from datetime import timedelta\n\n"
                'torch.distributed.init_process_group("nccl", timeout=timedelta(minutes=30))',
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://docs.pytorch.org/docs/stable/distributed.html",),
        said_by="torch 1.9-2.13",
    ),
)
