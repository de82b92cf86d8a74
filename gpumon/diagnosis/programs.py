"""The program whose log it is, by what the log contains: its files, its messages, the errors that only it has."""

import re
from collections.abc import Container, Iterable, Mapping
from typing import Final

from gpumon.errors import rank
from gpumon.errors.entry import KnownError

PIP: Final = "pip"
"""A package that pip builds."""
_TRAINER: Final = "trainer"
"""A program that trains, and may use a server of models for a part of it."""
CONTAINER: Final = "container"
"""Docker, Podman or Kubernetes, in whose container the program runs."""
_CONTAINER_START: Final = "container start"
"""The program that prepares a container: its errors are those of the host."""
ATTENTION: Final = "attention"
"""A program that calls PyTorch's attention in the line that failed."""
INFERENCE: Final = "inference"
"""A program that only computes results of a model."""
LOADING: Final = "loading"
"""A program that moves the weights of a model to the GPU."""
OPTIMIZER: Final = "optimizer"
"""A program that changes the weights, in the step of an optimizer."""
AMD: Final = "AMD"
"""PyTorch for GPUs of AMD, or DirectML, which a command for PyPI would replace."""
GAUSSIANS: Final = "Gaussian splatting"
"""A program that renders Gaussians with a rasterizer on the GPU."""
KOHYA: Final = "kohya"
"""The scripts of kohya-ss, which train Stable Diffusion and Flux with options only."""
WEB_UI: Final = "Stable Diffusion WebUI"
"""The web UI of AUTOMATIC1111, or Forge, which is based on it."""
ISAAC_GYM: Final = "Isaac Gym"
TGI: Final = "Text Generation Inference"
LMDEPLOY: Final = "LMDeploy"
JETSON: Final = "Jetson"
_CONTAINER_COMMANDS: Final = (b"dockerrun", b"dockerexec", b"dockercompose", b"podmanrun")
_FILES: Final[Mapping[str, tuple[bytes, ...]]] = {
    "vLLM": (
        b"asyncllmengine",
        b"vllmengine",
        b"vllmvengine",
        b"vllmworker",
        b"vllmentrypoints",
        b"vllmmodelexecutor",
    ),
    "SGLang": (b"sglangsrt", b"runschedulerprocess"),
    TGI: (b"textgenerationserver", b"textgenerationlauncher"),
    LMDEPLOY: (b"lmdeploysrcturbomind", b"turbomindcore", b"lmdeployturbomind"),
    ISAAC_GYM: (b"usinggpuphysx", b"isaacgympythonisaacgymbindings"),
    _TRAINER: (b"verltrainer", b"verlworkers", b"trltrainer", b"openrlhf", b"transformerstrainer"),
    _CONTAINER_START: (b"nvidiacontainercli",),
    "ComfyUI": (
        b"comfyuiwindowsportable",
        b"comfyuipython",
        b"comfyuicomfy",
        b"comfyuiexecution",
        b"comfymodelmanagementpy",
        b"exceptionduringprocessing",
        b"erroroccurredwhenexecuting",
        b"comfyuierrorreport",
        b"comfyuicustomnodes",
        b"errorexceptionmessage",
        b"ksamplermatandmat",
        b"modelweightdtypetorch",
    ),
    KOHYA: (b"sdxltrainpy", b"sdxltrainnetworkpy", b"fluxtrainpy", b"fluxtrainnetworkpy", b"sdscripts", b"kohyass"),
    WEB_UI: (b"stablediffusionwebui", b"webuiforge"),
    GAUSSIANS: (b"diffgaussianrasterization", b"gaussianrenderer", b"gsplatrendering"),
    "transformers": (b"transformersgenerationutils", b"infinityemb"),
    "diffusers": (b"diffuserspipelines",),
    LOADING: (b"paramappliedfnparam",),
    OPTIMIZER: (b"multitensoradam", b"singletensoradam", b"expavgsqtorchzeroslike"),
    ATTENTION: (b"functionalscaleddotproductattentionq",),
    INFERENCE: (b"numinferencesteps", b"withtorchnograd", b"withtorchinferencemode"),
    "JAX": (b"jaxsrc", b"jaxlib", b"jaxplugins", b"externalxlaxla"),
    "llama.cpp": (b"ggmlcudacu", b"ggmlbackendcuda", b"ggmlcudacompute", b"namellamaserver", b"namellamacli"),
    JETSON: (b"jetson", b"nvtegra", b"jetpack"),
    CONTAINER: (*_CONTAINER_COMMANDS, b"kubectlexec", b"thecontainer"),
}
"""The letters of files, lines and messages of these programs, which their logs and tracebacks contain."""
_VLLM_PREFIX: Final = re.compile(r"\((?:EngineCore|APIServer|Worker_|VllmWorker)\w{0,12} pid=\d")
SIGNS: Final[Mapping[str, tuple[bytes, ...]]] = {
    "torch.compile": (b"aotautogradruntimewrappers", b"torchdynamoevalframe", b"unslothcompiledcache"),
    "LoRA": (
        b"peftmodel",
        b"pefttuners",
        b"qlora",
        b"loraconfig",
        b"loraalpha",
        b"usepeft",
        b"lorarank",
        b"trainlora",
        b"loraeasy",
        b"trainnetworkpy",
    ),
    "nnU-Net export": (b"checkworkersaliveandbusy", b"performactualvalidation"),
    "static rendezvous": (b"statictcprendezvous",),
    "pip build": (
        b"pipbuildenv",
        b"pipinstall",
        b"gettingrequirementstobuild",
        b"buildingwheel",
        b"builddependency",
        b"buildisolation",
    ),
    "transformers": (b"transformersmodels", b"transformersmodeling", b"diffusersmodels"),
    AMD: (b"webuiamdgpu", b"zluda", b"directml"),
    "started process": (b"multiprocessingspawnpy", b"spawnmain"),
    "SGLang killed": (b"relevantlogsexitcode",),
    "xFormers on the CPU": (b"devicecpusupportedcuda",),
    "kohya latents": (b"librarytrainutil",),
    "xFormers too old": (b"capabilitytoonew", b"wasntbuildwithcuda"),
    "Windows build": (b"errorwinerror",),
    "CUDA rasterizer": (b"cudarasterizer",),
    "JAX": (*_FILES["JAX"], b"importjax", b"jaxnumpy"),
    "accelerate": (b"accelerateacceleratorpy",),
    "AITER": (b"znaiter", b"aiter"),
    "enroot": (b"enrootetchooksd", b"enroothooksd", b"hooksdnvidiash"),
    "shape symbols": (b"nameerrornamesisnotdefined",),
    "AutoAWQ": (b"autoawq", b"awqmodelsbase", b"awqquantize"),
    "PyInstaller": (b"failedtoexecutescript",),
    "swift": (b"swiftllm", b"swiftsft", b"swiftrlhf", b"swiftpt", b"swiftcli"),
    "llama.cpp": (b"ggmlcuda",),
    "ComfyUI": (*_FILES["ComfyUI"], b"comfyuigguf", b"loadergguf"),
    "GPTQ": (b"autogptqquant", b"gptqmodelquant", b"quantizationgptq", b"optimumgptq", b"gptqfasterquant"),
    "SGLang": (*_FILES["SGLang"], b"sglanglaunchserver"),
    "ExLlama": (b"exllamavconversion", b"quantexllib"),
    "CUDA extension": (
        b"diffgaussianrast",
        b"submodulessimpleknn",
        *(
            b"buildingwheelfor" + name
            for name in (b"causalconv", b"mambassm", b"flashattn", b"pytorchd", b"detectron", b"nvdiffrast", b"natten")
        ),
    ),
    "mmcv build": (b"collectingmmcv", b"buildingwheelformmcv", b"skipbuildingextops"),
    "musubi-tuner": (b"musubituner",),
    "PyG": (b"torchgeometric",),
    "PyG extension": tuple(b"packagestorch" + name for name in (b"scatter", b"sparse", b"cluster", b"splineconv")),
    "PhysX": (b"omniphysxtensors",),
    "spconv": (b"spconv", b"spunet", b"openpcdet"),
    "nnU-Net files": (b"nnunettrainingdataloading", b"nnunetvtrainingdataloading", b"batchgeneratorsdataloading"),
    "NVML query": (b"nvmldevicegetmemoryinfo", b"nvmldevicegetutilizationrates", b"runningprocesses"),
    "WSL residency": (b"dxgkiomakeresident",),
    "other libcuda": (b"doesnotmatchdsoversion",),
    "old cuDNN": (b"outdatedcudnn",),
    "pod limit": (b"exceededkspodmemorylimits",),
    "full host": (b"cannotallocatememory", b"unabletoallocatememory"),
    "rented host": (b"runpod", b"vastai"),
    "several Slurm tasks": (b"tasksexitedwithexitcode",),
    "c10d rendezvous": (b"rdzvbackendcd", b"theconnectiontothecdstorehasfailed"),
    "saved checkpoint": (
        b"insavecheckpointtorchdistributedbarrier",
        b"insavecheckpointdistbarrier",
        b"insavemodeltorchdistributedbarrier",
        b"insavemodeldistbarrier",
    ),
    "in a container": _CONTAINER_COMMANDS,
    "llama-cpp-python": (b"llamacpppython",),
    "llama.cpp pipeline": (b"pipelineparallelismenabledncopies",),
    "working NCCL": (b"finishedgpuexecutioninternal", b"workcleanuploop", b"ncclcommwatchdog"),
    "no GPU for Apptainer": (b"couldnotfindanynvfilesonthishost",),
    "Jetson host": (b"isaacrosdevaarch", b"isaacrosaarch", *_FILES[JETSON]),
    "network without EFA": (b"pluginselectedplatformdefault",),
    "cluster": (b"gpfs", b"lustre", b"slurmstepd", b"srunerror"),
    "NVIDIA installer": (b"welcometothenvidiasoftwareinstaller",),
    "EFA without endpoints": (b"providerefaoutputemptylist",),
    "Unsloth": (b"unslothkernels", b"unslothtrainingstep"),
    "lost connection": (b"connectionerrorcodeendoffile",),
    "DeepSpeed": (
        b"deepspeedruntime",
        b"deepspeedops",
        b"extensionmodulecpuadam",
        b"deepspeedlauncher",
        b"deepspeedinclude",
    ),
}
"""The letters of a library, a command or another circumstance that decides which fix is the best one, by the names that
they have in its `first_for`."""
_OF_ERRORS: Final = ("vLLM", "SGLang", "ComfyUI", "llama.cpp", TGI, LMDEPLOY, PIP)
"""Programs that have errors of their own; the first one of which a log has an error is its program."""
_ERRORS_IN: Final = {
    CONTAINER: ("nvml-mismatch",),
    JETSON: ("not-compiled", "cuda-unavailable", "gpu-not-found", "no-kernel-image"),
}
"""Errors that have other causes in a container, or on a device."""


