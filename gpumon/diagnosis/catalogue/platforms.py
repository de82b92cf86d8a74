"""Errors of platforms around the program: Windows and its WSL, and notebooks and training services of clouds."""

from typing import Final

from gpumon.diagnosis.catalogue import fixes
from gpumon.diagnosis.catalogue.wording import BELOW_PYTORCH, NO_CONTEXT_YET, NOT_ABOUT_MEMORY, literal, name
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

SECTION: Final = "Windows, WSL and cloud services"

_WSL: Final = "https://docs.nvidia.com/cuda/wsl-user-guide/index.html"

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="wsl-gpu-bridge",
        section=SECTION,
        title="WSL: a question to the Windows driver was refused",
        summary="The kernel of WSL passes calls to the driver of Windows, which refused one; a few at the start are"
        " normal.",
        context=ContextState.UNKNOWN,
        patterns=(
            Pattern(": Ioctl failed: ", r"dxgk: (?P<call>dxgkio_\w{1,40}): Ioctl failed: (?P<code>-\d{1,4})"),
            Pattern("dxgkio_", r"(?P<call>dxgkio_\w{1,40}):? \(-\d{1,3}(?:/-\d{1,3})?\)"),
            Pattern("is_feature_enabled", r"dxgvmb_send_is_feature_enabled[^\n]{0,60}: -\d{1,3}"),
        ),
        causes=(
            "At the start, WSL asks for functions that the driver does not have: without effect if nvidia-smi works.",
            "The driver of Windows or WSL itself is old, or the driver was updated while WSL ran.",
            "A Linux driver was installed inside WSL and hides the libraries of Windows.",
        ),
        fixes=(
            Fix("Check whether the GPU works in WSL; if it does, take no action.", "nvidia-smi"),
            Fix("In PowerShell, update WSL and restart it.", "wsl --update; wsl --shutdown"),
            Fix(
                "If a program failed at that time, let it use less GPU memory: Windows could not place all of it.",
                "torch.cuda.set_per_process_memory_fraction(0.8)",
                first_for=("make_resident",),
            ),
            Fix(
                "Install the current NVIDIA driver in Windows, and remove any from inside WSL.",
                "sudo apt-get purge '^nvidia-.*' '^libnvidia-.*'",
            ),
        ),
        empty_cache=BELOW_PYTORCH,
        sources=(_WSL, "https://github.com/microsoft/WSL/issues/13734"),
        said_by="WSL 2.0-2.6",
        is_warning=True,
    ),
    KnownError(
        id="wsl-ldconfig",
        section=SECTION,
        title="WSL: libcuda.so.1 is not a link",
        summary="The program ldconfig warns about the form of WSL's CUDA library; programs work nevertheless.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern("libcuda.so.1 is not a symbolic link", r"/usr/lib/wsl/lib/libcuda\.so\.1 is not a symbolic link"),
        ),
        causes=("Windows provides the file three times instead of once with links.",),
        fixes=(Fix("Take no action; if CUDA does not work, look for another message.", "nvidia-smi"),),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/microsoft/WSL/issues/5663",),
        said_by="WSL 1.0-2.6",
        is_warning=True,
    ),
    KnownError(
        id="windows-driver-reset",
        section=SECTION,
        title="Windows reset the GPU's driver",
        summary="The GPU did not respond to Windows in time, or had a fault, and Windows restarted the driver.",
        context=ContextState.DEAD,
        patterns=(
            Pattern("nvlddmkm stopped responding", r"nvlddmkm stopped responding"),
            Pattern("from source nvlddmkm", r"Event ID (?P<event>\d{1,4}) from source nvlddmkm"),
            Pattern("rror occurred on GPUID", r"Error occurred on GPUID: ?(?P<gpu>\w{1,8})"),
            Pattern("VIDEO_TDR_", r"\bVIDEO_TDR_(?P<kind>FAILURE|ERROR|TIMEOUT_DETECTED)\b"),
        ),
        causes=(
            "A kernel ran for longer than two seconds on a GPU that also drives a display.",
            "The GPU is overclocked, too hot, or has too little power.",
            "A bug in the driver.",
        ),
        fixes=(
            Fix("Restart the program; install another version of the driver, without its former files."),
            Fix(
                "Allow longer kernels, as administrator in PowerShell, and reboot.",
                "reg add HKLM\\System\\CurrentControlSet\\Control\\GraphicsDrivers /v TdrDelay /t REG_DWORD /d 60",
            ),
            Fix("Remove any overclocking, also of the memory, and lower the power limit.", "nvidia-smi -pl 250"),
            Fix("Make single kernels shorter: a smaller batch or image, or tiles."),
        ),
        empty_cache="Cannot help: the driver was restarted, and the CUDA context is lost.",
        sources=("https://learn.microsoft.com/en-us/windows-hardware/drivers/display/tdr-registry-keys",),
        said_by="Windows 10-11",
    ),
    KnownError(
        id="notebook-memory",
        section=SECTION,
        title="Notebook ran out of host memory",
        summary="The notebook used more host memory than it was given, and its kernel was restarted.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern("session crashed after using all available RAM", r"session crashed after using all available RAM"),
            literal("Your notebook tried to allocate more memory than is available"),
            Pattern(
                "appears to have died. It will restart",
                r"kernel (?:for \S{1,160} )?appears to have died\. It will restart",
            ),
        ),
        causes=(
            "The model or data set is loaded into host memory completely, in float32.",
            "Native code crashed; the log of the notebook then has another reason.",
        ),
        fixes=(
            Fix(
                "Load the model in half precision, directly to the GPU.",
                'model = AutoModelForCausalLM.from_pretrained(name, dtype="auto", device_map="cuda")',
            ),
            Fix("Read the data in parts.", 'dataset = load_dataset("json", data_files=path, streaming=True)'),
            Fix("Choose a kind of machine with more memory."),
        ),
        empty_cache="No effect: host memory ran out, not GPU memory.",
        sources=("https://research.google.com/colaboratory/faq.html",),
        said_by="Colab, Kaggle, Jupyter",
    ),
    KnownError(
        id="cloud-quota",
        section=SECTION,
        title="Cloud gives no GPU",
        summary="The cloud has no free GPU of this kind, or the account may not use more.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern("Cannot connect to GPU backend", r"Cannot connect to GPU backend"),
            literal("cannot currently connect to a GPU due to usage limits in Colab"),
            Pattern(
                "ResourceLimitExceeded",
                r"\(ResourceLimitExceeded\)[^\n]{0,120}",
            ),
            name("InsufficientInstanceCapacity"),
            name("InsufficientCapacityError"),
            Pattern("ZONE_RESOURCE_POOL_EXHAUSTED", r"\bZONE_RESOURCE_POOL_EXHAUSTED(?:_WITH_DETAILS)?\b"),
            Pattern("NVIDIA_", r"Quota '(?P<quota>\w{0,24}NVIDIA_\w{1,30})' exceeded"),
            Pattern("GPUS_ALL_REGIONS", r"Quota 'GPUS_ALL_REGIONS' exceeded"),
            Pattern("VcpuLimitExceeded", r"\bVcpuLimitExceeded\b"),
            Pattern("SkuNotAvailable", r"\bSkuNotAvailable\b"),
            Pattern(
                "EC2InsufficientCapacityError",
                r"EC2InsufficientCapacityError: Instance type"
                r" '(?P<instance>[\w.-]{3,30})'",
            ),
            Pattern(
                "ResourcesUnavailableError",
                r"sky\.exceptions\.ResourcesUnavailableError:"
                r" (?P<reason>[^\n]{1,120})",
            ),
            Pattern(
                "No resource satisfying ",
                r"No resource satisfying (?P<requested>[^\n]{3,80}?),[^\n]{0,200}? on"
                r" (?P<cloud>\w{2,20})\.",
            ),
            Pattern(
                "Unable to provision requested ML",
                r"CapacityError: Unable to provision requested ML compute"
                r" capacity",
            ),
        ),
        causes=(
            "All GPUs of this kind are in use in this zone.",
            "The quota of the account for this kind of GPU is used up, or is 0 for a new account.",
            "Colab: the free time of the day is used up.",
        ),
        fixes=(
            Fix("Try another zone, region or kind of GPU, or try again later."),
            Fix(
                "Request a higher quota for exactly the limit that the message names.",
                first_for=("uota", "LimitExceeded"),
            ),
            Fix(
                "In Colab, disconnect other sessions: Runtime, Manage sessions; or work without a GPU until tomorrow.",
                first_for=("Colab", "GPU backend"),
            ),
            Fix(
                "With SkyPilot, list the spellings and numbers of GPUs that each cloud offers.",
                "sky show-gpus --all",
                first_for=("No resource satisfying",),
            ),
        ),
        empty_cache=NO_CONTEXT_YET,
        sources=(
            "https://research.google.com/colaboratory/faq.html",
            "https://docs.aws.amazon.com/general/latest/gr/sagemaker.html",
        ),
        said_by="Colab, AWS, Google Cloud, Azure",
    ),
    KnownError(
        id="sagemaker-script",
        section=SECTION,
        title="SageMaker: the script failed",
        summary="SageMaker reports that the training script ended with an error, which stands earlier in the log.",
        context=ContextState.UNKNOWN,
        patterns=(
            Pattern("ExecuteUserScriptError", r"\bExecuteUserScriptError\b"),
            Pattern(
                "UnexpectedStatusException: Error for",
                r"UnexpectedStatusException: Error for (?:Training|Processing) job",
            ),
        ),
        causes=("The script raised an exception, or was killed because host memory ran out.",),
        fixes=(
            Fix(
                "Read the log of the job from its end backwards, up to the first traceback.",
                "aws logs tail /aws/sagemaker/TrainingJobs --log-stream-name-prefix JOB",
            ),
            Fix("Try the script in the same container on one GPU first: instance_type='local_gpu'."),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        see_more=(fixes.SHOW_VERSIONS,),
        sources=("https://docs.aws.amazon.com/sagemaker/latest/dg/train-debugger.html",),
        said_by="SageMaker training toolkit 3-4",
        is_echo=True,
    ),
    KnownError(
        id="wsl-container-driver",
        section=SECTION,
        title="Container in WSL lacks a library of the driver",
        summary="CUDA could not be initialized: the container did not get every library of the Windows driver.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern("Error 500: named symbol not found", r"\bError 500: named symbol not found"),
            Pattern(
                "cuInit results in CUDA_ERROR_NOT_FOUND",
                r"Call to cuInit results in CUDA_ERROR_NOT_FOUND",
            ),
            Pattern(
                "failed call to cuInit: ",
                r"failed call to cuInit: (?:INTERNAL: CUDA error: Failed call to cuInit: )?CUDA_ERROR_NOT_FOUND",
            ),
            Pattern("cuda driver library init failure: 500", r"cuda driver library init failure: 500"),
        ),
        causes=(
            "Drivers of Windows since 555 have a library, libnvdxgdmal.so.1, that an older Docker does not pass on.",
            "A copy of libcuda in the image hides the one of WSL.",
        ),
        fixes=(
            Fix("Update Docker Desktop, to 4.31 or later, and restart it."),
            Fix(
                "If Docker runs inside WSL, update the container toolkit, to 1.14.4 or later.",
                "sudo apt-get update && sudo apt-get install --only-upgrade nvidia-container-toolkit &&"
                " sudo systemctl restart docker",
            ),
            Fix("Check which copies of libcuda the program finds.", "ldconfig -p | grep libcuda"),
        ),
        empty_cache=NO_CONTEXT_YET,
        sources=("https://github.com/NVIDIA/nvidia-container-toolkit/issues/520",),
        said_by="torch 2.0-2.5, TensorFlow 2.16, numba 0.57-0.59, Ollama 0.1-0.3",
    ),
)
