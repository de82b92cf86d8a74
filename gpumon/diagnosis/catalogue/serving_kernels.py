"""Errors of the kernels and processes of inference servers: SGLang, TensorRT-LLM, and vLLM's own kernels."""

from typing import Final

from gpumon.diagnosis.catalogue.serving import SECTION
from gpumon.diagnosis.catalogue.wording import NOT_ABOUT_MEMORY, literal
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="sglang-scheduler",
        section=SECTION,
        title="SGLang: the scheduler ended",
        summary="The process that owns the GPU raised an exception, which stands below this line or above it.",
        context=ContextState.UNKNOWN,
        patterns=(
            Pattern("scheduler ", r"Rank (?P<rank>\d{1,5}) scheduler (?:is dead|died during initialization)"),
            literal("Scheduler hit an exception"),
            Pattern("Received sigquit from a child", r"Received sigquit from a child proces"),
            Pattern("DataParallelController hit", r"DataParallelController hit an exception"),
        ),
        causes=("Out of memory, an unsupported model, or a CUDA error.",),
        fixes=(
            Fix(
                "An exit code of -9 is SIGKILL, nearly always for lack of host memory: look in the kernel log.",
                "sudo dmesg -T | grep -i -E 'out of memory|oom-kill'",
                first_for=("SGLang killed",),
                hidden_otherwise=True,
            ),
            Fix(
                "Find the first error of the scheduler in the log.",
                "grep -n -m 5 -E '(Error|Exception):' sglang.log",
            ),
            Fix(
                "If it is a CUDA error, test without CUDA graphs.",
                "python -m sglang.launch_server --model-path MODEL --disable-cuda-graph",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/sgl-project/sglang/issues/3713",),
        said_by="SGLang 0.4-0.5",
        is_echo=True,
    ),
    KnownError(
        id="sglang-watchdog",
        section=SECTION,
        title="SGLang: a step took too long",
        summary="The scheduler finished no step within the limit of its watchdog, which ends the server.",
        context=ContextState.UNKNOWN,
        patterns=(
            Pattern(
                "atchdog timeout (self.watchdog_",
                r"[Ww]atchdog timeout"
                r" \(self\.watchdog_(?:timeout|last_\w{1,20})=(?P<seconds>[\d.]{1,20})",
            ),
        ),
        causes=(
            "Kernels are compiled during the first requests, as those of DeepGEMM are.",
            "A collective hangs: a rank failed, or direct transfers between the GPUs do not work.",
        ),
        fixes=(
            Fix("Look where the scheduler stands.", "py-spy dump --pid PID"),
            Fix(
                "If it compiles, wait longer, or compile before.",
                "python -m sglang.launch_server --model-path MODEL --watchdog-timeout 3600",
            ),
            Fix("If all GPUs show 100 %, test without direct transfers.", "export NCCL_P2P_DISABLE=1"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/sgl-project/sglang/blob/main/python/sglang/srt/managers/scheduler.py",),
        said_by="SGLang 0.4-0.5.23",
    ),
    KnownError(
        id="sgl-kernel",
        section=SECTION,
        title="SGLang: its kernels cannot be loaded",
        summary="The package sgl_kernel was built for another GPU, CUDA or PyTorch than those of this environment.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "Could not load any common_ops library",
                r"\[sgl_kernel\] CRITICAL: Could not load any common_ops"
                r" library",
            ),
        ),
        causes=(
            "PyTorch was up- or downgraded after SGLang was installed.",
            "The wheel is for CUDA 12 and the environment for CUDA 13, or the other way around.",
        ),
        fixes=(
            Fix(
                "Install SGLang in a new environment, which brings what fits.",
                "python3 -m venv fresh && fresh/bin/pip install sglang",
            ),
            Fix("Show the versions.", "pip list | grep -i -E 'torch|sgl'"),
            Fix("Or use its container.", "docker run --gpus all --shm-size 32g lmsysorg/sglang:latest"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://docs.sglang.ai/get_started/install.html",),
        said_by="SGLang 0.5",
    ),
    KnownError(
        id="vllm-all-reduce",
        section=SECTION,
        title="vLLM and SGLang: custom all-reduce failed",
        summary="The all-reduce of the server itself could not share memory between the GPUs.",
        context=ContextState.UNKNOWN,
        patterns=(
            Pattern(
                "custom_all_reduce",
                r"Failed: Cuda error [^\n]{0,120}custom_all_reduce\.cuh:(?P<line>\d{1,5}) '(?P<reason>[^'\n]{1,80})'",
            ),
            Pattern(
                ", in register_graph_buffers",
                r"custom_all_reduce\.py\", line \d{1,5}, in register_graph_buffers",
            ),
        ),
        causes=(
            "Expandable segments are on: their memory cannot be shared in this way.",
            "The GPUs have no peer access, or the container blocks it.",
        ),
        fixes=(
            Fix("Use NCCL instead.", "vllm serve MODEL --disable-custom-all-reduce"),
            Fix("Do without expandable segments.", "unset PYTORCH_CUDA_ALLOC_CONF PYTORCH_ALLOC_CONF"),
            Fix("Show which pairs of GPUs can access each other.", "nvidia-smi topo -p2p r"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/vllm-project/vllm/issues/9046",),
        said_by="vLLM 0.6-0.19",
    ),
    KnownError(
        id="vllm-weights-shape",
        section=SECTION,
        title="vLLM: weights do not fit the layer",
        summary="A tensor of the checkpoint has another shape than the layer of the model into which it is loaded.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "Tried to load weights of size ",
                r"Tried to load weights of size (?P<loaded>torch\.Size\([^)\n]{1,60}\)) ?to a parameter of size"
                r" (?P<shape>torch\.Size\([^)\n]{1,60}\))",
            ),
            Pattern(
                "put size is not aligned with the quantized weight",
                r"The (?P<dimension>in|out)put size is not aligned with the quantized weight shape",
            ),
            Pattern(
                "is not divisible by weight quantization block",
                r"is not divisible by weight quantization (?P<divisor>block_[nk] = \d{1,6})",
            ),
            literal("Prequant BitsAndBytes models with tensor parallelism is not supported"),
            Pattern("loaded_weight.shape", r"assert param_data\.shape == loaded_weight\.shape"),
        ),
        causes=(
            "The checkpoint is quantized, and this version does not support that quantization for this model.",
            "bitsandbytes with tensor parallelism, or with a model whose vision part must not be quantized.",
        ),
        fixes=(
            Fix("Upgrade vLLM.", "pip install --upgrade vllm"),
            Fix(
                "If the tensors are divided over several GPUs, use fewer of them, or split the layers into stages.",
                "vllm serve MODEL -tp 1 -pp 2",
                first_for=("not aligned", "not divisible", "tensor parallelism"),
            ),
            Fix("Use the unquantized model, or another quantization such as AWQ, GPTQ or FP8."),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/vllm-project/vllm/issues/12900",),
        said_by="vLLM 0.6-0.10",
    ),
    KnownError(
        id="vllm-marlin-size",
        section=SECTION,
        title="vLLM: the Marlin kernel cannot compute a layer of this size",
        summary="Marlin, the kernel for weights in 4 or 8 bits, needs sizes that are multiples of a number; the size of"
        " a layer, or of its part on one GPU, is not.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "_per_partition = ",
                r"Weight (?P<dimension>(?:in|out)put_size_per_partition) = (?P<size>\d{1,9}) is not divisible by (?P<"
                r"divisor>\w{1,20} = \d{1,6})",
            ),
        ),
        causes=(
            "The model itself has a layer of such a size, also on one GPU.",
            "Tensor parallelism divides a layer into parts of such a size.",
        ),
        fixes=(
            Fix(
                "Upgrade vLLM: since 0.7.3, AWQ computes a layer that Marlin does not support by another kernel.",
                "pip install --upgrade vllm",
            ),
            Fix(
                "Or do without Marlin, which is slower: name the quantization of the checkpoint, awq or gptq.",
                "vllm serve MODEL --quantization awq",
            ),
            Fix(
                "If --tensor-parallel-size is above 1, use fewer GPUs per tensor, or split the layers into stages.",
                "vllm serve MODEL -tp 1 -pp 2",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/vllm-project/vllm/pull/13119", "https://github.com/vllm-project/vllm/issues/9913"),
        said_by="vLLM 0.6-0.7",
    ),
    KnownError(
        id="tensorrt-llm",
        section=SECTION,
        title="TensorRT-LLM: a check failed",
        summary="TensorRT-LLM stopped at a failed check; the text after it is the reason.",
        context=ContextState.UNKNOWN,
        patterns=(
            Pattern(
                "[TensorRT-LLM][ERROR] Assertion failed",
                r"\[TensorRT-LLM\]\[ERROR\] Assertion failed: (?P<check>[^\n(]{1,120})",
            ),
        ),
        causes=(
            "The kernel for this type, shape or GPU does not exist in this version.",
            "The engine was built with other limits, for another GPU, or by another version.",
        ),
        fixes=(
            Fix(
                "For NCCL, show its reason; each rank needs a separate GPU.",
                "NCCL_DEBUG=WARN mpirun -n 2 --allow-run-as-root python run.py",
                first_for=("NCCL error",),
            ),
            Fix(
                "For MPI, start the program with mpirun, also on one GPU, outside of a Slurm step without PMIx.",
                "mpirun -n 1 --oversubscribe --allow-run-as-root python run.py",
                first_for=("MPI error",),
            ),
            Fix(
                "Start as many processes as the engine has parts: the product of tensor and pipeline parallelism.",
                "mpirun -n 2 --allow-run-as-root python run.py",
                first_for=("mpiSize == tp * pp",),
            ),
            Fix(
                "Give the cache a larger part of the free memory, or build the engine for shorter sequences.",
                first_for=("maxTokensInPagedKvCache",),
            ),
            Fix(
                "Build the engine again with the version that loads it, such as that of the container, on this GPU.",
                "trtllm-build --help",
                first_for=("Assertion failed",),
            ),
            Fix(
                "If that version built the engine, upgrade TensorRT-LLM, and build the engine again.",
                "pip install --upgrade tensorrt-llm",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/NVIDIA/TensorRT-LLM/issues/5389",),
        said_by="TensorRT-LLM of 2024-2025",
    ),
    KnownError(
        id="fp8-emulated",
        section=SECTION,
        title="FP8 without hardware support",
        summary="The GPU does not compute in FP8: the weights stay in 8 bits, and each is converted before it is used.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "does not have native support for FP",
                r"Your GPU does not have native support for (?P<type>FP[48]) computation",
            ),
        ),
        causes=("FP8 in hardware needs compute capability 8.9 (Ada) or later, FP4 needs Blackwell.",),
        fixes=(
            Fix("Continue: only the speed of large batches suffers, not the results."),
            Fix("Or use a checkpoint in a format for this GPU, such as AWQ or GPTQ in 4 bits, or W8A8 with INT8."),
            Fix("Check what the GPU supports.", "nvidia-smi --query-gpu=name,compute_cap --format=csv"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://docs.vllm.ai/en/latest/features/quantization/supported_hardware.html",),
        said_by="vLLM 0.6-0.19, SGLang 0.4-0.5",
        is_warning=True,
    ),
    KnownError(
        id="vllm-config",
        section=SECTION,
        title="vLLM rejected its settings",
        summary="A setting contradicts the model, the GPU or another setting; the next line names the reason.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "validation error",
                r"validation errors? for (?P<setting>(?:Model|Vllm|Speculative|Parallel|Cache|Scheduler|Engine|Lo"
                r"RA|Load)\w{0,12}Config)",
            ),
        ),
        causes=(
            "The text after `Value error,` is the cause: the type, the length, the quantization or the number of GPUs.",
            "The model is newer than this vLLM or its transformers.",
        ),
        fixes=(
            Fix("Read the line below this message, and change the setting that it names."),
            Fix("Upgrade vLLM, which brings the transformers that it needs.", "pip install --upgrade vllm"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://docs.vllm.ai/en/latest/usage/troubleshooting.html",),
        said_by="vLLM 0.6-0.19",
        is_echo=True,
    ),
)
