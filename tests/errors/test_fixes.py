"""Fixes that name the values in the message."""

import pytest

from gpumon.errors import scan
from gpumon.errors.entry import Fix
from gpumon.errors.explain import explain_text
from gpumon.errors.facts.platforms import WINDOWS, for_windows
from gpumon.errors.load import ERRORS
from gpumon.errors.match import Match
from gpumon.errors.memory_cause import MemoryCause, cause_sentence
from gpumon.errors.narrative import error_sections
from gpumon.errors.rank import case_of, fixes_of
from tests.errors.texts import samples_of


@pytest.mark.parametrize(
    ("text", "command"),
    [
        (samples_of("vllm-max-len")[0], "vllm serve MODEL --max-model-len 119840"),
        (samples_of("vllm-max-len")[1], "vllm serve MODEL --max-model-len 17184"),
        (samples_of("vllm-max-len")[2], "vllm serve MODEL --max-model-len 8192"),
        (samples_of("vllm-context-limit")[0], "vllm serve MODEL --max-model-len 32768"),
    ],
)
def test_the_first_fix_names_the_length_that_fits(text: str, command: str) -> None:
    match = explain_text(text).cause
    assert match is not None
    assert match.fixes[0].code == command


def test_the_fraction_is_what_is_free_rounded_down() -> None:
    match = explain_text(samples_of("vllm-memory-taken")[1]).cause
    assert match is not None
    assert [fix.code for fix in match.fixes if "utilization" in fix.code] == [
        "vllm serve MODEL --gpu-memory-utilization 0.51"
    ]


def cause_of(text: str) -> Match:
    match = explain_text(text).cause
    assert match is not None
    return match


@pytest.mark.parametrize(
    ("capability", "index", "other"),
    [
        ("sm_120", "cu130", "cu126"),
        ("sm_100", "cu130", "cu126"),
        ("sm_70", "cu126", "cu130"),
        ("sm_61", "cu126", "cu130"),
    ],
)
def test_the_wheels_fit_the_capability_in_the_message(capability: str, index: str, other: str) -> None:
    text = f"NVIDIA X with CUDA capability {capability} is not compatible with the current PyTorch installation."
    codes = [fix.code for fix in cause_of(text).fixes]
    assert codes[0].endswith(f"/{index}")
    assert not any(other in code for code in codes)


@pytest.mark.parametrize(
    ("path", "command"),
    [
        ("site-packages/vllm/_C.abi3.so", "--force-reinstall vllm torch"),
        ("dist-packages/torchvision/_C.so", "--force-reinstall torchvision torch"),
        ("site-packages/flash_attn_2_cuda.cpython-312-x86_64-linux-gnu.so", "--no-deps flash-attn"),
        ("site-packages/no_such_package/lib/_C.so", "--no-deps PACKAGE"),
    ],
)
def test_the_package_of_an_extension_is_named_only_if_it_is_known(path: str, command: str) -> None:
    match = cause_of(f"ImportError: /opt/env/lib/python3.12/{path}: undefined symbol: _ZN3c105ErrorC2Ev")
    assert match.fixes[0].code.endswith(command)
    assert match.fixes[-1].code == "c++filt _ZN3c105ErrorC2Ev"
    assert any("scaled_dot_product" in fix.code for fix in match.fixes) is ("flash_attn" in path)


def test_a_missing_file_is_searched_and_no_variable_is_unset() -> None:
    match = cause_of("ImportError: libcudnn.so.9: cannot open shared object file: No such file or directory")
    assert "-name 'libcudnn.so.9*'" in match.fixes[0].code
    assert not any("unset" in fix.code for fix in match.fixes)
    other = cause_of(
        "ImportError: libcusparse.so.12: undefined symbol: __nvJitLinkAddData_12_1, version libnvJitLink.so.12"
    )
    assert any("unset LD_LIBRARY_PATH" in fix.code for fix in other.fixes)


