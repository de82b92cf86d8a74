"""What a GPU and a torch must be to each other, seen from the outside: a run with a stand-in for torch with CUDA."""

import pytest

from gpumon.workload_runs.protocol import VerdictKind
from tests.workload_runs.conftest import TORCH, Stage

CUDA = """
__version__ = "2.4.0+cu121"

class version:
    cuda = "12.1"
    hip = None

class device:
    def __init__(self, text):
        self.type = text.partition(":")[0]

class Properties:
    name, major, minor, multi_processor_count, total_memory = "NVIDIA H200", 9, 0, 132, 150 << 30

class cuda:
    count, architectures = 2, ["sm_80", "sm_90", "compute_90"]
    device_count = staticmethod(lambda: cuda.count)
    init = set_device = staticmethod(lambda *_: None)
    get_device_properties = staticmethod(lambda _: Properties())
    get_arch_list = staticmethod(lambda: cuda.architectures)
    mem_get_info = staticmethod(lambda _: (140 << 30, 150 << 30))
    memory_stats_as_nested_dict = staticmethod(
        lambda _: {"allocated_bytes": {"all": {"current": 5, "peak": 7}}, "num_ooms": 1}
    )
    memory_summary = staticmethod(lambda _: "|===|\\n| GPU |")
    synchronize = staticmethod(lambda _: None)
"""


def refusal(stage: Stage, torch: str, device: str = "cuda:0") -> str:
    play = stage.play(stage.request(torch=torch, device=device))
    assert play.to_end().exit_code == 3
    assert play.state.result is None
    assert play.state.unsupported_reason is not None
    return play.state.unsupported_reason


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("torch", "device", "parts"),
    [
        (TORCH, "cuda:0", ["torch 2.9.0+cpu was built for the CPU.", "--python", "--device cpu"]),
        (TORCH + "version.hip = '6.2'", "cuda:0", ["was built for ROCm."]),
        (CUDA + "cuda.count = 0", "cuda:0", ["torch 2.4.0+cu121 (CUDA 12.1) finds no GPU.", "CUDA_VISIBLE_DEVICES"]),
        (CUDA, "cuda:2", ["cuda:2 does not exist: CUDA shows 2 here. Choose cuda:0 to cuda:1."]),
        (
            CUDA + "def broken(): raise RuntimeError('CUDA driver initialization failed\\nmore')\ncuda.init = broken",
            "cuda:0",
            ["torch cannot initialize CUDA: CUDA driver initialization failed"],
        ),
        (
            CUDA + "cuda.architectures = ['sm_70', 'sm_80', 'sm_100', 'sm_100a']",
            "cuda:0",
            ["has no kernels for NVIDIA H200 (compute capability 9.0;", "sm_70, sm_80, sm_100", "that lists sm_90."],
        ),
    ],
    ids=["CPU build", "ROCm build", "no GPU", "ordinal", "broken driver", "architecture"],
)
def test_a_gpu_that_torch_cannot_use_is_told_with_what_to_do(
    stage: Stage, torch: str, device: str, parts: list[str]
) -> None:
    text = refusal(stage, torch, device)
    for part in parts:
        assert part in text
    assert "\n" not in text


@pytest.mark.sampled(2)
@pytest.mark.parametrize("architectures", [["sm_90"], ["sm_90a"], ["compute_80"], ["sm_50", "compute_90"], []])
def test_code_for_the_chip_or_code_that_the_driver_can_compile_will_do(stage: Stage, architectures: list[str]) -> None:
    play = stage.play(stage.request(torch=f"{CUDA}cuda.architectures = {architectures}", device="cuda:1"))
    play.to_end()
    assert play.result.verdict is VerdictKind.OK


def test_a_torch_that_is_too_old_to_tell_the_uuid_tells_the_rest(stage: Stage) -> None:
    play = stage.play(stage.request(torch=CUDA, device="cuda:1"))
    play.to_end()
    assert play.state.uuid is None
    assert play.state.plan is not None
    chip = play.state.plan["chip"]
    assert (chip["ordinal"], chip["name"], chip["capability"], chip["sm_count"]) == (1, "NVIDIA H200", [9, 0], 132)
    assert (play.state.plan["memory_free_bytes"], play.state.plan["memory_total_bytes"]) == (140 << 30, 150 << 30)


@pytest.mark.parametrize("uuid", ["GPU-1b2c", "1b2c"])
def test_the_uuid_is_written_as_nvml_writes_it(stage: Stage, uuid: str) -> None:
    play = stage.play(stage.request(torch=f"{CUDA}Properties.uuid = {uuid!r}", device="cuda:0"))
    play.to_end()
    assert play.state.uuid == "GPU-1b2c"


def test_the_allocator_is_told_with_its_summary(stage: Stage) -> None:
    play = stage.play(stage.request(torch=CUDA, device="cuda:0"))
    play.to_end()
    newest = play.state.memory[-1]
    assert (newest.allocated_bytes, newest.peak_allocated_bytes, newest.reserved_bytes) == (5, 7, 0)
    assert newest.resident_bytes is None
    assert play.state.memory_summary == "|===|\n| GPU |"
