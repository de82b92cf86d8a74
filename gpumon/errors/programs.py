"""The program whose log it is, and other signs of a log on which fixes depend."""

import re
from collections.abc import Collection, Container, Iterable, Mapping
from typing import Final, NamedTuple

from gpumon.errors.entry import KnownError

_TRAINER: Final = "trainer"
"""A program that trains, and may use a server of models for a part of it."""
_CONTAINER_START: Final = "container start"
"""The program that prepares a container: its errors are those of the host."""
_IN_TRAINING: Final = ("loading", "optimizer", "attention")
"""What a program does whatever it is."""
_PLACES: Final = frozenset({"container", "Jetson"})
"""Where a program runs: that matters only for errors that name the place in a condition."""
_CONTAINER_COMMANDS: Final = (b"dockerrun", b"dockerexec", b"dockercompose", b"podmanrun")


class Program(NamedTuple):
    """A program, or what one does.

    Attributes:
        letters: The letters of files, lines and messages that only its logs and tracebacks contain.
        command: What starts a server, in place of a training script.
        ends_itself: Whether it serves models, and an error of CUDA ends its process.
        has_kernels: Whether its own code calls the kernels, so that the user has none to examine.
        trains: Whether it may run a training step of the user.
        is_phase: Whether it is no program, but what one does.
    """

    letters: tuple[bytes, ...]
    command: str = ""
    ends_itself: bool = False
    has_kernels: bool = False
    trains: bool = True
    is_phase: bool = False


