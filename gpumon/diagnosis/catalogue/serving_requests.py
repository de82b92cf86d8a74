"""Errors of requests to inference servers: images, names of models, tools, tasks, and the choice of the attention."""

from typing import Final

from gpumon.diagnosis.catalogue.serving import SECTION
from gpumon.diagnosis.catalogue.wording import NOT_ABOUT_MEMORY, literal
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="multimodal-input",
        section=SECTION,
        title="Images and their places in the prompt do not agree",
        summary="The prompt has more or fewer places for images, video or audio than there are items or tokens"
        " of them.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                " may be provided in one ",
                r"At most (?P<limit>\d{1,4}) (?P<kind>image|video|audio)\(s\) may be provided in one ",
            ),
            Pattern(
                " multimodal tokens to ",
                r"Attempted to assign [\d +]{1,80}= (?P<tokens>\d{1,9}) multimodal tokens to (?P<places>\d{1,9})"
                r" placeholders",
            ),
            Pattern(
                "between the number of image tokens and features",
                r"Mismatch between the number of image tokens and features: tokens: (?P<places>\d{1,9}), features"
                r" (?P<tokens>\d{1,9})",
            ),
            Pattern(
                "The number of images in the text [",
                r"The number of images in the text \[(?P<places>[\d, ]{1,60})\] and images"
                r" \[(?P<items>[\d, ]{1,60})\] should"
                r" be the same",
            ),
            Pattern(
                "prompt updates corresponding to",
                r"Expected there to be (?P<expected>\d{1,4}) prompt updates corresponding to",
            ),
            Pattern(
                "Failed to apply prompt replacement for",
                r"Failed to apply prompt replacement for"
                r" mm_items\['(?P<kind>\w{1,12})'",
            ),
            Pattern(
                "token count between text and `input_ids`",
                r"Mismatch in `(?P<kind>\w{1,12})` token count between text and `input_ids`",
            ),
            Pattern(
                " tokens do not match",
                r"(?P<kind>[IiVvAa]\w{4})s? features and \w{5,6} tokens do not match"
                r"(?:[:,] tokens[:=] ?(?P<places>\d{1,9}),? features:?[= ]{1,2}(?P<tokens>\d{1,9}))?",
            ),
            Pattern(
                "does not match the number of ",
                r"The number of (?P<kind>image|video|audio)s does not match the number of <(?:image|video|audio)>",
            ),
        ),
        causes=(
            "The prompt was made without the chat template, which puts the placeholders of the images into it.",
            "The prompt was cut at the maximum length, in the middle of an image.",
            "A text of the data itself contains the token that stands for an image.",
            "The request has more images than the server permits, or a very small or large one.",
        ),
        fixes=(
            Fix(
                "Make the prompt with the template of the processor.",
                "text = processor.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)",
            ),
            Fix(
                "Permit more images per request.",
                "vllm serve MODEL --limit-mm-per-prompt '{\"image\": 4}'",
                first_for=("At most",),
            ),
            Fix(
                "Do not cut the text: an image takes hundreds of tokens.",
                "inputs = processor(text, images, truncation=False)",
                first_for=("Likely due to",),
            ),
            Fix("Limit the size of the images.", "vllm serve MODEL --mm-processor-kwargs '{\"max_pixels\": 1003520}'"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(
            "https://docs.vllm.ai/en/latest/features/multimodal_inputs/",
            "https://github.com/vllm-project/vllm/issues/15338",
        ),
        said_by="vLLM 0.6-0.19, transformers 4.52-5.0",
    ),
    KnownError(
        id="attention-backend",
        section=SECTION,
        title="vLLM: no attention backend for this configuration",
        summary="The attention that was chosen, or any, supports this head size, type or GPU not.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "is not valid for this configuration. Reason",
                r"Selected backend (?P<backend>\S{1,60}) is not valid for this configuration\. Reason:"
                r" (?P<reason>[^\n]{1,160})",
            ),
            Pattern("assert is_fa_version_supported", r"assert is_fa_version_supported\("),
            Pattern(
                "is not supported by ",
                r"Head size (?P<head_size>\d{1,4}) is not supported by (?P<backend>\w{2,40})",
            ),
            Pattern("Unsupported head size", r"Unsupported head size: (?P<head_size>\d{1,4})"),
            Pattern("No valid attention backend found", r"No valid attention backend found for (?P<platform>\w{1,12})"),
        ),
        causes=(
            "An option or variable names a backend, and the model or its cache needs another one.",
            "The cache was set to FP8, or the GPU is older than the backend.",
        ),
        fixes=(
            Fix(
                "The message lists why each backend was refused: upgrade vLLM, which has more of them, and change"
                " what the reasons name.",
                "pip install --upgrade vllm",
                first_for=("No valid attention backend",),
                hidden_otherwise=True,
            ),
            Fix(
                "Upgrade vLLM, or choose an attention that has each head size and runs on older GPUs as well.",
                "vllm serve MODEL --attention-backend FLEX_ATTENTION",
                first_for=("Head size", "head size"),
            ),
            Fix(
                "The GPU is older than Ampere, which FlashAttention needs: upgrade vLLM, and choose another attention.",
                "vllm serve MODEL --attention-backend TRITON_ATTN --dtype half",
                first_for=("is_fa_version_supported",),
                hidden_otherwise=True,
            ),
            Fix("Let vLLM choose the backend: leave --attention-backend out as well.", "unset VLLM_ATTENTION_BACKEND"),
            Fix("Or choose one that supports more.", "vllm serve MODEL --attention-backend TRITON_ATTN"),
            Fix("Keep the type of the cache.", "vllm serve MODEL --kv-cache-dtype auto"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://docs.vllm.ai/en/latest/usage/troubleshooting/",),
        said_by="vLLM 0.11-0.19",
    ),
    KnownError(
        id="served-model-name",
        section=SECTION,
        title="Server has no model of this name",
        summary="The request names a model that the server does not serve under this name.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern("` does not exist.", r"[Tt]he model `(?P<model>[^`\n]{1,160})` does not exist\."),
            Pattern(
                "not found, try pulling it first",
                r"model ['\"\\]{1,3}(?P<model>[\w./:-]{1,120})"
                r"['\"\\]{1,3} not found, try pulling it first",
            ),
        ),
        causes=(
            "The name in the request is not the path or the name with which the server was started.",
            "The model was not pulled, or is in another account's folder.",
        ),
        fixes=(
            Fix("List the names.", "curl -s http://localhost:8000/v1/models"),
            Fix("Give the model the name that the program uses.", "vllm serve MODEL --served-model-name NAME"),
            Fix("In Ollama, pull it first.", "ollama pull NAME", first_for=("pulling",)),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://docs.vllm.ai/en/latest/serving/openai_compatible_server/",),
        said_by="vLLM 0.4-0.19, Ollama 0.1-0.12",
    ),
    KnownError(
        id="serving-request",
        section=SECTION,
        title="Server was not started for this kind of request",
        summary="Tools, embeddings or another task need an option when the server starts, or another model.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "tool choice requires --enable-auto-tool-choice",
                r"tool choice requires"
                r" --enable-auto-tool-choice",
            ),
            Pattern("does not support the '", r"This model does not support the '(?P<task>[\w-]{1,20})' task"),
            literal("This model does not appear to be an embedding model by default"),
            Pattern("does not support `--runner", r"This model does not support `--runner (?P<task>\w{1,12})`"),
            literal("This server does not support embeddings. Start it with"),
            Pattern("The model does not support ", r"The model does not support (?P<task>[\w ]{2,30}) API"),
        ),
        causes=("The options for tools are off by default.", "The model generates text only, or embeddings only."),
        fixes=(
            Fix(
                "Start the server with tools, and with the parser for this model.",
                "vllm serve MODEL --enable-auto-tool-choice --tool-call-parser hermes",
            ),
            Fix(
                "For embeddings, start it as such.",
                "vllm serve MODEL --runner pooling",
                first_for=("Embeddings", "pooling", "'embed' task"),
            ),
            Fix(
                "In SGLang.",
                "python -m sglang.launch_server --model-path MODEL --is-embedding",
                first_for=("--is-embedding",),
            ),
            Fix(
                "In llama.cpp.",
                "llama-server -m MODEL.gguf --embeddings --pooling mean",
                first_for=("Start it with",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://docs.vllm.ai/en/latest/features/tool_calling/",),
        said_by="vLLM 0.6-0.19, SGLang 0.4-0.5",
    ),
    KnownError(
        id="server-start-timeout",
        section=SECTION,
        title="Server was not ready in time",
        summary="The process that loads the model needed longer than the server waits, or ended meanwhile.",
        context=ContextState.UNKNOWN,
        patterns=(
            literal("Timed out waiting for engines to send initial message"),
            Pattern(
                "Timed out waiting for engine core processes",
                r"Timed out waiting for engine core processes to"
                r" start",
            ),
            Pattern(
                "Initialization failed. Please see the error messages",
                r"RuntimeError: Initialization failed\. Please see the error messages above",
            ),
            Pattern("Server failed to start within", r"Server failed to start within the timeout period"),
        ),
        causes=(
            "The model lies on a slow disk or a network file system, or is downloaded first.",
            "Kernels are compiled, and the cache of an earlier start is gone, as in a new container.",
            "The engine failed: its own error stands earlier in the log.",
        ),
        fixes=(
            Fix("Read the log above this line for an error of the engine."),
            Fix("Copy the model to a local disk.", "hf download NAME/MODEL --local-dir /local/model"),
            Fix("Wait longer.", "VLLM_ENGINE_READY_TIMEOUT_S=3600 vllm serve MODEL"),
            Fix(
                "Keep the caches.",
                "docker run --gpus all -v vllm-cache:/cache -e VLLM_CACHE_ROOT=/cache vllm/vllm-openai --model MODEL",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://docs.vllm.ai/en/latest/configuration/env_vars/",),
        said_by="vLLM 0.9-0.19, SGLang 0.2-0.5",
        is_echo=True,
    ),
    KnownError(
        id="server-unreachable",
        section=SECTION,
        title="No server answers at this address",
        summary="The client reached nothing at the address and port: the server does not run, or not yet.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "APIConnectionError",
                r"(?:openai|litellm)\.(?:exceptions\.)?APIConnectionError:"
                r" (?P<reason>[^\n]{1,100})",
            ),
            Pattern(
                "ConnectionPool(host='",
                r"HTTPConnectionPool\(host='(?P<host>localhost|127\.0\.0\.1|0\.0\.0\.0|host\.docker\.internal)',"
                r" port=(?P<port>\d{1,5})\): Max retries exceeded",
            ),
            Pattern("ConnectError: ", r"httpx\.ConnectError: (?P<reason>All connection attempts failed|\[Errno 111\])"),
            Pattern(
                "Cannot connect to host ",
                r"Cannot connect to host (?P<host>localhost|127\.0\.0\.1|0\.0\.0\.0):(?P<port>\d{1,5}) ssl:",
            ),
            Pattern(
                "InferenceServerException",
                r"InferenceServerException: \[StatusCode\.UNAVAILABLE\] (?P<reason>[^\n]{1,100})",
            ),
            Pattern(
                "Failed to connect to ",
                r"curl: \(7\) Failed to connect to (?P<host>[\w.-]{1,80}) port (?P<port>\d{1,5})",
            ),
        ),
        causes=(
            "The server still loads the model, or it ended: its own log has the reason.",
            "The server listens on another address or port; in a container, localhost is the container itself.",
        ),
        fixes=(
            Fix("Look for the server and its port.", "ss -ltnp"),
            Fix("Ask it.", "curl -sS http://localhost:8000/v1/models"),
            Fix("Let the server listen on every address.", "vllm serve MODEL --host 0.0.0.0 --port 8000"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://docs.vllm.ai/en/latest/serving/openai_compatible_server/",),
        said_by="openai 1.0-2.8, requests 2, httpx 0.24-0.28, tritonclient 2",
        is_echo=True,
    ),
    KnownError(
        id="triton-request",
        section=SECTION,
        title="Triton Inference Server refuses the request",
        summary="The request names a model, an input, a shape or a batch that the configuration does not have.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "inference request batch-size must be",
                r"inference request batch-size must be <= (?P<limit>\d{1,6}) for '(?P<model>[^'\n]{1,80})'",
            ),
            Pattern("Request for unknown model: '", r"Request for unknown model: '(?P<model>[^'\n]{1,80})'"),
            Pattern(
                "unexpected shape for input '",
                r"unexpected shape for input '(?P<input>[^'\n]{1,80})' for model '(?P<model>[^'\n]{1,80})'\. Expected"
                r" (?P<expected>\[[-\d,]{1,60}\]), got (?P<got>\[[-\d,]{1,60}\])",
            ),
            Pattern(
                "inference input '",
                r"inference input '(?P<input>[^'\n]{1,80})' data-type is '(?P<got>\w{2,8})', but model"
                r" '(?P<model>[^'\n]{1,80})' expects '(?P<expected>\w{2,8})'",
            ),
            Pattern(
                "unexpected inference input '",
                r"unexpected inference input '(?P<input>[^'\n]{1,80})' for model '(?P<model>[^'\n]{1,80})'",
            ),
        ),
        causes=(
            "With max_batch_size above 0, the first dimension is the batch, and config.pbtxt leaves it out.",
            "The model was not loaded: the server's log at its start says why.",
        ),
        fixes=(
            Fix("Ask the server what the model expects.", "curl -sS http://localhost:8000/v2/models/MODEL/config"),
            Fix("Show which models are ready.", "curl -sS -X POST http://localhost:8000/v2/repository/index"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/triton-inference-server/server/blob/main/docs/user_guide/model_configuration.md",),
        said_by="Triton Inference Server 20-25",
    ),
    KnownError(
        id="request-timeout",
        section=SECTION,
        title="Server did not answer in time",
        summary="The client gave up waiting; the server may still compute the answer.",
        context=ContextState.UNKNOWN,
        patterns=(
            Pattern(
                "APITimeoutError",
                r"(?:openai|litellm)\.(?:exceptions\.)?APITimeoutError:"
                r" (?P<reason>[^\n]{1,80})",
            ),
            Pattern("httpx.ReadTimeout", r"httpx\.ReadTimeout(?:: timed out)?"),
            Pattern(
                "ConnectionPool(host='",
                r"HTTPConnectionPool\(host='(?P<host>localhost|127\.0\.0\.1|0\.0\.0\.0)', port=(?P<port>\d{1,5})\):"
                r" Read timed out",
            ),
        ),
        causes=(
            "The answer is long, or many requests wait in the queue.",
            "The engine hangs or died: its log shows it.",
        ),
        fixes=(
            Fix("Wait longer.", "client = OpenAI(base_url=address, api_key=key, timeout=1800)"),
            Fix(
                "Limit the length of the answer, or take it in parts.",
                "client.chat.completions.create(model=name, messages=messages, max_tokens=512, stream=True)",
            ),
            Fix("Look at how many requests wait.", "curl -sS http://localhost:8000/metrics | grep waiting"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://docs.vllm.ai/en/latest/usage/metrics/",),
        said_by="openai 1.0-2.8, httpx 0.24-0.28, requests 2",
        is_echo=True,
    ),
    KnownError(
        id="vllm-input-cache",
        section=SECTION,
        title="vLLM: an image is missing in the cache of inputs",
        summary="The server's cache of prepared images and the engine's copy of it no longer agree.",
        context=ContextState.DEAD,
        patterns=(
            Pattern("Expected a cached item for mm_hash", r"Expected a cached item for mm_hash='(?P<hash>\w{1,80})"),
        ),
        causes=(
            "A request was aborted or refused after one of the two caches had stored its image.",
            "The items of several requests together are larger than the cache.",
        ),
        fixes=(
            Fix("Switch the cache off, which costs time only.", "vllm serve MODEL --mm-processor-cache-gb 0"),
            Fix("Upgrade vLLM, which has corrected several such errors.", "pip install --upgrade vllm"),
            Fix("Or make the cache larger.", "vllm serve MODEL --mm-processor-cache-gb 16"),
        ),
        empty_cache="No effect: the images are in host memory.",
        sources=(
            "https://github.com/vllm-project/vllm/issues/31404",
            "https://github.com/vllm-project/vllm/issues/33865",
        ),
        said_by="vLLM 0.10-0.19",
    ),
)
