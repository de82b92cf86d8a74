"""Errors of installing the NVIDIA driver: its installer, the packages of a distribution, and NVIDIA's repository."""

from typing import Final

from gpumon.diagnosis.catalogue.wording import BELOW_PYTORCH, NO_CONTEXT_YET, literal
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

SECTION: Final = "Driver installation"

_INSTALLER: Final = "https://github.com/NVIDIA/nvidia-installer/blob/main/kernel.c"
_DRIVER_GUIDE: Final = "https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/"
_HEADERS: Final = Fix(
    "Install the headers of the running kernel, and a compiler.",
    'sudo apt-get install -y build-essential dkms "linux-headers-$(uname -r)"',
)
_KEYRING: Final = Fix(
    "Install NVIDIA's keyring package; replace ubuntu2404 by your distribution.",
    "wget https://developer.download.nvidia.com/compute/cuda/repos/ubuntu2404/x86_64/cuda-keyring_1.1-1_all.deb &&"
    " sudo dpkg -i cuda-keyring_1.1-1_all.deb && sudo apt-get update",
)
_USERS: Final = Fix("List the programs that hold the GPUs.", "sudo fuser -v /dev/nvidia*")

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="nouveau",
        section=SECTION,
        title="Driver nouveau holds the GPU",
        summary="The free driver nouveau is loaded, and the NVIDIA driver cannot be installed or started next to it.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            literal("The Nouveau kernel driver is currently in use by your system"),
            Pattern("NVRM: nouveau,", r"NVRM: nouveau, \w{1,12}"),
        ),
        causes=("Nouveau was loaded at the start of the system, often from the initial RAM disk.",),
        fixes=(
            Fix(
                "Forbid nouveau, rebuild the initial RAM disk and reboot; on Fedora, use dracut --force instead.",
                "printf 'blacklist nouveau\\noptions nouveau modeset=0\\n' | sudo tee"
                " /etc/modprobe.d/blacklist-nouveau.conf && sudo update-initramfs -u && sudo reboot",
            ),
            Fix("Check that it is gone, then install again.", "lsmod | grep nouveau"),
            Fix(
                "Prefer the packages of your distribution, which do this by themselves.", "sudo ubuntu-drivers install"
            ),
        ),
        empty_cache=NO_CONTEXT_YET,
        sources=(_DRIVER_GUIDE,),
        said_by="nvidia-installer 590",
    ),
    KnownError(
        id="driver-in-use",
        section=SECTION,
        title="Loaded driver cannot be replaced",
        summary="Programs use the loaded modules of the driver, so that they can be neither removed nor replaced.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "An NVIDIA kernel module '",
                r"An NVIDIA kernel module '(?P<module>[\w-]{4,20})' appears to (?:be already|already be) loaded",
            ),
            Pattern("appear to be running an X server", r"You appear to be running an X server"),
            Pattern(
                "ERROR: Module nvidia",
                r"rmmod: ERROR: Module (?P<module>nvidia\w{0,10}) is in use(?: by: (?P<user>[\w ]{1,60}))?",
            ),
            literal("Could not unload NVIDIA driver kernel modules, driver is in use"),
            Pattern("FATAL: Module nvidia", r"modprobe: FATAL: Module (?P<module>nvidia\w{0,10}) is in use"),
        ),
        causes=(
            "A desktop, a training program, a container or a monitor uses a GPU.",
            "The daemons nvidia-persistenced, dcgm or nvidia-fabricmanager hold the GPUs.",
        ),
        fixes=(
            Fix(
                "Install or upgrade the driver with the packages of the distribution, then reboot.",
                "sudo apt-get install nvidia-driver-580-open && sudo reboot",
            ),
            _USERS,
            Fix(
                "Or stop the desktop and the daemons, then remove the modules.",
                "sudo systemctl isolate multi-user.target; sudo systemctl stop nvidia-persistenced nvidia-dcgm"
                " nvidia-fabricmanager; sudo modprobe -r nvidia_uvm nvidia_drm nvidia_modeset nvidia",
            ),
            Fix(
                "In Kubernetes, move the pods with GPUs off the node; if the host has its own driver, turn off the"
                " operator's.",
                "kubectl drain NODE --ignore-daemonsets --delete-emptydir-data",
                first_for=("Could not unload NVIDIA",),
            ),
        ),
        empty_cache=BELOW_PYTORCH,
        sources=(_INSTALLER, _DRIVER_GUIDE),
        said_by="nvidia-installer 590",
    ),
    KnownError(
        id="kernel-headers",
        section=SECTION,
        title="Headers of the kernel are missing",
        summary="The modules of the driver must be compiled, and the headers of this kernel or a compiler are missing.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            literal("Unable to find the kernel source tree for the currently running kernel"),
            Pattern("' kernel header file", r"Neither the '[^'\n]{1,160}' nor the '[^'\n]{1,160}' kernel header file"),
            Pattern("Your kernel headers for kernel", r"Your kernel headers for kernel (?P<kernel>\S{1,60}) cannot be"),
            Pattern(
                "Unable to find the development tool", r"Unable to find the development tool `(?P<tool>[\w+-]{1,20})`"
            ),
            Pattern(
                "/build: No such file or directory",
                r"make(?:\[\d\])?: \*\*\* /lib/modules/(?P<kernel>[\w.+-]{1,60})/build: No such file or directory",
            ),
            literal("include/generated/autoconf.h or include/config/auto.conf are missing"),
            Pattern("not resolve Linux kernel version", r"Could not resolve Linux kernel version"),
            Pattern("locate package linux-headers", r"Unable to locate package (?P<package>linux-headers-\S{1,60})"),
            Pattern("version check failed", r"The (?:CC|gcc|compiler) version check failed"),
        ),
        causes=(
            "The kernel was upgraded, and the package with its headers is not installed.",
            "In a container for the driver: the repository has no headers for the kernel of the node.",
            "The kernel was built with another version of gcc than the one that is installed.",
        ),
        fixes=(
            _HEADERS,
            Fix("Show the running kernel and which headers are installed.", "uname -r; ls /usr/src; gcc --version"),
            Fix(
                "If there are no headers for it, reboot into the kernel for which there are.",
                "dpkg -l 'linux-image-*' 'linux-headers-*' | grep ^ii",
            ),
        ),
        empty_cache=NO_CONTEXT_YET,
        sources=(_INSTALLER, _DRIVER_GUIDE),
        said_by="nvidia-installer 590",
    ),
    KnownError(
        id="driver-packages",
        section=SECTION,
        title="Packages of the driver conflict",
        summary="The package manager cannot install the driver: its packages come in several versions or from several"
        " sources.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "Depends: ",
                r"^ {0,3}(?P<package>(?:lib)?nvidia-[\w:.+-]{1,40}|cuda-drivers[\w-]{0,12}) : (?:Pre)?Depends:"
                r" (?P<required>\S{1,60})",
            ),
            Pattern(
                "Depends: ",
                r"Depends: (?P<required>(?:lib)?nvidia-[\w:.+-]{1,40}(?: \([^)\n]{1,60}\))?) but (?:it is not"
                r" (?:going to be installed|installable)|\S{1,40} is to be installed)",
            ),
            Pattern(
                "trying to overwrite '",
                r"trying to overwrite '(?P<file>[^'\n]{1,160})', which is also in package"
                r" (?P<package>(?:lib)?nvidia-\S{1,60})",
            ),
            Pattern(
                "dpkg: error processing ",
                r"dpkg: error processing (?:archive|package) \S{0,120}?(?P<package>(?:lib)?nvidia-[\w.:+-]{1,60}"
                r"|cuda-drivers\S{0,40})",
            ),
            Pattern(
                "dependency problems prevent configuration of",
                r"dependency problems prevent configuration of"
                r" (?P<package>(?:lib)?nvidia-\S{1,60}|cuda-drivers\S{0,40})",
            ),
            Pattern(
                "nothing provides ",
                r"nothing provides (?P<required>[^\n]{1,80}?) needed by (?P<package>(?:kmod-)?nvidia-\S{1,80}"
                r"|cuda-drivers\S{0,60})",
            ),
            Pattern(
                "none of the providers can be installed",
                r"package (?P<package>(?:kmod-)?nvidia-\S{1,80}|cuda-drivers\S{0,60}) from \S{1,60} requires"
                r" (?P<required>[^\n]{1,100}?), but none of the providers can be installed",
            ),
        ),
        causes=(
            "Packages of NVIDIA's repository and of the distribution, or of a PPA, are mixed.",
            "An earlier installation stopped halfway, or an old version is held.",
            "The repository is for another release of the distribution.",
        ),
        fixes=(
            Fix("Finish what an earlier installation left.", "sudo dpkg --configure -a; sudo apt-get -f install"),
            Fix(
                "Show which sources offer the package, and which packages are held.",
                "apt-cache policy nvidia-driver-580-open; apt-mark showhold",
            ),
            Fix(
                "Remove every package of the driver, then install it from one source, and reboot.",
                "sudo apt-get purge '^nvidia-.*' '^libnvidia-.*' 'cuda-drivers*' && sudo apt-get autoremove &&"
                " sudo ubuntu-drivers install && sudo reboot",
                first_for=("trying to overwrite",),
            ),
            Fix("On Fedora and RHEL, reset the module stream of the driver.", "sudo dnf module reset nvidia-driver"),
        ),
        empty_cache=NO_CONTEXT_YET,
        sources=(_DRIVER_GUIDE, "https://github.com/pop-os/pop/issues/3811"),
        said_by="apt 2, dpkg 1.21",
    ),
    KnownError(
        id="driver-repository",
        section=SECTION,
        title="NVIDIA's package repository cannot be used",
        summary="The package manager rejects NVIDIA's repository, or does not know it.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern("NO_PUBKEY A4B469963BF863CC", r"NO_PUBKEY A4B469963BF863CC"),
            Pattern(
                "values set for option Signed-By",
                r"Conflicting values set for option Signed-By regarding source \S{0,80}(?:nvidia|cuda)\S{0,80}",
            ),
            Pattern(
                "Unable to locate package",
                r"Unable to locate package (?P<package>nvidia-container-toolkit|nvidia-docker2?|nvidia-driver-\S{1,20}"
                r"|nvidia-open\S{0,12}|cuda-\S{1,40}|libcudnn\S{1,20}|libnccl\S{1,20}|datacenter-gpu-manager\S{0,20}"
                r"|nvidia-fabricmanager\S{0,12})",
            ),
            Pattern(
                "nvidia.github.io/",
                r"nvidia\.github\.io/[^\n]{0,120}(?:404 {1,3}Not Found|does not have a Release file|is not signed)",
            ),
            Pattern(
                "Unable to find a match: ", r"Unable to find a match: (?P<package>(?:nvidia|cuda|libcudnn)\S{1,60})"
            ),
        ),
        causes=(
            "The repository was not set up on this host, or its key has changed since.",
            "The repository is listed twice, with different keys.",
            "The repository has no such version for this release of the distribution.",
        ),
        fixes=(
            _KEYRING,
            Fix(
                "Remove older entries for the same repository, then update.",
                "grep -rl developer.download.nvidia.com /etc/apt/sources.list /etc/apt/sources.list.d",
                first_for=("Conflicting values",),
            ),
            Fix(
                "For the container toolkit, set up its own repository as its installation guide describes.",
                "K=/usr/share/keyrings/nvidia-container-toolkit-keyring.gpg;"
                " U=https://nvidia.github.io/libnvidia-container;"
                " curl -fsSL $U/gpgkey | sudo gpg --dearmor -o $K;"
                " curl -fsSL $U/stable/deb/nvidia-container-toolkit.list"
                ' | sed "s#deb https://#deb [signed-by=$K] https://#g"'
                " | sudo tee /etc/apt/sources.list.d/nvidia-container-toolkit.list && sudo apt-get update",
                first_for=("container-toolkit", "libnvidia-container"),
            ),
        ),
        empty_cache=NO_CONTEXT_YET,
        sources=(
            _DRIVER_GUIDE,
            "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/install-guide.html",
        ),
        said_by="apt 2",
    ),
    KnownError(
        id="installer-failed",
        section=SECTION,
        title="Installer of the driver failed",
        summary="NVIDIA's installer stopped; the reason stands in its log and in the lines before.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "Installation has failed.",
                r"Installation has failed\. {1,2}Please see the file '(?P<log>[^'\n]{1,80})'",
            ),
            Pattern(
                "An error occurred while performing the step",
                r"An error occurred while performing the step: \"(?P<step>[^\"\n]{1,60})\"",
            ),
            Pattern("of driver component failed", r"Install of driver component failed"),
            literal("The distribution-provided pre-install script failed!"),
        ),
        causes=(
            "The modules could not be compiled for this kernel, which is newer than the driver.",
            "The loaded driver, a desktop or nouveau is in use.",
        ),
        fixes=(
            Fix("Read the reason.", "sudo grep -n -i -E 'error|fail' /var/log/nvidia-installer.log | head -40"),
            Fix("Install the packages of your distribution instead.", "sudo ubuntu-drivers install"),
            Fix(
                "With the CUDA toolkit's installer, install the toolkit only, if the driver works already.",
                "sudo sh cuda_*_linux.run --silent --toolkit",
            ),
        ),
        empty_cache=NO_CONTEXT_YET,
        sources=(_INSTALLER, _DRIVER_GUIDE),
        said_by="nvidia-installer 590",
        is_echo=True,
    ),
)
