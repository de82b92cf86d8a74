"""Validates the entries: complete, with code that can be copied, and wordings that match their own error only."""

import ast
import importlib
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from functools import cache
from inspect import getdoc
from pathlib import Path
from typing import Any, Final

import pytest

from gpumon import errors
from gpumon.errors.conditions import condition
from gpumon.errors.entry import ContextState, Fix, KnownError, Wording
from gpumon.errors.explain import explain_text
from gpumon.errors.find import ErrorFinder
from gpumon.errors.load import (
    ENTRIES,
    ERRORS,
    FIELDS,
    FLAGS,
    INDEX,
    SHARED,
    ErrorCatalogue,
    entry_texts,
    filled,
    shared_texts,
)
from gpumon.errors.narrative import KIND_SENTENCES, error_sections
from gpumon.errors.patterns import exact, literals, squeezed
from gpumon.errors.programs import PROGRAMS, SIGNS
from gpumon.errors.rank import case_of, fixes_of
from gpumon.errors.scan import blocks
from gpumon.operations.evidence import EVIDENCE_QUERIES
from tests.errors.each_error import every_error, some_errors
from tests.errors.hostile import needle_of
from tests.errors.index import entry_files, index_document, index_text
from tests.errors.texts import DATA, SAMPLES, SOURCED_WORDINGS, named_texts, samples_of

PUBLIC_IDS: Final = frozenset((DATA / "error_ids.txt").read_text().split())
"""Ids of released versions. Scripts and links rely on them: none may disappear or change its meaning."""

PUBLIC_ECHOES: Final = {
    *("lazy-init", "nccl-timeout", "nccl-takedown", "nccl-remote", "nccl-destroy"),
    *("xid-43", "xid-45", "xid-154"),
}

COMMANDS: Final = (
    "accelerate bash c++filt cat cd chmod compute-sanitizer conda curl dcgmi deepspeed df docker ds_report du echo"
    " env free getent "
    "export gdb git grep head hf ib_write_bw ibstat ip journalctl kubectl ldconfig llama-server ls lsmod lspci "
    "mkdir modinfo mpirun nc nv-fabricmanager nvcc nvidia-ctk nvidia-smi ollama patchelf pip podman ps py-spy python"
    " python3 ray "
    "rm rocm-smi rocminfo sacct srun ss sudo tmux torchrun trtexec ulimit ucx_info unset vllm which winget wsl sinfo"
    " squeue fi_info fi_pingpong horovodrun printf sbatch ssh ssh-keygen hostname scontrol slurmd trl"
    " lmdeploy tritonserver trtllm-build llamafactory-cli apt-cache aws clinfo cmake dpkg findmnt helm reg"
    " sacctmgr sw_vers uv wget"
    " apptainer find gpumon lms"
    " text-generation-launcher dcgm-exporter rocm-sdk sky where npu-smi hl-smi source hccn_tool"
)
"""Code that starts with one of these commands, or with a variable for one, is shell code; the rest is Python."""

PROSE: Final = (
    "cuda available: True, 8 devices", "the GPU ran out of memory yesterday, so the batch is smaller now",
    'Exception in thread "main" java.lang.OutOfMemoryError: Java heap space',
    "except MemoryError: the array has 12.0 GiB and the shape (40000, 40000)",
    "TypeError: forward() got an unexpected keyword argument 'labels'", "AssertionError: shapes differ",
    "ImportError: libcurl.so.4: cannot open shared object file: No such file or directory",
    "ImportError: /v/foo.so: undefined symbol: PyUnicode_AsUTF8", "HTTP 403: Insufficient Permissions",
    "This codec is Not Supported by the player", "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580.95.05",
    "box:4242:4301 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.1<0>",
    "an unspecified error of the launcher: unknown error", "Failed to receive the file, got 12 bytes",
)  # fmt: skip

FILES: Final = {path.stem: list(entry_texts(path.stem)) for path in entry_files()}
"""The ids of the entries of each file."""

