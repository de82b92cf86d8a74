"""Errors of inference servers: memory for the cache, and lengths of requests.

The wordings are from the sources of SGLang 0.5.23, and from reports of vLLM 0.2 to 0.24 and TensorRT 8 to 10.
"""

from typing import Final

from gpumon.diagnosis.catalogue import fixes, sources
from gpumon.diagnosis.catalogue.wording import NOT_ABOUT_MEMORY, literal
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

SECTION: Final = "Inference servers"

SEPARATE_PROCESS: Final = "No effect: the server keeps its memory for weights and the key-value cache."

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
        empty_cache=SEPARATE_PROCESS,
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
        empty_cache=SEPARATE_PROCESS,
        sources=(sources.VLLM_MEMORY,),
    ),
    KnownError(
        id="vllm-memory-taken",
        section=SECTION,
        title="vLLM: GPU memory is in use",
        summary="Less memory is free than vLLM is set to use: another process, vLLM or the desktop holds it.",
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
        empty_cache=SEPARATE_PROCESS,
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
        empty_cache=SEPARATE_PROCESS,
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
            Pattern(
                "must be greater than or equal to max_num_seqs",
                r"max_num_batched_tokens \((?P<batch>\d{1,9})\) must be greater than or equal to"
                r" max_num_seqs(?: \((?P<sequences>\d{1,6})\))?",
            ),
            Pattern(
                "is larger than max_num_batched_tokens",
                r"max_tokens_per_mm_item \((?P<length>\d{1,9})\) is larger than max_num_batched_tokens"
                r" \((?P<batch>\d{1,9})\)",
            ),
        ),
        causes=(
            "Chunked prefill is disabled for this model, and the default batch limit is smaller than its length.",
            "One image or video has more tokens than a batch may have.",
        ),
        fixes=(
            Fix("Enable chunked prefill.", "vllm serve MODEL --enable-chunked-prefill"),
            Fix("Or make the limits equal.", "vllm serve MODEL --max-model-len 8192 --max-num-batched-tokens 8192"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://docs.vllm.ai/en/latest/configuration/optimization/",),
    ),
)
