"""The out-of-memory files of a probe: they are read but not trusted, and their cause is determined correctly."""

import copy
import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest

from gpumon.core.oom_file import MAX_BYTES, is_oom_file
from gpumon.core.problems import CommandError, ExitCode, ProblemCode
from gpumon.errors.documents import explanation_document
from gpumon.errors.explain import explain_source, explain_text
from gpumon.errors.match import Match, OomReport
from gpumon.errors.memory import MemoryCause
from gpumon.errors.source import log_pieces, open_log
from tests.insight.oom_documents import (
    CONTEXT,
    FRAGMENTED,
    FULL,
    GIB,
    INACTIVE,
    MIB,
    MOST,
    TOTAL,
    Json,
    document,
    history,
    pieces,
    segment,
    steps,
    used,
)

GRAPH = segment(8 * GIB, [[6 * GIB, 0, INACTIVE]], pool=[0, 1])
FAST = history(steps(6 * GIB, 18 * GIB, growth=100 * MIB))
SLOW = history(steps(78 * GIB, 78 * GIB + 99 * MIB, growth=MIB))


def match_of(raw: Json) -> Match:
    data = json.dumps(raw).encode()
    cause = explain_source(iter([data[:100], data[100:]]), "oom.json").cause
    assert cause is not None
    return cause


def story_of(raw: Json) -> OomReport:
    story = match_of(raw).oom_report
    assert story is not None
    return story


def refusal(data: bytes) -> CommandError:
    with pytest.raises(CommandError) as caught:
        explain_source(iter([data]), "oom.json")
    assert caught.value.exit_code is ExitCode.USAGE
    assert caught.value.problem.reason.startswith("oom.json cannot be read: ")
    assert str(caught.value).isprintable()
    return caught.value


def changed(raw: Json, *path: str | int, value: object) -> Json:
    """A document with another value in a place."""
    copied = copy.deepcopy(raw)
    place: Any = copied
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return copied


# The cause


def test_fragmentation_is_proven_by_its_pieces() -> None:
    story = story_of(FRAGMENTED)
    assert story.cause is MemoryCause.FRAGMENTATION
    assert story.sentences[0] == (
        "Fragmentation: PyTorch reserves 5.86 GiB that no tensor uses, but in 600 pieces, the largest of 10.0 MiB. The "
        "2.00 GiB requested must be in one piece."
    )
    assert "expandable_segments:True" in story.fixes[0].code


def test_fragmentation_below_a_cap_is_fragmentation() -> None:
    story = story_of(document([used(3 * GIB), pieces(100, 16 * MIB)], 64 * MIB, limit=6 * GIB + 200 * MIB))
    assert story.cause is MemoryCause.FRAGMENTATION
    assert any("memory limit of 6.20 GiB" in sentence for sentence in story.sentences)


@pytest.mark.parametrize(
    ("place", "words", "fix"),
    [
        ({"pool": [0, 3]}, "6.00 GiB free in private pools, such as those of CUDA graphs", "share one pool"),
        ({"stream": 0x55AA}, "6.00 GiB free in pools of other streams", "on one stream"),
        ({"is_large": False}, "6.00 GiB free in segments for blocks of the other kind", ""),
    ],
)
def test_fragmentation_that_is_only_apparent_says_where_the_memory_is(place: Json, words: str, fix: str) -> None:
    elsewhere = segment(8 * GIB, [[6 * GIB, 0, INACTIVE]], **place)
    story = story_of(document([used(71 * GIB), elsewhere], 2 * GIB))
    assert story.cause is MemoryCause.FRAGMENTATION
    assert story.sentences[0].startswith(f"Fragmentation only in appearance: PyTorch has {words}")
    assert fix in story.fixes[0].text
    is_in_graphs = "pool" in place
    assert any("expandable_segments" in advice.code for advice in story.fixes[:2]) is not is_in_graphs


