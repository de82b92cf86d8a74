"""Errors of NCCL's network plugins, such as that for EFA, and of its local sockets."""

from typing import Final

from gpumon.diagnosis.catalogue import sources
from gpumon.diagnosis.catalogue.network import NETWORK_LOG, SECTION
from gpumon.diagnosis.catalogue.wording import NOT_ABOUT_MEMORY, literal
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

_EFA: Final = "https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa-start-nccl.html"
ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="nccl-net-plugin",
        section=SECTION,
        title="NCCL: the network or its plugin is not available",
        summary="A network that NCCL tried to use, such as IB or AWS Libfabric, does not start on this host.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern("Error: network ", r"NCCL WARN Error: network (?P<network>[^\n]{1,60}?) not found"),
            literal("Failed to initialize any NET plugin"),
            Pattern("Initializing plugin failed", r"NET/OFI Initializing plugin failed"),
            literal("aws-ofi-nccl initialization failed"),
            Pattern("No eligible providers were found", r"NET/OFI No eligible providers were found"),
            literal("Only EFA provider is supported"),
            Pattern(
                "a fabric access domain", r"NET/OFI Couldn't open a fabric access domain\. RC: (?P<code>-?\d{1,5})"
            ),
            Pattern(
                "NET/OFI Couldn't ",
                r"NET/OFI Couldn't (?:open (?!a fabric access)|create|bind|enable|find any)[^\n]{1,60}?"
                r"(?:\. RC: (?P<code>-?\d{1,5})|provider)",
            ),
            Pattern(
                "NET/OFI Creating new ",
                r"NET/OFI Creating new \w{3,10} for \w{3,10} \w{1,20} failed: (?P<reason>[^\n]{1,60})",
            ),
            Pattern(
                "provider requires at least libfabric",
                r"EFA provider requires at least libfabric version (?P<required>"
                r"[\d.]{1,10}\d)",
            ),
            Pattern(
                "infiniband efa_",
                r"infiniband efa_\d{1,2}: Failed to (?:process command|allocate) (?P<command>\w{1,20})",
            ),
            Pattern("NET/OFI Couldn't set FI_OPT", r"NET/OFI Couldn't set FI_OPT_\w{1,60}\. RC: (?P<code>-?\d{1,5})"),
            Pattern(
                "NET/OFI Disabling shared memory failed",
                r"NET/OFI Disabling shared memory failed: (?P<reason>[^\n]{1,60})",
            ),
            Pattern("OFI fi_getinfo() call failed", r"OFI fi_getinfo\(\) call failed"),
        ),
        causes=(
            "NCCL_NET or FI_PROVIDER names a network that the host does not have, or that the container does not see.",
            "The instance has no EFA, or its security group does not allow all traffic to itself.",
            "The container's libfabric or plugin is older than the driver of the host, or not on LD_LIBRARY_PATH.",
        ),
        fixes=(
            Fix(
                "The plugin found no provider, and this is no instance of AWS: show the providers of libfabric, and put"
                " the libfabric of the host that has the one of this network, such as cxi for Slingshot, first.",
                "fi_info -l; FI_PROVIDER=cxi FI_LOG_LEVEL=warn torchrun --nproc-per-node=gpu train.py",
                first_for=("network without EFA",),
                hidden_otherwise=True,
            ),
            Fix(
                "If NCCL_NET or FI_PROVIDER is set, let NCCL choose the network.",
                "unset NCCL_NET FI_PROVIDER; torchrun --nproc-per-node=gpu train.py",
            ),
            Fix(
                "On AWS, check whether EFA works here; the output must name the provider efa.",
                "fi_info -p efa",
                first_for=(
                    "optimal provider",
                    "Only EFA provider",
                    "NET/OFI Creating",
                    "EFA without endpoints",
                ),
            ),
            Fix(
                "Install the same EFA software on the host and in the image: the plugin is newer than libfabric.",
                "curl -O https://efa-installer.amazonaws.com/aws-efa-installer-latest.tar.gz",
                first_for=("Couldn't set FI_OPT", "Disabling shared memory"),
                hidden_otherwise=True,
            ),
            Fix(
                "In a container, pass the devices, and lift the limit on locked memory.",
                "docker run --gpus all --network=host --device=/dev/infiniband --ulimit memlock=-1 IMAGE",
                first_for=("fi_getinfo() call failed", "EFA without endpoints"),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        see_more=(
            NETWORK_LOG,
            Fix("Show why libfabric has no provider.", "FI_LOG_LEVEL=warn torchrun --nproc-per-node=gpu train.py"),
        ),
        sources=(sources.NCCL_VARIABLES, _EFA),
        said_by="NCCL 2.18-2.29, aws-ofi-nccl 1.7-1.17",
    ),
    KnownError(
        id="nccl-efa",
        section=SECTION,
        title="EFA: a transfer failed",
        summary="The plugin for libfabric reported that a transfer to another host did not succeed.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "completed with error. RC: ",
                r"NET/OFI Request (?:\S{1,40} )?completed with error\. RC: (?P<code>\d{1,5})\. Error: "
                r"(?P<reason>[^\n]{1,120})",
            ),
            Pattern("ailed to process completion", r"NET/OFI [^\n]{0,40}?[Ff]ailed to process completion"),
            Pattern(
                "NET/OFI Error ", r"NET/OFI Error (?:in call to fi_send|posting)[^\n]{0,40}?\. RC: (?P<code>-?\d{1,5})"
            ),
            Pattern(
                "Unable to retrieve completion queue entries",
                r"Unable to retrieve completion queue entries\. RC: (?P<code>-?\d{1,5})",
            ),
        ),
        causes=(
            "The process at the other end was killed or hangs; its log contains the cause.",
            "The security group does not allow all traffic between its instances, in and out.",
            "The instances are in different subnets or placement groups, or an EFA device failed.",
        ),
        fixes=(
            Fix("Look at the logs of the other hosts: a rank that was killed comes first."),
            Fix("Test EFA between two hosts without NCCL.", "fi_pingpong -p efa HOST"),
            Fix("Allow all traffic from the security group to itself, in both directions."),
            Fix(
                "To confirm that EFA is the cause, use TCP instead, which is slower.",
                "NCCL_NET=Socket torchrun --nproc-per-node=gpu train.py",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        see_more=(NETWORK_LOG,),
        sources=(_EFA, "https://github.com/aws/aws-ofi-nccl/issues/161"),
        said_by="aws-ofi-nccl 1.4-1.17",
    ),
    KnownError(
        id="nccl-uds",
        section=SECTION,
        title="NCCL: processes of one host cannot exchange memory handles",
        summary="NCCL passes handles of GPU memory between processes of one host over a local socket, which failed.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern("NCCL WARN UDS: ", r"NCCL WARN UDS: (?P<reason>(?:Sending|Receiving|Binding|Cannot)[^\n]{1,120})"),
            Pattern(
                " call to tpRank ",
                r"ncclProxyC(?:lientGetFd|allBlockingUDS|lientQueryFdBlocking) call to tpRank \d{1,6}",
            ),
        ),
        causes=(
            "The ranks run in different containers, which do not share the network and the processes of the host.",
            "A process of the same host has already ended.",
        ),
        fixes=(
            Fix(
                "Start the containers in the network and the process space of the host.",
                "docker run --gpus all --network=host --pid=host --ipc=host IMAGE",
            ),
            Fix("Or turn this kind of memory off.", "NCCL_CUMEM_ENABLE=0 torchrun --nproc-per-node=gpu train.py"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        see_more=(NETWORK_LOG,),
        sources=(sources.NCCL_VARIABLES,),
        said_by="NCCL 2.18-2.29",
    ),
    KnownError(
        id="ib-device",
        section=SECTION,
        title="InfiniBand card is visible but cannot be opened",
        summary="The library for InfiniBand sees the card, but device files or a part of the library are missing.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern("ibv_open_device failed", r"Call to ibv_open_device failed"),
            Pattern("Unable to open device", r"NET/IB : Unable to open device (?P<device>\w{1,40})"),
            Pattern(
                "couldn't load driver",
                r"libibverbs: Warning: couldn't load driver '(?:[^'\n]{0,80}/)?"
                r"(?P<driver>(?:lib)?(?:mlx|efa|bnxt|irdma|hfi1)[\w.-]{0,40})'",
            ),
            Pattern(
                "no userspace device-specific driver",
                r"libibverbs: Warning: no userspace device-specific driver found for (?P<device>\S{1,80})",
            ),
        ),
        causes=(
            "The container sees the card in /sys, but not its files in /dev/infiniband.",
            "The container's libraries for the card are missing, or from another version of OFED than libibverbs.",
        ),
        fixes=(
            Fix(
                "Give the container the devices, and let it lock memory.",
                "docker run --gpus all --device=/dev/infiniband --cap-add=IPC_LOCK --ulimit memlock=-1 IMAGE",
            ),
            Fix(
                "Install the user drivers in the image, in the version of its libibverbs.",
                "sudo apt-get update && sudo apt-get install -y --reinstall libibverbs1 ibverbs-providers rdma-core",
                first_for=("load driver", "no userspace"),
            ),
            Fix("Check whether the card works here.", "ls -l /dev/infiniband; ibv_devinfo"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/NVIDIA/nccl/issues/451", sources.NCCL_TROUBLESHOOTING),
        said_by="NCCL 2.7-2.28, rdma-core 22-50",
        is_echo=True,
    ),
)
