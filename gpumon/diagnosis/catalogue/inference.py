"""Errors of programs that run models: llama.cpp, Ollama, ComfyUI and Stable Diffusion."""

from dataclasses import replace
from typing import Final

from gpumon.diagnosis.catalogue import fixes
from gpumon.diagnosis.catalogue.wording import NO_CONTEXT_YET, NOT_ABOUT_MEMORY, literal
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

SECTION: Final = "llama.cpp, Ollama and ComfyUI"

_LLAMA: Final = "https://github.com/ggml-org/llama.cpp/blob/master/docs/build.md"
_OLLAMA: Final = "https://docs.ollama.com/troubleshooting"
_OLLAMA_LOG: Final = Fix("Read the log of Ollama from its start.", "journalctl -u ollama --no-pager -n 200")

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="llama-memory",
        section=SECTION,
        title="llama.cpp: model or context does not fit",
        summary="The model's weights, its context (KV cache) or its compute buffers do not fit into the memory.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "failed to allocate CUDA",
                r"failed to allocate (?P<device>CUDA\d{0,2}) buffer of size (?P<bytes>\d{1,20})",
            ),
            Pattern(
                "ggml_backend_cuda_buffer_type_alloc_buffer",
                r"ggml_backend_cuda_buffer_type_alloc_buffer: allocating (?P<requested>[\d.]{1,12} MiB) on device"
                r" \d{1,2}: cudaMalloc failed",
            ),
            Pattern("unable to allocate CUDA", r"unable to allocate (?P<device>CUDA(?:\d{1,2}|_Host)) buffer"),
            literal("unable to allocate backend buffer"),
            literal("failed to allocate compute buffers"),
            literal("failed to allocate compute pp buffers"),
            literal("failed to allocate buffer for kv cache"),
            Pattern(
                "model requires more ",
                r"model requires more (?:system|GPU) memory(?: \((?P<required>[\d.]{1,8} \w{2,4})\))?",
            ),
        ),
        causes=(
            "Too many layers are on the GPU, or the context is too long.",
            "With several GPUs, the first one holds more than its share.",
            "Another program uses the GPU.",
        ),
        fixes=(
            Fix(
                "Build with one copy of the compute buffers: over several GPUs, pipeline parallelism keeps four, which"
                " are huge if tensors are overridden to another device. Newer versions then switch it off: update.",
                "cmake -B build -DGGML_CUDA=ON -DGGML_SCHED_MAX_COPIES=1 && cmake --build build -j",
                first_for=("llama.cpp pipeline",),
                hidden_otherwise=True,
            ),
            Fix(
                "Compare the requested size with the GPU: if it is far larger, compute buffers are the reason, not the"
                " weights; divide whole layers over the GPUs, and keep only experts on the CPU.",
                "llama-server -m MODEL.gguf -ngl 99 --split-mode layer -ot exps=CPU",
                first_for=("llama.cpp pipeline",),
                hidden_otherwise=True,
            ),
            Fix(
                "Put fewer layers on the GPU, and use a shorter context.", "llama-server -m MODEL.gguf -ngl 20 -c 8192"
            ),
            Fix(
                "Quantize the context, which halves it.",
                "llama-server -m MODEL.gguf -fa on --cache-type-k q8_0 --cache-type-v q8_0",
            ),
            Fix(
                "For mixtures of experts, keep the experts in host memory.",
                "llama-server -m MODEL.gguf -ngl 99 --n-cpu-moe 30",
            ),
            Fix(
                "With Ollama, use a shorter context, or a smaller model.",
                "OLLAMA_CONTEXT_LENGTH=8192 OLLAMA_FLASH_ATTENTION=1 ollama serve",
                first_for=("system memory",),
            ),
            fixes.LIST_PROCESSES,
        ),
        empty_cache="No effect: the memory is not PyTorch's.",
        sources=(_LLAMA, "https://github.com/ggml-org/llama.cpp/issues/20431"),
    ),
    KnownError(
        id="llama-init",
        section=SECTION,
        title="llama.cpp or Ollama: the GPU is not used",
        summary="The GPU could not be initialized: the model runs on the CPU, many times slower, or its runner ends.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "ggml_cuda_init: failed to initialize",
                r"ggml_cuda_init: failed to initialize (?:CUDA|ROCm)(?!: forward)(?:: (?P<reason>[^\n]{1,100}))?",
            ),
            Pattern(
                "nable to load ",
                r"[Uu]nable to load (?:cudart )?(?:cuda|CUDA)(?: \w{1,12})? (?:driver |management )?library",
            ),
            literal("no compatible GPUs were discovered"),
            literal("No NVIDIA GPU detected. Ollama will run in CPU-only mode"),
            literal("your nvidia driver is too old or missing"),
            literal("no usable GPU found, --gpu-layers option will be ignored"),
            literal("compiled without GPU offload support"),
            Pattern("GPU discovery", r"failure during (?:llama-server )?GPU discovery"),
            Pattern("VRAM usage didn't recover", r"[Gg][Pp][Uu] VRAM usage didn't recover within timeout"),
            literal("cuda driver library failed to get device context"),
            Pattern("cuda driver library init failure", r"cuda driver library init failure: (?P<code>(?!500)\d{1,4})"),
        ),
        causes=(
            "The driver is older than the CUDA version of the build.",
            "Unknown error: the nvidia_uvm module is in a bad state, often after a suspend.",
            "No device: the container or the service has no access to the GPU.",
            "The build has no support for CUDA, or, on an AMD GPU, not for its architecture.",
        ),
        fixes=(
            Fix(
                "The driver is older than this build needs, or missing: install the newest one from nvidia.com, and"
                " reboot.",
                "nvidia-smi --query-gpu=driver_version --format=csv,noheader",
                first_for=("driver is too old", "symbol lookup for cu"),
                hidden_otherwise=True,
            ),
            fixes.DRIVER_CUDA_VERSION,
            replace(fixes.RELOAD_UVM, first_for=("unknown error", "init failure: 999")),
            Fix(
                "On a host with NVSwitch, start the service that connects the GPUs, in the version of the driver.",
                "sudo systemctl enable --now nvidia-fabricmanager",
                first_for=("system not yet initialized",),
            ),
            Fix(
                "Install the newest driver; if that does not help, name the library that Ollama loads.",
                "OLLAMA_LLM_LIBRARY=cuda_v12 ollama serve",
                first_for=("llama-server GPU",),
            ),
            Fix(
                "If it runs in a container, check whether containers see the GPU.",
                "docker run --rm --gpus all ubuntu nvidia-smi",
            ),
            replace(_OLLAMA_LOG, first_for=("no compatible GPUs", "failure during GPU discovery")),
            Fix(
                "Build llama.cpp with CUDA.",
                "bash -c 'cmake -B build -DGGML_CUDA=ON && cmake --build build --config Release -j'",
                first_for=("layers", "compiled without"),
            ),
        ),
        empty_cache=NO_CONTEXT_YET,
        sources=(_LLAMA, _OLLAMA),
    ),
    KnownError(
        id="llama-arch",
        section=SECTION,
        title="llama.cpp: not built for this GPU",
        summary="This build of llama.cpp has no kernels for the compute capability of this GPU.",
        context=ContextState.DEAD,
        patterns=(
            Pattern(
                "no device code compatible with CUDA arch",
                r"no device code compatible with CUDA arch (?P<capability>\d{2,4})",
            ),
            Pattern(
                "ggml was not compiled with any CUDA arch",
                r"ggml was not compiled with any CUDA arch <= (?P<capability>\d{2,4})",
            ),
        ),
        causes=("The build lists other architectures than that of this GPU.",),
        fixes=(
            Fix(
                "Build for this GPU.",
                "bash -c 'cmake -B build -DGGML_CUDA=ON -DCMAKE_CUDA_ARCHITECTURES=native && cmake --build build -j'",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(_LLAMA,),
    ),
    KnownError(
        id="llama-runner",
        section=SECTION,
        title="Ollama: the runner ended",
        summary="The process in which Ollama runs the model ended; its message or the log says why.",
        context=ContextState.UNKNOWN,
        patterns=(
            literal("llama runner process terminated"),
            Pattern("llama runner terminated", r'"llama runner terminated" error="(?P<reason>[^"\n]{1,100})"'),
            Pattern(
                "llama runner process has terminated", r"llama runner process has terminated: (?P<reason>[^\n]{1,100})"
            ),
            Pattern(
                "llama runner process no longer running",
                r"llama runner process no longer running: (?P<reason>-?\d{1,6})",
            ),
            literal("timed out waiting for llama runner to start"),
            Pattern("model runner has unexpectedly stopped", r"model runner has unexpectedly stopped"),
            Pattern(
                "llama-server process has terminated",
                r"llama-server process has terminated(?:: (?P<reason>(?![^\n]{0,300}CUDA error:)[^\n\"]{1,160}))?",
            ),
            Pattern("do load request: Post ", r"do load request: Post \"\S{1,80}/load\": (?P<reason>[^\n]{1,100})"),
            Pattern("timed out waiting for llama-server to start", r"timed out waiting for llama-server to start"),
        ),
        causes=(
            "The GPU's memory or host memory ran out.",
            "The driver is too old, or the build has no kernels for the GPU.",
            "The file of the model is damaged or needs a newer Ollama.",
        ),
        fixes=(
            _OLLAMA_LOG,
            Fix(
                "A DLL is missing: install Microsoft's C++ libraries, then Ollama again.",
                "winget install Microsoft.VCRedist.2015+.x64",
                first_for=("0xc0000135",),
                hidden_otherwise=True,
            ),
            Fix(
                "Update Ollama; another program's ggml libraries on the search path cause it, too: remove that path.",
                "where ggml-base.dll",
                first_for=("GGML_OP_UNARY",),
            ),
            Fix(
                "Update Ollama.",
                "bash -c 'curl -fsSL https://ollama.com/install.sh | sh'",
                first_for=("GGML_ASSERT", "error:fault", "0xc0000409"),
            ),
            Fix(
                "Give the model more time to load, as from a slow disk, and copy it to a faster one.",
                "OLLAMA_LOAD_TIMEOUT=20m ollama serve",
                first_for=("timed out waiting for",),
            ),
            Fix("Try a shorter context.", "OLLAMA_CONTEXT_LENGTH=4096 ollama serve"),
            Fix("Try without the GPU, to see whether the GPU is the cause.", "CUDA_VISIBLE_DEVICES=-1 ollama serve"),
            Fix(
                "The system killed it, nearly always for lack of host memory: use a smaller model or a shorter"
                " context.",
                "OLLAMA_CONTEXT_LENGTH=4096 ollama serve",
                first_for=("signal: killed",),
                hidden_otherwise=True,
            ),
            Fix(
                "The processor lacks an instruction of the build, such as AVX2: update Ollama; a virtual machine must"
                " show the processor of the host.",
                "grep -m 1 -o -w avx2 /proc/cpuinfo",
                first_for=("0xc000001d",),
                hidden_otherwise=True,
            ),
        ),
        empty_cache="No effect: the memory is not PyTorch's.",
        sources=(_OLLAMA,),
        is_echo=True,
    ),
    KnownError(
        id="llama-cuda",
        section=SECTION,
        title="llama.cpp: a CUDA call failed",
        summary="A CUDA call of llama.cpp failed, and the program ended; the line before contains CUDA's reason.",
        context=ContextState.DEAD,
        patterns=(
            Pattern("ggml-cuda", r"ggml-cuda(?:/ggml-cuda)?\.cu:\d{1,6}: (?:CUDA|ROCm) error"),
            Pattern(
                "current device:",
                r"current device: (?P<gpu>\d{1,3}), in function (?P<function>\w{1,60}) at \S{1,200}ggml-cuda",
            ),
        ),
        causes=("A bug in a kernel, an unstable GPU, or memory that ran out.",),
        fixes=(
            Fix("Read the line with `CUDA error:`, and explain it."),
            Fix(
                "Update llama.cpp; try without flash attention and CUDA graphs.",
                "GGML_CUDA_DISABLE_GRAPHS=1 llama-server -m MODEL.gguf -fa off",
            ),
            fixes.KERNEL_LOG,
        ),
        empty_cache="No effect: the memory is not PyTorch's.",
        sources=(_LLAMA,),
        is_echo=True,
    ),
    KnownError(
        id="llama-assert",
        section=SECTION,
        title="llama.cpp: an internal check failed",
        summary="A condition that must hold in llama.cpp was false; the text in parentheses is the condition.",
        context=ContextState.UNKNOWN,
        patterns=(
            Pattern("GGML_ASSERT(", r"\.(?:cu|cuh|cpp|c|h):\d{1,6}: GGML_ASSERT\((?P<check>[^\n]{1,160})\) failed"),
            Pattern(
                "that cannot run the operation",
                r"pre-allocated tensor \((?P<tensor>[^\n]{1,80}?)\) in a buffer \((?P<buffer>\w{1,20})\) that"
                r" cannot run the operation \((?P<check>\w{1,40})\)",
            ),
            Pattern("GGML_ASSERT: ", r"GGML_ASSERT: [^\n]{1,200}?:\d{1,6}: (?P<check>(?!!\"CUDA error)[^\n]{1,160})"),
        ),
        causes=(
            "The model file is newer than this version of llama.cpp, or damaged.",
            "Options that do not work together: types of the cache, the split of the layers, flash attention.",
        ),
        fixes=(
            Fix("Update llama.cpp, or the program that contains it.", "pip install --upgrade llama-cpp-python"),
            Fix("Try without flash attention and with the default cache types.", "llama-server -m MODEL.gguf -fa off"),
            Fix("Try on the CPU, to test whether the model file is the cause.", "llama-server -m MODEL.gguf -ngl 0"),
        ),
        empty_cache="No effect: the memory is not PyTorch's.",
        sources=("https://github.com/ggml-org/llama.cpp/blob/master/ggml/include/ggml.h",),
        said_by="llama.cpp of 2023-2026",
    ),
    KnownError(
        id="exllama-memory",
        section=SECTION,
        title="ExLlama: no memory for the model and its cache",
        summary="The weights, the key-value cache of the whole context and some workspace do not fit into the GPUs.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern("Insufficient VRAM ", r"Insufficient VRAM (?:in split )?for model and cache"),
            Pattern("Insufficient size of ", r"Insufficient size of (?P<buffer>temp_(?:dq|state)) buffer"),
        ),
        causes=(
            "The cache is reserved for the maximum length of the model, which can be 128 thousand tokens or more.",
            "The desktop or another program uses a part of the GPU; a peak while loading needs more than the result.",
        ),
        fixes=(
            Fix(
                "Shorten the context, which is max_seq_len in the configuration, and store the cache in 8 or 4 bits.",
                "python main.py --max-seq-len 8192 --cache-mode Q4",
            ),
            Fix("Use a quantization with fewer bits per weight."),
            fixes.LIST_PROCESSES,
            Fix("Move layers of experts to the CPU, or divide the model by hand.", "python main.py --gpu-split 20 22"),
        ),
        empty_cache="No effect: the memory is needed at the same time.",
        sources=(
            "https://github.com/turboderp-org/exllamav3/issues/50",
            "https://github.com/turboderp-org/exllamav2/issues/383",
        ),
        said_by="ExLlamaV2 0.0.15-0.3, ExLlamaV3 0.0.3-1.4",
    ),
)
