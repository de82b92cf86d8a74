"""Errors of programs that compute through graphics interfaces: Vulkan, and Metal in MLX and llama.cpp."""

from typing import Final

from gpumon.diagnosis.catalogue.inference import SECTION
from gpumon.diagnosis.catalogue.wording import NOT_ABOUT_MEMORY, name
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

_VULKAN: Final = "https://github.com/ggml-org/llama.cpp/blob/master/docs/build.md"
_MLX: Final = "https://ml-explore.github.io/mlx/build/html/"

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="vulkan-memory",
        section=SECTION,
        title="Vulkan: out of memory",
        summary="The Vulkan driver could not provide the memory for the model, its context or a buffer.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "ggml_vulkan: Device memory allocation of size",
                r"ggml_vulkan: Device memory allocation of size (?P<bytes>\d{1,20}) failed",
            ),
            Pattern("ErrorOutOfDeviceMemory", r"\bErrorOutOfDeviceMemory\b"),
        ),
        causes=(
            "Too many layers are on the GPU, or the context is too long.",
            "One allocation is larger than the driver allows, or the GPU shares a small part of the host's memory.",
        ),
        fixes=(
            Fix(
                "Put fewer layers on the GPU, and use a shorter context.", "llama-server -m MODEL.gguf -ngl 20 -c 8192"
            ),
            Fix(
                "Show what each GPU has, and choose the one with more memory.",
                "llama-server --list-devices; GGML_VK_VISIBLE_DEVICES=1 llama-server -m MODEL.gguf",
            ),
            Fix("On an NVIDIA GPU, use a build with CUDA instead of Vulkan."),
        ),
        empty_cache="No effect: the memory is not PyTorch's.",
        sources=(_VULKAN, "https://github.com/ggml-org/llama.cpp/issues/15256"),
        said_by="llama.cpp of 2024-2026",
    ),
    KnownError(
        id="vulkan-device-lost",
        section=SECTION,
        title="Vulkan: the driver reset the GPU",
        summary="The GPU did not finish a command in time, or had a fault, and the driver took it from the program.",
        context=ContextState.DEAD,
        patterns=(
            Pattern("vk::DeviceLostError", r"'vk::DeviceLostError'"),
            Pattern("ErrorDeviceLost", r"\bErrorDeviceLost\b"),
            name("VK_ERROR_DEVICE_LOST"),
            Pattern("ggml_vulkan: device lost", r"ggml_vulkan: device lost(?: on (?P<device>\w{1,20}))?"),
        ),
        causes=(
            "A command ran longer than the driver allows, as a large batch on a small or integrated GPU.",
            "The memory of the GPU, or what the system gives to an integrated one, is full.",
            "A bug of the driver.",
        ),
        fixes=(
            Fix(
                "Compute the prompt in smaller parts, and use a shorter context.",
                "llama-server -m MODEL.gguf -b 512 -ub 128 -c 8192",
            ),
            Fix("Put fewer layers on the GPU.", "llama-server -m MODEL.gguf -ngl 20"),
            Fix("Update the driver, or Mesa, and llama.cpp."),
            Fix("Check what the kernel's driver reports.", "sudo dmesg -T | grep -i -E 'amdgpu|xe |i915|nvrm' | tail"),
        ),
        empty_cache="No effect: the program does not use PyTorch.",
        sources=(_VULKAN, "https://github.com/ggml-org/llama.cpp/issues/13248"),
        said_by="llama.cpp of 2025-2026",
    ),
    KnownError(
        id="mlx-memory",
        section=SECTION,
        title="MLX: out of memory",
        summary="MLX asked Metal for more memory, or for more buffers, than the Mac gives to one program.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "[metal::malloc] Attempting to allocate",
                r"\[metal::malloc\] Attempting to allocate (?P<bytes>\d{1,20}) bytes",
            ),
            Pattern(
                "[metal::malloc] Resource limit",
                r"\[metal::malloc\] Resource limit \((?P<limit>\d{1,20})\)"
                r" exceeded",
            ),
        ),
        causes=(
            "The batch, the image or the sequence is too long: one array does not fit into one buffer.",
            "Resource limit: the program holds too many small arrays, as caches that are never released.",
        ),
        fixes=(
            Fix("Make the batch, the image or the sequence shorter, or use a quantized model."),
            Fix(
                "Release what is cached, and evaluate in smaller steps.",
                "import mlx.core as mx\n\nmx.eval(model.parameters())\nmx.clear_cache()",
                first_for=("Resource limit",),
            ),
        ),
        empty_cache="No effect: the memory is not PyTorch's; MLX has mlx.core.clear_cache().",
        sources=(_MLX,),
        said_by="MLX 0.20-0.31",
    ),
    KnownError(
        id="metal-kernel",
        section=SECTION,
        title="Metal: a kernel cannot be built or found",
        summary="A kernel for the Apple GPU is missing in the program, or this macOS cannot compile it.",
        context=ContextState.UNKNOWN,
        patterns=(
            Pattern(
                "[metal::Device] Unable to",
                r"\[metal::Device\] Unable to (?:load|build)"
                r" (?P<kernel>[^\n]{1,120})",
            ),
            Pattern(
                "MetalPerformancePrimitives.framework/",
                r"MetalPerformancePrimitives\.framework/[^\n]{1,200}: error: ",
            ),
            Pattern("MTLLibraryErrorDomain", r"\bMTLLibraryErrorDomain\b"),
        ),
        causes=(
            "The version of the program does not fit the version of macOS, or the GPU is newer than the program.",
            "The model has a quantization for which this version has no kernel.",
        ),
        fixes=(
            Fix("Update the program, and macOS.", "pip install --upgrade mlx mlx-lm"),
            Fix(
                "In llama.cpp and Ollama, turn off the use of the tensor units.",
                "GGML_METAL_TENSOR_DISABLE=1 ollama serve",
                first_for=("MetalPerformancePrimitives",),
            ),
            Fix("Use another quantization of the model, or another model, to test whether it is the cause."),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(_MLX, "https://github.com/ollama/ollama/issues/15470"),
        said_by="MLX 0.25-0.31, Ollama 0.20",
    ),
    KnownError(
        id="lmstudio-load",
        section=SECTION,
        title="LM Studio: the process of the model ended",
        summary="The runtime in which LM Studio loads or runs the model has crashed; its log has the reason.",
        context=ContextState.DEAD,
        patterns=(
            Pattern(
                "Try a different model and/or config",
                r"\(Exit code: (?P<code>-?\d{1,20})\)\. (?:Unknown error|Some model operation failed)\. Try a different"
                r" model and/or config",
            ),
            Pattern(
                "The model has crashed without additional",
                r"The model has crashed without additional information\.(?: \(Exit code: (?P<code>[\w-]{1,20})\))?",
            ),
            Pattern(
                "try loading the model again",
                r"\(Exit code: (?P<code>-?\d{1,20}|null)\)\. Please check settings and try loading the model again",
            ),
            Pattern("[Endpoint=loadModel] Error", r"\[Endpoint=loadModel\] Error in channel handler: Error: "),
        ),
        causes=(
            "The runtime does not support this GPU, its driver, or the CPU.",
            "Exit code 18446744072635810000 is a forbidden access to memory, or an instruction that the CPU lacks.",
            "Exit code 18446744072635812000 means that the runtime ended itself.",
            "The model, its context and what else is in the memory of the GPU do not fit.",
            "The runtime is older than the architecture of the model.",
        ),
        fixes=(
            Fix(
                "Update the runtime, or switch to another one: CUDA, CUDA 12, Vulkan, ROCm or CPU.",
                "lms runtime select",
            ),
            Fix(
                "Load the model without the GPU, to see whether the cause is the GPU.",
                "lms load MODEL --gpu off --context-length 4096",
            ),
            Fix("Read the log while the model is loaded.", "lms log stream"),
            Fix("Install the newest driver of the GPU."),
        ),
        empty_cache="No effect: the memory is not PyTorch's.",
        sources=(
            "https://lmstudio.ai/docs/cli/load",
            "https://github.com/lmstudio-ai/lmstudio-bug-tracker/issues/297",
        ),
        said_by="LM Studio 0.2-0.4",
        is_echo=True,
    ),
    KnownError(
        id="metal-command",
        section=SECTION,
        title="Metal: the GPU stopped the program's work",
        summary="The system ended what the program had given to the Apple GPU, and refuses what follows.",
        context=ContextState.DEAD,
        patterns=(
            Pattern("command buffer", r"ggml_metal_\w{3,20}: command buffer \d{1,4} failed with status (?P<status>\d)"),
            Pattern(
                "CommandBufferCallbackError",
                r"kIO(?:GPU|Accel)CommandBufferCallbackError(?P<reason>(?!OutOfMemory)[A-Z]\w{2,40})",
            ),
        ),
        causes=(
            "The memory of the Mac was full, also by other programs.",
            "A kernel ran too long, or accessed memory that is not the program's.",
            "SubmissionsIgnored: an earlier command failed; its message stands further up in the log.",
        ),
        fixes=(
            Fix(
                "Find the first of these messages: it has the reason.",
                "grep -n -m 3 CommandBufferCallbackError log.txt",
            ),
            Fix("Use a shorter context, a smaller batch or a smaller model, and close other programs."),
            Fix("Update the program, and macOS."),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(
            "https://developer.apple.com/documentation/metal/mtlcommandbuffererror",
            "https://github.com/ggml-org/llama.cpp/issues/8886",
        ),
        said_by="llama.cpp of 2024-2026, MLX 0.2-0.32",
    ),
)