@pytest.mark.parametrize(
    ("signal", "first", "is_shared_memory"),
    [
        ("Bus error", "--shm-size", True),
        ("Segmentation fault", "PYTHONFAULTHANDLER", False),
        ("Aborted", "PYTHONFAULTHANDLER", False),
        ("Terminated", "sacct", False),
    ],
)
def test_more_shared_memory_helps_only_against_a_bus_error(signal: str, first: str, is_shared_memory: bool) -> None:
    match = cause_of(f"RuntimeError: DataLoader worker (pid 4242) is killed by signal: {signal}.")
    assert first in match.fixes[0].code
    assert any("shm" in fix.code for fix in match.fixes) is is_shared_memory
    killed = cause_of("RuntimeError: DataLoader worker (pid 4242) is killed by signal: Killed.")
    assert killed.error.id == "host-oom"


@pytest.mark.parametrize(
    ("reason", "first"),
    [
        (
            "[Service thread] Error encountered progressing operation=Connect, res=3, closing connection",
            "SOCKET_IFNAME",
        ),
        ("socketStartConnect: Connect to 10.0.0.2<40123> failed : Software caused connection abort", "SOCKET_IFNAME"),
        ("Call to ibv_create_qp failed", "NCCL_IB_DISABLE"),
        ("something new", "NCCL_DEBUG"),
    ],
)
@pytest.mark.parametrize("separator", ["\n", " "])
def test_the_last_error_of_nccl_decides(reason: str, first: str, separator: str) -> None:
    head = "DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:2615, unhandled system error, NCCL version 2.24.3"
    name = "ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error. "
    explanation = explain_text(f"[rank1]: {head}\n[rank1]: {name}\n[rank1]: Last error:{separator}{reason}\nstep 7")
    (match,) = [match for match in explanation.matches if match.error.id == "nccl-system"]
    assert match.values["last_error"] == reason
    assert first in match.fixes[0].code


def test_a_gpu_too_old_for_triton_needs_no_triton() -> None:
    old = cause_of("RuntimeError: Found GTX 1060 which is too old to be supported by the triton GPU compiler")
    assert not any("pip install" in fix.code for fix in old.fixes)
    missing = cause_of("TritonMissing: Cannot find a working triton installation.")
    assert "pip install" in missing.fixes[0].code


def test_memory_that_a_message_attributes_to_no_process_is_not_explained() -> None:
    match = cause_of(
        "Allocation on device 0 would exceed allowed memory. (out of memory)\nCurrently allocated     : 60.00 GiB\n"
        "Requested               : 4.00 GiB\nDevice limit            : 79.11 GiB\n"
        "Free (according to CUDA): 1.00 GiB\nPyTorch limit (set by user-supplied memory fraction)\n"
        "                        : 17179869184.00 GiB"
    )
    assert match.memory_cause is MemoryCause.UNKNOWN
    assert "allowed_bytes" not in match.values
    assert match.memory is not None
    assert "does not show who holds 18.1 GiB" in cause_sentence(MemoryCause.UNKNOWN, match.memory)


@pytest.mark.parametrize("error_id", ["device-assert", "launch-timeout", "busy", "fork", "sync-debug", "xid-31"])
def test_the_cache_is_a_subject_only_where_memory_is(error_id: str) -> None:
    assert not any("empty_cache" in section.heading for section in error_sections(ERRORS[error_id]))
    assert any("empty_cache" in section.heading for section in error_sections(ERRORS["oom"]))


def test_the_address_that_cannot_be_reached_is_checked_first() -> None:
    text = (
        "DistNetworkError: The client socket has timed out after 600000ms while trying to connect to (node01, 29511)."
    )
    codes = [fix.code for fix in cause_of(text).fixes]
    assert codes[0] == "nc -vz node01 29511"
    assert "ss -ltnp | grep 29511" in codes


