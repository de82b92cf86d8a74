"""Lines of the kernel log about the start of the driver: firmware, modules, and address space."""

from dataclasses import replace
from typing import Final

from gpumon.diagnosis.catalogue import fixes, sources
from gpumon.diagnosis.catalogue.wording import BELOW_PYTORCH, literal
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

SECTION: Final = "Kernel log of the driver"

BUS: Final = r"(?P<bus>[\da-fA-F:.]{7,20})"
FIRST_LINES: Final = Fix(
    "Read the first lines of the driver in the kernel log: they name the step that failed.",
    "sudo dmesg -T | grep -i -E 'nvrm|nvidia|gsp' | head -40",
)
_POWER_CYCLE: Final = Fix(
    "Power the host off, wait a minute and start it again: a reboot does not reset every part of a GPU.",
    "sudo ipmitool chassis power cycle",
)
_REINSTALL: Final = Fix(
    "Reinstall the driver, so that the modules, the firmware and the libraries have one version, and reboot.",
    "sudo apt-get install --reinstall nvidia-driver-580-open && sudo reboot",
)
_OPEN_MODULES: Final = Fix(
    "Install the open kernel modules, which Blackwell and newer GPUs require.",
    "sudo apt-get install nvidia-driver-580-open && sudo reboot",
)
SEATING: Final = Fix("Reseat the card and its cables, or try another slot; check risers and the power supply.")
VENDOR: Final = Fix("If the error stays, collect a report for the vendor.", "sudo nvidia-bug-report.sh")

