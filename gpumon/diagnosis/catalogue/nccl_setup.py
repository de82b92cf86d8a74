"""Errors of NCCL's setup: paths between GPUs and network cards, and arguments that NCCL refuses.

The wordings are from the sources of NCCL 2.29.
"""

from typing import Final

from gpumon.diagnosis.catalogue import fixes, sources
from gpumon.diagnosis.catalogue.network import NETWORK_LOG, SECTION
from gpumon.diagnosis.catalogue.wording import NOT_ABOUT_MEMORY, literal
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="nccl-path",
        section=SECTION,
        title="NCCL: no path between a GPU and a network card",
        summary="NCCL could not connect the GPUs and network cards that it detected, or its file of them is not valid.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "WARN Could not find ",
                r"NCCL WARN Could not find (?P<part>NET with id|NIC for rank|gpu rank|net id|node of type"
                r"|any local path|intermediate GPU|rev link|id) ?(?P<number>[\w/]{0,20})",
            ),
            Pattern(
                "No path computed to go from", r"No path computed to go from (?P<parts>\w{1,8}/\d{1,5} to \w{1,8})"
            ),
            Pattern("Failed to find reverse path", r"Failed to find reverse path from remNode"),
            Pattern(
                "has wrong version",
                r"XML (?:Topology|Graph) has wrong version (?P<version>\d{1,5}), (?P<needed>\d{1,5}) needed",
            ),
            Pattern(
                "Could not open XML", r"Could not open XML (?:topology|graph) file (?P<file>\S{1,160}) : [^\n]{1,60}"
            ),
            Pattern("NCCL WARN XML Parse", r"NCCL WARN XML Parse(?: error)? : (?P<reason>[^\n]{1,80})"),
            Pattern(" of node ", r"NCCL WARN Attribute (?P<attribute>\w{1,40}) of node (?P<node>\w{1,40}) not found"),
            Pattern("XML Import Channel", r"XML Import Channel : dev (?P<number>-?\d{1,9}) not found"),
            Pattern("Detected mixed local", r"Detected mixed local (?:Net|CollNet) device counts across ranks"),
            Pattern(
                "P2P is disabled between NVLINK",
                r"P2P is disabled between NVLINK connected GPUs (?P<gpu>\d{1,4}) and (?P<other_gpu>\d{1,4})",
            ),
            literal("Fusing NET devices from different NUMA domains is not supported"),
            Pattern(
                "Could not force merge NICs", r"TOPO/NET : Could not force merge NICs (?P<cards>[^\n]{1,80}?)\. Please"
            ),
            Pattern("merge incompatible devices", r"NET/IB : Attempted to merge incompatible devices"),
        ),
        causes=(
            "NCCL_TOPO_FILE or NCCL_GRAPH_FILE describes another host, or was written by another version.",
            "The processes of a host see different network cards, because of containers or NCCL_IB_HCA.",
            "This version of NCCL has a fault with the network cards of this host, such as ports that it merges.",
        ),
        fixes=(
            Fix("Remove files and lists for another host.", "unset NCCL_TOPO_FILE NCCL_GRAPH_FILE NCCL_IB_HCA"),
            Fix("Compare with what the driver reports.", "nvidia-smi topo -m"),
            Fix("Use a newer NCCL with the installed PyTorch.", "pip install --upgrade nvidia-nccl-cu12"),
            Fix(
                "Do not let NCCL merge the ports of a card.",
                "NCCL_IB_MERGE_NICS=0 torchrun --nproc-per-node=gpu train.py",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        see_more=(NETWORK_LOG,),
        sources=(sources.NCCL_VARIABLES, "https://github.com/NVIDIA-NeMo/Speech/issues/13996"),
        said_by="NCCL 2.18-2.29",
    ),
    KnownError(
        id="nccl-arguments",
        section=SECTION,
        title="NCCL refuses an argument",
        summary="A call has a rank, device, tensor or operation that does not fit the communicator.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern("Invalid rank requested", r"Invalid rank requested : (?P<rank>-?\d{1,6})/(?P<ranks>-?\d{1,6})"),
            Pattern(
                "improper usage of ncclCommInitRank", r"improper usage of ncclCommInitRank: nId = (?P<ids>\d{1,6})"
            ),
            Pattern(
                " mismatchs with NCCL device",
                r"NCCL WARN (?P<call>\w{1,40}) : (?P<buffer>\w{1,20}) allocated on device (?P<device>-?\d{1,4})"
                r" mismatchs with NCCL device (?P<other_device>-?\d{1,4})",
            ),
            Pattern(
                " is not a valid pointer", r"NCCL WARN (?P<call>\w{1,40}) : \w{1,20} \S{1,20} is not a valid pointer"
            ),
            Pattern("(root should be in the", r"invalid root (?P<value>-?\d{1,9}) \(root should be in the"),
            Pattern(
                ": invalid reduction operation",
                r"NCCL WARN (?P<call>\w{1,40}) : invalid reduction operation (?P<value>-?\d{1,9})",
            ),
            Pattern("Invalid device count requested", r"Invalid device count requested : (?P<count>-?\d{1,6})"),
            Pattern("FP8 reduction support begins", r"FP8 reduction support begins with sm90 capable devices"),
            Pattern("with datatype", r"No algorithm/protocol available for function (?P<call>\w{1,40}) with datatype"),
            Pattern("to self without a matching", r"Trying to (?:send|recv) to self without a matching (?:send|recv)"),
            Pattern(
                "a NCCL group must either be", r"Streams given to a communicator within a NCCL group must either be"
            ),
            literal("ncclGroupEnd: not in a group call"),
            Pattern(" has already been destroyed", r"NCCL WARN comm \S{1,20} has already been destroyed"),
            Pattern("Either none or all", r"Either none or all communicators in a ncclGroup\(\) can be CUDA graph"),
        ),
        causes=(
            "Invalid rank: the number of processes was set too low, or the rank is that of another job.",
            "A tensor is on the CPU, or on another GPU than the one of the rank.",
            "NCCL_ALGO or NCCL_PROTO forbids everything that the collective can use.",
        ),
        fixes=(
            Fix(
                "Check rank and size of each process: ranks start at 0.",
                "env | grep -E '^(RANK|LOCAL_RANK|WORLD_SIZE)='",
            ),
            fixes.ONE_PROCESS_PER_GPU,
            Fix(
                "Let NCCL choose algorithm and protocol.",
                "unset NCCL_ALGO NCCL_PROTO",
                first_for=("NCCL_ALGO",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        see_more=(NETWORK_LOG,),
        sources=(sources.NCCL_VARIABLES, sources.TORCH_DISTRIBUTED),
        said_by="NCCL 2.18-2.29",
    ),
)
