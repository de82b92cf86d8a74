"""Errors of compiled kernels that model libraries load: mamba, causal-conv1d, bitsandbytes, ONNX Runtime."""

from typing import Final

from gpumon.diagnosis.catalogue import fixes
from gpumon.diagnosis.catalogue.models import SECTION
from gpumon.diagnosis.catalogue.wording import NOT_ABOUT_MEMORY, literal
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="onednn-primitive",
        section=SECTION,
        title="oneDNN has no kernel for this operation",
        summary="PyTorch's library for the CPU and Intel's GPUs has no kernel for this operation on this processor.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "could not create a primitive",
                r"could not create a primitive(?: descriptor for (?:an?|the) (?P<operation>[\w ]{3,60}?) primitive"
                r"| descriptor(?! for)|(?! descriptor))",
            ),
        ),
        causes=(
            "Autocast, or the model, uses bfloat16 or float16, and the processor has no AVX-512.",
            "The model should be on the GPU, and the program runs on the CPU because no device was chosen.",
            (
                "Without the word `descriptor`: the tensors are very large, or the system forbids programs to create"
                " code, as MemoryDenyWriteExecute of systemd does."
            ),
        ),
        fixes=(
            Fix(
                "Run this part without oneDNN.",
                "with torch.backends.mkldnn.flags(enabled=False):\n    output = model(batch)",
            ),
            Fix(
                "Or keep this part in float32.",
                'with torch.autocast("cpu", enabled=False):\n    output = model.float()(batch.float())',
            ),
            Fix(
                "If the host has a GPU, move the model and its input there.",
                "model, batch = model.cuda(), batch.cuda()",
            ),
            Fix(
                "Show which types the processor supports.",
                "grep -m 1 -o -w -E 'avx512_bf16|avx512f|amx_bf16' /proc/cpuinfo",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        see_more=(Fix("Show why oneDNN finds no kernel.", "ONEDNN_VERBOSE=all python train.py"),),
        sources=(
            "https://github.com/pytorch/pytorch/issues/88136",
            "https://github.com/mittagessen/kraken/issues/610",
            "https://github.com/pytorch/pytorch/issues/143651",
        ),
        said_by="torch 1.8-2.13",
    ),
    KnownError(
        id="mamba-kernels",
        section=SECTION,
        title="Kernels of mamba or causal-conv1d are missing",
        summary="The compiled kernels of causal-conv1d or mamba-ssm were not loaded, or belong to another version.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "has no attribute 'causal_conv1d_",
                r"has no attribute '(?P<function>causal_conv1d_(?:fwd|bwd|update|cuda|fn)\w{0,20})'",
            ),
            Pattern(
                "causal_conv1d_",
                r"\b(?P<function>causal_conv1d_(?:fwd|bwd|update|fn|cuda))\b(?: is None(?:Type)?\b"
                r"|\(\): incompatible function arguments| cannot be None\b)",
            ),
            Pattern(
                "selective_scan_cuda",
                r"(?:No module named|has no attribute|cannot import name|NameError: name)"
                r" '(?P<module>selective_scan_cuda\w{0,12})'",
            ),
            Pattern("No module named 'causal_conv1d", r"No module named '(?P<module>causal_conv1d\w{0,10})'"),
            Pattern("No module named 'mamba_ssm", r"No module named '(?P<module>mamba_ssm)[\w.]{0,60}'"),
            Pattern("selective_scan_", r"cannot import name '(?P<name>selective_scan_\w{1,30})' from 'mamba_ssm"),
            Pattern(
                "is required by the Mamba model but cannot",
                r"mamba-ssm is required by the Mamba model but cannot be imported",
            ),
        ),
        causes=(
            "pip found no wheel for this PyTorch, CUDA and Python, and its build without torch failed.",
            "The package mamba-ssm was installed before causal-conv1d, or their versions do not fit together.",
            "PyTorch was upgraded after they were installed.",
        ),
        fixes=(
            Fix(
                "In mamba-ssm 2, the module is called layer_norm: change the import, or install version 1.",
                "from mamba_ssm.ops.triton.layer_norm import RMSNorm, layer_norm_fn, rms_norm_fn",
                first_for=("ops.triton.layernorm",),
            ),
            Fix(
                "Build both against the installed PyTorch; this needs nvcc.",
                "pip install --no-build-isolation --no-cache-dir --force-reinstall --no-deps causal-conv1d mamba-ssm",
            ),
            Fix(
                "Or download the wheels of both whose names contain these versions.",
                """\
import sys, torch

print(torch.__version__, torch.version.cuda, torch.compiled_with_cxx11_abi(), sys.version_info[:2])""",
            ),
            Fix("Show why the extension is not loaded.", "python -c 'import torch, causal_conv1d_cuda'"),
            Fix(
                "For VMamba and models made from it, build the kernels that are part of the repository.",
                "cd kernels/selective_scan && pip install --no-build-isolation .",
                first_for=("selective_scan_cuda_",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(
            "https://github.com/state-spaces/mamba/issues/467",
            "https://github.com/Dao-AILab/causal-conv1d/releases",
        ),
        said_by="mamba-ssm 1.1-2.2, causal-conv1d 1.1-1.5",
    ),
    KnownError(
        id="bnb-quant-state",
        section=SECTION,
        title="bitsandbytes: weight without quantization state",
        summary="A layer is quantized to 4 bits, and its weight was moved, loaded or replaced without its scales.",
        context=ContextState.ALIVE,
        patterns=(
            literal("assert quant_state is not None"),
            literal("assert module.weight.shape[1] == 1"),
            literal("does not contain `bitsandbytes__*` and possibly other `quantized_stats` components"),
            Pattern("quantization state not initialized", r"FP4 quantization state not initialized"),
            Pattern(
                "' object has no attribute 'quant_state'",
                r"'(?:Parameter|Params4bit|Tensor)' object has no attribute 'quant_state'",
            ),
            Pattern("' object has no attribute 'absmax'", r"'NoneType' object has no attribute 'absmax'"),
            Pattern(
                "quantization only supports 16/32-bit floats",
                r"Blockwise (?:[48]bit )?quantization only supports 16/32-bit floats, but got"
                r" (?P<type>torch\.\w{1,20})",
            ),
            Pattern(
                "mat1 and mat2 shapes cannot be multiplied",
                r"mat1 and mat2 shapes cannot be multiplied \(\d{1,12}x\d{1,12} and (?:1x\d{6,12}|\d{6,12}x1)\)",
            ),
            Pattern(
                "shapes cannot be multiplied",
                r"weight\.T shapes cannot be multiplied \(\d{1,12}x\d{1,12} and (?:1x\d{5,12}|\d{5,12}x1)\)",
            ),
            Pattern(
                "Bad in-place call: input tensor size",
                r"Bad in-place call: input tensor size \[\d{5,12}, 1\] and output tensor size",
            ),
            Pattern(
                "mat2 must have the same dtype, but got ",
                r"(?:mat1|self) and mat2 must have the same dtype, but got (?P<type>\w{1,20}) and"
                r" (?P<other_type>Byte|Char)\b",
            ),
        ),
        causes=(
            "The 4-bit layer was computed before its weight was on the GPU, which is when it is quantized.",
            "The model was moved or offloaded to the CPU, or wrapped by FSDP or DataParallel.",
            "A checkpoint was loaded into the quantized model, or two packages quantize the same layer.",
        ),
        fixes=(
            Fix(
                "Load the whole quantized model onto one GPU, and do not move it afterwards.",
                """\
model = AutoModelForCausalLM.from_pretrained(
    name, device_map={"": 0}, quantization_config=BitsAndBytesConfig(load_in_4bit=True)
)""",
            ),
            Fix("Upgrade the packages together.", "pip install --upgrade transformers accelerate bitsandbytes peft"),
            Fix("Run without offloading to the CPU, or without quantization."),
            Fix(
                "If the checkpoint is quantized already, do not quantize it again: leave the configuration out.",
                'model = AutoModelForCausalLM.from_pretrained(name, device_map={"": 0})',
                first_for=("Blockwise",),
            ),
            Fix(
                "To merge an adapter, load the model without quantization first.",
                'base = AutoModelForCausalLM.from_pretrained(NAME, dtype="bfloat16")\n'
                "PeftModel.from_pretrained(base, ADAPTER).merge_and_unload().save_pretrained(OUTPUT)",
                first_for=("in-place call",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/bitsandbytes-foundation/bitsandbytes/issues/825",),
        said_by="bitsandbytes 0.41-0.49",
    ),
    KnownError(
        id="onnxruntime-provider",
        section=SECTION,
        title="ONNX Runtime does not use the GPU",
        summary="ONNX Runtime could not create its CUDA or TensorRT provider, and computes on the CPU instead.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "Failed to create CUDAExecutionProvider",
                r"Failed to create (?P<provider>CUDAExecutionProvider)"
                r"(?:\. Require cuDNN (?P<cudnn>\d{1,2})\.\* and CUDA (?P<cuda>\d{1,2})\.\*)?",
            ),
            literal("Failed to create TensorrtExecutionProvider"),
            Pattern(
                "Failed to load library libonnxruntime_providers_",
                r"Failed to load library libonnxruntime_providers_(?P<provider>\w{1,20})\.so",
            ),
            Pattern(
                "is not in available provider names",
                r"provider '(?P<provider>(?:CUDA|Tensorrt)ExecutionProvider)' is not in available provider names",
            ),
            literal("you are required to explicitly set the providers parameter"),
            Pattern(
                "LoadLibrary failed with error 126",
                r"LoadLibrary failed with error 126 [^\n]{0,40}when trying to load"
                r" \"[^\"\n]{0,200}?onnxruntime_providers_(?P<provider>\w{1,20})\.dll",
            ),
            Pattern("CUDA_PATH is set but CUDA was", r"CUDA_PATH is set but CUDA wasn'?t able to be loaded"),
            Pattern(
                "Please install TensorRT libraries", r"Please install (?P<provider>TensorRT) libraries as mentioned"
            ),
            Pattern(
                "onnxruntime_providers_",
                r"Error loading \"[^\"\n]{0,200}?onnxruntime_providers_(?P<provider>\w{1,20})\.dll\"",
            ),
        ),
        causes=(
            "The package onnxruntime is installed, which is for the CPU only, or both packages are.",
            "cuDNN or the CUDA libraries are missing, or have another major version than the package needs.",
        ),
        fixes=(
            Fix(
                "Install the package for the GPU, with its libraries, in place of the other.",
                "pip uninstall -y onnxruntime; pip install --upgrade --force-reinstall 'onnxruntime-gpu[cuda,cudnn]'",
            ),
            Fix(
                "Load the libraries of the wheels before the session is created; importing torch first does the same.",
                "import onnxruntime\n\nonnxruntime.preload_dlls()",
            ),
            Fix(
                "Name the providers where the session is created.",
                "session = onnxruntime.InferenceSession('model.onnx', providers=['CUDAExecutionProvider',"
                " 'CPUExecutionProvider'])",
                first_for=("install TensorRT libraries",),
            ),
            Fix(
                "Check which providers exist.",
                "python -c 'import onnxruntime; print(onnxruntime.get_available_providers())'",
            ),
            Fix(
                "On Windows, install the libraries of CUDA and cuDNN as wheels, and load them before the session.",
                "pip install --upgrade 'onnxruntime-gpu[cuda,cudnn]'\n"
                'python -c "import onnxruntime; onnxruntime.preload_dlls(); print(onnxruntime.get_device())"',
                first_for=("LoadLibrary failed", "Error loading ", "CUDA_PATH is set"),
            ),
            Fix(
                "Name the providers.",
                'session = onnxruntime.InferenceSession("model.onnx", providers=["CUDAExecutionProvider",'
                ' "CPUExecutionProvider"])',
                first_for=("explicitly set the providers",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        see_more=(fixes.SHOW_VERSIONS,),
        sources=("https://onnxruntime.ai/docs/execution-providers/CUDA-ExecutionProvider.html",),
        said_by="ONNX Runtime 1.11-1.22",
    ),
    KnownError(
        id="quantized-kernels",
        section=SECTION,
        title="Kernels of GPTQ or AWQ are missing or do not fit",
        summary="A compiled kernel for quantized weights was not loaded, or was called with arguments that it rejects.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern("Invalid MNK = [", r"Invalid MNK = \[(?P<shape>[\d, ]{1,60})\]"),
            Pattern("_forward_cuda()", r"(?P<function>gem[mv](?:v2)?(?:_fast)?_forward_cuda)\(\)(?::|$)"),
            Pattern("is not defined", r"name '(?P<name>awq_(?:v2_)?ext)' is not defined"),
            Pattern("No module named 'awq_", r"No module named '(?P<module>awq_(?:v2_)?ext)'"),
            Pattern("No module named 'exllama", r"No module named '(?P<module>exllamav?2?_kernels)'"),
        ),
        causes=(
            "The package was installed without its compiled part, or for another PyTorch.",
            "An expert of a mixture received no token, and the kernel accepts no empty input.",
            "AutoGPTQ and AutoAWQ are no longer developed; GPTQModel and llm-compressor replace them.",
        ),
        fixes=(
            Fix(
                "Use the package that is still developed; it reads both formats.",
                "pip install --upgrade gptqmodel --no-build-isolation",
            ),
            Fix("Or serve the model with vLLM, which contains its own kernels.", "vllm serve MODEL"),
            Fix("Check the versions of what must fit together.", "pip list | grep -i -E 'torch|gptq|awq|transformers'"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/ModelCloud/GPTQModel/issues/1361",),
        said_by="AutoGPTQ 0.7, AutoAWQ 0.2, GPTQModel 1.9-2.0",
    ),
    KnownError(
        id="quantization-unknown",
        section=SECTION,
        title="Form of quantization is not known",
        summary="The configuration of the model names a quantization that this version of the library does not know.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "Unknown quantization type, got",
                r"Unknown quantization type, got (?P<type>[\w-]{1,40})(?: -|$)",
            ),
            Pattern(
                "Unknown quantization method:",
                r"Unknown quantization method: (?P<type>[\w'`-]{1,40})(?:\. Must be one of)?",
            ),
            Pattern("nvalid quantization method", r"[Ii]nvalid quantization method: (?P<type>[\w'-]{1,40})"),
        ),
        causes=("The model is newer than the library.", "The format is for one server only, such as vLLM or SGLang."),
        fixes=(
            Fix("Upgrade the libraries.", "pip install --upgrade transformers accelerate"),
            Fix(
                "Upgrade the server, vLLM or SGLang, or choose a model in a quantization that the message lists.",
                "pip install --upgrade vllm  # or sglang",
                first_for=("Must be one of",),
            ),
            Fix("Serve the model with vLLM, which reads most formats.", "vllm serve MODEL"),
            Fix("Or use the weights without quantization."),
            Fix(
                "Quantize from the weights in 16 bits: convert those of DeepSeek with the script of its authors.",
                "python fp8_cast_bf16.py --input-fp8-hf-path MODEL --output-bf16-hf-path MODEL-bf16",
                first_for=("QuantizeConfig",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/huggingface/transformers/issues/35471",),
        said_by="transformers 4.45-4.48, vLLM 0.6-0.10",
    ),
    KnownError(
        id="extension-without-gpu",
        section=SECTION,
        title="Extension was built without CUDA",
        summary="A compiled extension contains only its code for the CPU: no CUDA was found when it was built.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern("ot compiled with GPU support", r"(?:Error: |is )[Nn]ot compiled with GPU support"),
            Pattern("Not compiled with CUDA support", r"Error: (?:\w{1,40}\(\): )?Not compiled with CUDA support"),
            Pattern(
                "package was not compiled with CUDA support",
                r"This (?P<package>\w{2,30}) package was not compiled with CUDA support",
            ),
            literal("Device API cuda is not enabled"),
            Pattern(
                "No CUDA support",
                r"No CUDA support\) The (?:library|called functionality) is (?:compiled|disabled)[^\n]{0,60}CUDA supp"
                r"ort",
            ),
            Pattern(
                "implementation for device cuda",
                r"(?P<package>\w{1,60}): implementation for device cuda(?::\d{1,3})? not found",
            ),
        ),
        causes=(
            "The image or the host on which it was built shows no GPU to the build, as docker build does.",
            "The build found no nvcc, or a PyTorch without CUDA.",
        ),
        fixes=(
            Fix(
                "Build it again, with CUDA forced and for the capability of your GPU, for example 8.6.",
                "FORCE_CUDA=1 TORCH_CUDA_ARCH_LIST=8.6 pip install --no-build-isolation --no-cache-dir --no-deps"
                " --force-reinstall PACKAGE",
            ),
            Fix(
                "Check what a build finds.",
                "python -c 'import torch, torch.utils.cpp_extension as e; print(torch.version.cuda, e.CUDA_HOME)'",
            ),
            Fix("Or compute this step on the CPU.", "result = operator(tensor.cpu())"),
            Fix(
                "The wheels of CTranslate2 for ARM and macOS have no CUDA: build it from its source, or use the CPU.",
                "cmake -S CTranslate2 -B build -DWITH_CUDA=ON -DWITH_CUDNN=ON && cmake --build build -j",
                first_for=("CTranslate2",),
                hidden_otherwise=True,
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/facebookresearch/pytorch3d/issues/1878",),
        said_by="PyTorch3D 0.7, detectron2 0.6, torchvision 0.14-0.24",
    ),
    KnownError(
        id="dequantized-model",
        section=SECTION,
        title="Quantized model is loaded without its quantization",
        summary="The kernels for the quantized weights are missing, so that transformers converts them to"
        " bfloat16, which"
        " takes two to four times the memory.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "we will default to dequantizing the model",
                r"(?P<type>MXFP4|FP8) quanti[^\n]{1,160}?we will default to dequantizing the model",
            ),
        ),
        causes=(
            "Triton or the package kernels is missing or old.",
            "The GPU is too old for the format, or no GPU is visible.",
        ),
        fixes=(
            Fix("Install what the message names.", "pip install --upgrade transformers kernels 'triton>=3.4'"),
            Fix("Show the compute capability.", "nvidia-smi --query-gpu=name,compute_cap --format=csv"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://huggingface.co/docs/transformers/quantization/mxfp4",),
        said_by="transformers 4.55-5.0",
        is_warning=True,
    ),
    KnownError(
        id="bnb-kernel",
        section=SECTION,
        title="bitsandbytes: a kernel could not start",
        summary="bitsandbytes printed a CUDA error with a line of its source, and ended the process.",
        context=ContextState.UNKNOWN,
        patterns=(
            Pattern(
                " in file ",
                r"Error (?!operation not supported|no kernel image)(?P<reason>[\w ]{1,60}) at line \d{1,6} in file "
                r"(?![^\n]{0,160}/bitsandbytes/csrc/)[^\s]{0,120}/csrc/(?:ops|kernels|pythonInterface)\.\w{1,4}",
            ),
            Pattern(
                "bitsandbytes/csrc/",
                r"Error (?!operation not supported|no kernel image)(?P<reason>[\w ]{1,60}) at line \d{1,6} in file "
                r"[^\n]{0,160}/bitsandbytes/csrc/",
            ),
        ),
        causes=(
            "The kernel got an empty tensor: weights that ZeRO-3 or FSDP divided, or that are on the device meta.",
            "The library has no kernel for this GPU, or is older than it.",
        ),
        fixes=(
            Fix(
                "Upgrade bitsandbytes, which brings kernels for newer GPUs.",
                "pip install --upgrade bitsandbytes",
                first_for=("symbol not found",),
            ),
            Fix(
                "With FSDP, store the quantized weights in the type of the others.",
                "quantization = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_storage=torch.bfloat16)",
                first_for=("invalid configuration", "invalid argument"),
            ),
            Fix("With ZeRO-3 or FSDP, test one GPU, or ZeRO-2.", "CUDA_VISIBLE_DEVICES=0 python train.py"),
            Fix("Print what bitsandbytes finds.", "python -m bitsandbytes"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(
            "https://github.com/axolotl-ai-cloud/axolotl/issues/1527",
            "https://huggingface.co/docs/bitsandbytes/main/en/fsdp_qlora",
        ),
        said_by="bitsandbytes 0.35-0.45",
    ),
)
