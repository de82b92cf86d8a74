"""Errors of Triton Inference Server, LMDeploy, CTranslate2, and of vLLM's and TensorRT-LLM's quantized kernels."""

from typing import Final

from gpumon.diagnosis.catalogue import fixes
from gpumon.diagnosis.catalogue.serving import SECTION
from gpumon.diagnosis.catalogue.wording import NOT_ABOUT_MEMORY, literal
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

_TGI_LAUNCHER: Final = "https://github.com/huggingface/text-generation-inference/blob/main/launcher/src/main.rs"
ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="triton-server-model",
        section=SECTION,
        title="Triton Inference Server could not load a model",
        summary="The table of the models shows UNAVAILABLE with the reason; by default, the server then ends.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "UNAVAILABLE: ",
                r"UNAVAILABLE: (?P<kind>Internal|Invalid argument|Not found|Unsupported|Unavailable|Already exists): "
                r"(?P<reason>[^|\n]{1,160})",
            ),
            literal("creating server: Internal - failed to load all models"),
            Pattern(
                ", no version is available",
                r"failed to load '(?P<model>[^'\n]{1,80})', no version is available",
            ),
            Pattern(
                "failed to load '",
                r"failed to load '(?P<model>[^'\n]{1,80})' version \d{1,6}: (?P<reason>[A-Z][^\n]{1,120})",
            ),
            Pattern(
                "which has no loaded version",
                r"depends on '(?P<model>[^'\n]{1,80})' which has no loaded version",
            ),
        ),
        causes=(
            "The file of the model is damaged, or was made by a newer version than that of the backend.",
            "The file config.pbtxt does not fit the model: names, types and shapes of its inputs and outputs.",
            "A TensorRT engine was built for another GPU or another version of TensorRT.",
        ),
        fixes=(
            Fix("Read the reason behind UNAVAILABLE, and the messages of that model above the table."),
            Fix("Let the server say more.", "tritonserver --model-repository=/models --log-verbose=1"),
            Fix(
                "Keep the other models running.",
                "tritonserver --model-repository=/models --exit-on-error=false",
            ),
            Fix("Build engines and export models inside the container of the same release."),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(
            (
                "https://docs.nvidia.com/deeplearning/triton-inference-server/user-guide/docs/user_guide/model_m"
                "anagemen"
                "t.html"
            ),
        ),
        said_by="Triton Inference Server 22.01-25.06",
        is_echo=True,
    ),
    KnownError(
        id="lmdeploy",
        section=SECTION,
        title="LMDeploy: a check of TurboMind failed",
        summary="TurboMind, the engine of LMDeploy, stopped; the text behind [TM][ERROR] is the reason.",
        context=ContextState.UNKNOWN,
        patterns=(
            Pattern("[TM][ERROR]", r"\[TM\]\[ERROR\](?! {0,3}CUDA runtime error) (?P<reason>[^\n]{1,200})"),
            Pattern("No module named '_turbomind'", r"No module named '(?P<module>_turbomind)'"),
            Pattern(
                "turbomind has not been built with", r"turbomind has not been built with (?P<type>\w{2,12}) support"
            ),
            literal("because turbomind engine is not installed correctly"),
            Pattern("TurboMind execute failure: ", r"TurboMind execute failure: {1,3}(?P<reason>\d{1,4})"),
        ),
        causes=(
            "TurboMind does not support the model, its size, the quantization or the number of GPUs.",
            "The build has no support for this system: several GPUs do not work on Windows.",
        ),
        fixes=(
            Fix("Use the engine that is written in PyTorch.", "lmdeploy serve api_server MODEL --backend pytorch"),
            Fix("Run on one GPU.", "lmdeploy serve api_server MODEL --tp 1", first_for=("Barrier.h",)),
            Fix(
                "Install LMDeploy from its wheel, which contains TurboMind; a build from source needs further steps.",
                "pip install --upgrade --force-reinstall lmdeploy",
                first_for=("'_turbomind'", "not installed correctly"),
            ),
            Fix(
                "Select a type that TurboMind has.",
                "lmdeploy serve api_server MODEL --dtype float16",
                first_for=("been built with",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://lmdeploy.readthedocs.io/en/latest/supported_models/supported_models.html",),
        said_by="LMDeploy 0.1-0.10",
        is_echo=True,
    ),
    KnownError(
        id="quantization-argument",
        section=SECTION,
        title="Quantization does not fit the model",
        summary="The quantization that was asked for is not that of the checkpoint, or not there for this model.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "does not match the quantization method specified",
                r"Quantization method specified in the model config \((?P<model>[\w-]{1,40})\) does not match the"
                r" quantization"
                r" method specified in the `quantization` argument \((?P<argument>[\w-]{1,40})\)",
            ),
            Pattern(
                "does not support BitsAndBytes quantization yet",
                r"Model (?P<model>\w{1,80}) does not support BitsAndBytes quantization yet",
            ),
            Pattern("Unsupported model type: '", r"AssertionError: Unsupported model type: '(?P<model>[\w-]{1,40})'"),
            Pattern("Found unknown quantization", r"Value error, Found unknown quantization"),
            Pattern(
                "The model is quantized with ",
                r"The model is quantized with (?P<model>\w{1,40}) but you are passing a (?P<argument>\w{1,40}) config",
            ),
            Pattern(
                "is not supported for quantization method ",
                r"(?P<argument>torch\.\w{1,16}) is not supported for quantization method (?P<model>[\w-]{1,40})",
            ),
            Pattern(
                "Cannot find the config file for ", r"Cannot find the config file for (?P<argument>awq|gptq|\w{2,16})\b"
            ),
        ),
        causes=(
            "A checkpoint that is quantized already was to be quantized again, in another way.",
            "The option names a quantization, and the checkpoint is not quantized.",
            "The server has no such quantization for this architecture, or is older than the model.",
        ),
        fixes=(
            Fix("Leave the option out: the server reads the quantization from the checkpoint.", "vllm serve MODEL"),
            Fix("Show what the checkpoint says.", "grep -A 12 quantization_config MODEL/config.json"),
            Fix(
                "Upgrade the server.",
                "pip install --upgrade vllm",
                first_for=("quantization yet", "unknown quantization"),
            ),
            Fix(
                "Set the type that the quantization computes in.",
                "vllm serve MODEL --dtype half",
                first_for=("Supported dtypes",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://docs.vllm.ai/en/latest/features/quantization/",),
        said_by="vLLM 0.4-0.19, SGLang 0.4-0.5, transformers 4.40-5.0",
    ),
    KnownError(
        id="serving-kernel-arch",
        section=SECTION,
        title="Server has no kernel for this GPU",
        summary="A quantized kernel of the server was not compiled for the compute capability of this GPU.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "CUDA device capability",
                r"No compiled (?P<kernel>\w{4,60}) for (?:a compute capability (?:less|greater) than )?CUDA device"
                r" capability:?"
                r" ?(?P<capability>\d{2,4})",
            ),
            Pattern("Error: Error Internal", r"RuntimeError: Error Internal$"),
            Pattern(
                " cutlass ",
                r"Failed to (?:initialize|run) cutlass (?P<kernel>[\w ]{1,60}) gemm",
            ),
        ),
        causes=(
            "The GPU is newer than the release: consumer Blackwell (12.0, 12.1) is not data-center Blackwell (10.0).",
            "The GPU is older than the format: FP8 needs 8.9, FP4 needs 10.0 or 12.0.",
            "The server was built from source for other architectures.",
        ),
        fixes=(
            Fix(
                "Upgrade the server; wheels for CUDA 12.8 and newer have kernels for Blackwell.",
                "pip install --upgrade vllm",
            ),
            Fix("Show the compute capability.", "nvidia-smi --query-gpu=name,compute_cap --format=csv"),
            Fix("Use a checkpoint in another format, such as AWQ or GPTQ in 4 bits."),
            Fix("Or build for this GPU.", "TORCH_CUDA_ARCH_LIST=12.0 pip install --no-build-isolation -e ."),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        see_more=(fixes.SHOW_VERSIONS,),
        sources=(
            "https://github.com/vllm-project/vllm/issues/32109",
            "https://github.com/vllm-project/vllm/issues/18916",
        ),
        said_by="vLLM 0.8-0.19, TensorRT-LLM 0.6-1.0",
    ),
    KnownError(
        id="serving-lora",
        section=SECTION,
        title="Server does not accept the adapter",
        summary="The LoRA adapter is larger than the server reserves, or the server was started without adapters.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "is greater than max_lora_rank",
                r"LoRA rank (?P<rank>\d{1,6}) is greater than max_lora_rank (?P<limit>\d{1,6})",
            ),
            literal("LoRA is not enabled. Please set `--enable-lora`"),
            Pattern(
                "expected target modules in",
                r"While loading (?P<adapter>[^\n]{1,160}?), expected target modules in",
            ),
            Pattern("is unsupported LoRA weight", r"(?P<name>[\w.]{3,200}) is unsupported LoRA weight"),
            Pattern(
                " does not support LoRA",
                r"(?P<model>\w{2,80}) does not support LoRA(?: yet\.|, but LoRA is enabled)",
            ),
            Pattern("failed: No adapter found for ", r"failed: No adapter found for (?P<adapter>[^\s\"'\]]{1,200})"),
        ),
        causes=(
            "The rank of the adapter is above the default limit of 16.",
            "The option that enables adapters is missing.",
        ),
        fixes=(
            Fix(
                "Start the server with adapters, and with the rank of yours.",
                "vllm serve MODEL --enable-lora --max-lora-rank 64 --lora-modules name=/path/to/adapter",
            ),
            Fix("Show the rank of the adapter.", "grep '\"r\"' ADAPTER/adapter_config.json"),
            Fix("Or merge the adapter into the model.", 'model.merge_and_unload().save_pretrained("merged")'),
            Fix(
                "Serve the merged model: the server supports adapters only on some layers, not on embeddings,"
                " the output or an image encoder.",
                'model.merge_and_unload().save_pretrained("merged")',
                first_for=(
                    "expected target modules",
                    "unsupported LoRA weight",
                ),
            ),
            Fix(
                "Check the folder of the adapter; a checkpoint of DeepSpeed or FSDP has to be converted first.",
                "ls -l ADAPTER/adapter_config.json ADAPTER/adapter_model.safetensors",
                first_for=("No adapter found",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://docs.vllm.ai/en/latest/features/lora/",),
        said_by="vLLM 0.4-0.19, SGLang 0.5",
    ),
    KnownError(
        id="serving-port",
        section=SECTION,
        title="Port of the server is in use",
        summary="Another process listens on this port, often an earlier run of the same server.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "error while attempting to bind on address",
                r"error while attempting to bind on address \('(?P<address>[\w.:]{1,60})', (?P<port>\d{1,5})",
            ),
            Pattern(
                "bind: address already in use",
                r"listen tcp (?P<address>[\w.:\[\]]{0,60}):(?P<port>\d{1,5}): bind: address already"
                r" in use",
            ),
            Pattern(
                "Cannot find empty port in range", r"OSError: Cannot find empty port in range: (?P<port>[\d-]{1,12})"
            ),
        ),
        causes=(
            "An earlier run did not end, and still holds GPU memory too.",
            "A service starts the same server: Ollama, for example, runs as one.",
        ),
        fixes=(
            Fix("Find the process on the port.", "ss -ltnp | grep :8000"),
            Fix("Or use another port.", "vllm serve MODEL --port 8001"),
            fixes.LIST_PROCESSES,
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://docs.python.org/3/library/errno.html",),
        said_by="Python 3.8-3.14, Ollama 0.1-0.12, Gradio 3-5",
    ),
    KnownError(
        id="tgi-shard",
        section=SECTION,
        title="Text Generation Inference: a shard ended",
        summary="The process that loads the model ended; its own error stands above this line.",
        context=ContextState.UNKNOWN,
        patterns=(
            Pattern("ShardCannotStart", r"Error: ShardCannotStart"),
            literal("Shard complete standard error output"),
            Pattern(
                "text_generation_launcher: Shard",
                r"text_generation_launcher: Shard \d{1,3} (?:crashed|failed to"
                r" start)",
            ),
            Pattern(
                "text_generation_client: ",
                r"text_generation_client: \S{1,60}lib\.rs:\d{1,4}: Server error: (?P<reason>transport"
                r" error|error trying to"
                r" connect|CANCELLED)",
            ),
            Pattern("error trying to connect: No such file", r"Server error: error trying to connect: No such file"),
        ),
        causes=("Out of memory, an unsupported model or quantization, or no way to the Hub.",),
        fixes=(
            Fix("Read the traceback of the shard above this line: its last line is the cause."),
            Fix(
                "If the reason is missing, the shard was killed: check host memory and the container's shared memory.",
                "docker run --gpus all --shm-size 8g ghcr.io/huggingface/text-generation-inference --model-id MODEL",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(_TGI_LAUNCHER,),
        said_by="Text Generation Inference 1.0-3.3",
        is_echo=True,
    ),
    KnownError(
        id="tgi-signal",
        section=SECTION,
        title="Text Generation Inference: a signal ended a shard",
        summary="The system ended the process that loads the model; the number of the signal is the reason.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "Shard process was signaled to",
                r"Shard process was signaled to shutdown with signal (?P<signal>\d{1,2})",
            ),
        ),
        causes=(
            "Signal 4: the processor lacks an instruction, such as AVX2.",
            "Signal 6 or 11: native code failed; its message stands above.",
            "Signal 7: shared memory is too small.",
            "Signal 9: host memory ran out.",
        ),
        fixes=(
            Fix(
                "The processor lacks an instruction of the server's libraries, such as AVX2: let the virtual machine"
                " show the processor of the host, by the CPU type `host`, or use another host.",
                "grep -m 1 -o -w avx2 /proc/cpuinfo",
                first_for=("with signal 4",),
                hidden_otherwise=True,
            ),
            Fix(
                "The process aborted itself, as the watchdog of NCCL does: the line above the frames `frame #0` is the"
                " cause.",
                first_for=("with signal 6",),
                hidden_otherwise=True,
            ),
            Fix(
                "Give the container more shared memory.",
                "docker run --gpus all --shm-size 8g ghcr.io/huggingface/text-generation-inference --model-id MODEL",
                first_for=("with signal 7",),
            ),
            Fix(
                "Check whether the kernel ended it for lack of host memory; then use a smaller model, or more memory.",
                "sudo dmesg -T | grep -i -E 'out of memory|oom-kill'",
                first_for=("with signal 9",),
            ),
            Fix("Read the lines above this one, and upgrade the image of the server."),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(_TGI_LAUNCHER, "https://github.com/huggingface/text-generation-inference/issues/1627"),
        said_by="Text Generation Inference 1.0-3.3",
        is_echo=True,
    ),
    KnownError(
        id="ct2-model",
        section=SECTION,
        title="CTranslate2: type or model does not fit",
        summary="Whisper's engine CTranslate2 cannot compute in this type on this device, or finds no converted model.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "do not support efficient",
                r"Requested (?P<type>\w{1,20}) compute type, but the target device or backend do not support efficient",
            ),
            Pattern(
                "Unable to open file 'model.bin'",
                r"Unable to open file 'model\.bin' in model '(?P<model>[^'\n]{1,160})'",
            ),
            Pattern(
                "GPU currently requires the cuDNN library",
                r"on GPU currently requires the cuDNN library which is not"
                r" integrated",
            ),
            Pattern("unsupported device cuda:", r"ValueError: unsupported device (?P<device>cuda:\d{1,2})"),
            Pattern("Unsupported model binary version", r"Unsupported model binary version"),
        ),
        causes=(
            "The type float16 needs a GPU of compute capability 7.0 or newer; the CPU does not have it.",
            "The program runs on the CPU because it found no GPU.",
            "The download was interrupted, or the model is in the format of transformers.",
            "CTranslate2 was built from source without cuDNN, which Whisper needs.",
        ),
        fixes=(
            Fix(
                "Choose a type that the device has.",
                'model = WhisperModel("large-v3", device="cuda", compute_type="int8_float32")',
            ),
            Fix(
                "Show the types of this GPU.",
                "python -c \"import ctranslate2; print(ctranslate2.get_supported_compute_types('cuda'))\"",
            ),
            Fix(
                "Download the converted model again.",
                "hf download Systran/faster-whisper-large-v3 --force-download",
                first_for=("'model.bin'",),
            ),
            Fix(
                "Give the number of the GPU separately.",
                'model = WhisperModel("large-v3", device="cuda", device_index=0)',
                first_for=("unsupported device",),
            ),
            Fix(
                "Install the package of CTranslate2, which is built with cuDNN.",
                "pip install --force-reinstall --no-cache-dir ctranslate2",
                first_for=("not integrated in this build",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://opennmt.net/CTranslate2/quantization.html",),
        said_by="CTranslate2 2.0-4.6",
    ),
)
