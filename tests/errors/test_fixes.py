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


def cause_of(text: str) -> Match:
    match = explain_text(text).cause
    assert match is not None
    return match


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


def test_a_hostile_address_is_in_no_command() -> None:
    text = "The client socket has timed out after 60s while trying to connect to ($(reboot), 29511)."
    assert not any("reboot" in fix.code for fix in cause_of(text).fixes)


def test_no_package_is_installed_that_only_the_log_names() -> None:
    fixes = cause_of("ModuleNotFoundError: No module named 'cumesh'").fixes
    assert not any("cumesh" in fix.code for fix in fixes)


def test_the_message_is_quoted_and_not_the_code_that_raises_it() -> None:
    text = (
        '    raise AssertionError("Torch not compiled with CUDA enabled")\n'
        "AssertionError: Torch not compiled with CUDA enabled\n"
    )
    match = cause_of(text)
    assert (match.line, match.text) == (2, "AssertionError: Torch not compiled with CUDA enabled")


def test_the_numbers_of_a_message_decide_which_fix_comes_first() -> None:
    width = "RuntimeError: mat1 and mat2 shapes cannot be multiplied (1920x2048 and 4096x512)"
    assert "has 2048 features, and the layer expects 4096" in cause_of(width).fixes[0].text
    images = "ValueError: Image features and image tokens do not match: tokens: {}, features {}"
    assert "of 2990 tokens of images, 1991 are left" in cause_of(images.format(1991, 2990)).fixes[0].text
    assert "contains the token of an image" in cause_of(images.format(259, 256)).fixes[0].text
    assert "template of the processor" in cause_of(images.format(0, 324)).fixes[0].text


OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."


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
