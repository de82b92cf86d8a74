"""Fixes that name the values in the message."""

import re

import pytest

from gpumon.core.text_table import table
from gpumon.errors.entry import Fix
from gpumon.errors.explain import explain_text
from gpumon.errors.facts.platforms import WINDOWS, for_windows
from gpumon.errors.load import ERRORS
from gpumon.errors.match import Match
from gpumon.errors.memory import MemoryCause, cause_sentence
from gpumon.errors.narrative import error_sections
from gpumon.errors.rank import case_of, fixes_of
from tests.errors.texts import samples_of


def cause_of(text: str) -> Match:
    match = explain_text(text).cause
    assert match is not None
    return match


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


@pytest.mark.parametrize(
    ("code", "translated"),
    [
        ("CUDA_LAUNCH_BLOCKING=1 python train.py", "$env:CUDA_LAUNCH_BLOCKING = '1'; python train.py"),
        ("CUDA_HOME=/usr/local/cuda MAX_JOBS=2 pip install .", "$env:MAX_JOBS = '2'; pip install ."),
        ("export PYTHONUTF8=1", "$env:PYTHONUTF8 = '1'"),
        ("pip list | grep -i nvidia; pip check", "pip list | Select-String nvidia; pip check"),
        ("nvidia-smi | grep -o -E 'CUDA Version: [0-9.]+'", "nvidia-smi"),
        ("pip install ninja && python setup.py install", "pip install ninja; python setup.py install"),
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


def test_a_row_for_a_renamed_name_has_patterns_names_and_a_version() -> None:
    for row in table("gpumon.errors", "renamed"):
        owners, _, rest = row.partition(": ")
        pairs, _, kept = rest.partition(" | ")
        assert re.fullmatch(r"(?:[\w-]+<[\d.]+)?", kept), row
        assert all(re.fullmatch(r"(?:\w+=? )+=> .*[^ .;]", pair) for pair in pairs.split("; ")), row
        assert re.compile(owners), row
