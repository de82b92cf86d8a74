"""Errors of accelerators that are no GPUs: Ascend, Gaudi, Neuron. No advice for NVIDIA GPUs applies to them."""

from typing import Final

from gpumon.diagnosis.catalogue.wording import CONTEXT_IS_DEAD, NOT_ABOUT_MEMORY, SIZE
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

SECTION: Final = "Ascend, Gaudi and Neuron"

_ASCEND: Final = "https://github.com/vllm-project/vllm-ascend/issues/486"
_ASCEND_LOG: Final = Fix(
    "Read the first error in the log of CANN, which names the part that failed.",
    "grep -r -h -m 3 ERROR ~/ascend/log/debug/plog/ | sort | head",
)
_ASCEND_STATE: Final = Fix("Show the state of the devices, and the processes that use them.", "npu-smi info")
_ASCEND_CONTAINER: Final = Fix(
    "Give a container the device, those of the driver, and the driver's directory.",
    "docker run --device /dev/davinci0 --device /dev/davinci_manager --device /dev/devmm_svm --device /dev/hisi_hdc"
    " -v /usr/local/Ascend/driver:/usr/local/Ascend/driver -v /usr/local/bin/npu-smi:/usr/local/bin/npu-smi IMAGE",
)
_GAUDI: Final = "https://docs.habana.ai/en/latest/Orchestration/Multiple_Tenants_on_HPU/index.html"
_GAUDI_STATE: Final = Fix(
    "Show the devices, their processes and the version of the driver, which must be that of the image.", "hl-smi"
)

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="ascend-oom",
        section=SECTION,
        title="Ascend: out of memory",
        summary="The memory of the Ascend NPU is full.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern("NPU out of memory", rf"NPU out of memory\. Tried to allocate (?P<size>{SIZE})"),
            Pattern("Memory_Allocation_Failure(EL", r"Memory_Allocation_Failure\(EL\d{4}\)"),
        ),
        causes=(
            "The model, its activations and its optimizer need more memory than the NPU has.",
            "Another process holds memory, if much less is allocated than the device has.",
        ),
        fixes=(
            Fix("Use a smaller batch or a shorter sequence; in a server, fewer requests and a shorter context."),
            _ASCEND_STATE,
            Fix("Reduce fragmentation.", "PYTORCH_NPU_ALLOC_CONF=expandable_segments:True python train.py"),
            Fix("Divide the model over several NPUs: tensor parallelism, FSDP, or ZeRO stage 3."),
        ),
        empty_cache="Only torch.npu.empty_cache() has an effect on NPUs, and frees nothing more here.",
        sources=("https://github.com/vllm-project/vllm-omni/issues/1199",),
        said_by="torch_npu 2.1-2.9",
    ),
    KnownError(
        id="ascend-setup",
        section=SECTION,
        title="Ascend: CANN is not found",
        summary="PyTorch's backend for Ascend does not find the libraries of CANN or of the driver.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern("libhccl.so: cannot open", r"libhccl\.so: cannot open shared object file"),
            Pattern("libascend", r"\b(?P<library>libascend\w{0,12}\.so): cannot open shared object file"),
            Pattern("libatb.so: cannot open", r"libatb\.so: cannot open shared object file"),
            Pattern(
                "Failed to import Python module [",
                r"EC0010: [^\n]{0,40}Failed to import Python module \[(?P<reason>[^\n]{1,100})",
            ),
        ),
        causes=(
            "The script that sets the paths of CANN was not loaded in this shell or container.",
            "CANN, its kernels or NNAL are not installed, or the container lacks the directory of the driver.",
            "The host has no NPU from Ascend, and a package for it was installed by mistake.",
        ),
        fixes=(
            Fix(
                "Load the paths of CANN, then start the program.", "source /usr/local/Ascend/ascend-toolkit/set_env.sh"
            ),
            Fix(
                "Load the paths of ATB, a part of NNAL; install NNAL if the file does not exist.",
                "source /usr/local/Ascend/nnal/atb/set_env.sh",
                first_for=("libatb.so",),
            ),
            Fix(
                "Add the libraries of the driver to the search path; a container needs its directory from the host.",
                "export LD_LIBRARY_PATH=/usr/local/Ascend/driver/lib64/driver:/usr/local/Ascend/driver/lib64/common:"
                "$LD_LIBRARY_PATH",
                first_for=("libascend_hal",),
            ),
            Fix(
                "Install the Python packages of CANN into this environment.",
                "pip install numpy decorator attrs psutil scipy sympy cffi protobuf",
                first_for=("EC0010",),
            ),
            Fix("Without an NPU from Ascend, remove its backend.", "pip uninstall torch-npu"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(
            "https://github.com/vllm-project/vllm-ascend/issues/262",
            "https://github.com/vllm-project/vllm-ascend/issues/152",
        ),
        said_by="torch_npu 2.1-2.5",
    ),
    KnownError(
        id="ascend-device",
        section=SECTION,
        title="Ascend: the device cannot be used",
        summary="The process could not open or start an NPU.",
        context=ContextState.UNKNOWN,
        patterns=(
            Pattern(
                "NPU function error: ",
                r"NPU function error: (?P<call>aclrtGetDeviceCount|aclInit|\w{0,12}:{0,2}SetDevice)\([^\n]{0,40}?\),"
                r" error code is (?P<code>\d{1,6})",
            ),
            Pattern("set ASCEND_RT_VISIBLE_DEVICES:", r"set (?P<variable>ASCEND_RT_VISIBLE_DEVICES):\S{1,20} error"),
            Pattern("initialize the HCCP process", r"Failed to initialize the HCCP process\. Reason: [^\n]{1,80}"),
            Pattern("tsd client wait response fail", r"tsd client wait response fail, [^\n]{1,100}"),
            Pattern("aclInit(nullptr) failed", r"aclInit\(nullptr\) failed ?: (?P<code>\d{1,6})"),
        ),
        causes=(
            "A process of an earlier run still ends, or another program or container holds the device.",
            "ASCEND_RT_VISIBLE_DEVICES names devices that this container does not have: it counts those from 0.",
            "The container lacks device files, or the driver, the firmware and CANN do not belong together.",
        ),
        fixes=(
            _ASCEND_STATE,
            Fix(
                "End the processes of the earlier run, wait ten seconds, then try again.",
                "ps aux | grep python",
                first_for=("HCCP", "tsd client"),
            ),
            Fix(
                "Remove the variable: inside a container, the devices are counted from 0.",
                "unset ASCEND_RT_VISIBLE_DEVICES",
                first_for=("VISIBLE_DEVICES",),
            ),
            _ASCEND_CONTAINER,
            _ASCEND_LOG,
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(
            "https://github.com/gpustack/gpustack/issues/3352",
            "https://github.com/hiyouga/LlamaFactory/issues/3839",
        ),
        said_by="torch_npu 2.1-2.7, CANN 8.0-8.3",
    ),
    KnownError(
        id="ascend-hccl",
        section=SECTION,
        title="Ascend: communication failed",
        summary="A call of HCCL, the library that connects NPUs, failed or waited too long for another rank.",
        context=ContextState.UNKNOWN,
        patterns=(
            Pattern("HCCL function error: ", r"HCCL function error: (?P<call>\w{1,60})"),
            Pattern("HCCL error in: ", r"HCCL error in: \S{0,40}torch_npu/\S{1,80}"),
            Pattern("OPS function error: Hccl", r"OPS function error: (?P<call>Hccl\w{1,40})"),
            Pattern("DIST call hccl api failed", r"DIST call hccl api failed"),
            Pattern("Getting socket times out", r"EI0006: [^\n]{0,60}Getting socket times out"),
            Pattern("Notify register times out", r"The wait execution of the Notify register times out"),
        ),
        causes=(
            "Another rank failed or is stuck: its log has the first error.",
            "A rank started much later, or does longer work between two collectives, than the timeout allows.",
            "The links between the NPUs, or the interface between the hosts, do not work.",
        ),
        fixes=(
            Fix("Find the rank that failed first: the earliest error in the logs of all ranks is the cause."),
            Fix(
                "If ranks start at different times, or one does longer work, wait longer.",
                "export HCCL_CONNECT_TIMEOUT=1800 HCCL_EXEC_TIMEOUT=3600",
                first_for=("times out",),
            ),
            Fix("Check the link of each NPU, by its number.", "hccn_tool -i 0 -link -g"),
            Fix(
                "On several hosts, name the interface.", "HCCL_SOCKET_IFNAME=eth0 torchrun --nproc-per-node=8 train.py"
            ),
            _ASCEND_STATE,
            _ASCEND_LOG,
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(_ASCEND, "https://github.com/vllm-project/vllm-ascend/issues/397"),
        said_by="torch_npu 2.1-2.9",
        is_echo=True,
    ),
    KnownError(
        id="ascend-runtime",
        section=SECTION,
        title="Ascend: an operation failed",
        summary="A call of CANN failed on the NPU; often it reports an earlier operation, later than it occurred.",
        context=ContextState.DEAD,
        patterns=(
            Pattern(
                "NPU function error: ",
                r"NPU function error: (?P<call>(?!aclrtGetDeviceCount|aclInit|\w{0,12}:{0,2}SetDevice\()[\w:]{1,80})"
                r"(?:\([^\n]{0,60}?\), error code is (?P<code>\d{1,6}))?",
            ),
            Pattern("OPS function error: ", r"OPS function error: (?P<call>(?!Hccl)\w{1,60})"),
            Pattern("EZ9999: Inner Error", r"EZ9999: Inner Error"),
            Pattern("call acl api failed", r"ERR\d{5} (?:PTA|OPS|GRAPH) call acl api failed"),
            Pattern(
                "The process exits for this inner error",
                r"The process exits for this inner error"
                r"(?:, and the current working operator name is (?P<operator>\w{1,60}))?",
            ),
        ),
        causes=(
            "An index out of range, a shape or a type that the operation does not support.",
            "A kernel did not end in time, or another rank failed.",
            "The versions of torch_npu, PyTorch, CANN and the driver do not belong together.",
        ),
        fixes=(
            Fix(
                "Run again with synchronous launches, so that the traceback points at the operation that failed.",
                "ASCEND_LAUNCH_BLOCKING=1 python train.py",
            ),
            _ASCEND_LOG,
            Fix(
                "Compare the versions with the table of torch_npu.",
                "pip list | grep -i torch; cat /usr/local/Ascend/ascend-toolkit/latest/*/ascend_toolkit_install.info",
            ),
            _ASCEND_STATE,
        ),
        empty_cache=CONTEXT_IS_DEAD,
        sources=("https://github.com/vllm-project/vllm-ascend/issues/2800", _ASCEND),
        said_by="torch_npu 2.1-2.9, CANN 8.0-8.5",
        is_echo=True,
    ),
    KnownError(
        id="gaudi-oom",
        section=SECTION,
        title="Gaudi: out of memory",
        summary="The memory of the Gaudi accelerator is full.",
        context=ContextState.UNKNOWN,
        patterns=(
            Pattern(
                "MODULE:PT_DEVMEM", r"MODULE:PT_DEVMEM (?:Memory )?[Aa]llocation failed for size::(?P<bytes>\d{1,18})"
            ),
        ),
        causes=(
            "The model, its activations and its optimizer need more memory than the accelerator has.",
            "Graphs of many shapes are kept, each with its own memory.",
        ),
        fixes=(
            Fix("Use a smaller batch or a shorter sequence, padded to few different lengths."),
            Fix("Load the weights in bfloat16.", "model = AutoModel.from_pretrained(name, dtype=torch.bfloat16)"),
            Fix("Divide the model over several accelerators, as with DeepSpeed's ZeRO stage 3."),
            _GAUDI_STATE,
        ),
        empty_cache="No effect: the memory of Gaudi is not in PyTorch's cache for CUDA.",
        sources=("https://github.com/huggingface/optimum-habana/issues/1469",),
        said_by="Gaudi software 1.10-1.22",
    ),
    KnownError(
        id="gaudi-device",
        section=SECTION,
        title="Gaudi: no device could be acquired",
        summary="The process could not acquire a Gaudi accelerator: each belongs to one process at a time.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "Device acquire failed",
                r"synStatus ?= ?(?P<code>\d{1,4}) \[(?P<reason>[^\]\n]{1,60})\] Device acquire failed",
            ),
            Pattern("synDeviceAcquire", r"synDeviceAcquire\([^\n]{0,80}\) failed"),
        ),
        causes=(
            "Another process or container holds the device, also one of an earlier run.",
            "The container was started without the runtime of Habana, or without devices.",
            "The version of the driver is not that of the software in the image.",
        ),
        fixes=(
            _GAUDI_STATE,
            Fix(
                "Find the processes that hold the devices, and end those that are not needed.",
                "sudo lsof /dev/accel/accel*",
                first_for=("already acquired",),
            ),
            Fix(
                "Start the container with the runtime of Habana, and with devices that no other container has.",
                "docker run --runtime=habana -e HABANA_VISIBLE_DEVICES=0 --cap-add=sys_nice --ipc=host IMAGE",
            ),
            Fix("Check the kernel log of the driver.", "sudo dmesg -T | grep -i habanalabs | tail"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(_GAUDI, "https://github.com/huggingface/optimum-habana/issues/1611"),
        said_by="Gaudi software 1.14-1.19",
    ),
    KnownError(
        id="gaudi-graph",
        section=SECTION,
        title="Gaudi: a graph could not be built or run",
        summary="The compiler or the runtime of Gaudi refused an operation, or failed in one.",
        context=ContextState.UNKNOWN,
        patterns=(
            Pattern("Graph compile failed. syn", r"Graph compile failed\. synStatus"),
            Pattern("synNodeCreateWithId", r"synNodeCreateWithId failed for node: (?P<operation>\w{1,60})"),
            Pattern(
                "FATAL ERROR :: MODULE:PT_",
                r"FATAL ERROR :: MODULE:(?P<module>PT_(?!DEVMEM)\w{3,20}) (?P<reason>[^\n]{1,100})",
            ),
        ),
        causes=(
            "The operation is not supported for this type or shape, such as float16 on the first Gaudi.",
            "The version of the driver is not that of the software in the image.",
            "A shape that changes in every step, or a bug of this version.",
        ),
        fixes=(
            Fix(
                "Compare the version of the driver with that of the software: both must be the same.",
                "hl-smi | grep -i version; pip list | grep -i habana",
            ),
            Fix("Use bfloat16.", "model = model.to(torch.bfloat16)"),
            Fix(
                "Run without lazy graphs, so that the traceback shows the operation.",
                "PT_HPU_LAZY_MODE=0 python train.py",
            ),
            Fix("Read the first error in Gaudi's log.", "grep -r -m 1 -i error ${HABANA_LOGS:-/var/log/habana_logs}"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(
            "https://github.com/HabanaAI/vllm-fork/issues/484",
            "https://github.com/huggingface/optimum-habana/issues/1314",
        ),
        said_by="Gaudi software 1.17-1.19",
    ),
    KnownError(
        id="neuron-runtime",
        section=SECTION,
        title="AWS Neuron: the runtime failed",
        summary="The runtime of Trainium and Inferentia could not start, load a compiled model or run it.",
        context=ContextState.UNKNOWN,
        patterns=(
            Pattern("failed on NeuronCores", r"Nrt::(?P<call>\w{3,20}) failed on NeuronCores"),
            Pattern("Neuron Runtime could not be initialized", r"The PyTorch Neuron Runtime could not be initialized"),
            Pattern("determine Neuron Driver version", r"Unable to determine Neuron Driver version"),
            Pattern("undefined symbol: nrt_", r"undefined symbol: (?P<symbol>nrt_\w{3,40}), version NRT_"),
        ),
        causes=(
            "The driver is not loaded, or the container has no /dev/neuron devices.",
            "The packages of the driver, the runtime, the collectives and the compiler are of different releases.",
            "Another process holds the cores, or the model needs more memory than they have.",
        ),
        fixes=(
            Fix("Show the devices and the processes that use them.", "ls /dev/neuron*; neuron-ls"),
            Fix(
                "Install all packages of one release, without those of the first Neuron, which have no x in"
                " their names.",
                "sudo apt-get install --upgrade aws-neuronx-dkms aws-neuronx-runtime-lib aws-neuronx-collectives"
                " aws-neuronx-tools",
                first_for=("undefined symbol", "Neuron Driver version"),
            ),
            Fix("Read why, in the log of the runtime.", "NEURON_RT_LOG_LEVEL=INFO python train.py"),
            Fix("Give a container the devices.", "docker run --device=/dev/neuron0 IMAGE"),
        ),
        empty_cache="No effect: the memory of these devices is not in PyTorch's cache for CUDA.",
        sources=(
            "https://github.com/aws-neuron/aws-neuron-sdk/issues/779",
            "https://github.com/aws-neuron/aws-neuron-sdk/issues/1017",
        ),
        said_by="Neuron SDK 1.18-2.20",
    ),
)
