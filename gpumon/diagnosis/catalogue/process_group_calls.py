"""Errors of calls of torch.distributed: arguments of collectives, groups and devices that are not valid.

The wordings are from the sources of PyTorch 2.13.
"""

from typing import Final

from gpumon.diagnosis.catalogue import sources
from gpumon.diagnosis.catalogue.process_groups import SECTION
from gpumon.diagnosis.catalogue.wording import NO_CONTEXT_YET, NOT_ABOUT_MEMORY, literal
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="collective-arguments",
        section=SECTION,
        title="Collective has invalid arguments",
        summary="A function of torch.distributed got a tensor, list or rank that it does not accept.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "be specified on ",
                r"Argument ``(?P<name>\w{1,24})`` must (?:NOT )?be specified on (?:non-)?(?:destination|source) rank",
            ),
            Pattern("Must provide object_gather_list", r"Must provide object_gather_list on dst rank"),
            Pattern(
                "Invalid function argument. Expected",
                r"Invalid function argument\. Expected parameter `(?P<name>\w{1,24})`",
            ),
            literal("Invalid function argument: output_tensor_lists should be a list"),
            Pattern(
                "as the rank of the current process", r"rank should not be the same as the rank of the current process"
            ),
            Pattern("on complex tensors", r"all_reduce does not support (?P<operator>[^\n]{1,40}) on complex tensors"),
            literal("monitored_barrier is only implemented for GLOO backend"),
            literal("Invalid usage of tensors with different dtypes"),
            literal("Expected timeout argument to be of type datetime.timedelta"),
            Pattern(
                "to be a list of size at least 1",
                r"Expected argument (?P<name>\w{1,40}) to be a list of size at least 1",
            ),
            literal("All ops need to use the same group"),
            literal("Tensor's dim 0 does not divide equally across group size"),
            literal("Number of tensor splits not equal to group size"),
            literal("Tensor list input to scatter/gather must match number of collective participants"),
            Pattern(
                "must be a multiple of group_size",
                r"input dimension \d{1,3} \(\d{1,12} must be a multiple of group"
                r"_size \d{1,6}",
            ),
        ),
        causes=(
            "The list of results is given on ranks that receive nothing, or is missing on the one that receives.",
            "A number or a list is sent instead of a tensor.",
            "A tensor is split among the ranks, and its first dimension is no multiple of their number.",
        ),
        fixes=(
            Fix(
                "Give the list only on the rank that receives.",
                """\
parts = [torch.empty_like(value) for _ in range(world_size)] if rank == 0 else None
torch.distributed.gather(value, parts, dst=0)""",
            ),
            Fix(
                "Send numbers as a tensor on the GPU of this rank.",
                "value = torch.tensor([loss], device=device)",
                first_for=("of type torch.Tensor",),
            ),
            Fix(
                "Send other objects with the functions for objects.",
                "torch.distributed.all_gather_object(parts, value)",
            ),
            Fix(
                "Give the timeout as a duration.",
                'torch.distributed.init_process_group("nccl", timeout=datetime.timedelta(seconds=1800))',
                first_for=("timeout argument",),
            ),
            Fix(
                "Convert the tensors to one type.",
                "tensors = [value.to(torch.float32) for value in tensors]",
                first_for=("different dtypes",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(sources.TORCH_DISTRIBUTED,),
        said_by="torch 1.13-2.13",
    ),
    KnownError(
        id="process-group-arguments",
        section=SECTION,
        title="Process group cannot be created like this",
        summary="The backend, the ranks or the device of a new process group are not valid.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern("Unknown backend '", r"Unknown backend '(?P<backend>[\w:,-]{1,40})'\. Specify a"),
            Pattern("Invalid device:backend pairing", r"Invalid device:backend pairing '?(?P<backend>[\w:-]{1,40})"),
            literal("the new group's world size should be less or equal to the world size"),
            literal("the split group's size should be less or equal to the world_size"),
            Pattern("ranks list must not contain", r"ranks list must not contain duplicate entries"),
            Pattern("is out of range. Valid ranks", r"Rank (?P<rank>-?\d{1,6}) is out of range\. Valid ranks are 0 to"),
            literal("init_process_group device_id parameter must be"),
            Pattern(
                "is out of range. Please use",
                r"device_id (?P<device>[\w:-]{1,12}) is out of range\. Please use",
            ),
            literal("Please use a device_id with index"),
            literal("Cannot specify both init_method and store"),
            Pattern("is not initialized in the world group map", r"is not initialized in the world group map"),
            Pattern("Invalid process group specified", r"Invalid process group specified"),
            literal("Mismatched bound device between new pg and the default pg"),
            Pattern(
                "The arg 'group_size'", r"The arg 'group_size' \((?P<size>-?\d{1,6})\) must (?:be positive|not exceed)"
            ),
        ),
        causes=(
            "The ranks were written for another number of processes.",
            "This rank is not in the group, or the group was destroyed.",
            "The device has no number, such as cuda instead of cuda:0, or more processes were started than GPUs.",
        ),
        fixes=(
            Fix(
                "Create groups on all ranks, also on those that are not in it.",
                "group = torch.distributed.new_group([0, 1])",
            ),
            Fix(
                "Use a group only on its own ranks.",
                "if rank in (0, 1):\n    torch.distributed.all_reduce(value, group=group)",
                first_for=("not initialized in the world group", "Invalid process group"),
            ),
            Fix(
                "Give the device with its number.",
                """\
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.distributed.init_process_group("nccl", device_id=device)""",
                first_for=("device_id", "bound device"),
            ),
            Fix(
                "Name the backends by device.",
                'torch.distributed.init_process_group("cpu:gloo,cuda:nccl")',
                first_for=("Unknown backend", "device:backend pairing"),
            ),
        ),
        empty_cache=NO_CONTEXT_YET,
        sources=(sources.TORCH_DISTRIBUTED,),
        said_by="torch 1.13-2.13",
    ),
)