def test_a_hostile_address_is_in_no_command() -> None:
    text = "The client socket has timed out after 60s while trying to connect to ($(reboot), 29511)."
    assert not any("reboot" in fix.code for fix in cause_of(text).fixes)


def test_the_build_runs_with_the_driver() -> None:
    first, *others = cause_of("The NVIDIA driver on your system is too old (found version 12040).").fixes
    assert "CUDA 12.4" in first.text
    assert first.code.endswith("/cu126")
    assert not any("nvidia-smi" in fix.code for fix in others)


def test_a_driver_older_than_cuda_12_is_upgraded() -> None:
    first, *others = cause_of("The NVIDIA driver on your system is too old (found version 11040).").fixes
    assert "580" in first.text
    assert "reboot" in first.code
    assert [fix.code[-5:] for fix in others if "/whl/" in fix.code] == ["cu118"]
    assert "nvidia-smi" in cause_of("CUDA driver version is insufficient for CUDA runtime version").fixes[0].code


@pytest.mark.parametrize(
    ("module", "command"),
    [
        ("pynvml", "pip install nvidia-ml-py"),
        ("torch_scatter", "--no-build-isolation torch-scatter"),
        ("transformer_engine_torch", "transformer_engine[pytorch]"),
        ("apex", "github.com/NVIDIA/apex"),
    ],
)
def test_a_missing_package_is_installed_by_its_own_name(module: str, command: str) -> None:
    assert command in cause_of(f"ModuleNotFoundError: No module named '{module}'").fixes[0].code


def test_no_package_is_installed_that_only_the_log_names() -> None:
    fixes = cause_of("ModuleNotFoundError: No module named 'cumesh'").fixes
    assert not any("cumesh" in fix.code for fix in fixes)


@pytest.mark.parametrize(
    ("status", "part"),
    [("NOT_SUPPORTED", "contiguous"), ("EXECUTION_FAILED", "LAUNCH_BLOCKING"), ("ALLOC_FAILED", "nvidia-smi")],
)
def test_the_status_of_cudnn_decides_what_comes_first(status: str, part: str) -> None:
    assert part in cause_of(f"RuntimeError: cuDNN error: CUDNN_STATUS_{status}").fixes[0].code


def test_the_prefix_of_a_wrapper_is_removed_first() -> None:
    text = (
        "RuntimeError: Error(s) in loading state_dict for ResNet:\n"
        '\tMissing key(s) in state_dict: "conv1.weight", "bn1.weight".\n'
        '\tUnexpected key(s) in state_dict: "module.conv1.weight", "module.bn1.weight".\n'
    )
    assert "removeprefix" in cause_of(text).fixes[0].code
    assert "removeprefix" not in cause_of(text.replace("module.", "encoder.")).fixes[0].code


@pytest.mark.parametrize(
    ("assertion", "word"),
    [
        ("t >= 0 && t < n_classes", "label"),
        ("srcIndex < srcSelectDimSize", "embedding"),
        ("input_val >= zero && input_val <= one", "probability"),
    ],
)
def test_an_assertion_names_what_is_out_of_range(assertion: str, word: str) -> None:
    text = f"Loss.cu:245: kernel: block: [0,0,0], thread: [5,0,0] Assertion `{assertion}` failed."
    assert word in cause_of(text).fixes[0].text


def test_the_message_is_quoted_and_not_the_code_that_raises_it() -> None:
    text = (
        '    raise AssertionError("Torch not compiled with CUDA enabled")\n'
        "AssertionError: Torch not compiled with CUDA enabled\n"
    )
    match = cause_of(text)
    assert (match.line, match.text) == (2, "AssertionError: Torch not compiled with CUDA enabled")


def test_an_operation_that_cudnn_refuses_needs_no_memory() -> None:
    refused = cause_of("RuntimeError: cuDNN Error: [cudnn_frontend] Error: No execution plans support the graph.")
    assert "enable_cudnn_sdp(False)" in refused.fixes[0].code
    assert "nvidia-smi" in cause_of("GET was unable to find an engine to execute this computation").fixes[0].code