def test_a_cache_that_is_kept_while_a_graph_is_captured() -> None:
    idle = [segment(2 * GIB, [[2 * GIB, 0, INACTIVE]]) for _ in range(4)]
    story = story_of(document([used(71 * GIB), *idle], 3 * GIB))
    assert story.cause is MemoryCause.FRAGMENTATION
    assert "PyTorch has 8.00 GiB free in idle segments" in story.sentences[0]
    assert "cannot free while a CUDA graph is captured" in story.sentences[0]
    assert "empty_cache()" in story.fixes[0].code


def test_a_small_request_is_not_served_from_large_segments() -> None:
    story = story_of(document([used(73 * GIB), pieces(300, 10 * MIB)], 2 * MIB, request=request(2 * MIB, 0)))
    assert story.cause is MemoryCause.FRAGMENTATION
    assert "of the other kind" in story.sentences[0]


def test_other_processes_are_distinguished_from_the_own_context() -> None:
    story = story_of(document([used(18 * GIB)], 4 * GIB, others=60 * GIB))
    assert story.cause is MemoryCause.OTHER_PROCESSES
    assert "60.5 GiB are in use outside of this process's PyTorch" in story.sentences[0]
    assert "nvidia-smi" in story.fixes[0].code


@pytest.mark.parametrize("asked", [4 * GIB, 100 * GIB])
def test_a_request_that_is_too_big(asked: int) -> None:
    story = story_of(document([used(MOST)], asked))
    assert story.cause is MemoryCause.TOO_BIG
    first = 1 if asked > TOTAL else 0
    assert "accumulation_steps" in story.fixes[first].code
    assert ("math.prod(shape)" in story.fixes[0].code) is (asked > TOTAL)
    assert not any("a leak is too slow" in sentence for sentence in story.sentences) or asked < TOTAL


@pytest.mark.parametrize("asked", [20 * MIB, 4 * GIB])
def test_a_step_like_those_before_is_too_big_or_a_leak_too_slow_to_be_seen(asked: int) -> None:
    story = story_of(document([used(MOST)], asked))
    assert story.cause is MemoryCause.TOO_BIG
    assert any("a leak is too slow" in sentence for sentence in story.sentences)
    assert "loss.item()" in story.fixes[-1].code


def test_what_the_gpu_would_have_held_is_not_said_to_be_more_than_it_has() -> None:
    story = story_of(document([used(74 * GIB), pieces(50, 10 * MIB)], 2 * GIB, others=2 * GIB + 512 * MIB))
    assert story.cause is MemoryCause.TOO_BIG
    assert "needs more than the GPU's" not in story.sentences[0]
    assert "without the 500 MiB that PyTorch reserves in no tensor and the 3.00 GiB outside" in (story.sentences[0])


@pytest.mark.parametrize("asked", [20 * MIB, 2 * GIB])
def test_a_leak_has_a_rate(asked: int) -> None:
    grown = history(steps(50 * GIB, 70 * GIB, growth=100 * MIB), retries=1)
    story = story_of(document([used(MOST)], asked, history=grown))
    assert story.cause is MemoryCause.LEAK
    assert re.search(r"steadily in the last 60 s, by about [56]\.\d\d GiB per minute. Without this", story.sentences[0])
    assert any("memory ran short once before" in sentence for sentence in story.sentences)
    assert "memory_allocated" in story.fixes[0].code


def test_a_leak_below_steps_as_large_as_this_one() -> None:
    grown = history(steps(78 * GIB, 78 * GIB + 512 * MIB, growth=2 * MIB))
    story = story_of(document([used(MOST)], GIB, history=grown))
    assert story.cause is MemoryCause.LEAK
    assert "steps that used 78.6 GiB, nearly as much as this one needed, succeeded" in story.sentences[0]
    assert not any("no growth is visible" in sentence for sentence in story.sentences)


@pytest.mark.parametrize(
    ("retries", "failures", "before"), [(1, None, ""), (1, 1, ""), (4, 1, "3 times before"), (4, 3, "once before")]
)
def test_the_cache_that_was_given_back_in_vain_has_not_helped(retries: int, failures: int | None, before: str) -> None:
    raw = with_statistics(document([used(MOST)], GIB), alloc_retries_count=retries, ooms_count=failures)
    short = [sentence for sentence in story_of(raw).sentences if "memory ran short" in sentence]
    assert len(short) == bool(before)
    assert all(before in sentence for sentence in short)


