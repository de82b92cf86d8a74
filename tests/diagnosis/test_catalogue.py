"""The catalogue of known errors: each entry is whole, its code can be copied, its patterns find its own error alone."""

import importlib
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import pytest

from gpumon.diagnosis.catalogue import BY_ID, ERRORS
from gpumon.diagnosis.known import KnownError, Pattern

DATA: Final = Path(__file__).resolve().parents[1] / "data"
SAMPLES: Final[dict[str, list[str]]] = json.loads((DATA / "error_samples.json").read_text())
CASES: Final = [(error_id, text) for error_id, texts in SAMPLES.items() for text in texts]

IDS: Final = frozenset((DATA / "error_ids.txt").read_text().split())
"""Scripts and links rely on these: none may go or change its meaning."""

ECHOES: Final = {
    *("lazy-init", "nccl-timeout", "nccl-takedown", "nccl-remote", "nccl-destroy"),
    *("xid-43", "xid-45", "xid-154"),
}

COMMANDS: Final = (
    "cat c++filt compute-sanitizer dcgmi df docker echo env export grep journalctl ldconfig ls lsmod mkdir nc "
    "nv-fabricmanager nvidia-smi pip py-spy python python3 rm srun ss sudo torchrun ulimit unset"
)
"""Code that begins with one of these, or with a variable set for one of them, is for the shell; all else is Python."""

PROSE: Final = (
    "cuda available: True, 8 devices",
    "the GPU ran out of memory yesterday, so the batch is smaller now",
    "Out of memory: Killed process 4242 (python3) total-vm:98304000kB, anon-rss:64000000kB",
    "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=job_1,mems_allowed=0-1",
    'Exception in thread "main" java.lang.OutOfMemoryError: Java heap space',
    "MemoryError: Unable to allocate 12.0 GiB for an array with shape (40000, 40000) and data type float64",
    "RuntimeError: [enforce fail at alloc_cpu.cpp:118] err == 0. DefaultCPUAllocator: can't allocate memory",
    "TypeError: forward() got an unexpected keyword argument 'labels'",
    "ValueError: Expected input batch_size (32) to match target batch_size (16).",
    "AssertionError: shapes differ",
    "ImportError: libcurl.so.4: cannot open shared object file: No such file or directory",
    "ImportError: /v/foo.so: undefined symbol: PyUnicode_AsUTF8",
    "HTTP 403: Insufficient Permissions",
    "This codec is Not Supported by the player",
    "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580.95.05",
    "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 12028, Non-fatal, Link 32 egress non-posted PRIV error",
    "NVRM: Xid (PCI:0000:41:00): 8, pid=2345, Channel 00000008",
    "NVRM: Xid (PCI:0000:41:00): 136, pid=2345, Link Training Failed",
    "box:4242:4301 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.1<0>",
    "an unspecified error of the launcher: unknown error",
    "Failed to receive the file, got 12 bytes",
)

LONGEST_REPEAT: Final = 300
MOST_STEPS: Final = 4000
ADVERSARIAL_BYTES: Final = 100_000


def matching(text: str) -> set[str]:
    """The entries of which a pattern matches a text."""
    return {error.id for error in ERRORS for pattern in error.patterns if re.search(pattern.regex, text, re.MULTILINE)}


def patterns() -> Iterator[Any]:
    for error in ERRORS:
        for number, pattern in enumerate(error.patterns):
            yield pytest.param(pattern, id=f"{error.id}-{number}")


def snippets() -> Iterator[Any]:
    """Every piece of code that is there to be copied, each once."""
    found = {fix.code: error.id for error in ERRORS for fix in (*error.fixes, *error.see_more) if fix.code}
    for code, error_id in found.items():
        yield pytest.param(code, id=f"{error_id}: {code.splitlines()[0]}")


def is_shell(code: str) -> bool:
    words = (word for word in code.split() if not re.fullmatch(r"[A-Z][A-Z0-9_]*=\S*", word))
    return next(words, "").rstrip(";") in COMMANDS.split()


def sentences(error: KnownError) -> Iterator[str]:
    yield error.summary
    yield from error.causes
    yield error.empty_cache
    for fix in (*error.fixes, *error.see_more):
        yield fix.text


def test_the_ids_are_the_public_ones() -> None:
    assert len(ERRORS) == len(BY_ID)
    assert set(BY_ID) == IDS
    assert all(BY_ID[error.id] is error for error in ERRORS)


def test_echoes_are_those_that_follow_another_error() -> None:
    assert {error.id for error in ERRORS if error.is_echo} == ECHOES


def test_a_section_stands_in_one_piece() -> None:
    sections = [name for name, _ in groupby(error.section for error in ERRORS)]
    assert len(sections) == len(set(sections))


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.id)
def test_an_entry_is_whole(error: KnownError) -> None:
    assert error.patterns
    assert error.causes
    assert error.fixes
    assert error.sources
    assert len(set(error.fixes)) == len(error.fixes)
    assert not set(error.fixes) & set(error.see_more)
    assert error.title == error.title.strip().rstrip(".")
    assert error.title


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.id)
def test_what_it_says_are_sentences(error: KnownError) -> None:
    for text in sentences(error):
        assert text == text.strip()
        assert text.endswith(".")
        assert "  " not in text
        assert "\n" not in text
        assert re.match(
            r"[A-Z0-9]|cu[A-Z]|(?:bitsandbytes|per_process_memory_fraction|pip|sdpa_kernel|torch\S*|true)\b", text
        ), text


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.id)
def test_sources_are_addresses(error: KnownError) -> None:
    for source in error.sources:
        assert re.fullmatch(r"https://[\w.-]+/[\w./#-]*", source), source


