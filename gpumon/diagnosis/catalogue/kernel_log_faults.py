"""Lines of the kernel log about faults: PCIe errors, NVSwitches, and checks inside of the driver."""

from typing import Final

from gpumon.diagnosis.catalogue import fixes, sources
from gpumon.diagnosis.catalogue.kernel_log import BUS, FIRST_LINES, SEATING, SECTION, VENDOR
from gpumon.diagnosis.catalogue.wording import BELOW_PYTORCH, literal
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="pcie-fatal",
        section=SECTION,
        title="Uncorrectable PCIe error",
        summary="The PCIe link of the GPU, or of the port above it, had an error that could not be corrected.",
        context=ContextState.RESET,
        patterns=(
            Pattern(
                "PCIe Bus Error: severity=Uncorrect",
                rf"(?:nvidia|pcieport) {BUS}:(?: AER:)? PCIe Bus Error: severity=Uncorrect(?:ed|able)"
                r" \((?P<severity>Non-Fatal|Fatal)\), type=(?P<type>[\w ]{1,24})",
            ),
            Pattern("no error_detected callback", rf"nvidia {BUS}: AER: can't recover \(no error_detected callback\)"),
            Pattern(
                "AER: Uncorrect",
                rf"pcieport {BUS}: AER: Uncorrect(?:ed|able) \((?P<severity>Non-Fatal|Fatal)\) error",
            ),
            Pattern("AER: device recovery failed", rf"(?:nvidia|pcieport) {BUS}: AER: device recovery failed"),
        ),
        causes=(
            "The seating of the card, a riser, a retimer or the slot.",
            "The power supply or a power cable.",
            "A device other than a GPU: the address in the message shows which.",
        ),
        fixes=(
            Fix("Show which device has the address in the message.", "lspci -tv"),
            SEATING,
            fixes.LOWER_POWER,
            Fix("Update the host's firmware (BIOS)."),
            VENDOR,
        ),
        empty_cache=BELOW_PYTORCH,
        sources=("https://docs.kernel.org/PCI/pcieaer-howto.html",),
    ),
    KnownError(
        id="pcie-corrected",
        section=SECTION,
        title="Corrected PCIe errors of a GPU",
        summary="The PCIe link of a GPU had errors that were corrected; many of them make transfers slow.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "PCIe Bus Error: severity=Correct",
                rf"nvidia {BUS}:(?: AER:)? PCIe Bus Error: severity=Correct(?:ed|able), type=(?P<type>[\w ]{{1,24}})",
            ),
        ),
        causes=("The seating of the card, a riser, a retimer or the slot.", "Power saving of the link (ASPM)."),
        fixes=(
            Fix("Count them, and check the link under load.", "nvidia-smi -q | grep -i -A 3 -E 'replay|link width'"),
            SEATING,
            Fix("If power saving is the cause, add the kernel parameter `pcie_aspm=off`."),
        ),
        empty_cache=BELOW_PYTORCH,
        sources=("https://docs.kernel.org/PCI/pcieaer-howto.html",),
    ),
    KnownError(
        id="sxid-fatal",
        section=SECTION,
        title="NVSwitch error, fatal",
        summary="An NVSwitch reported a fatal error; the programs on the GPUs that it connects end with Xid 74 or 45.",
        context=ContextState.RESET,
        patterns=(
            Pattern(
                "SXid (PCI:",
                rf"nvidia-(?P<switch>nvswitch\d{{1,3}}): SXid \(PCI:{BUS}\): (?P<number>\d{{5}}), Fatal"
                r"(?:, Link (?P<link>\d{1,3}))?",
            ),
        ),
        causes=(
            "A link between the switch and a GPU failed, or the GPU at its other end failed or was reset.",
            "A fault in the switch.",
        ),
        fixes=(
            Fix("Reset all GPUs and switches together, after all programs have ended.", "sudo nvidia-smi --gpu-reset"),
            Fix("Restart the Fabric Manager.", "sudo systemctl restart nvidia-fabricmanager"),
            Fix("If the error returns, reboot the host.", "sudo reboot"),
            fixes.LINK_STATE,
            VENDOR,
        ),
        empty_cache=BELOW_PYTORCH,
        sources=(sources.FABRIC_MANAGER,),
    ),
    KnownError(
        id="sxid-nonfatal",
        section=SECTION,
        title="NVSwitch event",
        summary="An NVSwitch reported an event that is not fatal, or details of one; programs continue.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "SXid (PCI:",
                rf"nvidia-(?P<switch>nvswitch\d{{1,3}}): SXid \(PCI:{BUS}\): (?P<number>\d{{5}}),"
                r" (?:Non-fatal|Severity \d|Data|Other)",
            ),
        ),
        causes=("A bit error that was corrected, or a link that was retrained.", "A GPU was reset."),
        fixes=(
            Fix("Let programs continue, unless a fatal SXid or an Xid of a GPU stands next to it."),
            Fix("Look for both.", "sudo dmesg -T | grep -E 'SXid|Xid'"),
            fixes.LINK_STATE,
        ),
        empty_cache=BELOW_PYTORCH,
        sources=(sources.FABRIC_MANAGER,),
        is_echo=True,
    ),
    KnownError(
        id="fabric-manager",
        section=SECTION,
        title="Fabric Manager does not run",
        summary="The service that connects GPUs over NVSwitches does not run, so CUDA cannot be initialized.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "ailed to start",
                r"[Ff]ailed to start (?:nvidia-fabricmanager\.service|[^\n]{0,30}?[Ff]abric [Mm]anager)",
            ),
            Pattern(
                "fabricmanager.service", r"nvidia-fabricmanager\.service: (?:Failed with result|Main process exited)"
            ),
            Pattern("nvidia-fabricmanager/socket", r"open \S{0,40}nvidia-fabricmanager/socket: no such file"),
            Pattern(
                "GPU driver interface version",
                r"NVIDIA GPU driver interface version (?P<fabric_manager>[\d.]{3,20}) don'?t match"
                r"(?: with driver version (?P<driver>[\d.]{2,19}\d))?",
            ),
            Pattern(
                "NV_WARN_NOTHING_TO_DO",
                r"request to query NVSwitch device information[^\n]{0,80}?NV_WARN_NOTHING_TO_DO",
            ),
            Pattern(
                "manager config file item",
                r"[Ff]abric manager config file item: ?(?P<item>[\w-]{1,40}) (?:has an invalid value|is missing|is"
                r" invalid)",
            ),
        ),
        causes=(
            "The versions of the Fabric Manager and of the driver differ; they must be equal.",
            "NV_WARN_NOTHING_TO_DO: this host has no NVSwitch that it manages, so the service is not needed.",
            "On NVLink 5 systems, the packages nvlsm and infiniband-diags are missing.",
            "The configuration file is of another version of the Fabric Manager, or was edited.",
        ),
        fixes=(
            Fix("Compare the versions.", "nv-fabricmanager --version; cat /sys/module/nvidia/version"),
            Fix(
                "Compare the loaded module with the installed one: if they differ, an update waits for a reboot."
                " If both are older than the Fabric Manager, install the driver of its version.",
                "cat /sys/module/nvidia/version; modinfo -F version nvidia",
                first_for=("match with driver version",),
                hidden_otherwise=True,
            ),
            Fix(
                "If the driver shall stay, install the Fabric Manager of its branch.",
                'sudo apt-get install "nvidia-fabricmanager-$(cut -d. -f1 /sys/module/nvidia/version)"',
                first_for=("match with driver version",),
            ),
            Fix(
                "Start it, and read why it fails.",
                "sudo systemctl restart nvidia-fabricmanager; journalctl -u nvidia-fabricmanager -n 50",
            ),
            Fix(
                "Take the configuration file from the package, in the version that is installed.",
                'sudo apt-get install --reinstall -o Dpkg::Options::=--force-confnew "nvidia-fabricmanager-$(cut -d.'
                " -f1"
                ' /sys/module/nvidia/version)"',
                first_for=("config file item",),
            ),
        ),
        empty_cache=BELOW_PYTORCH,
        sources=(sources.FABRIC_MANAGER,),
    ),
    KnownError(
        id="nvrm-no-memory",
        section=SECTION,
        title="Driver: an allocation failed",
        summary="The kernel module could not allocate memory for a program; usually the GPU's memory was full.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern("NV_ERR_NO_MEMORY", r"NVRM: [^\n]{1,120}?NV_ERR_NO_MEMORY"),
            Pattern("Check failed: Out of memory", r"NVRM: (?:GPU\d{1,3} )?\w{1,40}: Check failed: Out of memory"),
            Pattern("page descriptor table", r"NVRM: failed to allocate vmap\(\) page descriptor table"),
        ),
        causes=(
            "A program used all memory of the GPU; its own log has an out-of-memory error.",
            (
                "Host memory is short. On DGX Spark (GB10), CPU and GPU share one memory, and the host may hang after"
                " this."
            ),
        ),
        fixes=(
            Fix("Take no action on the driver; look at the program's log.", "nvidia-smi"),
            Fix(
                "On DGX Spark, leave more memory to the system: a smaller share for the server, and no file cache.",
                "vllm serve MODEL --gpu-memory-utilization 0.75; sync; echo 3 | sudo tee /proc/sys/vm/drop_caches",
            ),
            fixes.LIST_PROCESSES,
        ),
        empty_cache="Helps if PyTorch's cache holds memory that another program or library needs.",
        sources=("https://github.com/NVIDIA/open-gpu-kernel-modules",),
        is_echo=True,
    ),
    KnownError(
        id="gpu-progress",
        section=SECTION,
        title="GPU makes no progress",
        summary="The display driver waits for the GPU, which hangs; an Xid usually stands next to it.",
        context=ContextState.RESET,
        patterns=(
            Pattern(
                "Error while waiting for GPU progress",
                r"nvidia-modeset: ERROR: [^\n]{1,24}?Error while waiting for GPU progress",
            ),
            Pattern(
                "Idling display engine timed out", r"nvidia-modeset: ERROR: [^\n]{1,24}?Idling display engine timed out"
            ),
        ),
        causes=("An earlier Xid, a hang of the firmware, or a GPU that is no longer on the bus.",),
        fixes=(fixes.KERNEL_LOG, Fix("Reboot; if that hangs, power the host off and on.", "sudo reboot"), VENDOR),
        empty_cache=BELOW_PYTORCH,
        sources=(sources.XID_CATALOG,),
        is_echo=True,
    ),
    KnownError(
        id="peermem-context",
        section=SECTION,
        title="GPUDirect RDMA: process ended",
        summary="A process ended while a network card still used its GPU memory; this is a consequence, not a fault.",
        context=ContextState.ALIVE,
        patterns=(literal("ERROR detected invalid context, skipping further processing"),),
        causes=("The process crashed or was killed; its own log contains the cause.",),
        fixes=(Fix("Take no action on the driver; find the error of the process."), fixes.KERNEL_LOG),
        empty_cache=BELOW_PYTORCH,
        sources=("https://docs.nvidia.com/cuda/gpudirect-rdma/",),
        is_echo=True,
    ),
    KnownError(
        id="gpu-crash-report",
        section=SECTION,
        title="Driver recorded a crash",
        summary="The driver saved a record after an error of the GPU; the Xid before it is the cause.",
        context=ContextState.UNKNOWN,
        patterns=(
            literal("NVRM: A GPU crash dump has been created"),
            Pattern(
                "krcRcAndNotifyAllChannels",
                r"krcRcAndNotifyAllChannels_IMPL: RC all channels for critical error (?P<number>\d{1,4})",
            ),
        ),
        causes=("An earlier Xid.",),
        fixes=(fixes.KERNEL_LOG, Fix("Collect a report for the vendor.", "sudo nvidia-bug-report.sh")),
        empty_cache=BELOW_PYTORCH,
        sources=(sources.XID_CATALOG,),
        is_echo=True,
    ),
    KnownError(
        id="nvrm-assert",
        section=SECTION,
        title="A check inside the driver failed",
        summary="The driver reports that one of its checks failed; this often follows another error.",
        context=ContextState.UNKNOWN,
        patterns=(
            Pattern(
                "ssertion failed:",
                r"NVRM:? (?:GPU\d{1,3} )?nvAssert\w{0,30}: Assertion failed: (?P<check>(?!Reset required)[^\n]{1,160})",
            ),
            Pattern(
                "Check failed:",
                r"NVRM: (?:GPU\d{1,3} )?nvCheck\w{1,30}: Check failed: (?P<check>(?!Out of memory|Reset"
                r" required)[^\n]{1,160})",
            ),
        ),
        causes=(
            "An earlier error of the GPU or of its firmware, which is logged above.",
            "A bug of the driver, in most cases harmless if it occurs once while the host starts.",
        ),
        fixes=(
            FIRST_LINES,
            Fix("If the GPU works, take no action, and upgrade the driver at the next opportunity."),
            VENDOR,
        ),
        empty_cache=BELOW_PYTORCH,
        sources=("https://github.com/NVIDIA/open-gpu-kernel-modules/issues/748",),
        said_by="NVIDIA driver 515-590",
        is_echo=True,
    ),
)
