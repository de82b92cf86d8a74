"""Errors of tensors that several GPUs share: DTensor, plans of tensor parallelism, symmetric memory."""

from typing import Final

from gpumon.diagnosis.catalogue.wording import NOT_ABOUT_MEMORY, literal
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

SECTION: Final = "Sharded state"

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="dtensor-expected",
        section=SECTION,
        title="Sharded tensor expected, ordinary tensor found",
        summary="Code for DTensor or ShardedTensor got a plain tensor: this parameter or state is not sharded.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern("attribute '_local_tensor'", r"'Tensor' object has no attribute '(?P<attribute>_local_tensor)'"),
            Pattern("attribute 'local_shards'", r"'Tensor' object has no attribute '(?P<attribute>local_shards)'"),
        ),
        causes=(
            "Part of the model is not sharded, such as frozen layers, adapters or buffers.",
            "The state that is loaded or saved is whole, and the code expects the parts of FSDP.",
            "The library was written for another version of PyTorch, in which FSDP keeps its parameters differently.",
        ),
        fixes=(
            Fix("Shard the root module as well, so that no parameter is left out.", "fully_shard(model)"),
            Fix(
                "Load a state with the function that shards it as the model is.",
                "from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict\n\n"
                "set_model_state_dict(model, state, options=StateDictOptions(full_state_dict=True))",
            ),
            Fix(
                "In an own loop, convert only what is sharded.",
                "value = value.to_local() if isinstance(value, DTensor) else value",
            ),
            Fix("Upgrade the library that the traceback names."),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(
            "https://docs.pytorch.org/docs/stable/distributed.tensor.html",
            "https://github.com/pytorch/torchrec/issues/1497",
        ),
        said_by="torch 2.0-2.13",
    ),
    KnownError(
        id="tensor-parallel-plan",
        section=SECTION,
        title="Tensor parallelism does not fit the model or PyTorch",
        summary="The model is to be split among GPUs by a plan, and PyTorch or the plan's modules do not allow it.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "ensor parallel is only supported for ",
                r"[Tt]ensor parallel is only supported for `?torch ?>= ?(?P<required>\d[\d.]{0,9}\d)",
            ),
            Pattern(
                " currently only support nn.Linear",
                r"(?P<style>ColwiseParallel|RowwiseParallel) currently only support nn\.Linear",
            ),
            Pattern(
                "are mutually exclusive", r"(?:Tensor parallelism|`tp_plan`) and `device_map` are mutually exclusive"
            ),
            literal("tp_plan has to be set when tp_size is passed"),
            literal("it must contain a 'tp' dimension"),
            Pattern(
                "_layouts should have same length!",
                r"module (?:inputs|outputs) and \w{5,6}_layouts should have same"
                r" length!",
            ),
            Pattern(": colwise shards linear layers", r"has no `out_features`: colwise shards linear layers"),
            Pattern(": rowwise shards linear layers", r"has no `in_features`: rowwise shards linear layers"),
        ),
        causes=(
            "PyTorch is older than transformers requires for it.",
            'Under torchrun, transformers reads device_map="auto" as tensor parallelism.',
            "A device_map is passed as well, which places whole layers instead of splitting them.",
            "The plan names layers that are neither linear nor embeddings, such as quantized ones or adapters.",
        ),
        fixes=(
            Fix(
                "If it was not intended, put the whole model on the GPU of this rank.",
                'model = AutoModelForCausalLM.from_pretrained(name, device_map={"": int(os.environ["LOCAL_RANK"])})',
            ),
            Fix(
                "If it was, pass the plan alone.",
                'model = AutoModelForCausalLM.from_pretrained(name, tp_plan="auto")',
            ),
            Fix(
                "Upgrade PyTorch.",
                "pip install --upgrade torch",
                first_for=("only supported for",),
            ),
            Fix(
                "Compare the plan with the model's layers.",
                "print(model._tp_plan)\nprint(model)",
                first_for=("currently only support", "should have same length", "shards linear"),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(
            "https://huggingface.co/docs/transformers/perf_infer_gpu_multi",
            "https://docs.pytorch.org/docs/stable/distributed.tensor.parallel.html",
        ),
        said_by="transformers 4.47-5.23, torch 2.3-2.13",
    ),
    KnownError(
        id="symmetric-memory",
        section=SECTION,
        title="Symmetric memory cannot be set up",
        summary="PyTorch shares memory among the GPUs of one host directly, and these processes cannot do so.",
        context=ContextState.ALIVE,
        patterns=(
            literal("CUDASymmetricMemory requires pidfd_open and pidfd_getfd"),
            literal("Cannot get buffer across nodes"),
            Pattern(
                "SymmetricMemory does not ",
                r"SymmetricMemory does not (?:support device type|find allocation backend) (?P<kind>\w{1,20})",
            ),
            literal("get_symm_mem_workspace(): the requested size"),
            literal("Tensor is not allocated from Symmetric Memory"),
            Pattern("failed to send fd: ", r"Error: failed to send fd: (?P<reason>[^\n]{1,80})"),
            literal("NVSHMEM device library not found"),
        ),
        causes=(
            "The group spans several hosts, or GPUs without a direct connection.",
            "The container or the kernel does not allow processes to exchange file descriptors.",
            "PyTorch was built without the backend, or NVSHMEM is not installed.",
        ),
        fixes=(
            Fix("Check that each pair of GPUs is connected.", "nvidia-smi topo -p2p n"),
            Fix(
                "In a container, permit the exchange of file descriptors between processes.",
                "docker run --gpus all --ipc=host --cap-add SYS_PTRACE image",
                first_for=("pidfd",),
            ),
            Fix("In vLLM, continue without it.", "VLLM_ALLREDUCE_USE_SYMM_MEM=0 vllm serve Qwen/Qwen3-8B"),
            Fix(
                "Use the group of one host's ranks.",
                'symm_mem.rendezvous(buffer, mesh["tp"].get_group())',
                first_for=("across nodes", "No such file"),
            ),
            Fix(
                "Install NVSHMEM for this version of CUDA.",
                "pip install nvidia-nvshmem-cu12",
                first_for=("NVSHMEM",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(
            "https://docs.pytorch.org/docs/stable/symmetric_memory.html",
            "https://github.com/pytorch/pytorch/issues/129408",
            "https://github.com/pytorch/pytorch/issues/171495",
        ),
        said_by="torch 2.5-2.13",
    ),
)