@pytest.mark.parametrize(("failures", "told_as"), [(2, "once before"), (4, "3 times before")])
def test_a_search_for_the_largest_batch_has_failed_before(failures: int, told_as: str) -> None:
    story = story_of(with_statistics(document([used(60 * GIB)], 26 * GIB), ooms_count=failures))
    assert any(f"run out of memory {told_as}" in sentence for sentence in story.sentences)


@pytest.mark.parametrize("period", [0.31, 0.52, 1.0, 1.99, 2.008, 3.4, 7.7])
@pytest.mark.parametrize("growth", [0, 60 * MIB])
def test_a_leak_is_told_from_steps_of_any_length(period: float, growth: int) -> None:
    grown = history(steps(50 * GIB, 60 * GIB, growth, period))
    cause = story_of(document([used(MOST)], 512 * MIB, history=grown)).cause
    assert cause is (MemoryCause.LEAK if growth else MemoryCause.TOO_BIG)


@pytest.mark.parametrize(
    "grown",
    [
        history(lambda seconds: 10 * GIB if seconds < 30 else 70 * GIB),
        history(lambda seconds: int(seconds * GIB), seconds=8),
        history(steps(10 * GIB, 78 * GIB)),
    ],
    ids=["a phase began", "watched for a moment", "steps"],
)
def test_growth_that_is_not_steady_is_no_leak(grown: list[Json]) -> None:
    assert story_of(document([used(MOST)], 4 * GIB, history=grown)).cause is MemoryCause.TOO_BIG