_GIVEN: Final = (
    "run pci memory one_tensor measured expandable may_leak raised_by processes printed_batch half_batch evaluates "
    "asked_bytes total_bytes allowed_size holder held_size raising_line parent foreign here impossible misplaced at "
    "code_line marked printed grown operands operand raiser installed said small_limit used_port"
)
GIVEN: Final = frozenset(_GIVEN.split())
"""Slots that have a value without a wording or a function that provides it; the last error of NCCL is below it."""

MIN_NEEDLE_LETTERS: Final = 6
MAX_REPEAT: Final = 300
MAX_STEPS: Final = 4000
ADVERSARIAL_BYTES: Final = 40_000


@cache
def wordings() -> dict[str, list[tuple[str, str]]]:
    """The id and the regular expression of every wording, by the first letters of its needle, which matches have."""
    known: dict[str, list[tuple[str, str]]] = {}
    for error in ERRORS.values():
        for wording in wordings_of(error):
            known.setdefault(needle_of(wording)[:MIN_NEEDLE_LETTERS], []).append((error.id, wording.regex))
    return known


def matching(text: str) -> set[str]:
    """The ids of the entries that match a text."""
    parts = {text[start : start + MIN_NEEDLE_LETTERS] for start in range(len(text))}
    some = (wording for part in parts for wording in wordings().get(part, ()))
    return {error_id for error_id, regex in some if exact(regex).search(text)}


def shown_fixes(error: KnownError) -> list[Fix]:
    """All fixes of an entry, with a value in each slot that has none."""
    values = dict.fromkeys(slots_of(error) - {"run"}, "VALUE")
    return [fix for fix in (filled(fix, values) for fix in error.fixes) if fix is not None]


def slots_of(error: KnownError) -> set[str]:
    """The slots in the fixes of an entry, and in its conditions."""
    conditions = " ".join([*(fix.when for fix in error.fixes), *(when for when, _ in error.causes_when)])
    texts = "".join(f"{fix.text}{fix.code}" for fix in error.fixes)
    return {*re.findall(r"\0([a-z_]+)(?::[^\0]*)?\0", texts), *re.findall(r"\{([a-z]\w*)\}", conditions)}


def given_slots(error: KnownError) -> set[str]:
    """The slots that get a value: by a wording, by another error, or by a function, whose docstring names them."""
    by_wordings = {name for wording in error.wordings for name in re.compile(wording.regex).groupindex}
    functions = (name.split(".") for name in error.facts)
    docs = [
        getdoc(getattr(importlib.import_module(f"gpumon.errors.facts.{module}"), name)) for module, name in functions
    ]
    by_functions = {slot for doc in docs for slot in re.findall(r"`(\w+)`", str(doc))}
    return {*by_wordings, *by_functions, *(name for name, _ in error.borrowed), *GIVEN}


CODES: Final = {
    fix.code: error.id
    for error in reversed(list(ERRORS.values()))
    for fix in (*shown_fixes(error), *error.see_more)
    if fix.code
}
"""Every piece of code in a fix, with the first error that has it."""


def example_strings(regex: str) -> list[str]:
    """Strings that a regular expression matches: the first choice everywhere, then each other choice once.

    Lookarounds are ignored, so that the regular expression may reject a string.
    """
    return list(dict.fromkeys(_examples(_parser().parse(regex))))


def _examples(tree: Any) -> list[str]:  # noqa: ANN401  the parser has no types
    parts = [_choices(str(operation), argument) for operation, argument in tree]
    default = [choices[0] for choices in parts]
    variants = [
        [*default[:index], choice, *default[index + 1 :]]
        for index, choices in enumerate(parts)
        for choice in choices[1:]
    ]
    return ["".join(variant) for variant in (default, *variants)]


def _choices(operation: str, argument: Any) -> Sequence[str]:  # noqa: ANN401  the parser has no types
    if operation == "LITERAL":
        return [chr(argument)]
    if operation == "SUBPATTERN":
        return _examples(argument[3])
    if operation == "BRANCH":
        return [string for branch in argument[1] for string in _examples(branch)]
    if operation in {"MAX_REPEAT", "MIN_REPEAT"}:
        least, most, tree = argument
        strings = _examples(tree)
        shortest = [] if least == most else [strings[0] * least]
        return [string * max(1, least) for string in strings] + shortest
    if operation == "IN":
        return (
            [_example_of_set(item) for item in argument if str(item[0]) != "NEGATE"]
            if not _is_negated(argument)
            else ["~"]
        )
    return {"ANY": [" "], "NOT_LITERAL": ["~"]}.get(operation, [""])


