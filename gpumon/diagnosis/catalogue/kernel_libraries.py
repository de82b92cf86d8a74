"""Errors of libraries of kernels: FlashInfer, DeepEP, Transformer Engine, TensorRT and TensorRT-LLM."""

from typing import Final

from gpumon.diagnosis.catalogue import fixes, sources
from gpumon.diagnosis.catalogue.wording import NOT_ABOUT_MEMORY, literal
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

SECTION: Final = "Kernel libraries"

_FLASHINFER: Final = "https://github.com/flashinfer-ai/flashinfer"
_OTHER_BACKEND: Final = Fix(
    "Use another attention backend of the server.", "vllm serve MODEL --attention-backend FLASH_ATTN"
)

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="flashinfer-toolkit",
        section=SECTION,
        title="FlashInfer cannot compile for this GPU",
        summary=(
            "FlashInfer compiles its kernels when they are first used, and found no toolkit that can do so for this"
            " GPU."
        ),
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "FlashInfer requires GPUs with sm", r"FlashInfer requires GPUs with sm(?P<required>\d{2,3}) or higher"
            ),
            Pattern(
                "No supported CUDA architectures found",
                r"No supported CUDA architectures found for major versions (?P<required>\[[\d, ]{0,40}\])",
            ),
            Pattern(
                "Could not find nvcc and default",
                r"Could not find nvcc and default cuda_home='?(?P<path>[^\s']{1,100})'? doesn't exist",
            ),
            Pattern(
                "cached_ops",
                r"CalledProcessError: Command '\['ninja'[^\n]{0,120}?flashinfer/(?P<path>\S{0,20}/cached_ops)",
            ),
        ),
        causes=(
            "The CUDA toolkit on the host is older than the GPU: for compute capability 12.x it must be 12.9 or later.",
            "No toolkit is installed, as in a slim container.",
            "The GPU is older than Turing (compute capability 7.5).",
        ),
        fixes=(
            Fix(
                "Check the toolkit and the GPU.", "nvcc --version; nvidia-smi --query-gpu=name,compute_cap --format=csv"
            ),
            Fix(
                "Install the kernels that are already compiled, for your CUDA version.",
                "pip install flashinfer-cubin flashinfer-jit-cache --extra-index-url https://flashinfer.ai/whl/cu130",
            ),
            Fix(
                "Install a newer toolkit, and point CUDA_HOME to it.", "CUDA_HOME=/usr/local/cuda-13.0 vllm serve MODEL"
            ),
            Fix("In vLLM, sample without FlashInfer.", "VLLM_USE_FLASHINFER_SAMPLER=0 vllm serve MODEL"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/vllm-project/vllm/pull/50747", f"{_FLASHINFER}#installation"),
        said_by="FlashInfer 0.2-0.6",
    ),
    KnownError(
        id="flashinfer-config",
        section=SECTION,
        title="FlashInfer has no kernel for this configuration",
        summary="FlashInfer found no kernel for this head size, number of heads, type or page size on this GPU.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern("FlashInfer Internal Error: ", r"FlashInfer Internal Error: (?P<reason>[^\n]{1,80})"),
            Pattern(
                "with error",
                r"(?P<function>(?:Batch(?:Prefill|Decode|MLA)|SinglePrefill|SingleDecode|TopK|Sampling)\w{1,60}) fail"
                r"ed(?: to \w{1,20})? with error:? (?P<reason>[^\n]{1,80})",
            ),
            Pattern("Unsupported max_mma_kv: ", r"Unsupported max_mma_kv: (?P<value>\d{1,6})"),
            Pattern("Missing TRTLLM-GEN kernel", r"Missing TRTLLM-GEN kernel \((?P<function>\w{1,20})\)"),
        ),
        causes=(
            "The GPU has less shared memory per block than the one for which the kernel was written.",
            "This version has no kernel for this head size, group size or type of the key-value cache.",
        ),
        fixes=(
            Fix("Upgrade FlashInfer, and the server that uses it.", "pip install --upgrade flashinfer-python"),
            _OTHER_BACKEND,
            Fix(
                "In SGLang, use the kernels of Triton, which also run on GPUs for which FlashInfer has none.",
                "python -m sglang.launch_server --model-path MODEL --attention-backend triton",
                first_for=("no kernel image",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(f"{_FLASHINFER}/issues/1997",),
        said_by="FlashInfer 0.1-0.6",
    ),
    KnownError(
        id="deep-ep",
        section=SECTION,
        title="DeepEP: a check failed",
        summary="DeepEP, which exchanges the tokens of experts between GPUs, was called with sizes that it does not"
        " support.",
        context=ContextState.UNKNOWN,
        patterns=(
            Pattern(
                "Failed: Assertion error /",
                r"Failed: Assertion error /(?P<file>[^\s:]{1,120}):(?P<line>\d{1,5}) '(?P<check>[^'\n]{1,160})'",
            ),
            Pattern(
                "Assertion failed: ",
                r"Assertion failed: (?P<file>(?!\S{0,100}deep_gemm/)[^\s:]{1,120}\.cuh?):(?P<line>\d{1,5}), condition:"
                r" (?P<check>[^\n]{1,160})",
            ),
        ),
        causes=(
            "The number of ranks, the size of the buffers or of the chunks is not one that DeepEP supports.",
            (
                "There are fewer than 8 GPUs with NVLink per host, or the GPU is not of the kind for which DeepEP was"
                " built."
            ),
            "DeepEP and the server, or DeepEP and NVSHMEM, are of versions that do not belong together.",
        ),
        fixes=(
            Fix("Read the condition in the message: it names the sizes to change."),
            Fix(
                "In vLLM, exchange the tokens in another way.",
                "vllm serve MODEL --enable-expert-parallel --all2all-backend allgather_reducescatter",
            ),
            Fix("Build DeepEP again from the version that the server names, on this host."),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(
            "https://github.com/deepseek-ai/DeepEP/issues/104",
            "https://github.com/deepseek-ai/DeepEP/issues/114",
        ),
        said_by="DeepEP 1.0-1.2",
    ),
    KnownError(
        id="deep-gemm-jit",
        section=SECTION,
        title="DeepGEMM of TensorRT-LLM: a kernel was not compiled",
        summary="The kernels for FP8 that FlashInfer takes from TensorRT-LLM are compiled when they are first used, and"
        " the compiled file is missing or empty.",
        context=ContextState.UNKNOWN,
        patterns=(
            Pattern(
                "Failed to copy kernel files to cache",
                r"Failed to copy kernel files to cache: (?P<reason>[^\n:\[]{1,60}(?:: [\w ]{1,60})?)",
            ),
            Pattern(
                "deep_gemm/",
                r"Assertion failed: [^\s:]{0,120}deep_gemm/(?P<file>\w{1,40}\.cuh?):(?P<line>\d{1,5}), condition:"
                r" (?P<check>[^\n]{1,160})",
            ),
            Pattern("!cubin.empty()", r"Assertion failed: (?P<check>!cubin\.empty\(\)[^\n]{0,60})"),
        ),
        causes=(
            "The compiler did not run: nvcc is not installed, which an earlier line says.",
            "Several processes compiled the same kernel at once, and removed each other's file.",
            "The folder of the cache is full, or cannot be written.",
        ),
        fixes=(
            Fix(
                "In vLLM, compute these layers without the kernels of TensorRT-LLM.",
                "VLLM_BLOCKSCALE_FP8_GEMM_FLASHINFER=0 vllm serve MODEL",
            ),
            Fix("Or install nvcc, in the version of PyTorch's CUDA, and check it.", "nvcc --version"),
            Fix(
                "Or delete what is half compiled, and give each job a separate folder that it can write.",
                'rm -rf ~/.tensorrt_llm/tmp ~/.tensorrt_llm/cache\nexport TRTLLM_DG_CACHE_DIR="$(mktemp -d)"',
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(
            "https://github.com/kvcache-ai/Mooncake/issues/2162",
            "https://github.com/flashinfer-ai/flashinfer/issues/4062",
        ),
        said_by="FlashInfer of 2026",
    ),
    KnownError(
        id="deep-ep-timeout",
        section=SECTION,
        title="DeepEP: a rank waited too long",
        summary="A GPU waited for tokens of another GPU or host that did not arrive, and the kernel stopped itself.",
        context=ContextState.DEAD,
        patterns=(
            Pattern("DeepEP ", r"DeepEP (?P<operation>(?!error)[\w /()-]{1,60}?) timeout\b"),
            Pattern("num_recv_tokens: -1", r"Global rank: (?P<rank>\d{1,5}), num_recv_tokens: -1"),
            Pattern("DeepEP error: ", r"DeepEP error: (?P<reason>(?:CPU recv )?timeout)"),
        ),
        causes=(
            "Another rank failed or did not make the call; its log has the cause.",
            (
                "InfiniBand or RoCE between the hosts does not work for IBGDA: driver option, GID index, or memory of"
                " the card."
            ),
            "A rank was busy for longer than the limit, as while it compiles kernels.",
        ),
        fixes=(
            fixes.FIRST_RANK,
            Fix(
                "Check that the module of the driver allows IBGDA.",
                "grep -i -E 'PeerMappingOverride|EnableStreamMemOPs' /proc/driver/nvidia/params",
            ),
            Fix(
                "Choose the cards and the GID index that NCCL uses.",
                "export NVSHMEM_HCA_LIST=mlx5_0:1 NVSHMEM_IB_GID_INDEX=3",
            ),
            Fix("Test DeepEP alone between two hosts.", "python tests/test_internode.py"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/deepseek-ai/DeepEP/issues/274",),
        said_by="DeepEP 1.0-1.2",
    ),
    KnownError(
        id="transformer-engine",
        section=SECTION,
        title="Transformer Engine: a check failed",
        summary="Transformer Engine has no kernel for these shapes, types or this GPU, or a library below it refused.",
        context=ContextState.UNKNOWN,
        patterns=(
            Pattern(
                " in function ",
                r"(?:transformer_engine/|TransformerEngine/)[\w/.-]{1,120}:\d{1,6} in function [\w~<>:,]{1,60}(?:\(\)"
                r")?: (?!cuDNN Error: \[cudnn_frontend\])"
                r"(?P<reason>[^\n]{1,80})",
            ),
            Pattern(
                "No dot product attention ",
                r"No dot product attention (?:support|backend is available) for the provided inputs",
            ),
        ),
        causes=(
            "The cuDNN that is loaded is older than the one that this version needs, or another one is found first.",
            "The shapes do not suit FP8: dimensions must be multiples of 16, and the head size one that is supported.",
            "The GPU is older than the format: FP8 needs Ada or Hopper, MXFP8 and NVFP4 need Blackwell.",
        ),
        fixes=(
            Fix(
                "Print which attention is chosen, and why others are not.",
                "NVTE_DEBUG=1 NVTE_DEBUG_LEVEL=2 python train.py",
            ),
            Fix("Use FlashAttention or PyTorch's attention in place of cuDNN's.", "NVTE_FUSED_ATTN=0 python train.py"),
            Fix(
                "Upgrade cuDNN (for CUDA 12, its name is nvidia-cudnn-cu12), and check which one is loaded.",
                "pip install --upgrade nvidia-cudnn-cu13; python -c 'import torch;"
                " print(torch.backends.cudnn.version())'",
            ),
            Fix("Let cuDNN report its reason.", "CUDNN_LOGLEVEL_DBG=3 CUDNN_LOGDEST_DBG=stderr python train.py"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        see_more=(fixes.SHOW_VERSIONS,),
        sources=(
            "https://github.com/mlcommons/training_results_v4.0/issues/6",
            "https://docs.nvidia.com/deeplearning/transformer-engine/user-guide/examples/attention/attention.html",
        ),
        said_by="Transformer Engine 1.0-2.8",
    ),
    KnownError(
        id="cudnn-reason",
        section=SECTION,
        title="cuDNN gives its reason",
        summary="cuDNN's log has the function that failed, and why.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "Error: CUDNN_STATUS_", r"Error: (?P<status>CUDNN_STATUS_\w{1,60}); Reason: (?P<reason>[^\n]{1,80})"
            ),
        ),
        causes=(
            "Libraries of two versions of cuDNN are mixed, or the version is older than the GPU.",
            "cuDNN has no engine for this operation, type or shape on this GPU.",
        ),
        fixes=(
            Fix(
                "Show which files of cuDNN are loaded; all must be of one version.",
                "LD_DEBUG=libs python train.py 2>&1 | grep -i 'calling init.*cudnn'",
            ),
            fixes.BUNDLED_LIBRARIES,
            Fix("Install PyTorch again, which restores its cuDNN.", "pip install --force-reinstall torch"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/NVIDIA/TransformerEngine/issues/1407", sources.CUDNN),
        said_by="cuDNN 9.1-9.10",
    ),
    KnownError(
        id="tensorrt-error",
        section=SECTION,
        title="TensorRT: an internal error",
        summary="TensorRT could not build or run the engine; the words after the code are its reason.",
        context=ContextState.UNKNOWN,
        patterns=(
            Pattern(
                "Error Code ",
                r"\bError Code (?P<code>\d{1,2}): (?!Cuda Runtime|Serialization|Cuda Driver)(?P<reason>(?:Internal|AP"
                r"I Usage|OutOfMemory|Myelin|Cudnn|Cublas|Skipping|Invalid|Unsupported|Cask)\w{0,20}[^\n]{0,80})",
            ),
            literal("TRT Engine build failed"),
            Pattern(
                "Could not find any implementation for node",
                r"Could not find any implementation for node (?P<node>[^\n]{1,80})",
            ),
        ),
        causes=(
            "An operator, type or shape of the model has no kernel in this version on this GPU.",
            "The workspace, or the free GPU memory, is too small for every kernel that would do.",
            "The inputs at run time are outside the profile for which the engine was built.",
        ),
        fixes=(
            Fix("Print the reason in full.", "trtexec --onnx=model.onnx --verbose"),
            Fix(
                "Allow more workspace, in MiB, and free the GPU.",
                "trtexec --onnx=model.onnx --memPoolSize=workspace:4096",
            ),
            Fix(
                "The plugin has no kernel for this type: let it follow the type of the checkpoint, and convert the"
                " checkpoint to float16 or bfloat16.",
                "trtllm-build --checkpoint_dir CHECKPOINT --output_dir ENGINE --gemm_plugin auto",
                first_for=("PLUGIN_V2_Gemm",),
                hidden_otherwise=True,
            ),
            Fix("Upgrade TensorRT, and build the engine again on this GPU.", "pip install --upgrade tensorrt"),
        ),
        empty_cache="Helps only if PyTorch's cache holds the memory that TensorRT lacks while it builds.",
        sources=("https://docs.nvidia.com/deeplearning/tensorrt/latest/reference/troubleshooting.html",),
        said_by="TensorRT 8.5-10.13",
    ),
    KnownError(
        id="tensorrt-cuda-init",
        section=SECTION,
        title="TensorRT could not initialize CUDA",
        summary="The code in the message is CUDA's: 35 and 222 are an old driver, 100 no GPU, 2 no memory.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "CUDA initialization failure with error", r"CUDA initialization failure with error:? (?P<code>\d{1,4})"
            ),
        ),
        causes=(
            "The driver is older than the CUDA version of TensorRT.",
            "The process has no GPU, or its memory is used up.",
        ),
        fixes=(
            fixes.DRIVER_CUDA_VERSION,
            Fix("Install the build for the CUDA version of the driver.", "pip install --upgrade tensorrt-cu12"),
            Fix("Check that the process has a GPU.", "nvidia-smi -L"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/pytorch/TensorRT/issues/1891", sources.CUDA_ERRORS),
        said_by="TensorRT 8.5-10.13",
    ),
    KnownError(
        id="tensorrt-llm-worker",
        section=SECTION,
        title="TensorRT-LLM: a worker failed",
        summary="A worker process could not start or ended; its own error is above this message.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            literal("Executor worker returned error"),
            literal("Executor worker died during initialization"),
            Pattern(
                "Failed to initialize executor on rank",
                r"Failed to initialize executor on rank (?P<rank>\d{1,5})(?!: \[TensorRT-LLM\])",
            ),
        ),
        causes=(
            "The model or the engine does not fit into the memory of the GPU.",
            "The checkpoint, its quantization or an option is not supported by this version.",
        ),
        fixes=(
            Fix("Find the first error of a worker in the log, above this message."),
            Fix("Let TensorRT-LLM report more.", "export TLLM_LOG_LEVEL=DEBUG"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/NVIDIA/TensorRT-LLM/issues/7706",),
        said_by="TensorRT-LLM 0.16-1.1",
        is_echo=True,
    ),
    KnownError(
        id="tensorrt-llm-jit",
        section=SECTION,
        title="TensorRT-LLM could not compile a kernel",
        summary="TensorRT-LLM compiles an attention kernel for this model and GPU, and the compiler failed.",
        context=ContextState.ALIVE,
        patterns=(Pattern("TllmXqaJit runtime error", r"TllmXqaJit runtime error in (?P<reason>[^\n]{1,80})"),),
        causes=("This version has no such kernel for this GPU, head size or group size.",),
        fixes=(
            Fix("Build the engine without this kernel.", "export TRTLLM_FORCE_XQA=0 TRTLLM_ENABLE_XQA_JIT=0"),
            Fix("Upgrade TensorRT-LLM.", "pip install --upgrade tensorrt-llm"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/triton-inference-server/tensorrtllm_backend/issues/450",),
        said_by="TensorRT-LLM 0.10",
    ),
    KnownError(
        id="tgi-memory",
        section=SECTION,
        title="Text Generation Inference: the largest batch does not fit",
        summary="The server tries the largest batch that its options allow before it starts, and memory ran out.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "Not enough memory to handle",
                r"Not enough memory to handle (?P<tokens>\d{1,9}) (?:prefill|total) tokens",
            ),
        ),
        causes=("The model leaves too little memory for as many tokens as the options allow in one batch.",),
        fixes=(
            Fix(
                "Allow fewer tokens per batch.",
                "docker run --gpus all IMAGE --model-id MODEL --max-batch-prefill-tokens 2048",
            ),
            Fix(
                "Divide the model among more GPUs, or load it quantized.",
                "docker run --gpus all IMAGE --model-id MODEL --num-shard 2 --quantize eetq",
            ),
            fixes.LIST_PROCESSES,
        ),
        empty_cache="No effect: the server holds the memory.",
        sources=("https://github.com/huggingface/text-generation-inference/issues/755",),
        said_by="Text Generation Inference 0.9-3.3",
    ),
)