@pytest.mark.parametrize("seconds", [12, 60])
@pytest.mark.parametrize("asked", [20 * MIB, 4 * GIB])
@pytest.mark.parametrize("period", [0.2, 2.6])
def test_memory_that_only_grows_until_the_end_is_a_leak_first_of_all(seconds: int, asked: int, period: float) -> None:
    """Hundreds of GiB a minute, and no step frees anything that a sample could see."""
    grown = history(lambda time: int(time // period * period * (MOST - 2 * GIB) / seconds), seconds=seconds)
    story = story_of(document([used(MOST)], asked, history=grown))
    assert story.cause is MemoryCause.LEAK
    assert story.sentences[0].startswith(f"Leak: the minimum memory in tensors grew steadily in the last {seconds} s")
    assert "or it was still loading a model" in story.sentences[0]
    assert "memory_allocated" in story.fixes[0].code
    assert "loss.item()" in story.fixes[1].code


@pytest.mark.parametrize("asked", [512 * MIB, 26 * GIB])
def test_the_first_step_after_a_model_was_loaded_does_not_leak(asked: int) -> None:
    loaded = history(lambda seconds: int(min(seconds, 52) * (TOTAL - asked) / 53))
    story = story_of(document([used(TOTAL - CONTEXT - asked + 64 * MIB)], asked, history=loaded))
    assert story.cause is MemoryCause.TOO_BIG
    assert any("If training had already started" in sentence for sentence in story.sentences)
    assert "accumulation_steps" in story.fixes[0].code
    assert "loss.item()" in story.fixes[-1].code


def test_a_cap() -> None:
    story = story_of(document([used(15 * GIB)], 2 * GIB, limit=16 * GIB))
    assert story.cause is MemoryCause.CAP
    assert story.sentences[0].startswith("Memory limit: the process is limited to 16.0 GiB and held 15.0 GiB")
    assert "set_per_process_memory_fraction" in story.fixes[0].code


def test_a_cap_without_which_it_would_have_failed_as_well() -> None:
    story = story_of(document([used(75 * GIB)], 8 * GIB, limit=76 * GIB))
    assert story.cause is MemoryCause.TOO_BIG
    assert any("memory limit of 76.0 GiB" in sentence for sentence in story.sentences)


def test_no_cap_is_to_blame_for_what_no_gpu_could_hold() -> None:
    story = story_of(document([used(15 * GIB)], 100 * GIB, limit=16 * GIB))
    assert story.cause is MemoryCause.TOO_BIG
    assert story.sentences[0] == "Too big: one request for 100 GiB exceeds the GPU's 80.0 GiB."


def test_only_the_device_that_ran_out_counts() -> None:
    other = pieces(600, 10 * MIB, ordinal=1)
    raw = document([used(MOST)], 4 * GIB)
    raw["segments"] = [other, *raw["segments"]]
    assert story_of(raw).cause is MemoryCause.TOO_BIG


def test_out_of_memory_in_the_first_second() -> None:
    story = story_of(document([used(MOST)], 4 * GIB, history=[]))
    assert story.cause is MemoryCause.TOO_BIG
    assert any("too few samples" in sentence for sentence in story.sentences)
    small = story_of(document([used(MOST)], 20 * MIB, history=[]))
    assert small.cause is MemoryCause.LEAK
    assert small.sentences[0].startswith("Leak, or a job that is slightly too big")


@pytest.mark.parametrize(
    ("raw", "cause"),
    [
        (document([used(11 * GIB), GRAPH], 2 * GIB, others=60 * GIB), MemoryCause.OTHER_PROCESSES),
        (document([used(18 * GIB), pieces(140, 10 * MIB)], 750 * MIB, limit=20 * GIB, history=FAST), MemoryCause.LEAK),
        (document([used(MOST)], 2 * MIB, history=SLOW), MemoryCause.LEAK),
        (document([used(30 * GIB)], 20 * GIB, limit=40 * GIB, others=35 * GIB), MemoryCause.CAP),
        (document([used(18 * GIB)], 4 * GIB, limit=76 * GIB, others=60 * GIB), MemoryCause.OTHER_PROCESSES),
    ],
    ids=["more than a graph keeps", "more than the pieces", "a slow leak", "a cap came first", "a cap not reached"],
)
def test_the_cause_that_weighs_most(raw: Json, cause: MemoryCause) -> None:
    assert story_of(raw).cause is cause


# What is missing


@pytest.mark.parametrize("name", sorted(FRAGMENTED["statistics"]))
def test_a_statistic_that_is_missing_comes_from_the_segments(name: str) -> None:
    for value in ({}, {name: None}):
        kept = {key: held for key, held in FRAGMENTED["statistics"].items() if key != name} | value
        assert story_of({**FRAGMENTED, "statistics": kept}).cause is MemoryCause.FRAGMENTATION


@pytest.mark.parametrize("name", ["limit_bytes", "free_bytes"])
def test_a_request_without_its_surroundings(name: str) -> None:
    cause = story_of(changed(FULL, "request", name, value=None)).cause
    assert cause is (MemoryCause.UNKNOWN if name == "free_bytes" else MemoryCause.TOO_BIG)


def test_a_document_with_the_least_there_can_be() -> None:
    least: Json = {"schema": 1, "kind": "gpumon-oom", "time_seconds": 0}
    least |= {"process": {}, "device": {"ordinal": 3}, "request": {"bytes": MIB}}
    assert story_of(least).cause is MemoryCause.UNKNOWN
    assert match_of(least).text == "CUDA out of memory. Tried to allocate 1.00 MiB."


# What it is raw like


def test_the_document_has_the_public_names() -> None:
    raw = explanation_document(explain_source(iter([json.dumps(FRAGMENTED).encode()]), "oom.json"))
    (match,) = raw["matches"]
    assert (match["id"], match["memory_cause"], match["rank"]) == ("oom", "fragmentation", 0)
    assert match["figures"]["asked_bytes"] == 2 * GIB
    assert match["figures"]["largest_piece_bytes"] == 10 * MIB
    assert match["figures"]["gpu_uuid"] == "GPU-1b2c"
    assert match["story"][0].startswith("Fragmentation: ")
    assert match["stack"][0].endswith("in forward")
    assert "story" not in explanation_document(explain_text("CUDA error: device-side assert triggered"))["matches"][0]


# What is not to be trusted


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("request", "bytes"), -1), (("request", "bytes"), True), (("request", "bytes"), 1 << 70), (("request",), []),
        (("device", "ordinal"), None), (("device", "total_bytes"), "80 GiB"), (("time_seconds",), 1e300),
        (("time_seconds",), float("nan")), (("process", "argv"), [7]), (("settings",), {"PYTORCH_ALLOC_CONF": 1}),
        (("history",), {"seconds_before": 1}), (("history", 0, "seconds_before"), -1e308), (("stack", 0), ["train.py"]),
        (("segments", 0, "blocks", 0), [1, 2, 3]), (("segments", 0, "blocks", 0), [1, 2]),
        (("segments", 0, "pool"), [0, 0, 0]), (("segments", 0, "is_large"), 1), (("statistics", "reserved_bytes"), 1.5),
    ],
)  # fmt: skip
def test_a_wrong_value_is_one_sentence(path: tuple[str | int, ...], value: object) -> None:
    error = refusal(json.dumps(changed(FRAGMENTED, *path, value=value)).encode())
    assert error.problem.code is ProblemCode.DAMAGED


