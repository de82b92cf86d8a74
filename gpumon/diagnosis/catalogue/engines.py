"""Errors of CTranslate2, spconv, and simulators such as PhysX, Isaac Gym and Warp, which have separate kernels."""

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
        title="Sparse convolution failed in spconv or MinkowskiEngine",
        summary="A kernel of the library failed; spconv prints the sizes of its tensors before the exception.",
        context=ContextState.UNKNOWN,
        patterns=(
            Pattern(
                "[Exception|",
                r"\[Exception\|(?P<operation>(?:indice_conv|implicit_gemm|indice_maxpool|native_pair)\w{0,12})[|\]]?",
            ),
            Pattern(
                "Assertion `0`",
                r"(?:/spconv/build/|\bcumm[/:])[^\n]{1,300}? block: \[[\d,]{5,32}\], thread: \[[\d,]{5,17}\]"
                r" Assertion `0` failed",
            ),
            Pattern("cuda execution failed with error ", r"cuda execution failed with error (?P<code>\d{1,3})"),
            Pattern(
                "RuntimeError: /",
                r"RuntimeError: /\S{0,160}/spconv/\S{1,120}\.(?:h|cu|cc) (?P<line>\d{1,5})$",
            ),
            Pattern(
                "MinkowskiEngine",
                r"RuntimeError: {1,3}(?P<reason><unknown>|[\w ]{1,60}) at /\S{0,160}MinkowskiEngine[\w.-]{0,20}/src"
                r"/\w{1,40}\.cuh?:(?P<line>\d{1,5})",
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
                "Remove all builds of spconv and cumm, and install the newest one for PyTorch's version of CUDA, such"
                " as cu120: an older one has no kernels for a newer GPU.",
                "pip uninstall -y $(pip list | grep -o -E '^(spconv|cumm)[^ ]*')\npip install --upgrade spconv-cu120",
                first_for=("Assertion `0`",),
            ),
            Fix(
                "Build MinkowskiEngine again: with the toolkit of PyTorch's CUDA version, a compiler that this toolkit"
                " supports, and the architecture of your GPU, for example 8.9.",
                "TORCH_CUDA_ARCH_LIST=8.9 pip install --no-build-isolation --force-reinstall --no-deps"
                " git+https://github.com/NVIDIA/MinkowskiEngine",
                first_for=("MinkowskiEngine",),
            ),
            Fix(
                "Error 2 is out of memory: use a smaller batch, larger voxels, or fewer of them.",
                "batch_size = 1",
                first_for=("failed with error 2",),
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
            Pattern(
                " : internal error : ",
                r"/Pxg\w{1,40}\.(?:h|cpp) \(\d{1,5}\) : internal error : (?P<reason>(?!GPU [^\n]{1,80} fail to launch)"
                r"[^\n]{1,80})",
            ),
            Pattern("fail to launch kernel!!", r"internal error : (?P<reason>GPU [^\n]{1,80} fail to launch kernel!!)"),
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
                "Read the first message of PhysX: if it names a buffer, enlarge that in the configuration of the"
                " simulation; these are the usual ones.",
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
    KnownError(
        id="tensorrt-llm-build",
        section=SECTION,
        title="TensorRT-LLM could not build the engine",
        summary="TensorRT made no engine of this model; its own messages, marked [TRT] [E], stand above this line.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern("Engine building failed, please check", r"Engine building failed, please check (?:the )?error log"),
            Pattern("Failed to build engine for rank", r"Failed to build engine for rank (?P<rank>\d{1,5})"),
        ),
        causes=(
            "GPU memory is not enough while building, often because another process holds it.",
            "This version has no plugin or kernel for the model, its type, or this GPU.",
        ),
        fixes=(
            Fix("Read the first line of TensorRT that is marked as an error.", "grep -n -m 5 -F '[TRT] [E]' build.log"),
            Fix(
                "If it is about memory, build for smaller batches and lengths.",
                "trtllm-build --checkpoint_dir CHECKPOINT --output_dir ENGINE --max_batch_size 8 --max_num_tokens 2048",
            ),
            Fix(
                "Or serve the checkpoint without an engine: newer versions run it with PyTorch.",
                "pip install --upgrade tensorrt-llm && trtllm-serve MODEL",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/NVIDIA/TensorRT-LLM/issues/978",),
        said_by="TensorRT-LLM 0.5-0.20",
        is_echo=True,
    ),
    KnownError(
        id="simulator-no-gpu",
        section=SECTION,
        title="Simulator does not get the GPU",
        summary="PhysX or Taichi could not open the driver or create a CUDA context, and would compute on the CPU.",
        context=ContextState.UNKNOWN,
        patterns=(
            Pattern("PhysX CUDA Context Manager", r"Failed to create a (?:valid )?PhysX CUDA Context Manager"),
            Pattern("internal error : libcuda.so", r"internal error : libcuda\.so!"),
            literal("Failed to create Cuda Context Manager"),
            literal("Unable to create PxCudaContextManager"),
            Pattern("Gym cuda error: ", r"Gym cuda error: (?P<reason>invalid resource handle)"),
            literal("Must enable GPU pipeline to use state tensors"),
            literal("libcuda.so lib not found"),
            Pattern(
                "is not supported, falling back to CPU",
                r"Arch=\[<Arch\.cuda: \d>\] is not supported, falling back to CPU",
            ),
        ),
        causes=(
            "Isaac Gym and Taichi open libcuda.so, and the system has only libcuda.so.1.",
            "The driver is too old for the simulator, or the GPU too new: Isaac Gym has no kernels for Blackwell.",
            "On Isaac Sim, an earlier error killed the CUDA context.",
        ),
        fixes=(
            Fix(
                "Give the driver's library the name that is looked for.",
                "sudo ln -s libcuda.so.1 /usr/lib/x86_64-linux-gnu/libcuda.so && sudo ldconfig",
            ),
            Fix(
                "In WSL, let the loader find the driver's library.",
                "export LD_LIBRARY_PATH=/usr/lib/wsl/lib:$LD_LIBRARY_PATH",
            ),
            Fix(
                "Simulate on the GPU that computes; both options must agree.",
                "python train.py --sim_device cuda:0 --rl_device cuda:0 --pipeline gpu",
            ),
            Fix(
                "Compare the driver with the version's requirements.",
                "nvidia-smi --query-gpu=name,driver_version --format=csv",
            ),
            Fix("Move to Isaac Lab, which replaces Isaac Gym and supports newer GPUs."),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(
            "https://github.com/unitreerobotics/unitree_rl_gym/issues/48",
            "https://github.com/isaac-sim/IsaacLab/pull/5727",
        ),
        said_by="Isaac Gym Preview 4, Isaac Sim 4.2-6.0, Taichi 0.7-1.8",
    ),
    KnownError(
        id="isaac-plugin",
        section=SECTION,
        title="Isaac Gym or Isaac Sim cannot load a plugin",
        summary="A part of the simulator could not be loaded; the line above names the library that is missing.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "Failed to acquire interface",
                r"Failed to acquire interface: \[?(?P<plugin>(?:carb|omni)::[\w:]{1,80})",
            ),
            Pattern(
                "No gym module found for the active",
                r"No gym module found for the active version of Python \((?P<python>[\d.]{1,6})\)",
            ),
            Pattern("libmem_filesys.so: cannot open", r"libmem_filesys\.so: cannot open shared object file"),
        ),
        causes=(
            "A library of the system is missing, often libcuda.so.1 of the driver or libpython3.8.so.1.0.",
            "Isaac Gym has modules for Python 3.6 to 3.8 only, and only for Linux.",
            "Isaac Sim: a module of omni was imported before SimulationApp was created, or parts are not installed.",
        ),
        fixes=(
            Fix(
                "Show which of these libraries the loader finds.",
                "ldconfig -p | grep -E 'libcuda|libpython3|libvulkan'",
            ),
            Fix(
                "Let the loader find the libraries of Python.",
                "export LD_LIBRARY_PATH=$CONDA_PREFIX/lib:$LD_LIBRARY_PATH",
            ),
            Fix("Use Python 3.8 on Linux for Isaac Gym.", "conda create -n gym python=3.8"),
            Fix(
                "For Isaac Sim, create the application before the other imports.",
                'from isaacsim import SimulationApp\n\napp = SimulationApp({"headless": True})',
                first_for=("omni::",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(
            "https://github.com/isaac-sim/IsaacGymEnvs/issues/27",
            "https://docs.isaacsim.omniverse.nvidia.com/latest/python_scripting/manual_standalone_python.html",
        ),
        said_by="Isaac Gym Preview 3-4, Isaac Sim 2021-5.0",
    ),
    KnownError(
        id="warp-build",
        section=SECTION,
        title="NVIDIA Warp cannot load or compile its code",
        summary="Warp loads its library and compiles kernels at the first launch; one of the two failed.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "CUDA kernel build failed with error", r"CUDA kernel build failed with error code (?P<code>\d{1,3})"
            ),
            Pattern(
                "Failed to load the shared library",
                r"Failed to load the shared library '(?P<path>[^'\n]{0,200}warp[\\/]bin[\\/][^'\n]{1,40})'",
            ),
            literal("Failed to build CPU module because no CPU buildchain was found"),
            Pattern("Warp CUDA error: Loading", r"Warp CUDA error: Loading module failed"),
        ),
        causes=(
            "Warp is older than the GPU, the driver or Python, or the wheel is for another CUDA version.",
            "A module is compiled or loaded for the first time while a CUDA graph is captured.",
            "Warp was built from source without LLVM or without CUDA.",
        ),
        fixes=(
            Fix("Upgrade Warp; its wheels contain all that is needed.", "pip install --upgrade warp-lang"),
            Fix(
                "Load all modules before a graph is captured.",
                "wp.force_load(device)",
                first_for=("Loading module",),
            ),
            Fix("Delete the cache of kernels.", "python -c 'import warp as wp; wp.init(); wp.clear_kernel_cache()'"),
            fixes.DRIVER_CUDA_VERSION,
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(
            "https://nvidia.github.io/warp/user_guide/installation.html",
            "https://github.com/newton-physics/newton/issues/892",
        ),
        said_by="Warp 0.6-1.10",
    ),
)
