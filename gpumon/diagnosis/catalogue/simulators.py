"""Errors of simulators on the GPU: the graphics driver that they need, and molecules.

The wordings are from the source of OpenMM 8.4 and from reports.
"""

from typing import Final

from gpumon.diagnosis.catalogue.kernel_libraries import SECTION
from gpumon.diagnosis.catalogue.wording import NOT_ABOUT_MEMORY, literal
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

_OPENMM: Final = "https://github.com/openmm/openmm/wiki/Frequently-Asked-Questions"

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="vulkan-driver",
        section=SECTION,
        title="Simulator finds no Vulkan driver for the GPU",
        summary="Isaac Sim, ManiSkill and CARLA draw with Vulkan, whose part of NVIDIA's driver is missing here.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern("VkResult: ERROR_", r"VkResult: (?P<reason>ERROR_(?:INCOMPATIBLE_DRIVER|INITIALIZATION_FAILED))"),
            literal("vkCreateInstance failed. Vulkan 1.1 is not supported"),
            Pattern(
                "ErrorIncompatibleDriver",
                r"vk::(?:Instance::)?\w{1,40}: (?P<reason>ErrorIncompatibleDriver)",
            ),
            Pattern(
                "ErrorInitializationFailed",
                r"vk::(?:\w{1,30}::)?\w{1,40}: (?P<reason>ErrorInitializationFailed)",
            ),
            Pattern("ErrorExtensionNotPresent", r"vk::(?:\w{1,30}::)?\w{1,40}: (?P<reason>ErrorExtensionNotPresent)"),
            Pattern("failed to find a rendering device", r"RuntimeError: failed to find a rendering device"),
            Pattern("Failed to create any GPU devices", r"Failed to create any GPU devices, including an attempt"),
            Pattern(
                "cudaImportExternalMemory failed on",
                r"cudaImportExternalMemory failed on (?P<buffer>\w{1,40}) buffer with error (?P<code>\d{1,4})",
            ),
            Pattern("Failed to create GPU foundation devices", r"Failed to create GPU foundation devices"),
        ),
        causes=(
            "The container has no libraries for graphics: NVIDIA_DRIVER_CAPABILITIES lacks graphics.",
            "The driver was installed without its graphics part, as the headless packages of servers are.",
            "The GPU has no ray tracing cores, such as the A100 and the H100, on which Isaac Sim does not draw.",
        ),
        fixes=(
            Fix(
                "In a container, ask for all parts of the driver.",
                "docker run --gpus all -e NVIDIA_DRIVER_CAPABILITIES=all IMAGE",
            ),
            Fix("Show what Vulkan finds.", "sudo apt-get install -y libvulkan1 vulkan-tools; vulkaninfo --summary"),
            Fix(
                "If it does not list the GPU, name NVIDIA's driver, or install its graphics part.",
                "ls /usr/share/vulkan/icd.d /etc/vulkan/icd.d; export VK_ICD_FILENAMES=/usr/share/vulkan/icd.d/"
                "nvidia_icd.json",
            ),
            Fix("Or train without cameras, which needs no Vulkan.", "python train.py --headless"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://maniskill.readthedocs.io/en/latest/user_guide/getting_started/installation.html",),
        said_by="Isaac Sim 2023.1-5.1, SAPIEN 2.2-3.0",
    ),
    KnownError(
        id="openmm-platform",
        section=SECTION,
        title="OpenMM cannot use the GPU",
        summary="OpenMM has no part for CUDA, or could create no context on any GPU.",
        context=ContextState.UNKNOWN,
        patterns=(
            Pattern("No compatible CUDA device is", r"(?-i:No compatible CUDA device is available)"),
            Pattern(
                "There is no registered Platform called",
                r"There is no registered Platform called \"(?P<platform>\w{1,20})\"",
            ),
            Pattern("The requested CUDA device could not be loaded", r"The requested CUDA device could not be loaded"),
        ),
        causes=(
            "The GPU's memory is full, as after JAX reserved it, or the GPU is in exclusive mode and taken.",
            "OpenMM was built for a newer CUDA than the driver supports.",
            "OpenMM was installed by pip without its part for CUDA.",
        ),
        fixes=(
            Fix("Ask OpenMM which platforms work, and why others do not.", "python -m openmm.testInstallation"),
            Fix("Show who uses the GPUs, and their mode.", "nvidia-smi; nvidia-smi -q -d COMPUTE"),
            Fix(
                "If JAX runs in the same process, let it reserve less.",
                "export XLA_PYTHON_CLIENT_PREALLOCATE=false",
            ),
            Fix(
                "Install the part for CUDA, for the version that the driver supports.",
                'pip install --upgrade "openmm[cuda12]"',
                first_for=("registered Platform",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(_OPENMM, "https://github.com/openmm/openmm/blob/master/platforms/cuda/src/CudaContext.cpp"),
        said_by="OpenMM 7.5-8.4",
    ),
    KnownError(
        id="openmm-nan",
        section=SECTION,
        title="Simulation of molecules exploded",
        summary="The position or the energy of a particle is no number: the forces became too large.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern("Particle coordinate is ", r"Exception: Particle coordinate is (?:NaN|nan)"),
            Pattern("Energy is ", r"OpenMMException: Energy is NaN"),
        ),
        causes=(
            "The time step is too long for the constraints and the masses.",
            "The start was not minimized enough: atoms overlap.",
            "The periodic box is wrong, or smaller than twice the cutoff.",
        ),
        fixes=(
            Fix(
                "Minimize first, then heat with short steps.",
                """\
simulation.minimizeEnergy()
simulation.context.setVelocitiesToTemperature(50 * kelvin)
simulation.integrator.setStepSize(0.0005 * picoseconds)
simulation.step(10000)""",
            ),
            Fix("Set the box from the file with the coordinates, and look at the particles that move the most."),
            Fix(
                "Check whether the GPU is the reason: the reference platform computes the same on the CPU.",
                "platform = openmm.Platform.getPlatformByName('Reference')",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(_OPENMM, "https://github.com/openmm/openmm/issues/2308"),
        said_by="OpenMM 7.4-8.4",
    ),
    KnownError(
        id="isaac-asset",
        section=SECTION,
        title="Isaac Lab does not find the robot in the scene",
        summary="The file of the robot or object was not loaded, or its root is not where the configuration says.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                " when resolving '",
                r"Failed to find (?:an?|a single) (?P<kind>articulation|rigid body|deformable body)(?: \w{1,12})? when"
                r" resolving '(?P<path>[^'\n]{1,120})'",
            ),
            Pattern("USD file not found at path", r"USD file not found at path(?: at)?: '(?P<path>[^'\n]{1,200})'"),
        ),
        causes=(
            "The file could not be opened: a reference in it, or the server of the assets, is not reachable.",
            "The robot was converted without a root of its joints, or the root belongs to another prim.",
            "The path of the prim in the configuration is not the one that is spawned.",
        ),
        fixes=(
            Fix("Read the warnings above: `Could not open asset` names the file that is missing."),
            Fix(
                "Convert the robot again, which sets the root of its joints.",
                "bash isaaclab.sh -p scripts/tools/convert_urdf.py ROBOT.urdf ROBOT.usd --merge-joints",
            ),
            Fix("If the assets of NVIDIA's server cannot be reached, download them, and set their folder."),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://isaac-sim.github.io/IsaacLab/main/source/how-to/import_new_asset.html",),
        said_by="Isaac Lab 1.0-2.3",
    ),
    KnownError(
        id="colmap-gpu",
        section=SECTION,
        title="COLMAP cannot use the GPU, or has other options",
        summary="COLMAP finds and matches features with CUDA, if it was built with it, else with OpenGL, which needs a"
        " screen; since version 3.12, its options have other names.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern("Cannot use Sift GPU without CUDA", r"Cannot use Sift GPU without CUDA or OpenGL support"),
            Pattern("SiftGPU not fully supported", r"SiftGPU not fully supported"),
            Pattern(
                " option '--Sift",
                r"unrecogni[sz]ed option '(?P<option>--Sift(?:Extraction|Matching)\.[\w.]{1,40})'",
            ),
            Pattern(
                "Dense stereo reconstruction requires CUDA",
                r"Dense stereo reconstruction requires CUDA, which is not available",
            ),
        ),
        causes=(
            "The package of the distribution is built without CUDA.",
            "The host has no screen, which OpenGL needs.",
            "The script is older than COLMAP 3.12, which renamed SiftExtraction.use_gpu to FeatureExtraction.use_gpu.",
        ),
        fixes=(
            Fix(
                "Install a build with CUDA, which conda chooses on a host with a driver.",
                "conda install -c conda-forge colmap",
            ),
            Fix(
                "Rename the options in the script to FeatureExtraction.use_gpu and FeatureMatching.use_gpu, or use"
                " COLMAP 3.11.",
                "grep -rn -e SiftExtraction.use_gpu -e SiftMatching.use_gpu convert.py",
                first_for=(" option '--Sift",),
            ),
            Fix("Or use the CPU, which is slower.", "python convert.py -s SCENE --no_gpu"),
            Fix(
                "Or give OpenGL a virtual screen.",
                "sudo apt-get install -y xvfb; xvfb-run -a colmap feature_extractor --database_path DB",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(
            "https://colmap.github.io/faq.html",
            "https://github.com/colmap/colmap/pull/3465",
        ),
        said_by="COLMAP 3.6-3.13",
    ),
    KnownError(
        id="isaaclab-arrays",
        section=SECTION,
        title="Isaac Lab: the code is for another generation",
        summary="Since Isaac Lab 3, the data of robots and sensors are arrays of Warp, whose tensor is `.torch`; in"
        " Isaac Lab 2, they are tensors.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern("'Tensor' object has no attribute 'torch'", r"'Tensor' object has no attribute 'torch'"),
            Pattern("'ProxyArray' object has no", r"'ProxyArray' object has no attribute '(?P<name>\w{1,60})'"),
        ),
        causes=("The task or the template was written for Isaac Lab 3, and version 2 is installed; or the reverse.",),
        fixes=(
            Fix(
                "Use the branch of the template or of the task that belongs to the installed Isaac Lab; or remove"
                " `.torch` from the line that the traceback names.",
                "pip list | grep -i isaac; grep -rn '\\.torch\\b' source",
            ),
            Fix(
                "With Isaac Lab 3, take the tensor of the array.",
                "quaternion = robot.data.root_link_quat_w.torch",
                first_for=("'ProxyArray'",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/isaac-sim/IsaacLab/pull/5304",),
        said_by="Isaac Lab 2.3-3.0",
    ),
)
