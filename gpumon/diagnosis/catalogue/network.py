"""Errors of NCCL over InfiniBand and RoCE."""

from dataclasses import replace
from typing import Final

from gpumon.diagnosis.catalogue import fixes, sources
from gpumon.diagnosis.catalogue.wording import NOT_ABOUT_MEMORY
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

SECTION: Final = "NCCL's network"

PEER: Final = r"(?P<peer>[\w.:%\[\]-]{1,80})<(?P<port>\d{1,5})>"
"""An address as NCCL prints it."""

NETWORK_LOG: Final = Fix(
    "Show which interfaces and network cards NCCL uses on every host.",
    "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET torchrun --nproc-per-node=gpu train.py",
)
_LINKS: Final = Fix("Check the state and the link layer of the network cards.", "ibstat; ibv_devinfo; rdma link")
_WITHOUT_IB: Final = Fix(
    "To confirm that InfiniBand or RoCE is the cause, use TCP instead, which is slower.",
    "NCCL_IB_DISABLE=1 torchrun --nproc-per-node=gpu train.py",
)
_GID: Final = Fix(
    "On RoCE, let NCCL choose the index of the address; it must be one of RoCE v2.",
    "unset NCCL_IB_GID_INDEX; show_gids",
)
_BANDWIDTH_TEST: Final = Fix("Test the link between the two hosts without NCCL.", "ib_write_bw -d mlx5_0 HOST")
ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="nccl-ib-retry",
        section=SECTION,
        title="InfiniBand: the other host did not answer",
        summary="A network card sent data to another host over InfiniBand or RoCE and got no acknowledgment in time.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "Got completion from peer",
                rf"Got completion from peer {PEER} with (?:status=|error )(?:IBV_WC_RETRY_EXC_ERR\()?(?P<status>12)\b",
            ),
            Pattern(
                "Got completion from peer",
                rf"Got completion from peer {PEER} with (?:status=|error )"
                r"(?:IBV_WC_RNR_RETRY_EXC_ERR\()?(?P<status>13)\b",
            ),
        ),
        causes=(
            "The two cards cannot reach each other: another rail or subnet, a wrong GID, a firewall, or a route.",
            "A link went down or has many errors; the switch drops packets (on RoCE: PFC and ECN are not set up).",
            "The process at the other end was killed or hangs; its log contains the cause.",
        ),
        fixes=(
            replace(
                _BANDWIDTH_TEST,
                text="Test the link between exactly these two hosts without NCCL; start the same command without HOST"
                " on the other one before. If it fails, the network is the cause: in a cloud, create the hosts again in"
                " one placement group.",
            ),
            Fix("If the job ran before, look at the log of the peer first: its rank may have been killed."),
            _LINKS,
            _GID,
            Fix(
                "If the cards of one host cannot reach all cards of the other, stay on one rail.",
                "NCCL_CROSS_NIC=0 torchrun --nproc-per-node=gpu train.py",
            ),
            Fix(
                "On a busy fabric, wait longer.",
                "NCCL_IB_TIMEOUT=22 NCCL_IB_RETRY_CNT=7 torchrun --nproc-per-node=gpu train.py",
            ),
            _WITHOUT_IB,
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        see_more=(NETWORK_LOG,),
        sources=(sources.NCCL_TROUBLESHOOTING, sources.NCCL_VARIABLES, "https://github.com/NVIDIA/nccl/issues/1405"),
        said_by="torch 1.13, NCCL 2.18-2.29",
    ),
    KnownError(
        id="nccl-ib-completion",
        section=SECTION,
        title="InfiniBand: a transfer failed",
        summary="A transfer over InfiniBand or RoCE ended with an error; the status in the message is the reason.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "Got completion from peer",
                rf"Got completion from peer {PEER} with (?:status=|error )"
                r"(?:IBV_WC_\w{1,24}\()?(?P<status>(?!1[23]\b)\d{1,2})\b",
            ),
            Pattern("got completion with error", r"mlx5: [\w.-]{1,80}: got completion with error"),
        ),
        causes=(
            "Status 5 (flushed): another transfer on the connection failed before; its message is the cause.",
            "Status 4 or 10 (protection, remote access): memory that is not registered; GPUDirect RDMA does not work.",
            "Status 1 or 9 (length, invalid request): the ranks called different collectives or sizes.",
        ),
        fixes=(
            fixes.FIRST_RANK,
            Fix(
                "To confirm that GPUDirect RDMA is the cause, disable it.",
                "NCCL_NET_GDR_LEVEL=LOC torchrun --nproc-per-node=gpu train.py",
            ),
            Fix("Check whether the module for GPUDirect RDMA is loaded.", "lsmod | grep nvidia_peermem"),
            _LINKS,
            _WITHOUT_IB,
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        see_more=(NETWORK_LOG,),
        sources=(sources.NCCL_TROUBLESHOOTING, sources.NCCL_VARIABLES),
        said_by="torch 1.13, NCCL 2.18-2.29",
    ),
    KnownError(
        id="nccl-ib-connect",
        section=SECTION,
        title="InfiniBand: no connection",
        summary="NCCL could not connect two network cards over InfiniBand or RoCE.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "Call to ibv_modify_qp failed",
                r"Call to ibv_modify_qp failed with (?:error )?(?P<code>\d{1,3} )?(?P<reason>[^,\n]{1,60})",
            ),
            Pattern(
                "Attempted to connect incompatible devices",
                r"Attempted to connect incompatible devices: [^\n]{1,200}?Try selecting NICs of only one link type",
            ),
            Pattern("device is incompatible with", r"NET/IB : Remote \w{1,20} device is incompatible with"),
            Pattern(
                "ncclIbRoceGetVersionNum", r"\b(?:open|read) failed in ncclIbRoceGetVersionNum: (?P<reason>[^\n]{1,60})"
            ),
        ),
        causes=(
            "Network is unreachable, connection timed out: the cards are on different rails, subnets or VLANs.",
            "Invalid argument: NCCL_IB_GID_INDEX names an address that does not exist.",
            "No such device: the address of the card is missing in the container or the virtual machine.",
            "The host has both InfiniBand and Ethernet cards, and NCCL paired one of each.",
        ),
        fixes=(
            _GID,
            Fix(
                "Use only the cards that are on the same fabric.",
                "NCCL_IB_HCA=mlx5_0,mlx5_1 torchrun --nproc-per-node=gpu train.py",
            ),
            Fix(
                "If the rails are not connected to each other, stay on one rail.",
                "NCCL_CROSS_NIC=0 torchrun --nproc-per-node=gpu train.py",
                first_for=("Connection timed out", "Network is unreachable"),
            ),
            Fix(
                "In a container, use the host's network and its InfiniBand devices.",
                "docker run --gpus all --network=host --device=/dev/infiniband --ulimit memlock=-1 IMAGE",
            ),
            _LINKS,
            _WITHOUT_IB,
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        see_more=(NETWORK_LOG,),
        sources=(sources.NCCL_VARIABLES, "https://github.com/NVIDIA/nccl/issues/925"),
        said_by="torch 1.13, NCCL 2.18-2.29",
    ),
    KnownError(
        id="nccl-ib-memory",
        section=SECTION,
        title="InfiniBand: memory could not be registered",
        summary="The network card could not lock or register memory, or create a queue for it.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "Call to ibv_",
                r"Call to ibv_(?P<call>reg_mr\w{0,12}|create_cq|create_qp|alloc_pd|reg_dmabuf_mr) failed"
                r"(?: with error (?P<reason>[^\n]{1,60}))?",
            ),
        ),
        causes=(
            "The limit on locked memory is low: `ulimit -l` must be unlimited for the process.",
            "Bad address, invalid argument: GPUDirect RDMA does not work, for example without nvidia_peermem.",
            "The card has run out of queues or memory regions: many processes or communicators.",
        ),
        fixes=(
            Fix("Show the limit of this shell.", "ulimit -l"),
            Fix(
                "Remove the limit for a container.",
                "docker run --gpus all --ulimit memlock=-1 --ulimit stack=67108864 --device=/dev/infiniband IMAGE",
            ),
            Fix(
                "Remove it for a Slurm job, on every node.",
                """\
sudo mkdir -p /etc/systemd/system/slurmd.service.d
printf '[Service]\\nLimitMEMLOCK=infinity\\n' | sudo tee /etc/systemd/system/slurmd.service.d/memlock.conf
sudo systemctl daemon-reload && sudo systemctl restart slurmd""",
            ),
            Fix(
                "Load the module for GPUDirect RDMA.",
                "sudo modprobe nvidia_peermem",
                first_for=("Bad address", "Invalid argument"),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(sources.NCCL_TROUBLESHOOTING, sources.NCCL_VARIABLES),
    ),
    KnownError(
        id="nccl-ib-event",
        section=SECTION,
        title="InfiniBand: the card reported a fatal event",
        summary="The network card reported a fatal event while the job was running; the connection over it is lost.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "async fatal event",
                r"NET/IB : (?P<card>[\w-]{1,32}):(?P<card_port>\d{1,3}) (?:Got )?async fatal event[^\n:]{0,120}: "
                r"(?P<event>[^\n]{1,80})",
            ),
            Pattern(
                "communicator encountered a fatal error (",
                r"communicator encountered a fatal error \(detected in \w{1,60}\)",
            ),
        ),
        causes=(
            "The card or its firmware failed, or a request was invalid.",
            "Rarely the host's memory or the PCIe link.",
        ),
        fixes=(
            Fix("Check the kernel log for errors of the card.", "sudo dmesg -T | grep -i -E 'mlx5|infiniband|aer'"),
            _LINKS,
            Fix("Exclude the card until it is repaired.", "NCCL_IB_HCA=^mlx5_0 torchrun --nproc-per-node=gpu train.py"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(sources.NCCL_VARIABLES,),
        said_by="NCCL 2.23-2.30",
    ),
    KnownError(
        id="nccl-ib-link",
        section=SECTION,
        title="InfiniBand: a link changed",
        summary="A network card lost its link or its address while the job was running; transfers may fail next.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "async event",
                r"NET/IB : (?P<card>[\w-]{1,32}):(?P<card_port>\d{1,3}) Got (?:non-fatal )?async event ?: "
                r"(?P<event>(?!client reregistration|device state)[^\n(]{1,60})",
            ),
            Pattern("event : port error", r"NET/IB : Got async event : port error"),
            Pattern("GID table changed", r"NET/IB : (?P<card>[\w-]{1,32}):\d{1,3} GID table changed"),
        ),
        causes=("A cable, a port of the switch, or a restart of the switch.", "A change of the network configuration."),
        fixes=(
            Fix("Check the error counters and the state of the port.", "ibstat; mlxlink -d mlx5_0 -m -c"),
            Fix("Check the kernel log for the link.", "sudo dmesg -T | grep -i -E 'mlx5|link is'"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(sources.NCCL_VARIABLES,),
        is_echo=True,
    ),
)