def test_a_sign_in_the_log_decides_which_fix_comes_first() -> None:
    freed = "RuntimeError: Trying to backward through the graph a second time"
    assert (
        "torch.compile" in cause_of(f'File "torch/_functorch/_aot_autograd/runtime_wrappers.py"\n{freed}').fixes[0].text
    )
    assert "torch.compile" not in cause_of(freed).fixes[0].text


def test_the_numbers_of_a_message_decide_which_fix_comes_first() -> None:
    width = "RuntimeError: mat1 and mat2 shapes cannot be multiplied (1920x2048 and 4096x512)"
    assert "has 2048 features, and the layer expects 4096" in cause_of(width).fixes[0].text
    images = "ValueError: Image features and image tokens do not match: tokens: {}, features {}"
    assert "of 2990 tokens of images, 1991 are left" in cause_of(images.format(1991, 2990)).fixes[0].text
    assert "contains the token of an image" in cause_of(images.format(259, 256)).fixes[0].text
    assert "template of the processor" in cause_of(images.format(0, 324)).fixes[0].text


@pytest.mark.parametrize(
    ("file", "first"),
    [
        ("C:\\env\\Lib\\site-packages\\torch\\x.py", "$env:CUDA_LAUNCH_BLOCKING = '1'; python train.py"),
        ("/tmp/ipykernel_7/1.py", "%env CUDA_LAUNCH_BLOCKING=1"),
        ("/env/lib/python3.12/site-packages/torch/x.so", "CUDA_LAUNCH_BLOCKING=1 python train.py"),
    ],
)
def test_commands_are_for_the_platform_of_the_log(file: str, first: str) -> None:
    fixes = cause_of(f'  File "{file}", line 7, in call\nCUBLAS_STATUS_EXECUTION_FAILED when calling `f`').fixes
    assert fixes[0].code == first


@pytest.mark.parametrize(
    ("architecture", "part"),
    [("35", "CUDA 12 no longer"), ("70", "CUDA 13 no longer"), ("120", "toolkit 12.8 or later")],
)
def test_an_architecture_may_be_too_old_for_a_compiler(architecture: str, part: str) -> None:
    match = explain_text(f"nvcc fatal   : Unsupported gpu architecture 'compute_{architecture}'").cause
    assert match is not None
    assert part in match.fixes[0].text


def test_a_line_of_code_is_no_cause_if_the_message_follows() -> None:
    message = "num_samples should be a positive integer value, but got num_samples="
    match = explain_text(f'    raise ValueError(f"{message}{{self.count}}")\nValueError: {message}0\n').cause
    assert match is not None
    assert match.line == 2


OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ("(EngineCore pid=7) ERROR [async_llm_engine.py:68]", "vllm serve"),
        ('  File "/venv/lib/python3.12/site-packages/vllm/v1/engine/core.py", line 9, in run', "vllm serve"),
        ('  File "/srv/sglang/srt/managers/scheduler.py", line 9, in run', "sglang.launch_server"),
        ('  File "/data/ComfyUI/execution.py", line 9, in execute', "smaller image"),
    ],
)
def test_the_program_is_known_by_its_files(line: str, part: str) -> None:
    match = explain_text(f"{line}\n{OOM}\n").cause
    assert match is not None
    assert part in match.fixes[0].text + match.fixes[0].code


@pytest.mark.parametrize("lines_between", [0, 40], ids=["together", "in_other_blocks"])
@pytest.mark.parametrize("order", [1, -1])
def test_a_trainer_that_uses_a_server_trains(monkeypatch: pytest.MonkeyPatch, order: int, lines_between: int) -> None:
    monkeypatch.setattr(scan, "BLOCK_BYTES", 1024)
    monkeypatch.setattr(scan, "OVERLAP_CHARACTERS", 128)
    files = ("verl/trainer/main_ppo.py", "vllm/v1/engine/core.py")[::order]
    traces = [f'  File "/venv/site-packages/{file}", line 9, in run\n{OOM}\n' for file in files]
    match = explain_text((("epoch 1: " + "." * 100 + "\n") * lines_between).join(traces)).cause
    assert match is not None
    assert not any("vllm serve" in fix.code for fix in match.fixes)


