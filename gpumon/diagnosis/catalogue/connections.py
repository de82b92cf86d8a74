"""Errors of NCCL's connections: interfaces, ranks that do not fit together, shared memory, and NVSHMEM."""

from typing import Final

from gpumon.diagnosis.catalogue import fixes, sources
from gpumon.diagnosis.catalogue.network import NETWORK_LOG, PEER, SECTION
from gpumon.diagnosis.catalogue.wording import NOT_ABOUT_MEMORY, literal
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

_INTERFACE: Final = Fix(
    "Name the interface over which the hosts reach each other; `ip -br addr` lists them.",
    "NCCL_SOCKET_IFNAME=eth0 GLOO_SOCKET_IFNAME=eth0 torchrun --nproc-per-node=gpu train.py",
)
_SAME_VERSION: Final = Fix(
    "Compare the versions on all hosts.",
    "python -c 'import torch; print(torch.__version__, torch.cuda.nccl.version())'",
)

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="nccl-no-interface",
        section=SECTION,
        title="NCCL: no network interface",
        summary="NCCL found no usable network interface, or none that matches NCCL_SOCKET_IFNAME.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern("socket interface found", r"Bootstrap : no socket interface found"),
            Pattern("usable listening interface found", r"NET/Socket : No usable listening interface found"),
            Pattern("NET/Socket : no interface found", r"NET/Socket : no interface found"),
            Pattern(
                "verify NCCL_OOB_NET_IFNAME",
                r"no device found (?:matching|after excluding) [^\n]{0,80}?, verify NCCL_OOB_NET_IFNAME",
            ),
            Pattern(
                "interface found in the same subnet as",
                rf"No interface found in the same subnet as remote address {PEER}",
            ),
            Pattern("Unable to find address for", r"Unable to find address for: (?P<interface>\S{1,40})"),
            Pattern("unsupported gloo device", r"makeDeviceFor(?:Interface|Hostname)\(\): unsupported gloo device"),
        ),
        causes=(
            "NCCL_SOCKET_IFNAME or GLOO_SOCKET_IFNAME names an interface of another host, such as ens5 or ib0.",
            "The interface is down or has no address, for example in a container.",
        ),
        fixes=(
            Fix("List the interfaces and their addresses on every host.", "ip -br addr"),
            _INTERFACE,
            Fix("Or let NCCL choose.", "unset NCCL_SOCKET_IFNAME GLOO_SOCKET_IFNAME"),
            Fix(
                "Exclude the interfaces of Docker and the loopback interface.",
                "NCCL_SOCKET_IFNAME=^docker,lo torchrun --nproc-per-node=gpu train.py",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        see_more=(NETWORK_LOG,),
        sources=(sources.NCCL_VARIABLES,),
        said_by="torch 1.13-2.13, NCCL 2.18-2.29, jaxlib 0.4",
    ),
    KnownError(
        id="nccl-connect",
        section=SECTION,
        title="NCCL: another host cannot be reached",
        summary="NCCL could not open a connection to another rank at the address in the message.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "onnect to",
                rf"\b(?:Net|\w{{6,40}}) ?: [Cc]onnect to {PEER} (?:failed : |returned \d{{0,4}}\(?)"
                r"(?P<reason>[^\n,)]{1,60})",
            ),
            Pattern(
                "exceeded error retry count",
                r": connect returned (?P<reason>[^\n,]{1,60}), exceeded error retry count",
            ),
            Pattern("WARN Call to connect failed", r"WARN Call to connect failed : (?P<reason>[^\n]{1,60})"),
            Pattern("WARN Connect to ", rf"WARN Connect to {PEER} failed : (?P<reason>[^\n]{{1,60}})"),
            Pattern("socketStartConnect: exceeded", r"socketStartConnect: exceeded (?:retries|timeouts) \(\d{1,12}\)"),
            Pattern("socketPollConnect: exceeded", r"socketPollConnect: exceeded (?:retries|timeouts) \(\d{1,12}\)"),
            Pattern(
                "ocketPollConnect",
                rf"ocketPollConnect to {PEER} failed with error (?P<reason>[^\n]{{1,60}})",
            ),
            Pattern(
                "is neither AF_INET(",
                r"connecting to address [^\n]{0,80}?with family \d{1,8} is neither AF_INET\(\d{1,3}\) nor AF_INET6",
            ),
        ),
        causes=(
            "NCCL chose an interface over which the hosts cannot reach each other, such as docker0.",
            "A firewall or a security group blocks the ports, which NCCL chooses at random.",
            "Connection refused: the other rank has already ended; its log contains the cause.",
        ),
        fixes=(
            _INTERFACE,
            fixes.FIRST_RANK,
            Fix("Allow all TCP traffic between the hosts of the job; check one port.", "nc -vz HOST 29500"),
            NETWORK_LOG,
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(sources.NCCL_VARIABLES, sources.NCCL_TROUBLESHOOTING),
        said_by="torch 1.13, NCCL 2.18-2.29",
    ),
    KnownError(
        id="nccl-version-mismatch",
        section=SECTION,
        title="NCCL: versions or jobs are mixed",
        summary="The ranks use different versions of NCCL, or ranks of two jobs met at the same address.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "ismatched NCCL version",
                r"Mismatched NCCL version detected : rank (?P<rank>\d{1,6}) version (?P<version>\d{1,6})"
                r" rank (?P<other_rank>\d{1,6}) version (?P<other_version>\d{1,6})",
            ),
            Pattern(
                "Message truncated : received", r"Message truncated : received [\d,]{1,20} bytes instead of [\d,]{1,20}"
            ),
            Pattern("Bootstrap Root : mismatch in", r"Bootstrap Root : mismatch in (?:rank count|info) from procs"),
            Pattern(
                "has already checked in",
                r"Bootstrap Root : rank (?P<rank>\d{1,6}) of \d{1,6} ranks has already checked in",
            ),
            Pattern("socketFinalizeAccept", rf"socketFinalizeAccept(?: from {PEER})?: wrong (?:magic|type)"),
        ),
        causes=(
            "The hosts or containers have different builds of PyTorch or NCCL; a library in LD_LIBRARY_PATH wins.",
            "An earlier run still uses the port, or two jobs have the same NCCL_COMM_ID.",
            "Two processes have the same rank.",
        ),
        fixes=(
            _SAME_VERSION,
            Fix(
                "Show which library is loaded.",
                'python -c \'import torch; print(*{x.split()[-1] for x in open("/proc/self/maps") if "nccl" in x})\'',
            ),
            Fix("List the processes of an earlier run on every host, and end them.", "ps aux | grep '[t]orchrun'"),
            Fix("Check that every process has its own RANK.", "env | grep -E 'RANK|WORLD_SIZE|MASTER'"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(sources.NCCL_TROUBLESHOOTING,),
        said_by="torch 1.13-2.13, NCCL 2.18-2.29",
    ),
    KnownError(
        id="nccl-mismatch",
        section=SECTION,
        title="NCCL: the ranks call different collectives",
        summary="NCCL detected that the ranks do not call the same collectives in the same order.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(literal("this may be caused by a collective mismatch around rank"),),
        causes=(
            "A branch that only some ranks take: saving, evaluating, or skipping a batch.",
            "Uneven data: one rank has fewer batches.",
        ),
        fixes=(
            Fix(
                "Check that all ranks call the same collectives with the same shapes.",
                "TORCH_DISTRIBUTED_DEBUG=DETAIL torchrun --nproc-per-node=gpu train.py",
            ),
            Fix("Give every rank the same number of batches.", "sampler = DistributedSampler(dataset, drop_last=True)"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(sources.TORCH_DISTRIBUTED,),
    ),
    KnownError(
        id="nccl-shm",
        section=SECTION,
        title="NCCL: no shared memory",
        summary="NCCL could not create its buffers in shared memory (/dev/shm).",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern("while creating shared memory segment", r"while creating shared memory segment (?P<file>\S{1,80})"),
            Pattern("failed to create shared memory file", r"failed to create shared memory file (?P<file>\S{1,80})"),
            Pattern("posix_fallocate failed", r"Call to posix_fallocate failed : (?P<reason>[^\n]{1,60})"),
            Pattern(
                "ailed to extend ", r"ailed to extend (?P<file>/dev/shm/nccl-\w{1,40}) to (?P<bytes>\d{1,20}) bytes"
            ),
            Pattern("Call to shm_open failed", r"Call to shm_open failed : (?P<reason>[^\n]{1,60})"),
            Pattern(
                "while attaching to shared memory segment",
                r"while attaching to shared memory segment (?P<file>\S{1,80})(?P<reason>[^\n]{0,80})",
            ),
        ),
        causes=(
            "Shared memory is too small: a container has 64 MB of it by default.",
            "Files of an earlier run that was killed are still there.",
            "No such file: the ranks do not see each other's files, as in different containers, or one ended.",
        ),
        fixes=(
            Fix(
                "Give the container more shared memory.",
                "docker run --gpus all --shm-size=16g --ulimit memlock=-1 IMAGE",
            ),
            Fix(
                "Start the ranks in one container, or give all of their containers the shared memory of the host.",
                "docker run --gpus all --ipc=host IMAGE",
                first_for=("while attaching",),
            ),
            Fix(
                "Let every user create files in shared memory.",
                "sudo chmod 1777 /dev/shm",
                first_for=("Permission denied",),
            ),
            Fix("Check its size, and remove files of runs that have ended.", "df -h /dev/shm; rm -i /dev/shm/nccl-*"),
            Fix(
                "On Kubernetes, mount a memory volume at /dev/shm.",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(sources.NCCL_TROUBLESHOOTING,),
        said_by="NCCL 2.12-2.30",
    ),
    KnownError(
        id="nccl-topology",
        section=SECTION,
        title="NCCL: the topology could not be read",
        summary="NCCL could not find a GPU, a CPU or a path between GPUs in the description of the hardware.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern("Could not find real path of", r"Could not find real path of (?P<path>\S{1,120})"),
            Pattern("could not find CPU numa ID", r"GetXmlFromCpu : could not find CPU numa ID"),
            Pattern(
                "Failed to CUDA ",
                r"Failed to CUDA (?:host alloc|calloc(?: async)?|malloc) (?P<bytes>\d{1,20}) bytes",
            ),
        ),
        causes=(
            "A container or a virtual machine hides /sys from NCCL.",
            "NCCL_TOPO_FILE describes another machine.",
            "Failed to allocate: the GPU has no room for NCCL's buffers.",
        ),
        fixes=(
            Fix("Compare what the driver reports.", "nvidia-smi topo -m"),
            Fix("Remove a topology file of another machine.", "unset NCCL_TOPO_FILE NCCL_GRAPH_FILE"),
            fixes.MEMORY_FOR_LIBRARIES,
        ),
        empty_cache="Helps only if the GPU has no room for NCCL's buffers, which are outside PyTorch's cache.",
        see_more=(NETWORK_LOG,),
        sources=(sources.NCCL_VARIABLES,),
        said_by="torch 1.13, NCCL 2.18-2.29",
        is_echo=True,
    ),
    KnownError(
        id="nccl-no-ib-library",
        section=SECTION,
        title="NCCL found no InfiniBand library",
        summary="NCCL could not load libibverbs, and uses TCP between the hosts; on a single host this has no effect.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(Pattern("Failed to open libibverbs", r"NCCL WARN Failed to open libibverbs\.so(?:\[\.1\])?"),),
        causes=("The image or the host does not contain the package, or there is no InfiniBand.",),
        fixes=(
            Fix("On a single host, or without InfiniBand, take no action."),
            Fix("With InfiniBand, install the library in the image.", "sudo apt-get install -y libibverbs1 rdma-core"),
            Fix("Check which network NCCL uses.", "NCCL_DEBUG=INFO torchrun --nproc-per-node=gpu train.py"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(sources.NCCL_VARIABLES,),
        said_by="NCCL 2.3-2.29",
        is_warning=True,
    ),
    KnownError(
        id="nvshmem",
        section=SECTION,
        title="NVSHMEM could not connect the GPUs",
        summary="NVSHMEM, which DeepEP uses between hosts, found no working path over InfiniBand or RoCE.",
        context=ContextState.UNKNOWN,
        patterns=(
            literal("nvshmem setup connections failed"),
            literal("nvshmem initialization failed"),
            Pattern(
                "nvshmem",
                r"nvshmem\S{0,100}/(?P<file>[\w.]{1,40}\.(?:cpp|cu|c|h)):\d{1,6}: (?P<reason>(?:NULL value|non-zero s"
                r"tatus: \d{1,6}) (?!connect EPS)[^\n]{1,120})",
            ),
            Pattern(
                "cannot allocate buffer on the specified",
                r"WARN: device (?P<device>\w{1,20}) cannot allocate buffer on the specified memory type",
            ),
            Pattern("connect EPS failed", r"non-zero status: (?P<status>\d{1,3}) connect EPS failed"),
        ),
        causes=(
            "The kernel module has no IBGDA support, or its option for it is not set.",
            "The wrong network card or the wrong GID index is chosen.",
            "The container has no access to /dev/infiniband.",
        ),
        fixes=(
            Fix(
                "Check the driver's options for IBGDA: EnableStreamMemOPs: 1, and PeerMappingOverride=1.",
                "grep -E 'PeerMappingOverride|EnableStreamMemOPs' /proc/driver/nvidia/params",
            ),
            Fix(
                "If they are not set, set them on every host, and reboot.",
                "echo 'options nvidia NVreg_EnableStreamMemOPs=1 NVreg_RegistryDwords=\"PeerMappingOverride=1;\"'"
                " | sudo tee -a /etc/modprobe.d/nvidia.conf\n"
                "sudo update-initramfs -u && sudo reboot",
            ),
            Fix(
                "Choose the cards and the GID index that NCCL uses.",
                "export NVSHMEM_HCA_LIST=mlx5_0 NVSHMEM_IB_GID_INDEX=3",
                first_for=("INIT2RTR", "ibv_modify_qp"),
            ),
            Fix(
                "Give the container the devices and unlimited locked memory.",
                "docker run --gpus all --privileged --ulimit memlock=-1 --network host IMAGE",
            ),
            Fix("Let NVSHMEM report what it does.", "NVSHMEM_DEBUG=INFO python serve.py"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://docs.nvidia.com/nvshmem/api/gen/env.html",),
        said_by="NVSHMEM 3.2",
    ),
)
