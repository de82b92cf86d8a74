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
            Pattern(
                "returned error code: ",
                r"\[ERROR\] URL (?P<image>\S{1,200}) returned error code: (?P<code>\d{3}\b[^\n]{0,30})",
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
                first_for=("nauthorized: ", " unauthorized", "denied"),
            ),
            Fix(
                "With Slurm and enroot, write a # after the registry; its login is in ~/.config/enroot/.credentials.",
                "srun --container-image=nvcr.io#nvidia/pytorch:25.06-py3 nvidia-smi",
                first_for=("[ERROR] URL",),
            ),
        ),
        empty_cache=NO_CONTEXT_YET,
        sources=(
            "https://docs.nvidia.com/ngc/gpu-cloud/ngc-user-guide/index.html",
            "https://github.com/NVIDIA/nvidia-docker/issues/1454",
        ),
        said_by="Docker 20-28",
    ),
    KnownError(
        id="pyxis",
        section=SECTION,
        title="Slurm could not start the container",
        summary="Pyxis, Slurm's plugin for containers, could not import or start the image; lines of enroot say why.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(" enroot-", r"pyxis: {1,8}(?P<reason>enroot-\w{1,20}: [^\n]{1,120})"),
            Pattern(
                "not found: nvidia-container-cli", r"\[ERROR\] Command (?P<reason>not found: nvidia-container-cli)"
            ),
            Pattern(
                "/enroot/hooks.d/", r"\[ERROR\] (?P<hook>\S{0,60}/enroot/hooks\.d/\S{1,40}) exited with return code"
            ),
            Pattern("pyxis: failed to import", r"pyxis: failed to import (?:docker )?(?P<image>image\b)"),
            Pattern("couldn't mkdir /run/pyxis", r"pyxis: couldn't mkdir (?P<folder>/run/pyxis\S{0,40})"),
            Pattern(
                'SPANK plugin "pyxis" option',
                r'SPANK plugin "pyxis" option "(?P<option>[\w-]{1,40})" not found',
            ),
            Pattern("pyxis: couldn't start", r"pyxis: couldn't start container"),
            Pattern(
                "pyxis: container start failed", r"pyxis: container start failed with error code: (?P<code>\d{1,3})"
            ),
            Pattern(
                "pyxis: error: a container with name",
                r"pyxis: error: a container with name \"?(?P<container>[^\"\n]{1,120}?)\"? does not exist",
            ),
        ),
        causes=(
            "The name of the image lacks the # after the registry, so that it is looked for on Docker Hub.",
            "The registry needs a login, or limits downloads without one.",
            "The name of an image file does not begin with / or ./, so that it is taken for one of a registry.",
            "The cache or the folder for temporary files is full, or not writable, on the node.",
        ),
        fixes=(
            Fix(
                "Import the image by hand on the node, which shows the whole error.",
                "srun -w NODE enroot import docker://nvcr.io#nvidia/pytorch:25.06-py3",
            ),
            Fix(
                "Leave out the start script of the image, which does not run here.",
                "srun --no-container-entrypoint --container-image=IMAGE nvidia-smi",
                first_for=("failed to execute",),
            ),
            Fix(
                "Install pyxis on the login node and on every node, with its folder, and restart slurmd.",
                "sudo mkdir -p /run/pyxis && sudo systemctl restart slurmd",
                first_for=("/run/pyxis", "SPANK plugin"),
            ),
            Fix(
                "Install the NVIDIA Container Toolkit on the node, which enroot calls for GPUs.",
                "sudo apt-get install -y nvidia-container-toolkit",
                first_for=("not found: nvidia-container-cli",),
            ),
            Fix(
                "Name the image too: containers with a name live only in the job that created them.",
                "srun --container-image=./image.sqsh --container-name=NAME nvidia-smi",
                first_for=("does not exist",),
            ),
            Fix(
                "Show the free space where enroot stores its data.",
                "df -h /tmp /run $HOME ; grep -v '^#' /etc/enroot/enroot.conf",
            ),
        ),
        empty_cache=NO_CONTEXT_YET,
        sources=(
            "https://github.com/NVIDIA/pyxis/wiki/Usage",
            "https://github.com/NVIDIA/enroot/blob/master/doc/cmd/import.md",
        ),
        said_by="pyxis 0.11-0.20, enroot 3.1-3.5",
        is_echo=True,
    ),
)