def test_a_missing_kernel_has_the_capability_of_the_warning_before_it() -> None:
    warning, error = (
        samples_of("arch-warning")[0],
        "RuntimeError: CUDA error: no kernel image is available for execution",
    )
    match = explain_text(f"torch/cuda/__init__.py:209: UserWarning: \n{warning}\n{error} on the device\n").cause
    assert match is not None
    assert match.error.id == "no-kernel-image"
    assert match.values["capability"]


def _channels(shape: str, expected: int, given: int) -> str:
    sizes = f"weight of size [64, {expected}, 7, 7], expected input[{shape}]"
    return f"Given groups=1, {sizes} to have {expected} channels, but got {given} channels instead"


def _target(target: str, output: str) -> str:
    sizes = f"(torch.Size([{target}])) that is different to the input size (torch.Size([{output}]))"
    return f"Using a target size {sizes} is deprecated. Please ensure they have the same size."


@pytest.mark.parametrize(
    ("message", "part"),
    [
        ("mat1 and mat2 shapes cannot be multiplied (64x400 and 120x84)", "layer = torch.nn.Linear(400, out_features)"),
        ("mat1 and mat2 shapes cannot be multiplied (1792x28 and 784x128)", "hidden.flatten(1)"),
        (
            _channels("8, 1, 224, 224", 3, 1),
            'convert("RGB")',
        ),
        (
            _channels("8, 224, 224, 3", 3, 224),
            "permute(0, 3, 1, 2)",
        ),
        (
            _channels("8, 64, 32, 32", 96, 64),
            "Conv2d(64, ",
        ),
        (
            _target("16", "16, 1"),
            "squeeze(-1)",
        ),
        (
            _target("16", "16, 5"),
            "cross_entropy",
        ),
        (
            _target("16, 4", "16, 5"),
            "as many outputs",
        ),
        ("0D or 1D target tensor expected, multi-target not supported", "argmax"),
        ("Expected input batch_size (4096) to match target batch_size (64).", "64 rows per label"),
        ("Expected input batch_size (8) to match target batch_size (256).", "8 rows for 256 labels"),
        ("shape '[64, 3136]' is invalid for input of size 100352", "last batch"),
        ("shape '[-1, 1568]' is invalid for input of size 200000", "does not have 1568 values"),
        (
            "The size of tensor a (600) must match the size of tensor b (512) at non-singleton dimension 1",
            "truncation=True",
        ),
        ("The size of tensor a (4) must match the size of tensor b (3) at non-singleton dimension 0", 'convert("RGB")'),
        ("The size of tensor a (65) must match the size of tensor b (64) at non-singleton dimension 3", "pad(images"),
        ("The size of tensor a (768) must match the size of tensor b (512) at non-singleton dimension 1", "Print"),
        ("Sizes of tensors must match except in dimension 1. Expected size 64 but got size 63 for tensor", "pad("),
        ("Sizes of tensors must match except in dimension 1. Expected size 64 but got size 32 for tensor", "shapes"),
        ("Expected hidden[0] size (2, 20, 128), got [2, 32, 128]", "another batch size"),
        ("input.size(-1) must be equal to input_size. Expected 10, got 8", "input_size=8"),
        ("Expected 3D (unbatched) or 4D (batched) input to conv2d, but got input of size: [64, 784]", "lacks"),
        ("Expected 3D (unbatched) or 4D (batched) input to conv2d, but got input of size: [1, 8, 3, 9, 9]", "too many"),
        ("running_mean should contain 128 elements not 64", "BatchNorm2d(128)"),
    ],
)
def test_the_sizes_of_a_message_decide_what_to_do(message: str, part: str) -> None:
    match = explain_text(f"RuntimeError: {message}").cause
    assert match is not None
    assert match.error.id == "shape"
    assert part in match.fixes[0].text + match.fixes[0].code


