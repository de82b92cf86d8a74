"""Errors of inference servers.

The wordings are from the sources of SGLang 0.5.23, and from reports of vLLM 0.2 to 0.24 and TensorRT 8 to 10.
"""

from typing import Final

from gpumon.diagnosis.catalogue import fixes, sources
from gpumon.diagnosis.catalogue.wording import NO_CONTEXT_YET, NOT_ABOUT_MEMORY, literal
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

SECTION: Final = "Inference servers"

_SEPARATE_PROCESS: Final = "No effect: the server reserves its memory for weights and key-value cache, not for a cache."

_LESS_FOR_GRAPHS: Final = Fix(
    "Do without CUDA graphs, which hold several hundred MiB to some GiB.", "vllm serve MODEL --enforce-eager"
)
_SHORTER: Final = Fix("Limit the length of a request.", "vllm serve MODEL --max-model-len 8192")
_MORE_MEMORY: Final = Fix(
    "Let vLLM use a larger part of the GPU, if no other process needs it.",
    "vllm serve MODEL --gpu-memory-utilization 0.95",
)
_MORE_GPUS: Final = Fix("Split the model over several GPUs.", "vllm serve MODEL --tensor-parallel-size 2")
_FEWER_REQUESTS: Final = Fix(
    "Process fewer requests at the same time.", "vllm serve MODEL --max-num-seqs 64 --max-num-batched-tokens 4096"
)

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="vllm-no-cache",
        section=SECTION,
        title="vLLM: no memory left for the key-value cache",
        summary="Weights, activations and CUDA graphs use all the memory that vLLM may use, so no cache block fits.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(literal("No available memory for the cache blocks"),),
        causes=(
            "The weights are almost as large as the permitted part of the GPU.",
            "Another process uses the GPU: the limit counts all of its memory, not only vLLM's.",
            "The profiling run with the longest request needs much memory: images, a long context, many requests.",
        ),
        fixes=(
            _MORE_MEMORY,
            fixes.LIST_PROCESSES,
            _SHORTER,
            _LESS_FOR_GRAPHS,
            _FEWER_REQUESTS,
            _MORE_GPUS,
            Fix("Use a quantized model.", "vllm serve MODEL --quantization fp8"),
        ),
        empty_cache=_SEPARATE_PROCESS,
        sources=(sources.VLLM_MEMORY, "https://github.com/vllm-project/vllm/issues/2248"),
        said_by="vLLM 0.4-0.19",
    ),
    KnownError(
        id="vllm-max-len",
        section=SECTION,
        title="vLLM: key-value cache smaller than one request",
        summary="A request of the maximum length needs a larger key-value cache than the GPU has room for.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "is larger than the maximum number of tokens that can be stored in KV cache",
                r"max seq len \((?P<length>\d{1,9})\) is larger than the maximum number of tokens that can be stored in"
                r" KV cache \((?P<fits>\d{1,9})\)",
            ),
            Pattern(
                "KV cache is needed, which is larger than the available KV cache",
                r"max seq len \((?P<length>\d{1,9})\), \(?(?P<needed>[\d.]{1,12} Gi?B) KV cache is needed, which"
                r" is larger"
                r" than the available KV cache memory \((?P<available>[\d.-]{1,12} Gi?B)\)"
                r"(?:[^\n]{0,120}?estimated maximum model length is (?P<fits>\d{1,9}))?",
            ),
        ),
        causes=(
            "The model's own maximum length is large, and no smaller one is set.",
            "The weights leave little memory for the cache.",
        ),
        fixes=(
            _SHORTER,
            _MORE_MEMORY,
            Fix("Store the cache in 8 bits, which doubles its length.", "vllm serve MODEL --kv-cache-dtype fp8"),
            _MORE_GPUS,
            _LESS_FOR_GRAPHS,
        ),
        empty_cache=_SEPARATE_PROCESS,
        sources=(sources.VLLM_MEMORY,),
    ),
    KnownError(
        id="vllm-memory-taken",
        section=SECTION,
        title="vLLM: GPU memory is in use",
        summary="Less memory is free than vLLM is set to use: another process, often an earlier vLLM, holds it.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "on startup is less than desired GPU memory utilization",
                r"Free memory on device (?:(?P<device>[\w:]{1,20}) )?\((?P<free>[\d.]{1,9})/(?P<total>[\d.]{1,9})"
                r" Gi?B\)"
                r" on startup is less than desired GPU memory utilization \((?P<fraction>[\d.]{1,9}),"
                r" (?P<wanted>[\d.]{1,9}) Gi?B\)",
            ),
        ),
        causes=(
            "A VLLM::EngineCore process of an earlier run is still alive after its server was killed.",
            "Another server, a notebook or the desktop uses the GPU.",
            "Trainer and vLLM share one GPU, as with GRPO in colocated mode.",
        ),
        fixes=(
            Fix(
                "List the processes that hold GPU memory, and end an engine that an earlier run left behind.",
                "nvidia-smi --query-compute-apps=pid,process_name,used_memory --format=csv",
            ),
            Fix("Let vLLM use less.", "vllm serve MODEL --gpu-memory-utilization 0.5"),
            Fix("Or use another GPU.", "CUDA_VISIBLE_DEVICES=1 vllm serve MODEL"),
        ),
        empty_cache="Helps only in the process that holds the memory, if its cache is unused.",
        sources=(sources.VLLM_MEMORY,),
    ),
    KnownError(
        id="vllm-profiling",
        section=SECTION,
        title="vLLM: memory changed while it was measured",
        summary="Another process freed GPU memory while vLLM measured its own use, so the measurement is void.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "Error in memory profiling.",
                r"Error in memory profiling\. (?:Initial free memory (?P<before>[\d.]{1,20})(?: GiB)?,"
                r" current free memory (?P<after>[\d.]{1,20})|This happens when the GPU memory was not properly"
                r" cleaned)",
            ),
        ),
        causes=(
            "An earlier run was still ending when this one started.",
            "Two servers start on the same GPU at the same time.",
        ),
        fixes=(
            Fix("Wait until the other process has ended or settled, then start vLLM again.", "nvidia-smi"),
            Fix("Start servers that share a GPU one after the other."),
            Fix(
                "Or give the cache a fixed size, which skips the measurement.",
                "vllm serve MODEL --kv-cache-memory-bytes 8G",
            ),
        ),
        empty_cache=_SEPARATE_PROCESS,
        sources=(sources.VLLM_MEMORY, "https://github.com/vllm-project/vllm/blob/main/vllm/v1/worker/gpu_worker.py"),
        said_by="vLLM 0.4-0.19",
    ),
    KnownError(
        id="vllm-warmup-oom",
        section=SECTION,
        title="vLLM: out of memory while warming up",
        summary="The key-value cache fills the GPU, and the logits of the maximum number of requests do not fit.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "occurred when warming up",
                r"CUDA out of memory occurred when warming up (?P<part>sampler|pooler) [^\n]{0,40}?with"
                r" (?P<requests>\d{1,7}) dummy requests",
            ),
        ),
        causes=(
            "A large vocabulary times the maximum number of requests needs hundreds of MiB.",
            "The GPU memory utilization leaves no room outside the cache.",
        ),
        fixes=(
            Fix("Process fewer requests at the same time.", "vllm serve MODEL --max-num-seqs 64"),
            Fix("Leave more memory outside the cache.", "vllm serve MODEL --gpu-memory-utilization 0.85"),
            fixes.LIST_PROCESSES,
        ),
        empty_cache=_SEPARATE_PROCESS,
        sources=(sources.VLLM_MEMORY,),
        said_by="vLLM 0.10-0.19",
    ),
    KnownError(
        id="vllm-context-limit",
        section=SECTION,
        title="vLLM: length above the model's limit",
        summary="The option --max-model-len is larger than the context for which the model was trained.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "is greater than the derived max_model_len",
                r"max_model_len \((?P<length>\d{1,9})\) is greater than the derived max_model_len"
                r"(?: \((?:\w{1,40}=)?(?P<limit>\d{1,9}))?",
            ),
        ),
        causes=("The value was copied from another model, or the long context needs RoPE scaling.",),
        fixes=(
            Fix("Use at most the limit that the message names.", "vllm serve MODEL --max-model-len auto"),
            Fix(
                "For a longer context, enable the model's RoPE scaling as its model card describes.",
                """vllm serve MODEL --max-model-len 131072 --hf-overrides \\
  '{"rope_parameters": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}}'""",
            ),
            Fix(
                "Or override the check; the answers beyond the limit may be wrong.",
                "VLLM_ALLOW_LONG_MAX_MODEL_LEN=1 vllm serve MODEL --max-model-len 65536",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://docs.vllm.ai/en/latest/configuration/engine_args/",),
    ),
    KnownError(
        id="vllm-batched-tokens",
        section=SECTION,
        title="vLLM: batch limit below the maximum length",
        summary="Without chunked prefill, one batch must hold a request of the maximum length.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                ") is smaller than max_model_len (",
                r"max_num_batched_tokens \((?P<batch>\d{1,9})\) is smaller than max_model_len \((?P<length>\d{1,9})\)",
            ),
        ),
        causes=("Chunked prefill is disabled for this model, and the default batch limit is smaller than its length.",),
        fixes=(
            Fix("Enable chunked prefill.", "vllm serve MODEL --enable-chunked-prefill"),
            Fix("Or make the limits equal.", "vllm serve MODEL --max-model-len 8192 --max-num-batched-tokens 8192"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://docs.vllm.ai/en/latest/configuration/optimization/",),
    ),
    KnownError(
        id="model-unsupported",
        section=SECTION,
        title="Model is not supported by this version",
        summary="The installed vLLM or transformers does not know this model; usually it is older than the model.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "] are not supported for now",
                r"Model architectures \[(?P<model>[^\]\n]{1,120})\] are not supported for now",
            ),
            Pattern("Unknown RoPE scaling type", r"Error: Unknown RoPE scaling type (?P<rope>[\w-]{1,40})"),
            Pattern(
                "must be a dictionary with",
                r"`rope_scaling` must be a dictionary with (?:two|a maximum of two|three) fields",
            ),
            Pattern(
                "Error in inspecting model architecture",
                r"Error in inspecting model architecture '(?P<model>\w{1,80})'",
            ),
            Pattern(
                "but Transformers does not recognize this architecture",
                r"has model type `(?P<model>[\w.-]{1,60})` but Transformers does not recognize this architecture",
            ),
        ),
        causes=("The model is newer than the package, or it needs code from its own repository.",),
        fixes=(
            Fix("Upgrade the packages.", "pip install --upgrade vllm transformers"),
            Fix(
                "If the model brings its own code and you trust it, permit it.", "vllm serve MODEL --trust-remote-code"
            ),
            Fix("Or use the generic implementation of transformers.", "vllm serve MODEL --model-impl transformers"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://docs.vllm.ai/en/latest/models/supported_models/",),
        said_by="transformers 4.57-5.0",
    ),
    KnownError(
        id="bf16-unsupported",
        section=SECTION,
        title="bfloat16 is not supported by the GPU",
        summary=(
            "The model or the trainer is set to bfloat16, which needs an Ampere GPU (compute capability 8.0) or newer."
        ),
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "Bfloat16 is only supported on GPUs with compute capability",
                r"Bfloat16 is only supported on GPUs with compute capability of at least 8\.0\."
                r"(?: Your (?P<name>[^\n]{1,60}?) GPU has compute capability (?P<capability>\d{1,3}\.\d))?",
            ),
            Pattern("Your setup doesn't support bf16", r"Your setup doesn't support bf16(?:/gpu)?\b"),
            literal("bf16 mixed precision requires PyTorch >= 1.10 and a supported device"),
        ),
        causes=(
            "The GPU is older than Ampere: a T4, V100, RTX 20 or GTX card.",
            "The process sees no GPU, or PyTorch is a CPU-only build.",
        ),
        fixes=(
            Fix("In vLLM, use float16.", "vllm serve MODEL --dtype half"),
            Fix(
                "For training, use float16 with gradient scaling.",
                "arguments = TrainingArguments(fp16=True, bf16=False)",
            ),
            Fix(
                "Check that the GPU is visible.",
                "python -c 'import torch; print(torch.cuda.is_available(), torch.cuda.is_bf16_supported(False))'",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(
            "https://github.com/vllm-project/vllm/blob/main/vllm/platforms/cuda.py",
            "https://github.com/huggingface/transformers/blob/main/src/transformers/training_args.py",
        ),
        said_by="vLLM 0.4-0.10, transformers 4.36-5.0, accelerate 1.12",
    ),
    KnownError(
        id="quantization-unsupported",
        section=SECTION,
        title="Quantization not supported by the GPU",
        summary="The kernels of this quantization need a newer GPU than this one.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "is not supported for the current GPU. Min",
                r"uantization (?:method (?P<method>[\w-]{1,40})|scheme) is not supported for the current GPU\."
                r" Min(?:imum)? capability: (?P<needed>\d{1,4})\. Current capability: (?P<capability>\d{1,4})",
            ),
            Pattern(
                "scheme is not supported for ', 'the current GPU",
                r"uantization scheme is not supported for ', 'the current GPU\. Min capability:"
                r" (?P<needed>\d{1,4})\. ',"
                r" 'Current capability: (?P<capability>\d{1,4})",
            ),
            Pattern(
                "quantized models is only supported on GPUs with compute capability",
                r"FP8 quantized models is only supported on GPUs with compute capability >= (?P<needed>[\d.]{1,5})",
            ),
            Pattern("Marlin does not support", r"Marlin does not support weight_bits ?= ?(?P<type>\w{1,20})"),
            Pattern("marlin_gemm only supports", r"gpt(?:q)?_marlin_gemm only supports bfloat16 and float16"),
        ),
        causes=(
            "FP8 in hardware needs compute capability 8.9 (Ada) or 9.0 (Hopper); AWQ needs 7.5; FP4 needs Blackwell.",
        ),
        fixes=(
            Fix("Check what the GPU supports.", "nvidia-smi --query-gpu=name,compute_cap --format=csv"),
            Fix("Use a checkpoint in a format that this GPU supports, such as GPTQ, AWQ or bitsandbytes in 4 bits."),
            Fix("Or use the weights in float16 or bfloat16, on more GPUs if they do not fit."),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://docs.vllm.ai/en/latest/features/quantization/supported_hardware.html",),
        said_by="vLLM 0.6-0.19, transformers 4.57-5.0",
    ),
    KnownError(
        id="vllm-no-device",
        section=SECTION,
        title="vLLM: no GPU detected",
        summary="The server found no GPU that it can use when it started.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(Pattern("Failed to infer device type", r"Error: Failed to infer device type"),),
        causes=(
            "The container was started without GPUs, or the host has none.",
            "NVML does not work in this process, although CUDA may.",
            "This build of vLLM is for another device: CPU, ROCm, or CUDA on a host without an NVIDIA GPU.",
        ),
        fixes=(
            Fix(
                "Check that the process sees the GPU.",
                "nvidia-smi -L; python -c 'import torch; print(torch.cuda.is_available())'",
            ),
            Fix(
                "Start the container with GPUs.",
                "docker run --gpus all --ipc=host -p 8000:8000 vllm/vllm-openai --model MODEL",
            ),
            Fix("Show why vLLM rejects each platform.", "VLLM_LOGGING_LEVEL=DEBUG vllm serve MODEL"),
        ),
        empty_cache=NO_CONTEXT_YET,
        sources=("https://docs.vllm.ai/en/latest/usage/troubleshooting/",),
        said_by="vLLM 0.6-0.19",
    ),
    KnownError(
        id="tensor-parallel-size",
        section=SECTION,
        title="Model cannot be split over this number of GPUs",
        summary="Tensor parallelism gives each GPU the same number of attention heads; here they do not divide evenly.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "must be divisible by tensor parallel size",
                r"otal number of attention heads \((?P<heads>\d{1,6})\) must be divisible by tensor parallel size"
                r" \((?P<gpus>\d{1,5})\)",
            ),
        ),
        causes=("The size is 3, 5, 6 or 7, or is larger than the number of heads allows.",),
        fixes=(
            Fix("Use a power of two that divides the number of heads.", "vllm serve MODEL --tensor-parallel-size 2"),
            Fix(
                "Use the remaining GPUs for pipeline parallelism.",
                "vllm serve MODEL --tensor-parallel-size 1 --pipeline-parallel-size 3",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://docs.vllm.ai/en/latest/serving/parallelism_scaling/",),
        said_by="vLLM 0.4-0.19, transformers 4.57-5.0, Transformer Engine 2.10",
    ),
    KnownError(
        id="serving-too-few-gpus",
        section=SECTION,
        title="Server needs more GPUs than it sees",
        summary="The tensor and pipeline parallel sizes need more GPUs than this process or this Ray cluster has.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "is larger than the number of available GPUs",
                r"World size \((?P<wanted>\d{1,5})\) is larger than the number of available GPUs"
                r"(?: \((?P<gpus>\d{1,5})\))?",
            ),
            literal("The number of required GPUs exceeds the total number of available GPUs"),
        ),
        causes=(
            "CUDA_VISIBLE_DEVICES, the container or the scheduler gives the process fewer GPUs.",
            "On several hosts, vLLM started its own Ray instead of joining the cluster.",
        ),
        fixes=(
            fixes.DEVICE_COUNT,
            Fix("Set the size to the number of GPUs.", "vllm serve MODEL --tensor-parallel-size 1"),
            Fix(
                "On several hosts, use the Ray cluster.",
                "RAY_ADDRESS=auto vllm serve MODEL --tensor-parallel-size 16 --distributed-executor-backend ray",
            ),
        ),
        empty_cache=NO_CONTEXT_YET,
        sources=("https://docs.vllm.ai/en/latest/serving/parallelism_scaling/",),
    ),
    KnownError(
        id="vllm-extension",
        section=SECTION,
        title="vLLM: compiled kernels are missing",
        summary="The compiled extension of vLLM was not loaded, so its GPU kernels do not exist in this process.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            literal("No module named 'vllm._C'"),
            Pattern(
                "'_OpNamespace' '_C' object has no attribute",
                r"'_OpNamespace' '_C' object has no attribute '(?P<kernel>\w{1,60})'",
            ),
        ),
        causes=(
            "Python runs inside vLLM's source folder, and imports that folder instead of the installed package.",
            "PyTorch was up- or downgraded after vLLM was installed, so the extension cannot be loaded.",
            "The extension was built for another device or is older than the Python code.",
        ),
        fixes=(
            Fix(
                "Install vLLM in a new environment, which brings the PyTorch that it was built for.",
                "python3 -m venv fresh && fresh/bin/pip install vllm",
            ),
            Fix("Show why the extension is not loaded.", "python -c 'import torch, vllm._C'"),
            Fix("Start Python outside vLLM's source folder."),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://docs.vllm.ai/en/latest/getting_started/installation/gpu/",),
    ),
    KnownError(
        id="vllm-worker-hangs",
        section=SECTION,
        title="vLLM: a worker does not answer",
        summary="A worker has not read its work for a minute: it compiles or loads, or it hangs in a collective.",
        context=ContextState.UNKNOWN,
        patterns=(
            Pattern(
                "No available shared memory broadcast block found",
                r"No available shared memory broadcast block found in (?P<seconds>\d{1,6}) ?s",
            ),
            literal("RPC call to execute_model timed out"),
        ),
        causes=(
            "During the start, a worker compiles kernels or quantizes weights: then the message is harmless.",
            "GPUs at 100 % without progress: a collective hangs because direct transfers between the GPUs do not work.",
            "A worker died; its log has the reason.",
        ),
        fixes=(
            Fix(
                "Wait some minutes during the start; if the message repeats, look at each worker.",
                "py-spy dump --pid PID",
            ),
            Fix(
                "If all GPUs show 100 %, test without direct transfers.",
                "NCCL_P2P_DISABLE=1 vllm serve MODEL --tensor-parallel-size 2 --disable-custom-all-reduce",
            ),
            Fix(
                "As a root user, disable the IOMMU or PCIe ACS, which break direct transfers.",
                "sudo dmesg | grep -i -E 'iommu|acs'",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        see_more=(Fix("Let NCCL report what it does.", "NCCL_DEBUG=INFO VLLM_LOGGING_LEVEL=DEBUG vllm serve MODEL"),),
        sources=("https://docs.vllm.ai/en/latest/usage/troubleshooting/",),
        said_by="vLLM 0.10-0.19",
        is_echo=True,
    ),
    KnownError(
        id="vllm-engine-dead",
        section=SECTION,
        title="vLLM: the engine died",
        summary="The process that owns the GPU ended with an error, which stands earlier in the log.",
        context=ContextState.UNKNOWN,
        patterns=(
            Pattern(
                "please check the stack trace above",
                r"Worker failed with error '(?P<reason>[^\n]{1,160}?)', please check the stack trace above",
            ),
            Pattern("ngine core initialization failed", r"[Ee]ngine core initialization failed\. See root cause above"),
            literal("EngineCore encountered an issue"),
            literal("EngineCore failed to start"),
            literal("EngineCore encountered a fatal error"),
            literal("EngineCore hit an exception"),
            Pattern("Invocation of ", r"\[core\.py:\d{1,5}\] Invocation of (?P<method>\w{1,60}) method failed"),
            literal("WorkerProc initialization failed due to"),
            literal("WorkerProc failed to start"),
            literal("Background loop has errored already"),
            Pattern("Engine process failed to start", r"Engine process failed to start\. See stack trace"),
            Pattern("Engine core proc ", r"Engine core proc \S{1,60} died unexpectedly"),
            Pattern("Engine process (pid ", r"Engine process \(pid (?P<pid>\d{1,10})\) died"),
            literal("MQLLMEngine is already dead"),
            Pattern("AsyncEngineDeadError", r"\bAsyncEngineDeadError\b"),
            Pattern(
                "Worker VllmWorkerProcess pid",
                r"Worker VllmWorkerProcess pid (?P<pid>\d{1,10}) died, exit code: (?P<exit_code>-?\d{1,3})",
            ),
            Pattern("EngineDeadError", r"(?<!Async)EngineDeadError: (?P<reason>EngineCore)"),
        ),
        causes=(
            "The engine raised an exception: out of memory, an unsupported model, a CUDA error.",
            "Its process was killed: host memory or the container's limit.",
        ),
        fixes=(
            Fix(
                "Find the first error of the engine or of a worker in the log.",
                "grep -n -m 5 -E '(EngineCore|Worker).*(Error|Exception):' vllm.log",
            ),
            Fix(
                "Run the engine in the same process, so that its exception is the last one.",
                "VLLM_ENABLE_V1_MULTIPROCESSING=0 python serve.py",
            ),
            Fix("Check whether the kernel killed a process.", "sudo dmesg -T | grep -i -E 'out of memory|oom-kill'"),
        ),
        empty_cache=_SEPARATE_PROCESS,
        sources=("https://docs.vllm.ai/en/latest/usage/troubleshooting/",),
        said_by="vLLM 0.4-0.19",
        is_echo=True,
    ),
    KnownError(
        id="sglang-memory",
        section=SECTION,
        title="SGLang: no memory for the key-value cache",
        summary="The part of the GPU's memory that SGLang may use does not hold the weights and a key-value cache.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "ut of memory. Try to lower your batch size",
                r"(?P<phase>Prefill|Decode) out of memory\. Try to lower your batch size",
            ),
            literal("Not enough memory. Please try to increase --mem-fraction-static"),
            literal("The memory capacity is unbalanced. Some GPUs may be occupied by other processes"),
        ),
        causes=(
            "The weights fill the permitted part of the GPU.",
            "Other processes use one of the GPUs.",
        ),
        fixes=(
            fixes.LIST_PROCESSES,
            Fix(
                "Give the weights and the cache a larger part of the memory.",
                "python -m sglang.launch_server --model-path MODEL --mem-fraction-static 0.9",
            ),
            Fix(
                "Or split the model over several GPUs.",
                "python -m sglang.launch_server --model-path MODEL --tp 2",
            ),
        ),
        empty_cache=_SEPARATE_PROCESS,
        sources=("https://docs.sglang.ai/advanced_features/hyperparameter_tuning.html",),
        said_by="SGLang 0.4-0.5",
    ),
    KnownError(
        id="sglang-capture",
        section=SECTION,
        title="SGLang: CUDA graph capture failed",
        summary="SGLang records its decoding as CUDA graphs, and that failed; the text after the colon is the reason.",
        context=ContextState.UNKNOWN,
        patterns=(
            Pattern("apture cuda graph failed", r"Capture cuda graph failed: ?(?P<reason>[^\n]{0,200})"),
            Pattern("apture CUDA graph failed", r"Capture CUDA graph failed: ?(?P<reason>[^\n]{0,200})"),
        ),
        causes=("Most often the GPU has no memory left for the graphs.",),
        fixes=(
            Fix(
                "Leave more memory for the graphs, and record fewer batch sizes.",
                "python -m sglang.launch_server --model-path MODEL --mem-fraction-static 0.8 --cuda-graph-max-bs 16",
            ),
            Fix(
                "Or disable the graphs, which is slower.",
                "python -m sglang.launch_server --model-path MODEL --disable-cuda-graph",
            ),
        ),
        empty_cache=_SEPARATE_PROCESS,
        sources=("https://docs.sglang.ai/advanced_features/hyperparameter_tuning.html",),
        said_by="SGLang 0.4-0.5",
        is_echo=True,
    ),
    KnownError(
        id="tensorrt-engine",
        section=SECTION,
        title="TensorRT engine built for another GPU or version",
        summary="A TensorRT engine runs only on the GPU type and with the TensorRT version for which it was built.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "engine plan file is generated on an incompatible device",
                r"engine plan file is generated on an incompatible device, expecting compute (?P<expected>[\d.]{1,6})"
                r" got compute (?P<got>[\d.]{1,6})",
            ),
            Pattern(
                "engine plan file is not compatible with this version of TensorRT",
                r"engine plan file is not compatible with this version of TensorRT"
                r"(?:, expecting library version (?P<expected>[\d.]{1,16}) got (?P<got>[\d.]{1,16}))?",
            ),
            literal("Serialization assertion stdVersionRead == serializationVersion failed"),
            literal("Failed to deserialize cuda engine"),
        ),
        causes=("The engine was copied from another host, or TensorRT was upgraded after it was built.",),
        fixes=(
            Fix(
                "Delete the cached engine, and build it again on this GPU.",
                "trtexec --onnx=model.onnx --saveEngine=model.plan",
            ),
            Fix("Check the installed version.", "python -c 'import tensorrt; print(tensorrt.__version__)'"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://docs.nvidia.com/deeplearning/tensorrt/latest/reference/troubleshooting.html",),
    ),
)
