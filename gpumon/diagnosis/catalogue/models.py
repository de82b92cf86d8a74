"""Errors of libraries that load and train models: transformers, accelerate, bitsandbytes, flash-attn, Lightning.

The wordings are from the sources of transformers 5.23, Lightning 2.6 and flash-attn, and from reports since 2023.
"""

from dataclasses import replace
from typing import Final

from gpumon.diagnosis.catalogue import fixes, sources
from gpumon.diagnosis.catalogue.wording import NO_CONTEXT_YET, NOT_ABOUT_MEMORY, literal
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

SECTION: Final = "Model libraries"

_MODELING: Final = "https://github.com/huggingface/transformers/blob/main/src/transformers/modeling_utils.py"
_BIG_MODELS: Final = "https://huggingface.co/docs/accelerate/usage_guides/big_modeling"
_BITSANDBYTES: Final = "https://huggingface.co/docs/transformers/quantization/bitsandbytes"

_SDPA: Final = Fix(
    "Use PyTorch's own attention, which needs no package.",
    'model = AutoModelForCausalLM.from_pretrained(name, attn_implementation="sdpa")',
)
_ONE_GPU: Final = Fix(
    "Load the whole model onto the GPU of this process.",
    'model = AutoModelForCausalLM.from_pretrained(name, device_map={"": 0})',
)

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="flash-attn-missing",
        section=SECTION,
        title="flash-attn is not installed",
        summary="The model or its settings ask for FlashAttention, and the package is missing or cannot be used here.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "has been toggled on, but it cannot be used due to the following error",
                r"FlashAttention ?-?\d(?:\.\d)? has been toggled on, but it cannot be used due to the following error:?"
                r"(?: (?P<reason>[^\n]{1,160}))?",
            ),
            Pattern("No module named 'flash_attn", r"No module named 'flash_attn(?P<part>[\w.]{0,40})'"),
            Pattern(
                "packages that were not found in your environment",
                r"requires the following packages that were not found in your environment: [\w, ]{0,80}flash_attn",
            ),
            literal("flash_attn seems to be not installed"),
            literal("DLL load failed while importing flash_attn_2_cuda"),
            Pattern("Attention is not installed", r"Flash ?Attention is not installed"),
            Pattern("requires the flash-attn package", r"requires the flash-attn package"),
        ),
        causes=(
            "The package must be compiled for this PyTorch, and was not installed.",
            "The GPU is older than Ampere, or the system is Windows, for which there is no official wheel.",
        ),
        fixes=(
            replace(_SDPA, first_for=("transformers",)),
            Fix(
                "Install it, after PyTorch; a wheel that fits PyTorch, CUDA and Python saves the compilation.",
                "pip install ninja && pip install flash-attn --no-build-isolation",
            ),
            Fix(
                "PyTorch sees no GPU, which FlashAttention needs: install PyTorch with CUDA, or use another attention.",
                "python -c 'import torch; print(torch.cuda.is_available(), torch.version.cuda)'",
                first_for=("not available on CPU",),
                hidden_otherwise=True,
            ),
            Fix(
                "Check which wheel fits.",
                "python -c 'import torch, sys; print(torch.__version__, torch.version.cuda, sys.version_info[:2])'",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(_MODELING, "https://github.com/Dao-AILab/flash-attention/releases"),
        said_by="transformers 4.36-5.0",
    ),
    KnownError(
        id="flash-attn-inputs",
        section=SECTION,
        title="FlashAttention does not support these tensors",
        summary="FlashAttention works on float16 and bfloat16 tensors on the GPU, with a head size of at most 256.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(") not supported", r"head dim \(>(?P<limit>\d{1,4})\) not supported"),
            Pattern(
                "This flash attention build does not support",
                r"This flash attention build does not support (?P<reason>[^\n]{1,80})",
            ),
            literal("Expected is_sm80 || is_sm90 to be true"),
            Pattern(
                "only supports torch.float16 and torch.bfloat16",
                r"Flash ?Attention (?P<version>\d(?:\.\d)?) only supports torch\.float16 and torch\.bfloat16",
            ),
            Pattern(" fp16 and bf16 data type", r"FlashAttention only supports? fp16 and bf16 data type"),
            Pattern(
                "supports fp16, bf16, and fp8_e4m3 data type",
                r"FlashAttention only supports fp16, bf16, and fp8_e4m3 data type",
            ),
            Pattern(
                " only supports head dimension",
                r"(?:FlashAttention (?:forward|backward)|CK|current repo) only supports head dimension(?: at most)?"
                r" (?P<limit>\d{1,4})",
            ),
            Pattern(
                "with a model not initialized on GPU",
                r"You are attempting to use Flash ?Attention (?P<version>\d(?:\.\d)?) with a model not"
                r" initialized on GPU",
            ),
            Pattern(
                "FlashAttention backward for head dim",
                r"FlashAttention backward for head dim > (?P<head_size>\d{1,4}) requires",
            ),
            Pattern(
                "You are attempting to use Flash Attention 2",
                r"You are attempting to use Flash Attention 2(?:\.0)? without specifying a torch dtype",
            ),
            Pattern("nly support head size", r"Only support head size (?P<sizes>\d[\d, and]{1,40}) for now"),
            Pattern("must have dtype fp16 or bf16", r"(?:q|query|k|v) must have dtype fp16 or bf16"),
            Pattern("cu_seqlens_", r"cu_seqlens_[qk] must have (?:shape|dtype) [^\n]{1,40}"),
        ),
        causes=("The model was loaded in float32, or part of it was converted to float32.", "The model is on the CPU."),
        fixes=(
            Fix(
                "Load the model in bfloat16, directly on the GPU.",
                'model = AutoModelForCausalLM.from_pretrained(name, dtype=torch.bfloat16, device_map="cuda")',
            ),
            Fix("In training, use autocast.", "arguments = TrainingArguments(bf16=True)"),
            replace(_SDPA, first_for=("headdim", "head dim", "head size")),
            Fix(
                "Turn off PyTorch's flash attention, whose backward pass this version does not have for the GPU,"
                " or upgrade PyTorch.",
                "torch.backends.cuda.enable_flash_sdp(False)",
                first_for=("is_sm80",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(_MODELING, "https://github.com/Dao-AILab/flash-attention/blob/main/csrc/flash_attn/flash_api.cpp"),
        said_by="torch 2.6-2.13, vLLM 0.6-0.19, transformers 4.36-5.0, SGLang 0.5",
    ),
    KnownError(
        id="model-offloaded",
        section=SECTION,
        title="Model does not fit and was offloaded",
        summary="The model does not fit into GPU memory, so accelerate put part of it on the CPU or the disk.",
        context=ContextState.ALIVE,
        patterns=(
            literal("You can't move a model that has some modules offloaded to cpu or disk"),
            literal("You are trying to offload the whole model to the disk"),
            literal("Some modules are dispatched on the CPU or the disk"),
            Pattern("We need an `offload_", r"We need an `offload_(?:dir|folder)` to dispatch this model"),
            Pattern("had weights offloaded to the disk", r"The current `device_map` had weights offloaded to the disk"),
            Pattern(
                "The model has been loaded with `accelerate`",
                r"The model has been loaded with `accelerate` and therefore cannot be moved",
            ),
            Pattern("Found modules on cpu/disk", r"Found modules on cpu/disk\. Using Exllama"),
        ),
        causes=(
            "Other processes or an earlier model of this process hold GPU memory.",
            "The model is too large for this GPU in this type.",
            "No GPU is visible, so that everything goes to the CPU or the disk.",
        ),
        fixes=(
            Fix("Check how much memory is free.", "nvidia-smi --query-gpu=memory.free,memory.total --format=csv"),
            Fix(
                "Load the model in 4 bits.",
                """\
config = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_compute_dtype=torch.bfloat16)
model = AutoModelForCausalLM.from_pretrained(name, quantization_config=config, device_map={"": 0})""",
            ),
            Fix(
                "Do not call .to() on a model that has a device_map, nor give a pipeline a device; move the inputs.",
                "inputs = inputs.to(model.device)",
                first_for=("cannot be moved", "can't move"),
            ),
            Fix(
                "Or name a folder for the weights that go to the disk, which is slow.",
                'model = AutoModelForCausalLM.from_pretrained(name, device_map="auto", offload_folder="offload")',
                first_for=("offload_folder",),
            ),
            Fix(
                "Or permit offloading in 8 bits, which is slow.",
                "config = BitsAndBytesConfig(load_in_8bit=True, llm_int8_enable_fp32_cpu_offload=True)",
            ),
        ),
        empty_cache="Helps if an earlier model of this process was deleted and its memory is still cached.",
        sources=(_BIG_MODELS, _BITSANDBYTES),
        said_by="transformers 4.36-5.0, accelerate 0.25-1.12",
    ),
    KnownError(
        id="quantized-to",
        section=SECTION,
        title="Quantized model cannot be moved",
        summary="A model that bitsandbytes has quantized stays on the device and in the type in which it was loaded.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "bit bitsandbytes models. Please use the model",
                r"is not supported for [^\n]{1,20}bit bitsandbytes models\. Please use the model as it is",
            ),
            Pattern("`.to` is not supported for ", r"`\.to` is not supported for `(?:4-bit|8-bit)`(?: or `8-bit`)?"),
            Pattern(
                "()` is not supported for `", r"Calling `(?:cuda|to|half|float)\(\)` is not supported for `(?:4|8)-bit`"
            ),
            literal("You cannot cast a bitsandbytes model in a new `dtype`"),
        ),
        causes=(
            "The program calls .to(device), .cuda() or .half() on the model.",
            "The versions of accelerate, transformers and bitsandbytes do not fit together.",
        ),
        fixes=(
            Fix(
                "Remove the call, and choose the device when the model is loaded.",
                'model = AutoModelForCausalLM.from_pretrained(name, quantization_config=config, device_map={"": 0})',
            ),
            Fix("Upgrade the three packages together.", "pip install --upgrade accelerate transformers bitsandbytes"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(_BITSANDBYTES,),
        said_by="transformers 4.36-5.0",
    ),
    KnownError(
        id="bnb-missing",
        section=SECTION,
        title="bitsandbytes or accelerate is missing or too old",
        summary="Loading a model in 4 or 8 bits needs the packages bitsandbytes and accelerate, and a GPU.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "-bit quantization requires ",
                r"`bitsandbytes` \d-bit quantization requires (?:the latest version of )?(?:bitsandbytes|Accelerate)",
            ),
            Pattern(
                "No package metadata was found for bitsandbytes", r"No package metadata was found for bitsandbytes"
            ),
            Pattern("requires Accelerate: `pip install", r"requires Accelerate: `pip install accelerate`"),
            Pattern("No bitsandbytes", r"ImportError: No bitsandbytes\b"),
            literal("No GPU found. A GPU is needed for quantization"),
            literal("Failed to import transformers.integrations.bitsandbytes"),
            Pattern("Please install bitsandbytes>=", r"Please install bitsandbytes>=[\d.]{1,8}"),
        ),
        causes=(
            "The package is not installed in this environment, or a notebook was not restarted after the installation.",
            "PyTorch sees no GPU: older versions report this as a missing package.",
        ),
        fixes=(
            Fix(
                "Install current versions, and restart the notebook's kernel.",
                "pip install --upgrade accelerate bitsandbytes",
            ),
            Fix("Check that PyTorch sees the GPU.", "python -c 'import torch; print(torch.cuda.is_available())'"),
            Fix("Check bitsandbytes.", "python -m bitsandbytes"),
        ),
        empty_cache=NO_CONTEXT_YET,
        sources=(_BITSANDBYTES,),
        said_by="transformers 4.36-5.0, accelerate 0.25-1.12",
    ),
    KnownError(
        id="device-map-distributed",
        section=SECTION,
        title="Model is spread over GPUs and trained by several processes",
        summary="Each process must hold its own copy on its own GPU, and device_map has spread or placed it elsewhere.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "You can't train a model that has been loaded ",
                r"You can't train a model that has been loaded (?:with `device_map='auto'` in any distributed"
                r" mode|in 8-bit or 4-bit precision (?:on|with) [^\n]{1,80})",
            ),
            literal("Your model contains `DTensor` parameters, which is incompatible with DDP"),
        ),
        causes=("The model was loaded with device_map='auto', and accelerate or torchrun starts one process per GPU.",),
        fixes=(
            Fix(
                "Load the model onto the GPU of the process.",
                """\
from accelerate import PartialState

place = {"": PartialState().process_index}
model = AutoModelForCausalLM.from_pretrained(name, device_map=place)""",
            ),
            Fix("Or keep device_map='auto', and start a single process.", "python train.py"),
            Fix(
                "If the model does not fit on one GPU, use FSDP or DeepSpeed ZeRO-3 without device_map.",
                "accelerate launch --use_fsdp train.py",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/huggingface/accelerate/blob/main/src/accelerate/accelerator.py",),
        said_by="accelerate 0.25-1.12",
    ),
    KnownError(
        id="trainer-no-gpu",
        section=SECTION,
        title="Trainer finds no GPU",
        summary="The settings ask for GPUs, or the library needs one, and PyTorch sees none or fewer.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            literal("No supported gpu backend found!"),
            Pattern(
                "can not run on your system since the accelerator is not available",
                r"`?CUDAAccelerator`? can not run on your system since the accelerator is not available",
            ),
            Pattern(
                "is only supported on GPU but `",
                r"(?P<strategy>\w{2,30}) strategy is only supported on GPU but `(?P<device>\w{2,30})`",
            ),
            Pattern("But your machine only has:", r"But your machine only has: (?P<gpus>\[[^\n]{0,80}\])"),
            Pattern("Unsloth currently only works on", r"Unsloth currently only works on NVIDIA"),
            Pattern("Unsloth cannot find any torch accelerator", r"Unsloth cannot find any torch accelerator"),
            Pattern("Unsloth: No NVIDIA GPU found", r"Unsloth: No NVIDIA GPU found"),
        ),
        causes=(
            "PyTorch is a CPU-only build, or the driver does not work.",
            "The container, the scheduler or CUDA_VISIBLE_DEVICES hides the GPUs.",
        ),
        fixes=(
            fixes.DEVICE_COUNT,
            Fix("Check the driver.", "nvidia-smi -L"),
            Fix(
                "Install a build with CUDA.",
                "pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/cu130",
            ),
            Fix(
                "With Lightning, use what is there.",
                'trainer = Trainer(accelerator="auto", devices="auto")',
                first_for=("only has: [0",),
            ),
        ),
        empty_cache=NO_CONTEXT_YET,
        sources=(sources.PYTORCH_INSTALL, "https://lightning.ai/docs/pytorch/stable/accelerators/gpu_basic.html"),
        said_by="Lightning 2.1-2.6",
    ),
    KnownError(
        id="gptq-extension",
        section=SECTION,
        title="Kernels for the quantized model are missing",
        summary="The package for GPTQ or ExLlama was installed without its compiled CUDA part, or it was not loaded.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern("CUDA extension not installed", r"^(?:[^\n]{0,80}[:\]] ?)?CUDA extension not installed\.?$"),
            Pattern("' is not defined", r"name '(?P<module>exllamav2_ext|exllama_ext|quant_cuda)' is not defined"),
            Pattern("arlin kernels are not installed", r"Marlin kernels are not installed\. Please install AWQ"),
        ),
        causes=("No wheel fits this PyTorch, Python and CUDA, so only the Python part was installed.",),
        fixes=(
            Fix(
                "Install a current package with compiled kernels.",
                "pip install --upgrade gptqmodel --no-build-isolation",
            ),
            Fix(
                "Check the versions for which wheels exist.",
                "python -c 'import torch, sys; print(torch.__version__, torch.version.cuda, sys.version_info[:2])'",
            ),
            Fix(
                "For ExLlama, install the wheel of its release for this PyTorch, Python and CUDA.",
                "pip install --upgrade exllamav2",
                first_for=("exllamav2",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/ModelCloud/GPTQModel", "https://github.com/turboderp-org/exllamav2"),
        said_by="torch 1.13-2.13",
    ),
)