@pytest.mark.parametrize(
    ("message", "part"),
    [
        ("expected scalar type Long but found Float", "indices.long()"),
        ("Found dtype Long but expected Float", "labels.float()"),
        ("expected scalar type Double but found Float", "float64"),
        ("Input type (double) and bias type (float) should be the same", "float64"),
        ("result type Float can't be cast to the desired output type Long", "in place"),
        (
            "Index put requires the source and destination dtypes match, got Half for the destination and Float for",
            "to(",
        ),
        ("Input type (float) and bias type (c10::Half) should be the same", "autocast"),
    ],
)
def test_the_types_of_a_message_decide_what_to_do(message: str, part: str) -> None:
    match = explain_text(f"RuntimeError: {message} the source.").cause
    assert match is not None
    assert match.error.id == "dtype-mismatch"
    assert part in match.fixes[0].text + match.fixes[0].code


@pytest.mark.parametrize(
    ("code", "translated"),
    [
        ("CUDA_LAUNCH_BLOCKING=1 python train.py", "$env:CUDA_LAUNCH_BLOCKING = '1'; python train.py"),
        ("CUDA_HOME=/usr/local/cuda MAX_JOBS=2 pip install .", "$env:MAX_JOBS = '2'; pip install ."),
        ("export PYTHONUTF8=1", "$env:PYTHONUTF8 = '1'"),
        ("pip list | grep -i nvidia; pip check", "pip list | Select-String nvidia; pip check"),
        ("nvidia-smi | grep -o -E 'CUDA Version: [0-9.]+'", "nvidia-smi"),
        ("df -h .", ""),
        ("find = tensor.nonzero()", "find = tensor.nonzero()"),
    ],
)
def test_a_command_is_that_of_powershell(code: str, translated: str) -> None:
    assert for_windows(code) == translated


def test_on_windows_fixes_for_linux_are_last() -> None:
    fixes = (Fix("Install it.", "sudo apt-get install it"), Fix("Wait."))
    error = ERRORS["oom"]._replace(fixes=fixes)
    assert fixes_of(error, case_of(error, values={"platform": WINDOWS})) == fixes[::-1]


def test_a_path_shows_that_a_log_is_from_windows() -> None:
    error = "RuntimeError: CUDA error: an illegal memory access was encountered"
    assert cause_of(f'  File "C:\\train.py", line 3\n{error}').fixes[0].code.startswith("$env:")
    assert cause_of(f'  File "/home/a/train.py", line 3\n{error}').fixes[0].code.startswith("CUDA_LAUNCH_BLOCKING")


def test_a_program_without_pytorch_gets_its_own_fixes() -> None:
    text = (
        "ggml_cuda_compute_forward: SCALE failed\nCUDA error: no kernel image is available for execution on the device"
    )
    assert "CMAKE_CUDA_ARCHITECTURES=native" in cause_of(text).fixes[0].code


