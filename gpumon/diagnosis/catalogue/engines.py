"""Errors of CTranslate2 and PhysX, which have separate kernels and run next to PyTorch."""

from typing import Final

from gpumon.diagnosis.catalogue import fixes
from gpumon.diagnosis.catalogue.kernel_libraries import SECTION
from gpumon.diagnosis.catalogue.wording import NOT_ABOUT_MEMORY, literal
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="ctranslate2-type",
        section=SECTION,
        title="CTranslate2 cannot compute in this type on this GPU",
        summary="CTranslate2, which faster-whisper and WhisperX use, asked cuBLAS for a product that this GPU or this"
        " cuBLAS does not have, mostly in int8.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "cuBLAS failed with status CUBLAS",
                r"cuBLAS failed with status CUBLAS_STATUS_(?P<status>NOT_SUPPORTED|INVALID_VALUE|ARCH_MISMATCH"
                r"|EXECUTION_FAILED|INTERNAL_ERROR)",
            ),
        ),
        causes=(
            "The GPU is newer than the version of CTranslate2: int8 on Blackwell needs CTranslate2 4.7.",
            "The GPU is too old for the type: float16 needs compute capability 7.0, bfloat16 8.0.",
            "The model runs on the CPU, which has no float16.",
        ),
        fixes=(
            Fix(
                "Compute in float16, or in float32 on an older GPU.",
                'model = WhisperModel(NAME, device="cuda", compute_type="float16")',
            ),
            Fix("Upgrade CTranslate2.", "pip install --upgrade ctranslate2 faster-whisper"),
            Fix(
                "Show the types that this GPU has.",
                "python -c 'import ctranslate2; print(ctranslate2.get_supported_compute_types(\"cuda\"))'",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(
            "https://opennmt.net/CTranslate2/quantization.html",
            "https://github.com/SYSTRAN/faster-whisper/issues/1325",
        ),
        said_by="CTranslate2 4.0-4.6",
    ),
    KnownError(
        id="spconv",
        section=SECTION,
        title="Sparse convolution failed in spconv",
        summary="The library spconv prints the sizes of its tensors before the exception that ended its kernel.",
        context=ContextState.UNKNOWN,
        patterns=(
            Pattern(
                "[Exception|",
                r"\[Exception\|(?P<operation>(?:indice_conv|implicit_gemm|indice_maxpool|native_pair)\w{0,12})[|\]]?",
            ),
            literal("SPCONV_DEBUG_SAVE_PATH not found, you can specify SPCONV_DEBUG_SAVE_PATH as debug data save path"),
        ),
        causes=(
            "The library was built for another version of CUDA than PyTorch, or is older than the GPU.",
            "The batch has no voxel, or coordinates are outside of spatial_shape.",
            "The memory of the GPU is exhausted; the exception shows it.",
        ),
        fixes=(
            Fix("Read the exception that follows the list of sizes."),
            Fix(
                "Install the build for PyTorch's version of CUDA.",
                "pip uninstall -y spconv cumm && pip install spconv-cu120",
            ),
            Fix(
                "Check the coordinates.",
                "print(coordinates.shape, coordinates.amin(0), coordinates.amax(0), spatial_shape)",
            ),
            Fix(
                "Use the algorithm that supports every kernel size.",
                "layer = spconv.SubMConv3d(6, 32, 5, algo=spconv.ConvAlgo.Native)",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/traveller59/spconv", "https://github.com/Pointcept/PointTransformerV3/issues/4"),
        said_by="spconv 2.1-2.3",
    ),
    KnownError(
        id="physx-gpu",
        section=SECTION,
        title="Simulation on the GPU stopped",
        summary="PhysX, the physics engine of Isaac Sim and Isaac Lab, could not run a kernel and stopped simulating.",
        context=ContextState.DEAD,
        patterns=(
            Pattern(
                "PhysX error: ",
                r"PhysX error: (?P<reason>(?!Scene state)[^\n]{0,80}(?:fail to launch|failed to"
                r" launch|failed!)[^\n]{0,40})",
            ),
            literal("Cuda context manager error, simulation will be stopped"),
            Pattern(
                "PhysX has reported too many errors",
                r"PhysX has reported too many errors, simulation has been stopped",
            ),
            Pattern(
                "buffer overflow detected", r"PhysX error: (?P<reason>[^\n]{0,120}buffer overflow detected[^\n]{0,120})"
            ),
            Pattern(
                "The application needs to increase Px",
                r"The application needs to increase Pxg?\w{0,40}MemoryConfig::(?P<name>\w{1,60}) to"
                r" (?P<required>\d{1,12})",
            ),
            literal("Scene state is corrupted. Simulation cannot continue"),
        ),
        causes=(
            (
                "More contacts, pairs or patches arose than the buffers on the GPU hold; their sizes are fixed"
                " at the start."
            ),
            "The state of a robot exploded: an action, a joint limit or a reset gave NaN or a huge value.",
            "The driver, or the GPU, is not one that this version of Isaac Sim supports.",
        ),
        fixes=(
            Fix(
                "Enlarge the buffers that the message names, in the configuration of the simulation.",
                "sim.physx.gpu_max_rigid_patch_count = 2**20\nsim.physx.gpu_collision_stack_size = 2**28",
            ),
            Fix("Run fewer environments.", "python train.py --num_envs 1024"),
            Fix("Check that actions and observations are finite.", "assert torch.isfinite(actions).all()"),
            Fix(
                "Compare the driver with the version's requirements.",
                "nvidia-smi --query-gpu=name,driver_version --format=csv",
            ),
            fixes.RESTART_PROCESS,
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(
            "https://isaac-sim.github.io/IsaacLab/main/source/api/lab/isaaclab.sim.html",
            "https://github.com/isaac-sim/IsaacLab/issues/1460",
        ),
        said_by="Isaac Sim 4.2-5.0",
    ),
)