def programs_in(letters: bytes, lines: Iterable[str]) -> frozenset[str]:
    """The programs whose files or messages are in a part of a log.

    Args:
        letters: The letters of the part, in lower case, without the prefixes of lines.
        lines: Lines near an error, with their prefixes.
    """
    names = frozenset(name for name, parts in _FILES.items() if any(part in letters for part in parts))
    return names | {"vLLM"} if any(map(_VLLM_PREFIX.search, lines)) else names


def program_of(programs: Container[str]) -> str:
    """The program whose log it is, by all programs that the log names, or what it does; empty if it trains.

    A trainer may use a server for a part of its work, and what a program does is its own in every case.
    """
    is_other = _TRAINER in programs or _CONTAINER_START in programs
    names = (LOADING, OPTIMIZER, ATTENTION) if is_other else _FILES
    return next((name for name in names if name in programs), "")


def signs_of(letters: bytes, error: KnownError) -> str:
    """The signs in a log on which the order of the fixes of an error depends; empty if it depends on none of them.

    Args:
        letters: The letters of a part of the log, in lower case.
        error: The error.
    """
    parts = rank.signs_of(error)
    names = (name for name, texts in SIGNS.items() if name in parts and any(text in letters for text in texts))
    return ", ".join(names)


def program_of_errors(errors: Iterable[KnownError]) -> str:
    """The program whose log it is, by the errors that only it has; empty if there are none."""
    programs = {error.program for error in errors}
    return next((name for name in _OF_ERRORS if name in programs), "")


def is_relevant(program: str, error: KnownError) -> bool:
    """Whether the program matters for the fixes of an error; a container or a device does for a few errors only."""
    return bool(program) and error.id in _ERRORS_IN.get(program, (error.id,))