@pytest.mark.parametrize(
    ("text", "command"),
    [
        (
            "numpy>=1.17,<2 is required for a normal functioning of this module, but found numpy==2.1.",
            'pip install "numpy>=1.17,<2"',
        ),
        (
            "evil>=1.0 is required for a normal functioning of this module, but found evil==0.9.",
            "pip install --upgrade PACKAGE OTHER_PACKAGE",
        ),
        (
            "ImportError: cannot import name 'EncoderDecoderCache' from 'transformers' (/x/site-packages/transformers)",
            "pip install --upgrade transformers",
        ),
    ],
)
def test_the_version_that_a_message_asks_for_is_installed(text: str, command: str) -> None:
    assert cause_of(text).fixes[0].code == command


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("RuntimeError: shape '[-1, 112, 112]' is invalid for input of size 358400", "size for which the model"),
        ("RuntimeError: shape '[-1, 1568]' is invalid for input of size 358400", "LazyLinear"),
        ("AttributeError: module 'torch._C' has no attribute 'AcceleratorError'", "pip uninstall -y torch"),
        ("AttributeError: module 'torch' has no attribute 'int64'", "torch.__path__"),
        ("WeightsUnpickler error: Unsupported operand 118", "git lfs"),
        (
            "NLLLoss2d.cu:103: f: block: [3,0,0], thread: [9,0,0] Assertion `t >= 0 && t < n_classes` failed.",
            "logits.shape[1]",
        ),
        ('File "multiprocessing\\spawn.py", in spawn_main\nOSError: [WinError 1114] A DLL failed', "num_workers=0"),
        ("OSError: [WinError 1114] A DLL failed", "VCRedist"),
        ("[omni.physx.tensors.plugin] CUDA error: an illegal memory access was encountered: a.cpp: 8", "Isaac Lab"),
        ("[ERROR] Unsupported global: GLOBAL posix.system was not an allowed global by default", "weights_only=False"),
        ("Watchdog caught collective operation timeout: WorkNCCL(SeqNum=2, OpType=ALLREDUCE, NumelIn=1", "timedelta"),
        (
            "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=2000, OpType=ALLREDUCE, NumelIn=1",
            "failed first",
        ),
        (
            (
                "ERROR: Could not find a version that satisfies the requirement torch==1.13.1 (from versions:"
                " 2.0.0, 2.0.1)\n"
                "ERROR: No matching distribution found for torch==1.13.1"
            ),
            "python=3.10",
        ),
        (
            "Could not load libtorchcodec. Likely causes:\n2. The PyTorch version (2.4.0+cu124) is not compatible with",
            "--upgrade torch torchvision torchaudio torchcodec",
        ),
    ],
)
def test_the_first_fix_is_that_of_the_message(text: str, part: str) -> None:
    first = cause_of(text).fixes[0]
    assert part in f"{first.text} {first.code}"


def test_a_type_is_named_in_code_only_if_it_contains_values_alone() -> None:
    message = "Unsupported global: GLOBAL {} was not an allowed global by default"
    fixes = {name: cause_of(message.format(name)).fixes for name in ("numpy.core.multiarray.scalar", "posix.system")}
    assert any("[numpy.core.multiarray.scalar]" in fix.code for fix in fixes["numpy.core.multiarray.scalar"])
    assert not any("posix" in fix.code for fix in fixes["posix.system"])


def test_fixes_for_other_wordings_are_last_and_the_first_one_is_no_alternative() -> None:
    for error in list(ERRORS.values())[::5]:
        fixes = explain_text(samples_of(error.id)[0]).matches
        for match in fixes:
            assert not match.fixes[0].text.startswith("Or "), error.id
            assert len(match.fixes) <= 8, error.id


@pytest.mark.parametrize(
    ("line", "is_first"),
    [
        ("steps:   0%|          | 0/2300 [00:01<?, ?it/s]", True),
        ("Loading checkpoint shards: 100%|###| 4/4 [00:09<00:00]\n  0%|    | 0/500 [00:00<?, ?it/s]", True),
        ("Epoch 1/5:   0%|    | 0/123 [00:00<?, ?img/s]", True),
        ("Epoch 3/5:   0%|    | 0/123 [00:00<?, ?img/s]", False),
        ("steps:  12%|#         | 276/2300 [09:01<1:00, 2it/s]", False),
        ("Epoch 1: 100%|###| 9/9 [00:09<00:00]\nValidation:   0%|    | 0/50 [00:00<?, ?it/s]", False),
        ("step 7", False),
    ],
)
def test_before_the_first_step_is_complete_nothing_has_leaked(line: str, is_first: bool) -> None:
    match = cause_of(
        f"{line}\n"
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 14.00 MiB. GPU 0 has a total capacity of 39.56"
        " GiB of which 896.00 KiB is free. Process 7 has 39.55 GiB memory in use. Of the allocated memory 37.77 GiB is"
        " allocated by PyTorch, and 1.28 GiB is reserved by PyTorch but unallocated.\n"
    )
    assert match.memory_cause is (MemoryCause.TOO_BIG if is_first else MemoryCause.LEAK)
    assert match.memory is not None
    assert ("first step" in cause_sentence(match.memory_cause, match.memory)) or not is_first
    assert any("memory_allocated" in fix.code for fix in match.fixes) is not is_first