_COMPILER_ERROR: Final = r"\d{1,6}:\d{1,4}: (?:(?:fatal )?error|\u9519\u8bef)[:\uff1a]"
"""What gcc prints after the name of a file, also in Chinese."""

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="gpu-init-failed",
        section=SECTION,
        title="GPU could not be initialized",
        summary="The driver is loaded and could not start a GPU; programs and nvidia-smi do not see that GPU.",
        context=ContextState.RESET,
        patterns=(
            Pattern("RmInitAdapter failed", rf"(?:GPU {BUS}: )?RmInitAdapter failed! \((?P<code>[\da-fx:]{{3,40}})\)"),
            Pattern(
                "rm_init_adapter failed", r"rm_init_adapter failed(?: for device bearing|, device) minor number \d{1,4}"
            ),
            Pattern(
                "Failed to allocate NvKmsKapiDevice", r"\[nvidia-drm\] [^\n]{0,40}Failed to allocate NvKmsKapiDevice"
            ),
            Pattern("failed, bailing out", r"RmInitAdapter: \w{1,40}(?:\(\))? failed, bailing out"),
            Pattern("Cannot attach gpu", r"osInitNvMapping: \*\*\* Cannot attach gpu"),
            Pattern("No devices were found", r"^No devices were found$"),
        ),
        causes=(
            "The GPU was left in a bad state by a crash, a failed reset or a pass-through to a virtual machine.",
            "The firmware files of the driver are missing or have another version.",
            "A GPU for which this kind of kernel module is not made: Blackwell needs the open modules.",
            "The card is failing, or has too little power.",
        ),
        fixes=(FIRST_LINES, _POWER_CYCLE, _REINSTALL, _OPEN_MODULES, SEATING, VENDOR),
        empty_cache=BELOW_PYTORCH,
        sources=(
            sources.XID_CATALOG,
            "https://github.com/NVIDIA/open-gpu-kernel-modules/issues/789",
        ),
    ),
    KnownError(
        id="gsp-firmware",
        section=SECTION,
        title="Firmware of the GPU could not be started",
        summary="The driver could not load or start the firmware that runs on the GPU's system processor (GSP).",
        context=ContextState.RESET,
        patterns=(
            literal("Cannot initialize GSP firmware RM"),
            Pattern(
                "irect firmware load for nvidia/",
                r"irect firmware load for (?P<file>nvidia/[\w./-]{1,60}) failed with error (?P<code>-?\d{1,4})",
            ),
            Pattern("gsp_ga10x.bin failed with error", r"gsp_ga10x\.bin failed with error (?P<code>-?\d{1,4})"),
            Pattern("gsp_tu10x.bin failed with error", r"gsp_tu10x\.bin failed with error (?P<code>-?\d{1,4})"),
            Pattern("failed to wait for GFW", r"failed to wait for (?P<step>GFW(?: boot|_BOOT))"),
            Pattern("unexpected WPR2 already up", r"unexpected (?P<step>WPR2 already up)"),
            literal("GSP-FMC reported an error while attempting to boot GSP"),
            Pattern("kgspInitRm_IMPL: ", r"kgspInitRm_IMPL: (?P<reason>[^\n]{1,80})"),
            Pattern("Booter failed with non-zero", r"Booter failed with non-zero error code: (?P<code>0x[\da-f]{1,8})"),
            literal("failed to execute Booter"),
        ),
        causes=(
            "Error -2: the firmware files are not installed, or not in the initial RAM disk of this kernel.",
            "The modules and the firmware have different versions after an upgrade.",
            "GFW boot: the GPU itself did not start: power, seating, or a failing card.",
            "WPR2 already up: the GPU is in a bad state after a crash, and needs a power cycle.",
        ),
        fixes=(
            Fix(
                "Check that the firmware of the loaded version exists.",
                "modinfo -F version nvidia; ls /lib/firmware/nvidia",
            ),
            _REINSTALL,
            Fix("Rebuild the initial RAM disk.", "sudo update-initramfs -u -k all && sudo reboot"),
            replace(SEATING, first_for=("GFW",)),
            replace(_POWER_CYCLE, first_for=("WPR2 already",)),
        ),
        empty_cache=BELOW_PYTORCH,
        sources=("https://github.com/NVIDIA/open-gpu-kernel-modules/issues/789",),
    ),
    KnownError(
        id="gsp-timeout",
        section=SECTION,
        title="Firmware of the GPU does not respond",
        summary="The firmware of the GPU (GSP) does not answer the driver; Xid 119 or 120 usually stands next to it.",
        context=ContextState.RESET,
        patterns=(
            Pattern(
                "rpcSendMessage failed with status",
                r"rpcSendMessage failed with status"
                r" (?P<status>0x[\da-f]{1,8})",
            ),
            Pattern("GspRmFree failed", r"NVRM: [^\n]{1,60}GspRmFree failed"),
            Pattern("GspRmControl failed", r"NVRM: [^\n]{1,60}GspRmControl failed"),
            Pattern("NVRM: _kgspLogXid119: ", r"NVRM: _kgspLogXid119: \*{2,60} GSP Timeout"),
            Pattern("eartbeat timed out", r"NVRM: \w{1,40}: [^\n]{0,40}?[Hh]eartbeat timed out"),
            Pattern(
                "waiting for RPC response from",
                r"NVRM: Timeout after \d{1,5}s of waiting for RPC response from GPU\d{1,3} GSP",
            ),
            Pattern("GSP RPC buffer contains", r"GPU\d{0,3} GSP RPC buffer contains function"),
            Pattern("RPC history (CPU ->", r"GPU\d{1,3} RPC history \(CPU -> GSP\)"),
            Pattern("kgspHealthCheck", r"kgspHealthCheck_TU102: \*{2,60} GSP-CrashCat Report"),
            Pattern("GSP task watchdog timeout", r"GSP task watchdog timeout @ pc:(?P<address>0x[\da-f]{1,16})"),
            Pattern("NVRM: GPU", r"NVRM: GPU\d{1,3} _kgspLogRpcTimeout: \*{2,60} GSP Timeout"),
            Pattern(
                "Memory Subsystem Error detected",
                r"kgmmuCheckMemSubsysError_\w{1,12}: Memory Subsystem Error"
                r" detected",
            ),
        ),
        causes=("A bug in the firmware or the driver.", "The GPU is failing, or has lost power or its PCIe link."),
        fixes=(
            fixes.RESET_GPU,
            Fix("If the reset fails, power the host off and on.", "sudo ipmitool chassis power cycle"),
            Fix("If the error returns, upgrade the driver."),
            VENDOR,
        ),
        empty_cache=BELOW_PYTORCH,
        sources=(sources.XID_CATALOG,),
        is_echo=True,
    ),
    KnownError(
        id="gpu-unsupported",
        section=SECTION,
        title="Driver does not support this GPU",
        summary="The installed kernel modules do not support this GPU: too old, too new, or of the other kind.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "is not supported by open", r"NVRM: installed in this (?:vGPU host )?system is not supported by open"
            ),
            Pattern("is not supported by the", r"NVRM: installed in this system is not supported by the"),
            Pattern(
                "requires use of the NVIDIA open kernel modules", r"requires use of the NVIDIA open kernel modules"
            ),
            Pattern("ignoring the legacy GPU", rf"NVRM: ignoring the legacy GPU {BUS}"),
            Pattern(
                "supported through the NVIDIA",
                r"supported through the NVIDIA (?P<legacy>\d{3}[.\w]{0,8}) Legacy",
            ),
        ),
        causes=(
            "Open modules need Turing or newer; Maxwell, Pascal and Volta need the proprietary ones.",
            "Blackwell and newer GPUs need the open modules.",
            "From driver 590 on, Maxwell, Pascal and Volta are no longer supported; 580 is the last branch.",
        ),
        fixes=(
            Fix("Show the GPU and the kind of the loaded module.", "lspci -nn -d 10de:; modinfo -F license nvidia"),
            replace(_OPEN_MODULES, first_for=("requires use",)),
            Fix(
                "For Maxwell, Pascal and Volta, install the proprietary modules of branch 580.",
                "sudo apt-get install nvidia-driver-580 && sudo reboot",
                first_for=("by open",),
            ),
        ),
        empty_cache=BELOW_PYTORCH,
        sources=("https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/",),
        said_by="NVIDIA driver 515-595",
    ),
    KnownError(
        id="driver-probe",
        section=SECTION,
        title="Driver found no GPU that it can use",
        summary="The kernel module found no GPU that it can use: there is none, another driver holds it, or it did not"
        " start.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "NVIDIA probe routine",
                r"NVRM: The NVIDIA probe routine (?:was not called|failed) for (?P<devices>\d{1,3}) device",
            ),
            Pattern(
                "NVRM: None of the NVIDIA devices were", r"NVRM: None of the NVIDIA devices were (?:probed|initialized)"
            ),
            Pattern(
                "NVRM: No NVIDIA ",
                r"NVRM: No NVIDIA (?:GPU found|PCI devices found|devices probed|graphics adapter found)",
            ),
        ),
        causes=(
            "The nouveau driver or vfio-pci holds the GPU.",
            "The GPU could not be started; earlier lines say why.",
            "The GPU is not connected, or the virtual machine got none.",
        ),
        fixes=(
            Fix(
                "Show the GPUs of this host and the drivers that hold them. An empty list means that the host has no"
                " GPU: choose a type of instance that has one, pass the GPU to the virtual machine, or use an image"
                " without the driver.",
                "lspci -nnk -d 10de:",
            ),
            FIRST_LINES,
            Fix(
                "If nouveau holds it, keep nouveau from loading.",
                """\
echo 'blacklist nouveau' | sudo tee /etc/modprobe.d/blacklist-nouveau.conf
sudo update-initramfs -u && sudo reboot""",
            ),
        ),
        empty_cache=BELOW_PYTORCH,
        sources=("https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/",),
        is_echo=True,
    ),
    KnownError(
        id="module-load",
        section=SECTION,
        title="Kernel module of the driver cannot be built or loaded",
        summary="The kernel refused the module of the driver, or the module was not built for this kernel.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "/var/lib/dkms/nvidia",
                r"make\[\d\]: \*\*\* [^\n]{0,160}/var/lib/dkms/nvidia[\w-]{0,20}/(?P<version>[\d.]{3,16})/build[^\n]{"
                r"0,40}\] \w{4,12} \d",
            ),
            Pattern("DKMS module 'nvidia", r"DKMS module 'nvidia[\w-]{0,12}-(?P<version>[\d.]{3,16})' failed to build"),
            Pattern(
                "could not insert 'nvidia",
                r"could not insert '(?P<module>nvidia\w{0,12})': (?P<reason>[A-Z][^\n]{1,60})",
            ),
            Pattern(
                "Module nvidia",
                r"Module (?P<module>nvidia[\w-]{0,12}) not found in directory (?P<folder>\S{1,60})",
            ),
            Pattern(
                "version magic",
                r"nvidia\w{0,12}: version magic '(?P<module>[^'\n]{1,80})' should be '(?P<kernel>[^'\n]{1,80})'",
            ),
            Pattern(
                "Unable to load the kernel module",
                r"Unable to load the kernel module '(?P<module>nvidia[\w-]{0,12})\.ko'",
            ),
            Pattern(
                "could not insert 'nv_peer_mem",
                r"could not insert '(?P<module>nv_peer_mem)': (?P<reason>[A-Z][^\n]{1,60})",
            ),
            Pattern("Unknown symbol", r"nvidia(?:_\w{1,12})?: Unknown symbol (?P<symbol>\w{1,60})"),
            literal("because it was not signed by a key that is trusted by the kernel"),
            Pattern(
                "/var/cache/akmods/nvidia",
                r"/var/cache/akmods/nvidia[\w.-]{0,20}/(?P<version>[\d.]{3,16})-"
                r"[^\s]{1,80}\.failed\.log",
            ),
            Pattern("nvidia-kmod [FAILED]", r"nvidia-kmod \[FAILED\]"),
            Pattern(
                "Bad return status for module build",
                r"Bad return status for module build on kernel: (?P<kernel>\S{1,60})",
            ),
            Pattern(
                "/var/lib/dkms/nvidia",
                r"/var/lib/dkms/nvidia[\w-]{0,20}/(?P<version>[\d.]{3,16})/build/[\w/.-]{1,100}:\d{1,6}:\d{1,4}: error:"
                r" ",
            ),
            Pattern("nvidia-uvm/", r"(?<!build/)\bnvidia-uvm/[\w-]{1,40}\.[ch]:" + _COMPILER_ERROR),
            Pattern("nvidia-drm/", r"(?<!build/)\bnvidia-drm/[\w-]{1,40}\.[ch]:" + _COMPILER_ERROR),
            Pattern("common/inc/nv", r"common/inc/nv[\w-]{1,30}\.h:" + _COMPILER_ERROR),
            Pattern(
                "scripts/Makefile.build:",
                r"scripts/Makefile\.build:\d{1,5}: nvidia[\w-]{0,12}/[\w-]{1,40}\.o\] Error \d",
            ),
            Pattern(
                "Building DKMS module",
                r"Building DKMS module:? '?nvidia[\w-]{0,12}-(?P<version>[\d.]{3,16})[^\n]{0,60}?\.\.\. ?FAILED",
            ),
            Pattern(
                "/build/make.log for more information",
                r"Consult /var/lib/dkms/nvidia[\w-]{0,20}/(?P<version>[\d.]{3,16})/build/make\.log for more"
                r" information",
            ),
        ),
        causes=(
            "Key was rejected by service: Secure Boot is on, and the signature of the module is not enrolled.",
            "No such device: no GPU that this module supports; Exec format error: built for another kernel.",
            "The kernel was upgraded, and DKMS did not build the module: headers or a fitting compiler are missing.",
        ),
        fixes=(
            Fix(
                "Read why the kernel refused the module that was just built, and whether Secure Boot is on.",
                "sudo dmesg | tail -n 30; sudo tail -n 50 /var/log/nvidia-installer.log; mokutil --sb-state",
                first_for=("NVIDIA installer",),
            ),
            Fix(
                "If Secure Boot is on, let the installer sign the module, and enroll the key; or install the signed"
                " packages of the distribution.",
                "sudo sh ./NVIDIA-Linux-x86_64-*.run --module-signing-secret-key=KEY.priv"
                " --module-signing-public-key=KEY.der && sudo mokutil --import KEY.der && sudo reboot",
                first_for=("NVIDIA installer",),
            ),
            Fix(
                "If nouveau is loaded, keep it from loading.",
                "lsmod | grep nouveau; echo 'blacklist nouveau' | sudo tee /etc/modprobe.d/blacklist-nouveau.conf",
                first_for=("NVIDIA installer",),
            ),
            Fix(
                "The module was loaded and found no GPU that it supports: check whether this host has one; an empty"
                " list means that it has none, so that another type of instance is needed.",
                "lspci -nn -d 10de:; sudo dmesg | grep -i nvrm",
                first_for=("No such device",),
                hidden_otherwise=True,
            ),
            Fix(
                "Show whether DKMS built the module and whether Secure Boot is on.",
                "sudo dkms status; sudo mokutil --sb-state",
            ),
            Fix(
                "If DKMS builds the module, build it for the running kernel.",
                'sudo apt-get install -y "linux-headers-$(uname -r)" && sudo dkms autoinstall',
            ),
            Fix(
                "With Secure Boot, enroll the key of DKMS and confirm it at the next boot.",
                "sudo mokutil --import /var/lib/shim-signed/mok/MOK.der && sudo reboot",
                first_for=("Key was",),
            ),
            Fix(
                "Read why the build failed.",
                "sudo tail -n 50 /var/lib/dkms/nvidia/*/build/make.log",
                first_for=("failed to build", "/build] ", "FAILED", "make.log", "Bad return status"),
            ),
            Fix(
                "Build nvidia_peermem for the installed OFED: install OFED first, then the driver again.",
                "sudo dkms autoinstall --force && sudo modprobe nvidia_peermem",
                first_for=("nvidia_peermem", "nv_peer_mem", "ib_register_peer"),
            ),
            Fix(
                "If the driver is older than the kernel, install a newer branch, which supports it, or start the"
                " previous kernel.",
                "sudo apt-get update && sudo ubuntu-drivers install",
                first_for=("make.log", "Bad return status", ": error: ", ": \u9519\u8bef", "Makefile.build"),
            ),
        ),
        empty_cache=BELOW_PYTORCH,
        sources=("https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/",),
    ),
    KnownError(
        id="pcie-bar",
        section=SECTION,
        title="GPU has no room in the address space",
        summary="The firmware of the host gave the GPU no addresses for its memory, so the driver cannot use it.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            literal("This PCI I/O region assigned to your NVIDIA device is invalid"),
            Pattern("NVRM: BAR", rf"NVRM: BAR(?P<bar>\d) is 0M @ 0x0 \(PCI:{BUS}\)"),
            Pattern(
                "allocate resized BAR",
                r"NVRM: No address space to allocate resized BAR1",
            ),
        ),
        causes=(
            "Above 4G decoding is off in the host's firmware, or the virtual machine's PCI window is too small.",
            "Too many large devices for the address space.",
        ),
        fixes=(
            Fix("Turn on Above 4G Decoding in the host's firmware (BIOS), and update the firmware."),
            Fix(
                "Or let the kernel assign the addresses again.",
                """\
echo 'GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX pci=realloc"' | sudo tee -a /etc/default/grub
sudo update-grub && sudo reboot""",
            ),
            Fix("Show the regions of the GPU.", "lspci -vv -d 10de: | grep -i region"),
        ),
        empty_cache=BELOW_PYTORCH,
        sources=("https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/",),
    ),
    KnownError(
        id="gpu-power-state",
        section=SECTION,
        title="GPU does not wake up",
        summary="The GPU was asked to leave a power-saving state and did not answer; it is no longer on the bus.",
        context=ContextState.RESET,
        patterns=(
            Pattern(
                "change power state from D3",
                rf"(?:nvidia|vfio-pci|pci) {BUS}: (?:Unable to|can't) change power state from D3(?:cold|hot) to D0"
                r"(?:,? \(?(?P<reason>[\w ]{1,40})\)?)?",
            ),
        ),
        causes=(
            "The slot or the card lost power, or the PCIe link did not come up.",
            "A power-saving function of the laptop, the firmware or a virtual machine switched the GPU off.",
        ),
        fixes=(
            Fix("Power the host off and on.", "sudo ipmitool chassis power cycle"),
            Fix(
                "Keep the GPU out of power-saving states.",
                "echo 'options nvidia NVreg_DynamicPowerManagement=0x00' | sudo tee /etc/modprobe.d/nvidia-power.conf",
            ),
            Fix("Turn off the power saving of the PCIe links: kernel parameter `pcie_aspm=off`."),
            SEATING,
        ),
        empty_cache=BELOW_PYTORCH,
        sources=("https://github.com/kata-containers/kata-containers/issues/11708",),
    ),
)