def _is_negated(items: Any) -> bool:  # noqa: ANN401  the parser has no types
    return bool(str(items[0][0]) == "NEGATE")


def _example_of_set(item: Any) -> str:  # noqa: ANN401  the parser has no types
    kind, argument = str(item[0]), item[1]
    if kind == "LITERAL":
        return chr(argument)
    if kind == "RANGE":
        return chr(argument[0])
    return {"CATEGORY_DIGIT": "7", "CATEGORY_WORD": "w", "CATEGORY_SPACE": " ", "CATEGORY_NOT_SPACE": "w"}[
        str(argument)
    ]


def is_shell(code: str) -> bool:
    command = re.sub(r"\A(?:[A-Z][A-Z0-9_]*=(?:\"[^\"\n]*\"|\S*)\s+)+", "", f"{code} ")
    return command.split(maxsplit=1)[0].rstrip(";") in COMMANDS.split() if command.strip() else False


def sentences(error: KnownError) -> Iterator[str]:
    yield error.summary
    yield from error.causes
    yield from (cause for _, cause in error.causes_when)
    yield error.empty_cache
    yield from (fix.text for fix in (*shown_fixes(error), *error.see_more))


def test_ids_are_unique_and_no_public_id_disappears() -> None:
    ids = [error_id for some in FILES.values() for error_id in some]
    assert len(ids) == len(set(ids)) == len(ERRORS)
    assert all(error_id in ERRORS for error_id in PUBLIC_IDS)


def test_the_index_is_that_of_the_entries() -> None:
    assert INDEX.read_text() == index_text(), "run: python -m tests.errors.index"


def test_the_document_has_every_word_of_the_format() -> None:
    rows = [line for line in Path("docs/errors.md").read_text("utf-8").splitlines() if line.startswith("| ")]
    words = {word for row in rows for span in re.findall(r"`([^`]+)`", row) for word in span.split()}
    assert {*FIELDS} | set().union(*FLAGS.values()) | {*shared_texts("slot"), *EVIDENCE_QUERIES} <= words


def test_echoes_follow_another_error() -> None:
    assert {error.id for error in ERRORS.values() if error.is_echo} >= PUBLIC_ECHOES


@every_error
def test_an_entry_is_complete(error: KnownError) -> None:
    assert error.wordings
    assert error.causes
    assert error.sources
    assert fixes_of(error, case_of(error)), "a log without any of the conditions needs a fix as well"
    assert len(set(error.fixes)) == len(error.fixes)
    assert error.title == error.title.strip().rstrip(".")
    assert set(error.host) <= set(EVIDENCE_QUERIES)
    assert {error_id for error_id, _ in error.follows} | {error_id for _, error_id in error.borrowed} <= set(ERRORS)


@every_error
def test_conditions_name_what_exists(error: KnownError) -> None:
    for text in filter(None, (*(fix.when for fix in error.fixes), *(when for _, when in error.follows))):
        assert set(condition(text).signs) <= set(SIGNS)
        named = re.findall(r'\bprogram ("[^"]+"|[^\s()",]+)', text)
        assert {name.strip('"') for name in named} <= {*PROGRAMS, "pip"}
    assert slots_of(error) - {"last_error"} <= given_slots(error)


@every_error
def test_a_text_of_each_condition_is_in_a_sample(error: KnownError) -> None:
    """So that the fix for it is not lost when a wording changes."""
    samples = samples_of(error.id)
    if any(wording.raised_in for wording in error.wordings):
        return  # its message may be that of any exception
    for when in filter(None, [*(fix.when for fix in error.fixes), *(when for when, _ in error.causes_when)]):
        for listed in re.findall(r'text has ((?:"(?:[^"\\]|\\.)*"(?:, )?)+)', when):
            parts = [re.sub(r"\\(.)", r"\1", part) for part in re.findall(r'"((?:[^"\\]|\\.)*)"', listed)]
            assert any(part in sample for part in parts for sample in samples), listed