def test_old_powershell_has_no_conjunction() -> None:
    assert for_windows("pip install ninja && python setup.py install") == "pip install ninja; python setup.py install"
    assert for_windows("sudo a && sudo b") == "sudo a && sudo b"


@pytest.mark.parametrize("error", ["CUDA error: the provided PTX was compiled with an unsupported toolchain.", "x"])
def test_a_driver_of_two_versions_explains_other_errors_of_it(error: str) -> None:
    text = f"RuntimeError: {error}\nstep 7\nFailed to initialize NVML: Driver/library version mismatch\n"
    assert cause_of(text).error.id == "nvml-mismatch"


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ('  File "/data/stable-diffusion-webui-forge/backend/operations.py", line 9, in forward', "--all-in-fp16"),
        ('  File "/data/train.py", line 9, in forward', "autocast"),
    ],
)
def test_in_a_web_ui_no_code_is_changed(line: str, part: str) -> None:
    text = "RuntimeError: expected mat1 and mat2 to have the same dtype, but got: float != struct c10::Half"
    first = cause_of(f"{line}\n{text}").fixes[0]
    assert part in f"{first.text} {first.code}"


def test_scripts_without_own_code_are_changed_by_their_options() -> None:
    first, *others = cause_of(f'  File "/data/sd-scripts/sdxl_train.py", line 9, in train\n{OOM}\n').fixes
    assert "--optimizer_type Adafactor" in first.code
    assert not any("accumulation" in fix.code for fix in others)


def test_the_package_whose_build_has_no_compiler_is_named() -> None:
    text = "Getting requirements to build wheel\nUserWarning: {} was requested, but nvcc was not found.\n"
    named, evil = (explain_text(text.format(name)).matches[0] for name in ("mamba_ssm", "evil"))
    assert named.fixes[0].code.endswith("--no-build-isolation mamba-ssm")
    assert evil.fixes[0].code.endswith("PACKAGE")


def test_rccl_gets_no_advice_for_nvidia() -> None:
    text = "h:1:2 [0] /rccl/build/hipify/src/transport/p2p.cc:237 NCCL WARN Cuda failure 'invalid argument'"
    match = explain_text(text).matches[0]
    assert match.error.id == "rccl"
    assert not any("nvidia" in fix.code for fix in match.fixes)


def test_the_rasterizer_of_another_repository_is_recognized_by_the_call() -> None:
    text = (
        'Traceback (most recent call last):\n  File "/home/user/render.py", line 86, in render\n'
        "    image, radii, depth = rasterizer(\n"
    )
    assert (
        cause_of(f"{text}ValueError: not enough values to unpack (expected 3, got 2)").error.id == "rasterizer-version"
    )


def test_a_process_with_no_bytes_of_its_own_is_not_another_process() -> None:
    match = cause_of(
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.96 GiB. GPU 1 has a total"
        " capacity of 23.43 GiB"
        " of which 210.06 MiB is free. Including non-PyTorch memory, this process has 0 bytes memory in use. Of the"
        " allocated memory 22.41 GiB is allocated by PyTorch, and 206.09 MiB is reserved by PyTorch but unallocated."
    )
    assert "nvidia-smi" not in match.fixes[0].code
