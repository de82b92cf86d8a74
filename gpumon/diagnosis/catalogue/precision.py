"""Errors of 8-bit floating point: GPUs without it, shapes that its matrix products need, and libraries for it."""

from typing import Final

from gpumon.diagnosis.catalogue import sources
from gpumon.diagnosis.catalogue.wording import NOT_ABOUT_MEMORY, literal
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

SECTION: Final = "8-bit floating point"

_TE: Final = "https://docs.nvidia.com/deeplearning/transformer-engine/user-guide/index.html"

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="fp8-unsupported",
        section=SECTION,
        title="FP8 is not supported by this GPU or build",
        summary="The tensor cores of this GPU have no FP8, or not the variant that the program requests.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern("not supported in this architecture", r"(?P<type>fp8e\w{1,8}) not supported in this architecture"),
            Pattern(
                "is only supported on CUDA devices with compute capability",
                r"scaled_mm is only supported on CUDA devices with compute capability",
            ),
            Pattern(
                "required for FP8 execution",
                r"Device compute capability (?P<required>[\d.]{1,5})(?:x| or higher)? ?required for FP8 execution",
            ),
            Pattern(
                "required for FP8 execution",
                r"CublasLt version (?P<cublas>[\d.x]{1,12}) or higher required for FP8 execution",
            ),
            Pattern(
                "is only supported on CUDA",
                r"is only supported on CUDA ?>= ?(?P<required>\d\.\d)(?: and MI\d{3}\+)?",
            ),
            Pattern(
                " quantization requires a GPU with",
                r"(?:Float8|FP8|fp8|NVFP4|MXFP[48])[\w ]{0,30} quantization requires a GPU with compute capability >="
                r" (?P<required>[\d.]{1,5})",
            ),
            Pattern(
                "requires GPU compute capability >=",
                r"requires GPU compute capability >= (?P<required>[\d.]{1,5})",
            ),
            Pattern("FP8 block scaled GEMM requires", r"FP8 block scaled GEMM requires (?P<required>[^\n.]{1,60})"),
            Pattern(
                "DeepGEMM requires",
                r"DeepGEMM requires (?P<required>[^;\n]{1,60}); current device is (?P<gpu>SM\d{2,3})",
            ),
            Pattern(
                "data type is not supported on CUDA arch",
                r"(?P<type>fp8e\w{1,8}) data type is not supported on CUDA arch",
            ),
        ),
        causes=(
            "FP8 needs Ada (8.9), Hopper (9.0) or newer; Ampere and Turing have none.",
            "Block scaling needs Hopper with CUDA 12.9, MXFP8 needs Blackwell.",
            "The model was quantized for a newer GPU.",
        ),
        fixes=(
            Fix(
                "Use bfloat16, or float16 before Ampere.",
                'with torch.autocast("cuda", dtype=torch.bfloat16):\n    output = model(batch)',
            ),
            Fix(
                "Show the compute capability of the GPU.",
                "nvidia-smi --query-gpu=index,name,compute_cap --format=csv",
            ),
            Fix(
                "Triton reads float8 of the kind e4m3 only from compute capability 8.9 on: use a model in"
                " fp8_e5m2, in 16"
                " bits or as GGUF, or do without torch.compile.",
                first_for=("supported fp8 dtypes are",),
                hidden_otherwise=True,
            ),
            Fix(
                "Use a model, and a cache, that are not in FP8: in bfloat16, or in 4 bits as AWQ or GPTQ.",
                first_for=("fp8e4nv", "Float8 quantization requires", "FP8 activation"),
            ),
            Fix(
                "If the GPU has this kind of FP8, install a build for a newer CUDA version.",
                "pip install --upgrade torch",
            ),
            Fix("In vLLM, do not store the cache in FP8.", "vllm serve MODEL --kv-cache-dtype auto"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(_TE, sources.TRITON),
        said_by="torch 2.6-2.13, Triton 3.6, Transformer Engine 2.10",
    ),
    KnownError(
        id="fp8-shape",
        section=SECTION,
        title="FP8: shape or type does not fit",
        summary="Matrix products in FP8 need dimensions that are multiples of 16, and no mixed types.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "FP8 execution requires",
                r"FP8 execution requires (?:2D input matrices with|the product of all"
                r" dimensions|all[^\n]{1,40}dimension)",
            ),
            Pattern(
                "to be divisible by 16",
                r"(?:trailing dimension of mat1|Expected mat2|both dimensions of mat2)"
                r"[^\n]{0,60} to be divisible by 16",
            ),
            literal("Tensor dimensions are not compatible for FP8 execution"),
            literal("Promotion for Float8 Types is not supported"),
            Pattern("Bias must be ", r"Bias must be \w{1,20} or \w{1,20}, but got (?P<type>Float8\w{1,12})"),
        ),
        causes=(
            "The number of tokens, or a layer's size, is no multiple of 16 (or 8 for the first dimension).",
            "An FP8 tensor was used in ordinary arithmetic: it is only for storage and matrix products.",
        ),
        fixes=(
            Fix("Pad the number of tokens to a multiple of 16.", "length = (length + 15) // 16 * 16"),
            Fix(
                "Exclude small or odd layers from FP8, such as the output layer.",
                first_for=("dimensions of mat2",),
            ),
            Fix("Convert before other operations.", "value = value.to(torch.bfloat16)"),
            Fix(
                "Do not store the bias in FP8: convert it; in ComfyUI, update the node that computes with it.",
                "bias = bias.to(torch.bfloat16)",
                first_for=("Bias must be",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(_TE, "https://github.com/NVIDIA/TransformerEngine/issues/1422"),
        said_by="torch 2.6-2.13, vLLM 0.10, SGLang 0.5, Transformer Engine 2.10",
    ),
    KnownError(
        id="deep-gemm",
        section=SECTION,
        title="DeepGEMM rejected its input",
        summary="A check of DeepGEMM failed: it does not support this shape, layout or scaling on this GPU.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "Assertion error csrc/",
                r"Failed: Assertion error csrc/(?P<file>[\w/.]{1,60}):(?P<line>\d{1,5}) '(?P<check>[^'\n]{1,120})'",
            ),
        ),
        causes=(
            "The version of DeepGEMM does not fit that of vLLM or SGLang.",
            "The model's layers, divided by tensor parallelism, have sizes that the kernels do not support.",
        ),
        fixes=(
            Fix("In vLLM, use other kernels.", "VLLM_USE_DEEP_GEMM=0 vllm serve MODEL"),
            Fix(
                "Install the version that the server requires, or upgrade the server.",
                "pip list | grep -i -E 'gemm|vllm|sgl'",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/deepseek-ai/DeepGEMM/issues/140",),
        said_by="DeepGEMM of 2025",
    ),
)