@pytest.mark.parametrize("name", ["schema", "time_seconds", "process", "device", "request"])
def test_what_must_be_there(name: str) -> None:
    raw = json.dumps({key: value for key, value in FRAGMENTED.items() if key != name})
    assert f"'{name}' is missing" in str(refusal(raw.encode()))


@pytest.mark.parametrize(
    ("rest", "why"),
    [
        (b"", "it is cut off"),
        (b', "stack": ' + b"[" * 200_000, "nested too deep"),
        (b', "x": 1' + b"0" * 5000 + b"}", "Exceeds the limit"),
        (b', "x": "\xff\xfe"}', "decode"),
        (b', "x": [' + b"[]," * 500_000 + b"1]}", "too many parts"),
        (b"," + b" " * MAX_BYTES, "more than 16 MiB"),
    ],
)
def test_what_is_no_document_is_one_sentence(rest: bytes, why: str) -> None:
    error = refusal(b'{"schema": 1, "kind": "gpumon-oom"' + rest)
    assert why in str(error)


def test_a_newer_file_names_its_schema_and_the_way_out() -> None:
    error = refusal(json.dumps({**FRAGMENTED, "schema": 2}).encode())
    assert error.problem.code is ProblemCode.NEWER_SCHEMA
    assert "a probe with schema 2 wrote it, and this gpumon reads schema 1." in error.problem.reason
    assert "the version of gpumon whose probe wrote it" in error.problem.remedy


def test_a_file_that_unpacks_without_end_is_given_up(tmp_path: Path) -> None:
    path = tmp_path / "oom.json.gz"
    with gzip.open(path, "wb", compresslevel=1) as packed:
        packed.write(b'{"schema": 1, "kind": "gpumon-oom", "x": "')
        for _ in range(256):
            packed.write(b"x" * MIB)
    with open_log(path) as opened:
        unpacked = log_pieces(opened, "oom.json")
        with pytest.raises(CommandError) as caught:
            explain_source(unpacked, "oom.json")
        assert opened.tell() < path.stat().st_size / 2  # the rest was not read
    assert "more than 16 MiB" in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"schema": 1}',
        '{"kind": "other"}',
        '{"a": {"kind": "gpumon-oom"}}',
        'x {"kind": "gpumon-oom"}',
        '["kind", "gpumon-oom"]',
    ],
)
def test_other_documents_are_logs(text: str) -> None:
    assert not is_oom_file(text.encode())
    assert explain_source(iter([text.encode()] if text else []), "the text") == explain_text(text)


def request(asked: int, free: int, limit: int = TOTAL) -> Json:
    return {"bytes": asked, "limit_bytes": limit, "free_bytes": free}


def with_statistics(raw: Json, **more: int | None) -> Json:
    return {**raw, "statistics": {**raw["statistics"], **more}}
