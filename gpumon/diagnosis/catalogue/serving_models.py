"""Errors of inference servers with a model: names of its weights, kinds of cache, parsers, and values of requests."""

from typing import Final

from gpumon.diagnosis.catalogue.serving import SECTION
from gpumon.diagnosis.catalogue.wording import NOT_ABOUT_MEMORY
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="vllm-weights-names",
        section=SECTION,
        title="vLLM: names of the weights are not those of the model",
        summary="The checkpoint has a weight that vLLM's code of this model does not have, or lacks one that it needs.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "There is no module or parameter named '",
                r"There is no module or parameter named '(?P<name>[\w.]{1,200})' in (?P<model>\w{1,80})",
            ),
            Pattern(
                "KeyError: '",
                r"KeyError: '(?P<name>(?:model\.|language_model\.|visual\.)?(?:model\.)?(?:layers|blocks)\.\d{1,4}\.["
                r"\w.]{1,160})'",
            ),
            Pattern(
                "were not initialized from checkpoint",
                r"ollowing weights were not initialized from checkpoint: \{'(?P<name>[\w.]{1,200})'",
            ),
        ),
        causes=(
            "This version of vLLM does not support the quantization of the checkpoint for this architecture.",
            "The checkpoint was quantized, merged or saved by a program that names its weights in another way.",
        ),
        fixes=(
            Fix("Upgrade vLLM.", "pip install --upgrade vllm"),
            Fix(
                "Show how the checkpoint says that it is quantized; if it does not, name the quantization.",
                "grep -A 12 quantization_config MODEL/config.json; vllm serve MODEL --quantization awq --dtype half",
                first_for=("qweight",),
            ),
            Fix("Use another quantization of the model, such as the FP8 or AWQ of its authors."),
            Fix(
                "After fine-tuning, merge the adapter into the original model, and save it with transformers.",
                'model.merge_and_unload().save_pretrained("merged")',
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/vllm-project/vllm/blob/main/vllm/model_executor/models/utils.py",),
        said_by="vLLM 0.6-0.33",
    ),
    KnownError(
        id="vllm-cache-kinds",
        section=SECTION,
        title="vLLM: cache of this model is not supported with these options",
        summary="The layers of the model need different kinds of cache, or blocks of another size, which an option or"
        " add-on does not support.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "models with more than one KV cache type",
                r"Hybrid models with more than one KV cache type are not supported",
            ),
            Pattern(
                "manager is disabled but failed to convert",
                r"Hybrid KV cache manager is disabled but failed to convert",
            ),
            Pattern(
                "manager was explicitly enabled but is not",
                r"Hybrid KV cache manager was explicitly enabled but is not supported",
            ),
            Pattern("Unsupported kv cache shape", r"Unsupported kv cache shape: (?P<shape>\([\d, ]{1,80}\))"),
            Pattern("Unsupported block size: ", r"RuntimeError: Unsupported block size: (?P<size>\d{1,6})"),
        ),
        causes=(
            "The model mixes full attention with sliding windows or Mamba, as Gemma 3, gpt-oss and Qwen 3.5 do.",
            "A connector for the cache, such as LMCache or offloading, switches off the manager for mixed caches.",
            "An add-on such as kvcached knows only the caches of older versions of vLLM.",
        ),
        fixes=(
            Fix(
                "Start without the connector and the options of the cache.",
                "vllm serve MODEL  # without --kv-transfer-config, --kv-events-config,"
                " --disable-hybrid-kv-cache-manager",
            ),
            Fix("Set the size of a block that kernels support.", "vllm serve MODEL --block-size 16", ("block size",)),
            Fix("Upgrade vLLM and the add-on together.", "pip install --upgrade vllm lmcache"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(
            "https://docs.vllm.ai/en/latest/design/hybrid_kv_cache_manager/",
            "https://github.com/vllm-project/vllm/pull/36388",
        ),
        said_by="vLLM 0.8-0.33, kvcached 0.1",
    ),
    KnownError(
        id="reasoning-parser",
        section=SECTION,
        title="Parser of the server does not fit the model",
        summary="The parser for reasoning or tools looks for marks that the tokenizer of this model does not have, or"
        " does not exist.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "could not locate ",
                r"(?:[Pp]arser|extractor) could not locate (?:the )?"
                r"(?:think|bot|tool)",
            ),
            Pattern(
                "must encode to exactly one token for",
                r"(?P<parser>think_\w{3,12}) '(?P<mark>[^'\n]{1,60})' must encode to exactly one token for",
            ),
            Pattern("invalid reasoning parser: ", r"invalid reasoning parser: (?P<parser>\S{1,60}) \(chose from"),
            Pattern("invalid tool call parser: ", r"invalid tool call parser: (?P<parser>\S{1,60}) \(chose from"),
        ),
        causes=(
            "The option names the parser of another family of models.",
            "The model has no marks for its reasoning: it is no reasoning model, or a quantized copy lost them.",
            "The server is older than the parser.",
        ),
        fixes=(
            Fix(
                "Use the parser that the page of the model names, or none.",
                "vllm serve MODEL --reasoning-parser qwen3 --enable-auto-tool-choice --tool-call-parser hermes",
            ),
            Fix("Show the special tokens.", "grep -n -i -E 'think|tool' MODEL/tokenizer_config.json"),
            Fix("Upgrade the server.", "pip install --upgrade vllm"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://docs.vllm.ai/en/latest/features/reasoning_outputs/",),
        said_by="vLLM 0.7-0.33, SGLang 0.5",
    ),
    KnownError(
        id="request-parameters",
        section=SECTION,
        title="Server rejects a value of the request",
        summary="The request has a sampling parameter out of range, or nothing to continue.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                " must be ",
                r"(?<![\w.-])(?P<name>temperature|top_p|top_k|min_p|max_tokens|max_new_tokens|(?:presence|frequency|"
                r"repetition)_penalty) must be (?:a (?:non-negative )?finite number|non-negative|at least \d|in"
                r" [\[(][-\d., ]{1,12}[\])]|greater than zero|-1 \(disable\)|0 \(disable\))[^\n]{0,60}?,"
                r" got (?P<value>-?[\w.]{1,20})",
            ),
            Pattern("rompt cannot be empty", r"(?:The (?:decoder|encoder) prompt|Prompt) cannot be empty"),
        ),
        causes=(
            "The prompt alone is as long as the context, so that no token remains to be generated.",
            "The client sends a default of another server, such as a temperature below 0 or an empty text.",
        ),
        fixes=(
            Fix("Correct the value that the message names, where the client sends it."),
            Fix(
                "If no tokens remain, shorten the prompt, or start the server with a longer context.",
                "vllm serve MODEL --max-model-len 32768",
                first_for=("max_tokens",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/vllm-project/vllm/blob/main/vllm/sampling_params.py",),
        said_by="vLLM 0.4-0.33, SGLang 0.4-0.5",
    ),
    KnownError(
        id="vllm-quantized-layers",
        section=SECTION,
        title="vLLM: quantization of the checkpoint does not cover a layer",
        summary="The server has no method for a quantized layer, mostly of experts, or no kernel of it for the GPU.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern('target_scheme_map["Linear"]', r'target_scheme_map\["Linear"\]'),
            Pattern("assert self.quant_method is not None", r"assert self\.quant_method is not None"),
            Pattern(
                "gemm is not implemented for ",
                r"Currently, block scaled fp8 gemm is not implemented for (?P<name>\w{2,20})",
            ),
            Pattern("fp8 gemm is implemented for ", r"Currently, only fp8 gemm is implemented for (?P<name>\w{2,20})"),
        ),
        causes=(
            "The recipe of LLM Compressor names layers one by one, where vLLM looks for the target Linear.",
            "Experts in this quantization, such as bitsandbytes, came to vLLM later than other layers.",
            "The GPU is newer than the kernels of this version.",
        ),
        fixes=(
            Fix(
                "Upgrade vLLM, whose newer versions have kernels for the GPU.",
                "pip install --upgrade vllm",
                first_for=("is not implemented for", "is implemented for"),
            ),
            Fix(
                "Quantize again with the target Linear, and name what stays in 16 bits.",
                'AWQModifier(targets=["Linear"], ignore=["lm_head", "re:.*mlp.gate$"], scheme="W4A16")',
                first_for=("target_scheme_map",),
            ),
            Fix("Use a quantization of the model that the server supports for experts, such as FP8 or AWQ."),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(
            "https://github.com/vllm-project/llm-compressor/issues/1920",
            "https://github.com/vllm-project/vllm/issues/16713",
            "https://github.com/vllm-project/vllm/issues/16515",
        ),
        said_by="vLLM 0.8-0.11",
    ),
)
