"""Errors of containers that no Docker starts: Apptainer, Singularity, and the system containers of LXC."""

from typing import Final

from gpumon.diagnosis.catalogue.containers import SECTION
from gpumon.diagnosis.catalogue.wording import NO_CONTEXT_YET
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

_APPTAINER: Final = "https://apptainer.org/docs/user/latest/gpu.html"

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="apptainer-nv",
        section=SECTION,
        title="Apptainer finds no driver to pass on",
        summary="Apptainer or Singularity found no libraries of the GPU driver on the host, so the container has no"
        " GPU.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern("files on this host!", r"Could not find any (?P<kind>nv|rocm) files on this host!"),
            Pattern(
                "Could not find any NVIDIA",
                r"Could not find any NVIDIA (?P<kind>binaries|libraries|IPCs) on this host",
            ),
        ),
        causes=(
            "The host has no driver: a login node, a virtual machine without the GPU, or a node without GPUs.",
            "The libraries are in a directory that the linker's cache does not contain, as on Jetson, WSL and NixOS.",
        ),
        fixes=(
            Fix(
                "Check that the driver works here, and that the linker knows its library.",
                "nvidia-smi -L; ldconfig -p | grep -E 'libcuda.so|libnvidia-ml'",
            ),
            Fix("If the library is missing in the list, add its directory, then update the cache.", "sudo ldconfig"),
            Fix(
                "Or let NVIDIA's container toolkit find the files.",
                "apptainer exec --nv --nvccli IMAGE nvidia-smi",
            ),
            Fix(
                "On Jetson, pass the directory of the driver.",
                "apptainer exec --bind /usr/lib/aarch64-linux-gnu/tegra IMAGE bash",
            ),
        ),
        empty_cache=NO_CONTEXT_YET,
        sources=(_APPTAINER, "https://github.com/sylabs/singularity/issues/2805"),
        said_by="Singularity 3, Apptainer 1",
    ),
    KnownError(
        id="lxc-gpu",
        section=SECTION,
        title="LXC container with a GPU does not start",
        summary="LXC, Incus, LXD or Proxmox could not give the container the files of the GPU driver.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern("Failed to run mount hooks", r"lxc_setup: ?\d{1,5} - Failed to run mount hooks"),
            Pattern("Failed to run autodev hooks", r"lxc_setup: ?\d{1,5} Failed to run autodev hooks"),
            Pattern(
                'Failed to mount "/dev/nvidia',
                r"Failed to mount \"(?P<file>/dev/nvidia[\w/-]{0,30})\" onto",
            ),
        ),
        causes=(
            "The container's configuration names device files that the host does not have yet, as /dev/nvidia-modeset.",
            "The hook calls nvidia-container-cli, which fails: no driver, or a toolkit that is older than the driver.",
        ),
        fixes=(
            Fix("Run what the hook runs, and read its error.", "sudo nvidia-container-cli --load-kmods info"),
            Fix(
                "Create the device files on the host.",
                "sudo nvidia-modprobe -c 0 -u && sudo nvidia-modprobe -m; ls -l /dev/nvidia*",
                first_for=("Failed to mount", "autodev"),
            ),
            Fix("Update the container toolkit.", "sudo apt-get install --only-upgrade libnvidia-container-tools"),
            Fix("In the configuration, mark each device file as optional: `create=file,optional`."),
        ),
        empty_cache=NO_CONTEXT_YET,
        sources=(
            "https://linuxcontainers.org/incus/docs/main/reference/instance_options/",
            "https://github.com/lxc/incus/issues/2397",
        ),
        said_by="LXC 4-6",
    ),
    KnownError(
        id="container-image",
        section=SECTION,
        title="Container image cannot be downloaded or started",
        summary="The registry does not have this image for this kind of processor, or does not give it to this user.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern("manifest for ", r"manifest for (?P<image>[\w./:@-]{3,120}) not found"),
            Pattern("no matching manifest for ", r"no matching manifest for (?P<platform>\w{3,12}/[\w/]{3,16})"),
            Pattern(
                "pull access denied for",
                r"pull access denied for (?P<image>(?:[\w.-]{1,40}/){0,3}"
                r"(?:nvidia|cuda|pytorch|vllm|sglang|tensorrt|triton)[\w./:@-]{0,100})",
            ),
            Pattern("unauthorized: authentication", r"unauthorized: authentication required"),
            Pattern(
                "nvcr.io/",
                r"\bnvcr\.io/[^\n]{1,200}?: (?:401 Unauthorized|unauthorized\b|denied: \{)",
            ),
            Pattern("exec format error", r"exec (?:/|user process caused)[^\n]{0,120}?exec format error"),
        ),
        causes=(
            "The tag does not exist, or was removed: `latest` of nvidia/cuda, and the tags of old CUDA versions.",
            "The image exists only for x86-64, and the host is ARM, as Grace, Jetson and Macs, or the reverse.",
            "The image needs an account at the registry, or a key of NGC that has expired.",
        ),
        fixes=(
            Fix(
                "Choose a tag that exists; tags of nvidia/cuda need the version and the system.",
                "docker pull nvidia/cuda:12.8.1-base-ubuntu24.04",
            ),
            Fix(
                "List the kinds of processors for which the image exists.",
                "docker manifest inspect IMAGE | grep -A 1 architecture",
                first_for=("no matching manifest", "exec format error"),
            ),
            Fix(
                "Log in; for nvcr.io, the user is $oauthtoken, and the password is a key of NGC.",
                "docker login nvcr.io",
                first_for=("nauthorized", "denied"),
            ),
        ),
        empty_cache=NO_CONTEXT_YET,
        sources=(
            "https://docs.nvidia.com/ngc/gpu-cloud/ngc-user-guide/index.html",
            "https://github.com/NVIDIA/nvidia-docker/issues/1454",
        ),
        said_by="Docker 20-28",
    ),
)
