"""Errors of models, types and numbers of GPUs that an inference server does not support."""

from typing import Final

from gpumon.diagnosis.catalogue import fixes
from gpumon.diagnosis.catalogue.serving import SECTION
from gpumon.diagnosis.catalogue.wording import NO_CONTEXT_YET, NOT_ABOUT_MEMORY, literal
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

ERRORS: Final[tuple[KnownError, ...]] = (
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
            Pattern(
                "Cannot find model module",
                r"Cannot find model module\. '(?P<model>\w{1,80})' is not a registered model in the Transformers"
                r" library",
            ),
            Pattern(
                "has no vLLM implementation and the Transformers",
                r"(?P<model>\w{1,80}) has no vLLM implementation and the Transformers implementation is not compatible",
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
            Pattern(
                "is not supported for now. RMPad",
                r"architecture (?P<model>[\w-]{1,60}) is not supported for now\. RMPad",
            ),
            Pattern("Error: Model: ", r"(?:Assertion|Value)Error: Model: (?P<model>[\w./-]{1,120}) is not supported\."),
            Pattern(
                " not supported. Currently supported versions are",
                r"vllm version (?P<version>[\w.]{1,20}) not supported\. Currently supported versions are",
            ),
            Pattern("## Could not find ", r"## Could not find (?P<model>model\.[\w.]{1,80})\.\* in model"),
            Pattern("in rope_scaling", r"assert \"factor\" in rope_scaling"),
            Pattern(
                "] failed to be inspected", r"Model architectures \[(?P<model>[^\]\n]{1,120})\] failed to be inspected"
            ),
        ),
        causes=("The model is newer than the package, or it needs code from its own repository.",),
        fixes=(
            Fix(
                "Upgrade transformers; if a program contains it or pins its version, upgrade that.",
                "pip install --upgrade transformers",
            ),
            Fix(
                "The code of vLLM for this model could not be imported: read the first traceback above this message.",
                "grep -n -m 1 -A 40 'Error in inspecting model architecture' vllm.log",
                first_for=("failed to be inspected",),
                hidden_otherwise=True,
            ),
            Fix(
                "Upgrade vLLM, which brings the transformers that it needs.",
                "pip install --upgrade vllm",
                first_for=("Model architectures",),
            ),
            Fix(
                "If the model brings its own code and you trust it, permit it.", "vllm serve MODEL --trust-remote-code"
            ),
            Fix("Or use the generic implementation of transformers.", "vllm serve MODEL --model-impl transformers"),
            Fix(
                "Update verl, or the program that contains it; its list of models and versions is older than yours.",
                "python -m verl.trainer.main_ppo actor_rollout_ref.model.use_remove_padding=False",
                first_for=("RMPad", "Currently supported versions are"),
            ),
            Fix(
                "Upgrade ms-swift; for a model under another name, name its type, too.",
                "pip install --upgrade ms-swift && swift sft --model MODEL --model_type TYPE",
                first_for=("Error: Model: ",),
            ),
            Fix(
                "Upgrade ExLlamaV2, whose version does not know this architecture.",
                "pip install --upgrade exllamav2",
                first_for=("## Could not find",),
            ),
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
            Pattern("CUDA Device does not support bfloat16", r"Current CUDA Device does not support bfloat16"),
        ),
        causes=(
            "The GPU is older than Ampere: a T4, V100, RTX 20 or GTX card.",
            "The process sees no GPU, or PyTorch is a CPU-only build.",
        ),
        fixes=(
            Fix("In vLLM, use float16.", "vllm serve MODEL --dtype half"),
            Fix(
                "Check that the GPU is visible.",
                "python -c 'import torch; print(torch.cuda.is_available(), torch.cuda.is_bf16_supported(False))'",
                first_for=("assign use_cpu",),
            ),
            Fix(
                "For training, use float16 with gradient scaling.",
                "arguments = TrainingArguments(fp16=True, bf16=False)",
                first_for=("You need torch", "mixed precision", "Current CUDA", "bf16/gpu"),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(
            "https://github.com/vllm-project/vllm/blob/main/vllm/platforms/cuda.py",
            "https://github.com/huggingface/transformers/blob/main/src/transformers/training_args.py",
        ),
        said_by="vLLM 0.4-0.10, transformers 4.36-5.0, accelerate 0.28-1.14",
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
                r"FP\d quantized models is only supported on GPUs with compute capability >= (?P<needed>[\d.]{1,5})",
            ),
            Pattern("Marlin does not support", r"Marlin does not support weight_bits ?= ?(?P<type>\w{1,20})"),
            Pattern("marlin_gemm only supports", r"gpt(?:q)?_marlin_gemm only supports bfloat16 and float16"),
        ),
        causes=(
            "FP8 in hardware needs compute capability 8.9 (Ada) or 9.0 (Hopper); AWQ needs 7.5; FP4 needs Blackwell.",
        ),
        fixes=(
            Fix(
                "Use a checkpoint in a format that this GPU supports: GPTQ runs from compute capability 6.0,"
                " bitsandbytes from 7.0, AWQ and W4A16 from 7.5, FP8 activations from 8.9.",
                "hf download OWNER/MODEL-GPTQ-Int4 --local-dir MODEL",
            ),
            Fix("Check what the GPU supports.", "nvidia-smi --query-gpu=name,compute_cap --format=csv"),
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
            Pattern(
                " is not divisible by ",
                r"AssertionError: (?P<heads>\d{2,9}) is not divisible by"
                r" (?P<gpus>\d{1,5})$",
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
            Pattern(
                "cannot be larger than the number of available GPUs",
                r"Tensor parallel size \((?P<wanted>\d{1,5})\) cannot be larger than the number of available GPUs"
                r" \((?P<gpus>\d{1,5})\)",
            ),
            Pattern(
                "exceeds available GPUs (",
                r"Tensor parallel size \((?P<wanted>\d{1,5})\) exceeds available GPUs \((?P<gpus>\d{1,5})\)",
            ),
        ),
        causes=(
            "CUDA_VISIBLE_DEVICES, the container or the scheduler gives the process fewer GPUs.",
            "On several hosts, vLLM started its own Ray instead of joining the cluster.",
        ),
        fixes=(
            fixes.DEVICE_COUNT,
            Fix("Set the size to the number of GPUs.", "vllm serve MODEL --tensor-parallel-size 1"),
            Fix(
                "On several hosts, check that each has joined the Ray cluster with its GPUs, then use it.",
                "ray status\nRAY_ADDRESS=auto vllm serve MODEL --tensor-parallel-size 16"
                " --distributed-executor-backend ray",
                first_for=("placement group",),
            ),
        ),
        empty_cache=NO_CONTEXT_YET,
        sources=("https://docs.vllm.ai/en/latest/serving/parallelism_scaling/",),
    ),
    KnownError(
        id="tgi-one-gpu",
        section=SECTION,
        title="Text Generation Inference cannot split this model",
        summary="The server has no code for this model that runs on several GPUs, or its kernels are missing.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern("sharded is not supported for ", r"sharded is not supported for (?P<model>this model|AutoModel)"),
            Pattern(
                "requires Flash Attention enabled models",
                r"(?P<model>[\w ]{2,60}) requires Flash Attention enabled models",
            ),
        ),
        causes=(
            "The model is newer than the server, which then uses the classes of transformers.",
            "The GPU is older than Ampere, for which the server has no flash attention.",
        ),
        fixes=(
            Fix(
                "Use one shard.",
                "docker run --gpus all ghcr.io/huggingface/text-generation-inference --model-id MODEL --num-shard 1",
            ),
            Fix("Serve the model by vLLM.", "vllm serve MODEL --tensor-parallel-size 2"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(
            "https://github.com/huggingface/text-generation-inference/issues/2146",
            "https://github.com/huggingface/text-generation-inference/issues/686",
        ),
        said_by="Text Generation Inference 0.9-3.3",
    ),
    KnownError(
        id="embeddings-image",
        section=SECTION,
        title="Text Embeddings Inference: the image or the model is for another device",
        summary="Each image has kernels for one generation of GPUs, and some models run on GPUs only, in float16.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "is only supported on Cuda devices in fp16",
                r"(?P<model>\w{2,40}) is only supported on Cuda devices in fp16 with flash attention enabled",
            ),
            Pattern(
                "is not compatible with compile time compute cap",
                r"Runtime compute cap (?P<gpu>\d{2,3}) is not compatible with compile time compute cap"
                r" (?P<wanted>\d{2,3})",
            ),
        ),
        causes=(
            "The tag names the generation: none is for Ampere, and turing, 86, 89 or hopper are for others.",
            "The GPU is older than Turing, for which there are no kernels.",
            "The version is older than the GPU.",
        ),
        fixes=(
            Fix(
                "Run this model on a GPU from Turing on, in float16; on the CPU, upgrade, or choose another model.",
                "docker run --gpus all -p 8080:80 ghcr.io/huggingface/text-embeddings-inference:1.9 --model-id MODEL"
                " --dtype float16",
                first_for=("is only supported on Cuda",),
            ),
            Fix(
                "Choose the tag of this GPU: turing, 86, 89, hopper or 120 before the version; none for A100.",
                "docker run --gpus all ghcr.io/huggingface/text-embeddings-inference:89-1.9 --model-id MODEL",
            ),
            Fix(
                "For GeForce RTX 50 and RTX PRO, choose the image for 12.0, which exists since 1.9.",
                "docker run --gpus all ghcr.io/huggingface/text-embeddings-inference:120-1.9 --model-id MODEL",
                first_for=("Runtime compute cap 120",),
            ),
            Fix("Print what the GPU is.", "nvidia-smi --query-gpu=name,compute_cap --format=csv"),
            Fix(
                "Use the CPU.",
                "docker run ghcr.io/huggingface/text-embeddings-inference:cpu-1.9 --model-id MODEL",
                first_for=(
                    "Runtime compute cap 5",
                    "Runtime compute cap 6",
                    "Runtime compute cap 70",
                ),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(
            "https://huggingface.co/docs/text-embeddings-inference/supported_models",
            "https://github.com/huggingface/text-embeddings-inference/issues/806",
        ),
        said_by="Text Embeddings Inference 0.2-1.9",
    ),
    KnownError(
        id="embeddings-backend",
        section=SECTION,
        title="Server of embeddings cannot serve this model",
        summary="No engine of the server could load the model; the lines with `Could not start` name the reasons.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern("Could not create backend", r"Error: Could not create backend"),
            Pattern("Could not start backend: ", r"Could not start backend: Could not start a suitable backend"),
            Pattern("the loaded moded cannot fullyfill", r"the loaded moded cannot fullyfill `(?P<task>\w{2,20})`"),
        ),
        causes=(
            "The server does not support this kind of model, or this type on this GPU.",
            "The image was built for another GPU, or the GPU is not visible in the container.",
        ),
        fixes=(
            Fix("Read the reasons above this line.", "docker logs CONTAINER 2>&1 | grep -i 'could not start'"),
            Fix(
                "Select another type.",
                "docker run --gpus all ghcr.io/huggingface/text-embeddings-inference:1.9 --model-id MODEL"
                " --dtype float32",
            ),
            Fix("Serve the model by vLLM, which knows more kinds.", "vllm serve MODEL --runner pooling"),
            Fix(
                "Infinity takes the model for one that embeds: upgrade it, and check that the model is a reranker,"
                " whose class ends in ForSequenceClassification.",
                "grep -A 2 architectures MODEL/config.json",
                first_for=("cannot fullyfill",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(
            "https://huggingface.co/docs/text-embeddings-inference/supported_models",
            "https://github.com/huggingface/text-embeddings-inference/issues/466",
        ),
        said_by="Text Embeddings Inference 0.2-1.9",
        is_echo=True,
    ),
)