PROGRAMS: Final[Mapping[str, Program]] = {
    "vLLM": Program(
        (b"asyncllmengine", b"vllmengine", b"vllmvengine", b"vllmworker", b"vllmentrypoints", b"vllmmodelexecutor"),
        command="vllm serve MODEL",
        ends_itself=True,
        has_kernels=True,
        trains=False,
    ),
    "SGLang": Program(
        (b"sglangsrt", b"runschedulerprocess"),
        command="python -m sglang.launch_server --model-path MODEL",
        ends_itself=True,
        has_kernels=True,
        trains=False,
    ),
    "Text Generation Inference": Program(
        (b"textgenerationserver", b"textgenerationlauncher"),
        command="text-generation-launcher --model-id MODEL",
        ends_itself=True,
        trains=False,
    ),
    "LMDeploy": Program(
        (b"lmdeploysrcturbomind", b"turbomindcore", b"lmdeployturbomind"),
        command="lmdeploy serve api_server MODEL",
        ends_itself=True,
        has_kernels=True,
        trains=False,
    ),
    "Isaac Gym": Program((b"usinggpuphysx", b"isaacgympythonisaacgymbindings")),
    "trainer": Program((b"verltrainer", b"verlworkers", b"trltrainer", b"openrlhf", b"transformerstrainer")),
    "container start": Program((b"nvidiacontainercli",)),
    "ComfyUI": Program(
        (
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
        command="python main.py",
        has_kernels=True,
        trains=False,
    ),
    "kohya": Program(
        (b"sdxltrainpy", b"sdxltrainnetworkpy", b"fluxtrainpy", b"fluxtrainnetworkpy", b"sdscripts", b"kohyass"),
        trains=False,
        is_phase=True,
    ),
    "Stable Diffusion WebUI": Program(
        (b"stablediffusionwebui", b"webuiforge"), command="python launch.py", has_kernels=True, trains=False
    ),
    "Gaussian splatting": Program(
        (b"diffgaussianrasterization", b"gaussianrenderer", b"gsplatrendering"), trains=False, is_phase=True
    ),
    "transformers": Program((b"transformersgenerationutils", b"infinityemb"), trains=False),
    "diffusers": Program((b"diffuserspipelines",), trains=False),
    "loading": Program((b"paramappliedfnparam",), trains=False, is_phase=True),
    "optimizer": Program(
        (b"multitensoradam", b"singletensoradam", b"expavgsqtorchzeroslike"), trains=False, is_phase=True
    ),
    "attention": Program((b"functionalscaleddotproductattentionq",), trains=False, is_phase=True),
    "inference": Program(
        (b"numinferencesteps", b"withtorchnograd", b"withtorchinferencemode"), trains=False, is_phase=True
    ),
    "JAX": Program((b"jaxsrc", b"jaxlib", b"jaxplugins", b"externalxlaxla")),
    "llama.cpp": Program(
        (b"ggmlcudacu", b"ggmlbackendcuda", b"ggmlcudacompute", b"namellamaserver", b"namellamacli"),
        command="llama-server -m MODEL.gguf",
        ends_itself=True,
        has_kernels=True,
        trains=False,
    ),
    "Jetson": Program((b"jetson", b"nvtegra", b"jetpack")),
    "container": Program((*_CONTAINER_COMMANDS, b"kubectlexec", b"thecontainer")),
}
"""Programs by their names; of several in one log, the first one counts."""
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
    "AMD": (b"webuiamdgpu", b"zluda", b"directml"),
    "started process": (b"multiprocessingspawnpy", b"spawnmain"),
    "SGLang killed": (b"relevantlogsexitcode",),
    "xFormers on the CPU": (b"devicecpusupportedcuda",),
    "kohya latents": (b"librarytrainutil",),
    "xFormers too old": (b"capabilitytoonew", b"wasntbuildwithcuda"),
    "Windows build": (b"errorwinerror",),
    "CUDA rasterizer": (b"cudarasterizer",),
    "JAX": (*PROGRAMS["JAX"].letters, b"importjax", b"jaxnumpy"),
    "accelerate": (b"accelerateacceleratorpy",),
    "AITER": (b"znaiter", b"aiter"),
    "enroot": (b"enrootetchooksd", b"enroothooksd", b"hooksdnvidiash"),
    "shape symbols": (b"nameerrornamesisnotdefined",),
    "AutoAWQ": (b"autoawq", b"awqmodelsbase", b"awqquantize"),
    "PyInstaller": (b"failedtoexecutescript",),
    "swift": (b"swiftllm", b"swiftsft", b"swiftrlhf", b"swiftpt", b"swiftcli"),
    "llama.cpp": (b"ggmlcuda",),
    "ComfyUI": (*PROGRAMS["ComfyUI"].letters, b"comfyuigguf", b"loadergguf"),
    "GPTQ": (b"autogptqquant", b"gptqmodelquant", b"quantizationgptq", b"optimumgptq", b"gptqfasterquant"),
    "SGLang": (*PROGRAMS["SGLang"].letters, b"sglanglaunchserver"),
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
    "Jetson host": (b"isaacrosdevaarch", b"isaacrosaarch", *PROGRAMS["Jetson"].letters),
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
they have in conditions."""
_OF_ERRORS: Final = ("vLLM", "SGLang", "ComfyUI", "llama.cpp", "Text Generation Inference", "LMDeploy", "pip")
"""Programs that alone have certain errors; the first one of which a log has an error is its program."""


def programs_in(letters: bytes, lines: Iterable[str]) -> frozenset[str]:
    """The programs whose files or messages are in a part of a log.

    Args:
        letters: The letters of the part, in lower case, without the prefixes of lines.
        lines: Lines near an error, with their prefixes.
    """
    names = frozenset(name for name, program in PROGRAMS.items() if any(part in letters for part in program.letters))
    return names | {"vLLM"} if any(map(_VLLM_PREFIX.search, lines)) else names


def program_of(programs: Container[str]) -> str:
    """The program whose log it is, by all programs that the log names, or what it does; empty if it trains.

    A trainer may use a server for a part of its work, and what a program does is its own in every case.
    """
    is_other = _TRAINER in programs or _CONTAINER_START in programs
    return next((name for name in (_IN_TRAINING if is_other else PROGRAMS) if name in programs), "")


def signs_in(letters: bytes, names: Collection[str]) -> str:
    """The signs in a log on which the order of the fixes of an error depends; empty if it depends on none of them.

    Args:
        letters: The letters of a part of the log, in lower case.
        names: The signs that the conditions of the error name.
    """
    signs = (name for name, texts in SIGNS.items() if name in names and any(text in letters for text in texts))
    return ", ".join(signs)


def program_of_errors(errors: Iterable[KnownError]) -> str:
    """The program whose log it is, by the errors that only it has; empty if there are none."""
    programs = {error.program for error in errors}
    return next((name for name in _OF_ERRORS if name in programs), "")


def is_relevant(program: str, named: Collection[str]) -> bool:
    """Whether the program matters for the fixes of an error, whose conditions name some programs."""
    return bool(program) and (program not in _PLACES or program in named)