def test_shared_fixes_are_used() -> None:
    texts = [re.sub(r" +", " ", path.read_text()) for path in sorted(ENTRIES.glob("*.txt")) if path.stem not in SHARED]
    code = "\n".join(path.read_text() for path in ENTRIES.parent.glob("*.py"))
    used = (*re.findall(r'shared_fixes\("(\S+)"\)', code), *(f"unknown-{kind}" for kind in KIND_SENTENCES))
    texts += [f"use {name}" for name in used]
    for shared in SHARED:
        for name in re.findall(r"^(?:group|piece) (\S+)", (ENTRIES / f"{shared}.txt").read_text(), re.MULTILINE):
            assert any(f"use {name}" in text or f":{name}}}" in text for text in texts), name


# The rest of the code knows neither an id nor the words of a fix.

CODE: Final = [path for path in Path(errors.__path__[0]).parent.rglob("*.py") if "workloads" not in path.parts]
LINKS: Final = {
    "gpumon/errors/oom.py": {"OUT_OF_MEMORY", "OF_ASYNC_BACKEND"},
    "gpumon/health/alerts/errors.py": {"OTHER_XID"},
    "gpumon/fleet/exporters.py": {""},
    "gpumon/present/error_list.py": {"FREQUENT", ""},
}
"""Constants in other rooms that are ids of entries, or lists of them, and a file with a package of the name of one."""


