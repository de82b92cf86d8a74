"""Errors of models that are parallelized with DTensor and meshes of GPUs, or as a pipeline of stages.

The wordings are from the sources of PyTorch 2.13 and torchtitan, and from reports.
"""

from typing import Final

from gpumon.diagnosis.catalogue.wording import NOT_ABOUT_MEMORY, literal
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

SECTION: Final = "Parallel models"

_MESH: Final = "https://docs.pytorch.org/docs/stable/distributed.html#devicemesh"
_DTENSOR: Final = "https://docs.pytorch.org/docs/stable/distributed.tensor.html"
_PIPELINE: Final = "https://docs.pytorch.org/docs/stable/distributed.pipelining.html"

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="mesh-dimension",
        section=SECTION,
        title="Mesh of GPUs does not have this dimension",
        summary="A part of the mesh was requested by a name or number of dimensions that the mesh does not have.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern("Mesh dimension '", r"Mesh dimension '(?P<name>[\w.-]{1,40})' does not exist"),
            literal("No `mesh_dim_names` found"),
            Pattern(
                "DeviceMesh without mesh_dim_names", r"Cannot (?:slice|flatten) a DeviceMesh without mesh_dim_names"
            ),
            Pattern("Found the DeviceMesh have", r"Found the DeviceMesh have (?P<dimensions>\d{1,2}) dimensions"),
            Pattern(
                "D DeviceMesh but got",
                r"expects a (?:1D or 2D|1D) DeviceMesh but got (?P<mesh>[^\n]{1,80})",
            ),
            Pattern(
                "Expected device_mesh to have ndim=",
                r"Expected device_mesh to have ndim=2 but got (?P<dimensions>\d{1,2})",
            ),
            literal("Please init the 2D mesh for HSDP with mesh_dim_names specified"),
            Pattern("DeviceMesh only support homogeneous", r"DeviceMesh only support homogeneous hardware, but found"),
            Pattern(
                "mesh_dim_names should have same length", r"mesh_shape and mesh_dim_names should have same length!"
            ),
            literal("No device mesh is currently active!"),
            Pattern(
                "is not available. Ensure the",
                r"Mesh '(?P<name>[\w-]{1,40})' is not available\. Ensure the corresponding",
            ),
            Pattern(
                "has been created before",
                r"Flatten mesh with mesh_dim_name (?P<name>[\w.-]{1,40}) has been created before",
            ),
        ),
        causes=(
            "The mesh was created without names, or with other names than those that the program asks for.",
            "FSDP needs one dimension, or two of them for hybrid sharding: give it a part of the mesh.",
            "Homogeneous: the number of processes is not a multiple of the GPUs that each host has.",
        ),
        fixes=(
            Fix(
                "Create the mesh with names.",
                """\
from torch.distributed.device_mesh import init_device_mesh

mesh = init_device_mesh("cuda", (2, 4), mesh_dim_names=("dp", "tp"))""",
            ),
            Fix("Give each function its part of the mesh.", 'fully_shard(model, mesh=mesh["dp"])'),
            Fix("Use one process group by its name.", 'group = mesh.get_group("tp")'),
            Fix(
                "Enable that parallelism with a degree above 1, or ask for its mesh only if it is enabled.",
                first_for=("is not available. Ensure",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(_MESH,),
        said_by="torch 2.2-2.13",
    ),
    KnownError(
        id="dtensor-placement",
        section=SECTION,
        title="DTensor: placement or mesh does not fit",
        summary="A tensor was distributed or redistributed in a way that its mesh or the operator does not allow.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "must have the same length as `device_mesh",
                r"`placements` must have the same length as `device_mesh\.ndim`",
            ),
            literal("`distribute_tensor` should be used to distribute leaf tensors"),
            literal("distribute_module should only be called once on a module"),
            Pattern("Cannot distribute a DTensor with", r"Cannot distribute a DTensor with (?:device mesh|placements)"),
            Pattern(
                "Can not redistribute from",
                r"Can not redistribute from [^\n]{1,60} to [^\n]{1,60}, redistributing to Partial",
            ),
            literal("Cross device mesh comm not supported yet"),
            literal("Could not run pointwise computation across different mesh"),
            literal("Only 1D DeviceMeshes currently handled"),
            literal("Inconsistent tensor metadata (including shape and stride) across ranks"),
        ),
        causes=(
            "There must be one placement for each dimension of the mesh.",
            "Two tensors of an operation are on different meshes.",
            "The ranks hold parts of different sizes, and the whole size was not given.",
        ),
        fixes=(
            Fix(
                "Give one placement per dimension of the mesh.",
                "distribute_tensor(weight, mesh, [Replicate(), Shard(0)])",
            ),
            Fix("Print where a tensor is.", "print(tensor.device_mesh, tensor.placements)"),
            Fix(
                "From parts of different sizes, give shape and stride of the whole.",
                "DTensor.from_local(part, mesh, [Shard(0)], shape=shape, stride=stride)",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(_DTENSOR,),
        said_by="torch 2.2-2.13",
    ),
    KnownError(
        id="pipeline-schedule",
        section=SECTION,
        title="Pipeline: stages and micro-batches do not fit",
        summary="The batch cannot be divided for the schedule of the pipeline, or a stage gets unexpected values.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "must be greater than or equal to the number of",
                r"Number of microbatches \((?P<batches>\d{1,6})\) must be greater than or equal to the number of",
            ),
            Pattern(
                "requires the number of microbatches to be a",
                r"(?P<schedule>[\w ]{1,30}) requires the number of microbatches to be a multiple of the number",
            ),
            Pattern("stages per rank, but got", r"(?P<schedule>\w{1,20}) requires exactly 2 stages per rank, but got"),
            Pattern("many microbatches as stages", r"DualPipeV requires at least as many microbatches as stages"),
            Pattern("is smaller than num_chunks", r"Tensor size (?P<size>\d{1,9}) is smaller than num_chunks"),
            Pattern("args and kwargs are split into", r"args and kwargs are split into different number"),
            literal("It seems that we cannot capture your model as a full graph"),
            Pattern("Unknown schedule name ", r"Unknown schedule name '(?P<schedule>[\w-]{1,40})'"),
            literal("step() requires gradients to be enabled for backward computation"),
            Pattern("PipeliningMetadataError: ", r"PipeliningMetadataError: (?P<reason>[^\n]{1,120})"),
            Pattern("PipeliningShapeError", r"\bPipeliningShapeError: (?P<reason>[^\n]{1,120})"),
            literal("Attempted to get grad_fn, but got None.Is this being created in a no-grad context"),
        ),
        causes=(
            "The batch is smaller than the number of micro-batches, or than the number of stages.",
            "The last batch of the data is smaller than the others: stages expect the shapes of the first one.",
            "A stage returns something that is no tensor, or that needs no gradient.",
        ),
        fixes=(
            Fix(
                "Choose at least as many micro-batches as stages.", "schedule = ScheduleGPipe(stage, n_microbatches=8)"
            ),
            Fix(
                "Leave out the last batch.",
                "loader = DataLoader(dataset, batch_size=8, drop_last=True)",
                first_for=("Shape mismatch", "number of chunks"),
            ),
            Fix(
                "For evaluation, use the schedule's own function.",
                "output = schedule.eval(inputs)",
                first_for=("no_grad", "no-grad"),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(_PIPELINE,),
        said_by="torch 2.4-2.13",
    ),
    KnownError(
        id="checkpoint-parts",
        section=SECTION,
        title="Checkpoint is divided for another number of GPUs",
        summary="The checkpoint has one file per process of tensor parallelism, and as many must be started.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "Loading a checkpoint for MP=",
                r"Loading a checkpoint for MP=(?P<parts>\d{1,4}) but world size is (?P<processes>\d{1,4})",
            ),
        ),
        causes=(
            "Another number of processes was started than the checkpoint has files.",
            "MP=0: the folder contains no .pth files, because the path is wrong or the download is not finished.",
        ),
        fixes=(
            Fix("Start as many processes as the number after MP.", "torchrun --nproc-per-node 2 example.py"),
            Fix("Check the folder that the program reads.", "ls -lh llama-2-13b/*.pth", first_for=("MP=0",)),
            Fix(
                "Or use the converted model, which any number of GPUs can load.",
                'model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-2-13b-hf", device_map="auto")',
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/uiuc-arc/llm-code-watermark/issues/15",),
        said_by="llama 1-3",
    ),
)
