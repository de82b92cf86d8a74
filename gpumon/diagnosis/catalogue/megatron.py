"""Errors of Megatron-LM and programs built on it: options, degrees of parallelism, data and checkpoints."""

from typing import Final

from gpumon.diagnosis.catalogue.wording import NOT_ABOUT_MEMORY, literal
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

SECTION: Final = "Megatron and degrees of parallelism"

_GUIDE: Final = "https://docs.nvidia.com/megatron-core/developer-guide/latest/user-guide/parallelism-guide.html"
_PARALLEL: Final = (
    r"(?:parallel|pipeline|ulysses|world[ _]size|(?:tp|pp|cp|ep|sp|fsdp|vp)[ _](?:size|degree)|\btp\b|left over stages"
    r"|layers per virtual|gpus_per_node)"
)
"""What a size must be divisible by, so that the model can be divided among GPUs."""
_OTHERS: Final = r"Error: (?![^\n]{0,160}(?:batch|world[_ ]size \(|heads \(|_per_partition))"
"""The start of a message that is not about batches or the number of processes, which other entries explain."""
ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="parallel-degree",
        section=SECTION,
        title="Model or sequence cannot be divided by the degree of parallelism",
        summary="A size of the model, or the length of the sequence, is not a multiple of the number of parts.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern("divisible by", _OTHERS + r"[^\n]{0,120}?divisible by ?[^\n]{0,90}?" + _PARALLEL),
            Pattern(
                "divisible by",
                _OTHERS
                + r"[^\n]{0,90}?(?:parallel size|left over layers|layers? (?:per|on each|at) |sequence parallel)"
                r"[^\n]{0,90}?divisible by",
            ),
            Pattern("must be a multiple of tensor", r"must be a multiple of tensor_model_parallel_size"),
            Pattern(
                "attention heads must be divisible",
                r"attention heads must be divisible by (?P<degree>[^\n]{1,60})",
            ),
        ),
        causes=(
            "The number of attention heads, of their groups or of experts is not a multiple of that degree.",
            "The number of layers is not a multiple of the pipeline degree and its virtual stages.",
            "With sequence or context parallelism, a batch is not padded to a multiple of the degree.",
        ),
        fixes=(
            Fix(
                "Print the sizes of the model, and choose degrees that divide them.",
                "python -c \"from transformers import AutoConfig; print(AutoConfig.from_pretrained('MODEL'))\"",
            ),
            Fix(
                "Use a number of GPUs that divides the number of experts, in most cases a power of two.",
                "vllm serve MODEL --tensor-parallel-size 4 --enable-expert-parallel",
                first_for=("n_physical_experts",),
            ),
            Fix(
                "If the sequence is, pad each batch to a multiple of the degree, or turn sequence parallelism off.",
                first_for=("First dimension of the tensor",),
            ),
            Fix(
                "If the layers are, give the first or the last pipeline stage another number of layers.",
                first_for=("umber of layers",),
            ),
            Fix(
                "Start as many processes as the product of the parallel sizes, or a multiple of it.",
                "torchrun --nproc-per-node 8 train.py",
                first_for=("World size",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(_GUIDE, "https://github.com/verl-project/verl/issues/3296"),
        said_by="Megatron-LM 0.5-0.20, verl 0.3-0.10, DeepSpeed 0.14-0.19, ColossalAI 0.4",
    ),
    KnownError(
        id="megatron-options",
        section=SECTION,
        title="Megatron's options contradict each other",
        summary="Megatron checked its options before training and refused them; the last line names the options.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern("in validate_args", r"arguments\.py\", line \d{1,6}, in validate_args"),
            Pattern(
                "megatron/core/",
                r"megatron/core/[\w/]{1,80}_config\.py\", line \d{1,6}, in __post_init__",
            ),
            Pattern(
                "megatron/bridge/",
                r"megatron/bridge/[\w/]{1,80}\.py\", line \d{1,6}, in (?:validate|finalize|__post_init__)\b",
            ),
            literal("Can not use sequence parallelism without tensor parallelism"),
            literal("Cannot use sequence parallelism without tensor parallelism"),
            literal("pipeline-model-parallel size should be greater than 1 with interleaved schedule"),
            literal("num_moe_experts must be non None to use expert-parallel"),
            literal("either train-iters or train-samples should be provided"),
            literal("config.no_sync_func must be None"),
        ),
        causes=(
            "An option requires another one that is not set, or excludes it.",
            "The script was written for another version of Megatron, in which the check did not exist.",
        ),
        fixes=(
            Fix("Change the options that the last line of the traceback names, or turn that feature off."),
            Fix("Read the options of the installed version.", "python pretrain_gpt.py --help"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(_GUIDE, "https://github.com/modelscope/ms-swift/issues/5737"),
        said_by="Megatron-LM 0.5-0.20",
    ),
    KnownError(
        id="megatron-extension",
        section=SECTION,
        title="Megatron needs an extension that is not installed",
        summary="An option that is on by default uses kernels of Apex or Transformer Engine, which are not installed.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            literal("custom CUDA extension fused_weight_gradient_mlp_cuda module is not found"),
            literal("fused layer norm is not available, please install apex"),
            Pattern(
                "please install apex from",
                r"(?:Apex|apex) is not (?:installed|available)[^\n]{0,80}please install apex from",
            ),
            Pattern("persist_layer_norm not supported", r"persist_layer_norm not supported by torch LayerNorm"),
            Pattern(
                "requires setting the environment variable CUDA_DEVICE_MAX_CONNECTIONS",
                r"requires setting the environment variable CUDA_DEVICE_MAX_CONNECTIONS to 1",
            ),
        ),
        causes=(
            "Apex was installed from PyPI, which is another package, or without its CUDA extensions.",
            "The program runs outside the NGC container, in which both packages are built.",
            "CUDA_DEVICE_MAX_CONNECTIONS must be 1 on GPUs before Blackwell, so that communication overlaps.",
        ),
        fixes=(
            Fix(
                "Turn these kernels off.",
                "python pretrain_gpt.py --no-gradient-accumulation-fusion --no-persist-layer-norm",
            ),
            Fix(
                "If the message names the variable, set it.",
                "CUDA_DEVICE_MAX_CONNECTIONS=1 torchrun --nproc-per-node=gpu pretrain_gpt.py",
                first_for=("CUDA_DEVICE_MAX_CONNECTIONS",),
            ),
            Fix("Install Transformer Engine.", 'pip install --no-build-isolation "transformer_engine[pytorch]"'),
            Fix(
                "Or use the container, which has all of them.",
                "docker run --gpus all --ipc=host nvcr.io/nvidia/pytorch:25.06-py3",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/NVIDIA/Megatron-LM",),
        said_by="Megatron-LM 0.5-0.20",
    ),
    KnownError(
        id="megatron-data",
        section=SECTION,
        title="Megatron cannot read the dataset",
        summary="The preprocessed files of the dataset are missing, damaged, or do not have enough samples.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "files cannot be found at the",
                r"One or both of the \.idx and \.bin files cannot be found at the path prefix (?P<prefix>\S{1,200})",
            ),
            Pattern("bad header, cannot read: ", r"bad header, cannot read: (?P<file>\S{1,200})"),
            Pattern("blend oversamples the", r"blend oversamples the contributing datasets"),
            Pattern("Failed to make the C++ dataset helpers", r"Failed to make the C\+\+ dataset helpers"),
            literal("cyclic_iter: iterable produced no data"),
            literal("last epoch number of samples exceeded max value"),
        ),
        causes=(
            "The option --data-path must be the name of the files without .idx and .bin, as the container sees it.",
            "The C++ helpers of the datasets are not compiled: make, a compiler or pybind11 is missing.",
            "The dataset is too small for the split or the number of steps.",
        ),
        fixes=(
            Fix("Check that both files exist inside the container, on each node.", "ls -l PREFIX.bin PREFIX.idx"),
            Fix(
                "Compile the helpers in the folder of Megatron.",
                "cd megatron/core/datasets && make",
                first_for=("helpers",),
            ),
            Fix(
                "Delete the index files of an earlier run, and check that the dataset is not empty.",
                "ls -l PREFIX*; rm -f PREFIX*_indexmap_*.npy",
                first_for=("last epoch",),
            ),
            Fix(
                "Preprocess the dataset again.",
                "python tools/preprocess_data.py --input data.jsonl --output-prefix PREFIX"
                " --tokenizer-type HuggingFaceTokenizer --tokenizer-model MODEL --append-eod --workers 8",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/NVIDIA/Megatron-LM",),
        said_by="Megatron-LM 0.5-0.20",
    ),
    KnownError(
        id="megatron-checkpoint",
        section=SECTION,
        title="Megatron's checkpoint does not fit",
        summary="The checkpoint is of another format, version, model or parallel layout than this run expects.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern("CheckpointingException: ", r"CheckpointingException: (?P<reason>[^\n]{1,160})"),
            literal("Detected load from a distributed checkpoint, but neither --use-dist-ckpt nor"),
            Pattern(
                "value from checkpoint (",
                r"\w{1,60} value from checkpoint \((?P<saved>[^)\n]{1,60})\) is not equal to the",
            ),
            Pattern(
                "Unable to load optimizer from checkpoint",
                r"Unable to load optimizer from checkpoint (?P<file>\S{1,200})",
            ),
            Pattern(
                "Unable to load rng state from checkpoint",
                r"Unable to load rng state from checkpoint (?P<file>\S{1,200})",
            ),
            Pattern("Exception: Unknown tensor name", r"Exception: Unknown tensor name (?P<saved>[\w.]{1,160})"),
            literal("No checkpoint found in load directory or pretrained directory"),
            Pattern("model_optim_rng.pt", r"No such file or directory: '(?P<file>[^'\n]{0,200}model_optim_rng\.pt)'"),
        ),
        causes=(
            "The option --load must name the folder with latest_checkpointed_iteration.txt, not that of an iteration.",
            "The checkpoint was written by another version, with other layers, or without the optimizer.",
            "Saving was interrupted, or the nodes do not share the folder.",
        ),
        fixes=(
            Fix("Show what the folder holds.", "ls CHECKPOINT; cat CHECKPOINT/latest_checkpointed_iteration.txt"),
            Fix(
                "To train only from the weights, leave optimizer and random state out.",
                "python pretrain_gpt.py --load CHECKPOINT --finetune --no-load-optim --no-load-rng",
                first_for=("optimizer from checkpoint", "rng state"),
            ),
            Fix(
                "If only keys of Transformer Engine's extra state differ, ignore them.",
                "python pretrain_gpt.py --load CHECKPOINT --dist-ckpt-strictness log_unexpected",
            ),
            Fix(
                "Start with the sizes that the checkpoint has, or convert it to others.",
                "python tools/checkpoint/convert.py --model-type GPT --load-dir OLD --save-dir NEW"
                " --target-tensor-parallel-size 2 --target-pipeline-parallel-size 1",
                first_for=("value from checkpoint (",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/NVIDIA/Megatron-LM",),
        said_by="Megatron-LM 0.5-0.20",
    ),
)