def constants(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Texts of a module, each with the name to which it is assigned, if any."""
    for node in ast.walk(tree):
        target = node.target.id if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) else ""
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Constant) and isinstance(child.value, str):
                yield target, child.value


def test_no_code_knows_an_id_or_the_words_of_a_fix() -> None:
    ids = {error_id for error_id in ERRORS if "-" in error_id}  # a single word may be anything
    for path in CODE:
        code = path.read_text()
        if ids.isdisjoint(re.findall(r"[\"']([a-z0-9-]+)[\"']", code)) and not re.search(r"\bin (?:fix|first)", code):
            continue
        tree = ast.parse(code)
        name = str(path.relative_to(Path(errors.__path__[0]).parents[1]))
        used = {(target, text) for target, text in constants(tree) if text in ids}
        assert {target for target, _ in used} <= LINKS.get(name, set()), (name, used)
        assert [code for code in map(searched_fix, ast.walk(tree)) if code] == [], name


def searched_fix(node: ast.AST) -> str:
    """The code of a search for words in a fix, or nothing."""
    if not isinstance(node, ast.Compare) or not isinstance(node.ops[0], ast.In | ast.NotIn):
        return ""
    searched, code = node.comparators[0], ast.unparse(node)
    is_fix = isinstance(searched, ast.Attribute) and ast.unparse(searched.value).startswith(("fix", "first"))
    return code if is_fix and "_MARK" not in code else ""


@every_error
def test_texts_are_sentences(error: KnownError) -> None:
    for text in sentences(error):
        assert text == text.strip()
        assert text.endswith(".")
        assert "  " not in text
        assert "\n" not in text
        assert re.match(
            r"[A-Z0-9]|cu[A-Z]|(?:bitsandbytes|nouveau|per_process_memory_fraction|pip|sdpa_kernel|torch\S*|true)\b",
            text,
        ), text


@every_error
def test_sources_are_addresses(error: KnownError) -> None:
    for source in error.sources:
        assert re.fullmatch(r"https://[\w.-]+/[\w./#-]*", source), source


@every_error
def test_versions_are_a_list_of_programs(error: KnownError) -> None:
    assert re.fullmatch(r"(?:\w[\w .+-]*(?:, \w[\w .+-]*)*)?", error.said_by), error.said_by
    shown = [
        block.text for section in error_sections(error) if section.heading == "Found in" for block in section.blocks
    ]
    assert shown == ([f"{error.said_by}."] if error.said_by else [])


def test_most_errors_name_their_versions() -> None:
    named = [bool(error.said_by) for error in ERRORS.values() if not error.id.startswith("xid-")]
    assert sum(named) >= 0.7 * len(named)


@every_error
def test_code_can_be_copied(error: KnownError) -> None:
    codes = [code for code, first in CODES.items() if first == error.id]
    if shell_codes := [code for code in codes if is_shell(code)]:
        text = "\n".join(shell_codes)  # a program for each would take longer than the check
        checked = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, check=False)
        assert (checked.returncode, checked.stderr) == (0, "")
    for code in codes:
        if code not in shell_codes:  # a command that is missing in COMMANDS fails here
            compile(code, code, "exec")
        assert not re.search(r"(?<!')<\w+>|\.\.\.$", code, re.MULTILINE), (
            f"placeholders are written in capitals: {code}"
        )
        assert code == code.strip()


def test_an_error_in_code_is_detected() -> None:
    assert is_shell("CUDA_LAUNCH_BLOCKING=1 python train.py")
    assert not is_shell("phyton train.py")
    with pytest.raises(SyntaxError):
        compile("phyton train.py", "snippet", "exec")


def test_an_entry_has_a_sample_in_the_file_of_its_name() -> None:
    assert {path.stem for path in SAMPLES.iterdir()} == set(FILES)
    for file, ids in FILES.items():
        names = {name.split(" ")[0] for name, _ in named_texts(SAMPLES / f"{file}.txt")}
        assert set(ids) <= names <= set(ERRORS), f"add a sample of each entry to {file}.txt"


def test_a_source_is_an_address_and_a_version() -> None:
    sources = [source for _, source, _ in SOURCED_WORDINGS if source]
    assert sources
    for source in sources:
        assert re.fullmatch(r"https://[\w.-]+/[\w./#-]* \S[^\n]+", source), source


@every_error
def test_a_sample_matches_its_own_entry_only(error: KnownError) -> None:
    for text in samples_of(error.id):
        assert matching(text) == {error.id}
        patterns = [exact(wording.regex) for wording in wordings_of(error)]
        assert any(pattern.search(line) for line in text.splitlines() for pattern in patterns), "one line is enough"


def wordings_of(error: KnownError) -> list[Wording]:
    """The wordings that are errors anywhere."""
    return [wording for wording in error.wordings if not wording.raised_in]


@every_error
def test_a_wording_has_a_sample_or_is_a_name(error: KnownError) -> None:
    for wording in wordings_of(error):
        needle = needle_of(wording)
        is_name = wording.regex == rf"\b{needle}\b"
        assert is_name or any(needle in text and exact(wording.regex).search(text) for text in samples_of(error.id)), (
            wording.regex
        )


@some_errors
def test_every_generated_sample_is_recognized(error: KnownError) -> None:
    """The needle, the literals and the regular expression agree, as printed and in lower case."""
    for wording in wordings_of(error):
        assert len(squeezed(needle_of(wording))) >= MIN_NEEDLE_LETTERS, f"add text to {wording.regex}, or divide it"
        finder = finder_of(error_with(wording))
        samples = [text for text in example_strings(wording.regex) if re.search(wording.regex, text, re.MULTILINE)]
        assert samples, "no example string matches"
        assert all(needle_of(wording) in sample for sample in samples)
        for sample in map(str.strip, samples):
            if re.search(wording.regex, sample, re.MULTILINE):
                for text in (sample,) if wording.is_case_sensitive else (sample, sample.lower()):
                    (block,) = blocks([f"step 1\n{text}\nstep 2\n".encode()])
                    assert finder.hits(block), text


def finder_of(error: KnownError) -> ErrorFinder:
    catalogue = ErrorCatalogue()
    catalogue.read, catalogue.index = {error.id: error}, index_document([error], {error.id: ""}, {})
    return ErrorFinder(catalogue)


def error_with(wording: Wording) -> KnownError:
    return KnownError("x", "x", "x", "x", ContextState.UNKNOWN, (wording,), (), (), "")


@some_errors
def test_a_sample_in_lower_case_is_recognized(error: KnownError) -> None:
    for text in samples_of(error.id):
        ids = {match.error.id for match in explain_text(text.lower()).matches}
        case_sensitive = any(wording.is_case_sensitive for wording in error.wordings)
        assert ids == {error.id} or (case_sensitive and not ids)


@pytest.mark.parametrize(
    ("regex", "needle"),
    [
        (r"[Ff]ailed to recv", "ailed to recv"),
        (r"(?P<a>abc)(?:defg) h?i", "abcdefg "),
        (r"(?:ab|cd) efgh", "efgh"),
        (r"ab|cd", ""),
        (r"ab(?! cdefg)(?:hijkl)?", "ab"),
    ],
)
def test_the_needle_is_the_longest_text_that_every_match_has(regex: str, needle: str) -> None:
    assert literals(regex).needle == needle
    assert all(needle in text for text in example_strings(regex))
    assert example_strings("[Ff]ailed(?: now)?|x{2}") == ["Failed now", "failed now", "Failed", "xx"]


@pytest.mark.parametrize("line", PROSE)
def test_prose_is_no_error(line: str) -> None:
    assert matching(line) == set()


@pytest.mark.parametrize(
    ("text", "values"),
    [
        (samples_of("oom")[0], {"gpu": "0"}),
        (samples_of("oom")[1], {"gpu": "0"}),
        (samples_of("nccl-timeout")[0], {"sequence": "7", "operation": "ALLREDUCE", "elements": "1"}),
        (samples_of("xid-63")[0], {"bus": "0000:10:1c", "instance": None, "pid": "1896", "name": None}),
        (
            samples_of("xid-154")[0],
            {"bus": "0000:01:00", "instance": None, "pid": None, "name": None, "action": "Node Reboot Required"},
        ),
        (samples_of("triton-resources")[0], {"resource": "shared memory", "required": "163840", "limit": "101376"}),
        (samples_of("device-assert")[1], {"assertion": "srcIndex < srcSelectDimSize"}),
    ],
)
def test_values_are_read_from_the_message(text: str, values: dict[str, str | None]) -> None:
    (error_id,) = matching(text)
    matches = [re.search(wording.regex, text) for wording in ERRORS[error_id].wordings]
    assert values in [match.groupdict() for match in matches if match is not None]


def steps(regex: str) -> int:
    """The maximum number of characters that a pattern matches from one position, inner repetitions multiplied."""
    return _steps(_parser().parse(regex))


def widest_match(regex: str) -> int:
    """The maximum number of characters that a regular expression matches."""
    return int(_parser().parse(regex).getwidth()[1])


def _parser() -> Any:  # noqa: ANN401  the parser has no types
    return importlib.import_module("re._parser" if sys.version_info >= (3, 11) else "sre_parse")


def _steps(tree: Any) -> int:  # noqa: ANN401  the parser has no types
    total = 0
    for operation, argument in tree:
        name = str(operation)
        if name in {"MAX_REPEAT", "MIN_REPEAT"}:
            assert argument[1] <= MAX_REPEAT, "an unbounded repetition makes the search quadratic"
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


@every_error
def test_a_pattern_matches_a_bounded_number_of_characters(error: KnownError) -> None:
    for wording in error.wordings:
        assert steps(wording.regex) <= MAX_STEPS


def test_an_unbounded_pattern_is_detected() -> None:
    with pytest.raises(AssertionError):
        steps(r"block: .*failed")
    assert steps(r"(?:a{1,99}b){1,99}") > MAX_STEPS


@some_errors
def test_hostile_text_is_read_quickly(error: KnownError) -> None:
    """A text made of partial matches takes milliseconds with a good pattern and minutes with a bad one."""
    start = time.process_time()
    for wording in error.wordings:
        needle = needle_of(wording)
        for unit in (needle, needle[: len(needle) // 2], "1 ", "a", "NVRM: Xid (PCI:0000:1:0): "):
            re.search(wording.regex, unit * (ADVERSARIAL_BYTES // len(unit)))
    assert time.process_time() - start < 5
