"""The causes of an error for one wording, where the entry has one name for several reasons.

A wording that names the reason leaves only the causes that it permits.
"""

from collections.abc import Mapping, Sequence
from typing import Final

CAUSES: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    "container-cli": {
        "unknown device": ("NVIDIA_VISIBLE_DEVICES or --gpus names a GPU that the host does not have.",),
        "load library failed": (
            "Docker is Docker Desktop, whose virtual machine has no driver, or a snap; nvidia-smi works on the host.",
            "The host has no driver, or its libraries are not on the search path of ldconfig.",
        ),
        "driver not loaded": ("The driver is not installed, or its kernel module is not loaded.",),
        "nvml error: unknown error": (
            "A GPU or the driver is in a failed state; nvidia-smi on the host then shows ERR! or fails as well.",
        ),
        "device rules": ("In LXC or a rootless container, the hook may not change control groups.",),
        "file exists": ("The image contains driver files, from a package or from a container with GPUs.",),
        "signal 9": ("The ldconfig of a newer distribution did not survive in the hook, as since 2025.",),
        "ldconfig.real": ("The configured path of ldconfig does not exist on this distribution.",),
    },
    "tensorrt-llm": {
        "d == a + length": ("The engine was built by another version of TensorRT-LLM than the one that loads it.",),
        "mpiSize == tp * pp": ("The number of processes is not the number of parts of the engine.",),
    },
    "module-load": {
        "NVIDIA installer": (
            "Secure Boot is on, and the module that was just built is not signed with an enrolled key.",
            "nouveau or another driver holds the GPU, or this version of the driver does not support the GPU.",
            "The kernel was built with another compiler than the module.",
        ),
        "No such device": (
            "The host has no NVIDIA GPU, or the virtual machine got none.",
            "The GPU is not supported by this version of the driver, or another driver holds it.",
        ),
        "make.log": (
            "The driver is older than the kernel, and does not compile with it.",
            "The headers of this kernel, or the compiler that built it, are missing.",
        ),
        "Bad return status": (
            "The driver is older than the kernel, and does not compile with it.",
            "The headers of this kernel, or the compiler that built it, are missing.",
        ),
        "Key was rejected": ("Secure Boot is on, and the signature of the module is not enrolled.",),
    },
    "ray-gpus": {
        "No available node types": (
            "The program requests more GPUs than the cluster has, or more on one host than a host has.",
            "A host joined the cluster without all of its GPUs, as from a container that has only some of them.",
        ),
    },
    "graph-capture": {
        "::current_seed": (
            "torch.compile compiled a function for the first time during the capture, which saves the random state.",
        ),
    },
    "no-kernel-image": {
        "llama.cpp": ("The build has no code for the architecture of this GPU, which is older or newer.",),
    },
    "mps-server": {
        "in a container": (
            "The container has neither the pipes of the daemon on the host nor the host's namespace for IPC.",
            "The daemon was started by another user, or does not run.",
        ),
    },
    "sglang-capture": {
        "Unsupported head_dim": ("FlashInfer has no kernel for the size of the model's attention heads.",),
        "out of memory": ("The GPU has no memory left for the graphs.",),
    },
    "cuda-unknown": {
        "working NCCL": (
            "A GPU or its link failed while it computed; the kernel log then contains an Xid.",
            "The driver failed; its lines in the kernel log then say why.",
        ),
    },
    "llama-memory": {
        "llama.cpp pipeline": (
            "Pipeline parallelism over several GPUs keeps four copies of the compute buffers.",
            "Too many layers are on the GPU, or the context is too long.",
            "Another program uses the GPU.",
        ),
    },
    "llama-init": {
        "driver is too old": ("The driver is missing, or older than the CUDA version of the build.",),
        "symbol lookup for cu": ("The driver is older than the CUDA version of the build.",),
        "unknown error": ("The nvidia_uvm module is in a bad state, often after a suspend.",),
        "init failure: 999": ("The nvidia_uvm module is in a bad state, often after a suspend.",),
    },
    "host-oom": {
        "node running low on memory": (
            "A process keeps weights, a second copy of the model or the optimizer's state in host memory (offload).",
            "Too many actors and workers run on the node, each with its own copy of the data set or of the model.",
            "Memory grows from step to step: a list of results, a Python object per sample, cached batches.",
        ),
    },
    "no-driver": {
        "no GPU for Apptainer": (
            "The host has no GPU or no driver: a login node, or a job that did not ask for a GPU.",
            "The driver's libraries are in a folder that the cache of the linker does not contain.",
        ),
    },
    "port-in-use": {
        "several Slurm tasks": (
            "Slurm started several tasks on one host, each of which starts its own launcher with the same port.",
            "Another job on this host, or a process of an earlier run, uses the port.",
        ),
    },
    "compiler-missing": {
        "find -lcudart": (
            "The library is in another folder than those after -L, such as one of Conda.",
            "The toolkit is incomplete: it has the compiler, but not the files for development of the runtime.",
        ),
        "find -lcuda:": (
            "The driver's libcuda.so.1 exists, but not the name libcuda.so that the linker searches.",
            "The image or the environment has neither a CUDA toolkit nor the driver's libraries.",
        ),
    },
    "cuda-home": {
        "torch was compiled with": ("The system's toolkit has another version than torch.version.cuda.",),
        "mismatches the version": ("The system's toolkit has another version than torch.version.cuda.",),
    },
    "tgi-signal": {
        "with signal 4": (
            "The processor lacks an instruction such as AVX2, often because a virtual machine shows a generic one.",
        ),
        "with signal 6": ("The process aborted itself, as after an assertion or by the watchdog of NCCL.",),
        "with signal 7": ("Shared memory is too small.",),
        "with signal 9": ("Host memory ran out, or a limit of the container was reached.",),
        "with signal 11": ("Native code of a library crashed.",),
    },
    "nccl-net-plugin": {
        "network without EFA": (
            "The libfabric that was loaded has no provider for the network of this host.",
            "The container does not see the network devices.",
            "NCCL_NET or FI_PROVIDER names a network that the host does not have.",
        ),
        "NET/OFI": (
            "The container does not see the EFA devices, or the instance has none.",
            "The security group does not allow all traffic to itself.",
            "The container's libfabric or plugin is older than the driver of the host, or not on LD_LIBRARY_PATH.",
        ),
    },
    "gloo-peer": {
        "saved checkpoint": (
            "The other ranks wait while one rank writes the checkpoint, longer than the timeout permits.",
            "The rank that writes raised an exception or was killed; its log has the cause.",
        ),
    },
    "device-assert": {
        "srcIndex < srcSelectDimSize": (
            "A token id is not less than the number of embeddings, often after tokens were added.",
            "A position exceeds the maximum sequence length of the model's embeddings.",
            "Another index, such as that of a category, is negative or too large.",
        ),
    },
    "dcp-state": {
        "mismatch sizes": (
            "The model is wrapped in another way than the saved one: FSDP1 or FSDP2, the policy, use_orig_params.",
            "The model has other sizes, such as those of a resized vocabulary.",
        ),
    },
}
"""By error, the causes by a part of a message or a sign of the log; the first part that occurs counts."""


def message_causes(error_id: str, message: str, causes: Sequence[str]) -> tuple[str, ...]:
    """The causes that the wording of a message permits, most frequent first.

    Args:
        error_id: The entry of the catalogue.
        message: The text of the message, with its values.
        causes: The causes of the entry.
    """
    permitted = (some for part, some in CAUSES.get(error_id, {}).items() if part in message)
    return next(permitted, tuple(causes))