@pytest.mark.parametrize("code", snippets())
def test_code_can_be_copied(code: str) -> None:
    if is_shell(code):
        checked = subprocess.run(["bash", "-n"], input=code, capture_output=True, text=True, check=False)
        assert (checked.returncode, checked.stderr) == (0, "")
    else:
        compile(code, "snippet", "exec")
    assert not re.search(r"<\w+>|\.\.\.$", code, re.MULTILINE), "nothing to fill in between angle brackets"
    assert code == code.strip()


def test_a_mistake_in_code_is_noticed() -> None:
    assert is_shell("CUDA_LAUNCH_BLOCKING=1 python train.py")
    assert not is_shell("phyton train.py")
    with pytest.raises(SyntaxError):
        compile("phyton train.py", "snippet", "exec")


def test_every_entry_has_samples() -> None:
    assert set(SAMPLES) == IDS
    assert all(SAMPLES.values())


@pytest.mark.parametrize(("error_id", "text"), CASES)
def test_a_sample_is_its_own_error_and_no_other(error_id: str, text: str) -> None:
    assert matching(text) == {error_id}
    assert {found for line in text.splitlines() for found in matching(line)} == {error_id}, "one line is enough"
    for pattern in BY_ID[error_id].patterns:
        for found in re.finditer(pattern.regex, text, re.MULTILINE):
            assert pattern.needle in found[0]


@pytest.mark.parametrize("pattern", patterns())
def test_every_pattern_has_a_sample_or_is_a_name(pattern: Pattern) -> None:
    is_name = pattern.regex == rf"\b{pattern.needle}\b"
    assert is_name or any(re.search(pattern.regex, text, re.MULTILINE) for _, text in CASES)


@pytest.mark.parametrize("line", PROSE)
def test_prose_is_no_error(line: str) -> None:
    assert matching(line) == set()


@pytest.mark.parametrize(
    ("text", "figures"),
    [
        (SAMPLES["oom"][0], {"gpu": "0"}),
        (SAMPLES["oom"][1], {"gpu": "0"}),
        (SAMPLES["nccl-timeout"][0], {"sequence": "7", "operation": "ALLREDUCE", "elements": "1"}),
        (SAMPLES["xid-63"][0], {"bus": "0000:10:1c", "pid": "1896", "name": None}),
        (SAMPLES["xid-154"][0], {"bus": "0000:01:00", "pid": None, "name": None, "action": "Node Reboot Required"}),
        (SAMPLES["triton-resources"][0], {"resource": "shared memory", "required": "163840", "limit": "101376"}),
        (SAMPLES["device-assert"][1], {"assertion": "srcIndex < srcSelectDimSize"}),
    ],
)
def test_figures_are_taken(text: str, figures: dict[str, str | None]) -> None:
    (error_id,) = matching(text)
    found = [re.search(pattern.regex, text) for pattern in BY_ID[error_id].patterns]
    assert figures in [each.groupdict() for each in found if each is not None]


def steps(regex: str) -> int:
    """How many characters a pattern can take from one place at most, each repetition counted within its outer one."""
    parser = importlib.import_module("re._parser" if sys.version_info >= (3, 11) else "sre_parse")
    return _steps(parser.parse(regex))


def _steps(tree: Any) -> int:  # noqa: ANN401  the parser has no types
    total = 0
    for operation, argument in tree:
        name = str(operation)
        if name in {"MAX_REPEAT", "MIN_REPEAT"}:
            assert argument[1] <= LONGEST_REPEAT, "a repetition without a bound makes a scan quadratic"
            total += int(argument[1]) * _steps(argument[2])
        elif name == "SUBPATTERN":
            total += _steps(argument[3])
        elif name == "BRANCH":
            total += sum(_steps(branch) for branch in argument[1])
        elif name in {"ASSERT", "ASSERT_NOT"}:
            total += _steps(argument[1])
        else:
            total += 1
    return total


@pytest.mark.parametrize("pattern", patterns())
def test_a_pattern_looks_at_few_characters(pattern: Pattern) -> None:
    assert steps(pattern.regex) <= MOST_STEPS


def test_an_unbounded_pattern_is_noticed() -> None:
    with pytest.raises(AssertionError):
        steps(r"block: .*failed")
    assert steps(r"(?:a{1,99}b){1,99}") > MOST_STEPS


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.id)
def test_hostile_text_is_read_quickly(error: KnownError) -> None:
    """A text made of beginnings of what a pattern looks for: good ones take milliseconds, bad ones minutes."""
    begun = time.process_time()
    for pattern in error.patterns:
        for unit in (
            pattern.needle,
            pattern.needle[: len(pattern.needle) // 2],
            "1 ",
            "a",
            "NVRM: Xid (PCI:0000:1:0): ",
        ):
            re.search(pattern.regex, unit * (ADVERSARIAL_BYTES // len(unit)))
    assert time.process_time() - begun < 10
