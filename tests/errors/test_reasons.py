"""Reasons that another line of the log names, and fixes that only fit such a log."""

import pytest

from gpumon.errors.entry import ContextState
from gpumon.errors.explain import explain_text
from gpumon.errors.match import Match
from gpumon.errors.narrative import sections

_TIMEOUT = (
    "[rank0]: Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1, OpType=BROADCAST, NumelIn=131072) ran"
    " for 600081 milliseconds before timing out.\n"
    "[rank0]: failure detected by watchdog at work sequence id: 1 PG status: last enqueued work: {enqueued}, last"
    " completed work: {completed}\n"
)
_OUT_OF_MEMORY = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 224.00 MiB. GPU"


def cause_of(text: str) -> Match:
    match = explain_text(text).cause
    assert match is not None
    return match


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("NVRM: No NVIDIA GPU found.\nmodprobe: ERROR: could not insert 'nvidia': Invalid argument\n", "module-load"),
    ],
)
def test_a_module_that_cannot_be_loaded_is_the_cause(text: str, cause: str) -> None:
    assert cause_of(text).error.id == cause


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("NVRM: No NVIDIA GPU found.\nmodprobe: ERROR: could not insert 'nvidia': No such device\n", "driver-probe"),
        (
            (
                f"{_OUT_OF_MEMORY}\nRuntimeError: CUDA out of memory occurred when warming up sampler with 1024 dummy"
                " requests. Please try lowering `max_num_seqs`\n"
            ),
            "vllm-warmup-oom",
        ),
        (
            "CUDA error: out of memory\nllama_context: failed to allocate compute buffers\n",
            "llama-memory",
        ),
    ],
)
def test_the_line_that_names_the_reason_is_the_cause(text: str, cause: str) -> None:
    assert cause_of(text).error.id == cause


@pytest.mark.parametrize(
    ("enqueued", "completed", "code"),
    [("547", "-1", "NCCL_P2P_DISABLE=1"), ("1", "-1", "timedelta"), ("547", "0", "timedelta")],
)
def test_transfers_are_tested_if_none_was_ever_completed(enqueued: str, completed: str, code: str) -> None:
    assert code in cause_of(_TIMEOUT.format(enqueued=enqueued, completed=completed)).fixes[0].code


def test_a_broken_communicator_is_no_broken_context() -> None:
    explanation = explain_text(_TIMEOUT.format(enqueued="9", completed="3"))
    (match,) = [match for match in explanation.matches if match.error.id == "nccl-timeout"]
    assert match.context is ContextState.NOT_APPLICABLE
    texts = [block.text for section in sections(explanation) for block in section.blocks]
    assert not any("every later CUDA call" in text for text in texts)


@pytest.mark.parametrize(
    ("line", "command"),
    [
        ("text_generation_launcher: Error when initializing model", "text-generation-launcher"),
        ("/opt/lmdeploy/src/turbomind/core/stream.h:27", "lmdeploy serve"),
    ],
)
def test_a_server_without_memory_gets_the_options_of_the_server(line: str, command: str) -> None:
    match = cause_of(f"{_OUT_OF_MEMORY}\n{line}\n")
    assert match.fixes[0].code.startswith(command)
    assert "weights of the model do not fit" in match.causes[0]
    assert match.context is ContextState.NOT_APPLICABLE
    assert not any("train.py" in fix.code or "from_pretrained" in fix.code for fix in match.fixes)


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("slurmstepd: error: Detected 1 oom_kill event in StepId=4711.0. Some of the", "step", "4711.0"),
        ("slurmstepd: error: Detected 1 oom_kill event in StepId=4711.batch. Some of the", "step", "4711.batch"),
        ("was 59.8GB / 62.5GB (0.9573), which exceeds the memory usage threshold of 0.95. Ray", "threshold", "0.95"),
    ],
)
def test_the_end_of_a_sentence_is_no_part_of_a_value(text: str, name: str, value: str) -> None:
    assert cause_of(text).values[name] == value


def test_jetson_needs_its_own_mode() -> None:
    line = "failed to inject CDI devices: unresolvable CDI devices nvidia.com/gpu=all\n"
    commands = [fix.code for fix in cause_of(f"Running isaac_ros_dev-aarch64-container\n{line}").fixes]
    assert "--mode=csv" in commands[0]
    assert not any("generate --output" in command for command in commands)
    assert "generate --output" in cause_of(line).fixes[0].code


def test_a_fix_for_the_error_of_a_program_precedes_the_one_for_its_kernels() -> None:
    fixes = cause_of(
        "ggml_cuda_compute_forward: SOFT_MAX failed\nggml-cuda.cu:102: CUDA error: invalid argument\n"
    ).fixes
    assert "compare the CUDA version" in fixes[0].text
    assert "GGML_CUDA_DISABLE_GRAPHS=1" in fixes[1].code
    other = cause_of("ggml-cuda.cu:102: CUDA error: an illegal memory access was encountered\n").fixes
    assert "GGML_CUDA_DISABLE_GRAPHS=1" in other[0].code


def test_a_message_without_sizes_is_said_to_be_cut_off() -> None:
    texts = [block.text for section in sections(explain_text(_OUT_OF_MEMORY)) for block in section.blocks]
    assert any("ends before the sizes" in text for text in texts)
