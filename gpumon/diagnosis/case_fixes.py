"""Fixes that depend on the values in the message: the fitting build, the package of a library, the driver's action."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile
from typing import Final

from gpumon.diagnosis.library_fixes import missing_library, same_library
from gpumon.diagnosis.model_fixes import assertion_meaning, checkpoint_names, moved_model, permitted_type
from gpumon.diagnosis.number_fixes import (
    available_gpus,
    batched_tokens,
    fitting_batch,
    fitting_codec,
    fitting_image_tokens,
    fitting_toolkit,
    four_bit_weights,
    named_gpu,
    reachable_name,
    same_half,
    supported_architecture,
    visible_gpus,
)
from gpumon.diagnosis.package_names import install_command
from gpumon.diagnosis.program_fixes import program_fixes
from gpumon.diagnosis.shape_fixes import shape_fix
from gpumon.diagnosis.version_fixes import fitting_torch, fitting_version
from gpumon.diagnosis.wheel_fixes import available_version
from gpumon.errors.entry import Fix, KnownError, Values
from gpumon.errors.rank import case_of, fixes_of

_TURING: Final = 7.5
_NEWEST_INDEX: Final = "cu130"
_VOLTA_INDEX: Final = "cu126"
"""The wheels for CUDA 12.6 are the last ones with kernels for Maxwell, Pascal and Volta."""
_RECOVERY: Final = {
    "drain": Fix("Let the running jobs end and start no new ones on this GPU; then reset it."),
    "reset": Fix("Reset the GPU, after all of its processes have ended.", "sudo nvidia-smi --gpu-reset -i 0"),
    "reboot": Fix("Reboot the host, which the driver requires here.", "sudo reboot"),
    "imex": Fix("Restart the service that shares GPU memory between hosts.", "sudo systemctl restart nvidia-imex"),
    "none": Fix("Take no action: the GPU has recovered."),
}
"""What the driver requires, by a word of the action: the first word that occurs counts."""
_CRASHED: Final = Fix("Print the Python stack of the crash.", "PYTHONFAULTHANDLER=1 python train.py")
_ENDED: Final = Fix(
    "Find what ended the process: the time limit of the scheduler, a closed terminal, or the failure of another rank.",
    "sacct -j JOBID --format=JobID,State,ExitCode,Elapsed,Timelimit",
)
_ENDING_SIGNALS: Final = frozenset({"Terminated", "Hangup", "Interrupt"})
_NCCL_REASONS: Final = {
    "shared memory": "--shm-size",
    "ibv_": "NCCL_IB_DISABLE",
    "socket": "NCCL_SOCKET_IFNAME",
    "connect": "NCCL_SOCKET_IFNAME",
    "bootstrap": "NCCL_SOCKET_IFNAME",
}
"""Text in the code of the fix, by a word of NCCL's last error; the first word that occurs counts."""
_CUDA_12: Final = 12000
_FIRST_COLLECTIVES: Final = 3
_ALMOST_FREE: Final = 0.75
"""If more of a GPU is free, a desktop or the context of the engine itself holds the rest, and no engine before it."""
_CUDA_11: Final = 11000
_LAST_OF_CUDA_11: Final = Fix(
    "Where the driver cannot be upgraded, install the last PyTorch for CUDA 11, which drivers since 450 run.",
    "pip install torch==2.7.1 torchvision==0.22.1 --index-url https://download.pytorch.org/whl/cu118",
)
_FULL_HOST: Final = Fix(
    "All memory of the host was in use: load the model in 16 bits directly onto the GPU, start fewer processes and "
    "workers, or add swap; in WSL, raise `memory` in .wslconfig.",
    'model = AutoModel.from_pretrained(name, dtype=torch.bfloat16, device_map="cuda")',
)
_OTHER_INTERPRETER: Final = Fix(
    "Start the program with the Python of the environment that has PyTorch; this one is another, such as the system's.",
    "which -a python; python -c 'import sys, torch; print(sys.executable, torch.__version__)'",
)
_WORKER_ERROR: Final = Fix(
    "Load data in the main process, which then raises the error of the worker itself.",
    "loader = DataLoader(dataset, num_workers=0)",
)
_OTHER_GPU: Final = Fix(
    "Several processes failed on this GPU: run the same program on another GPU. If the error stays with this GPU, its"
    " hardware is the likely cause; if it follows the program, the program is.",
    "CUDA_VISIBLE_DEVICES=1 python train.py",
)
_TEST_GPU: Final = Fix(
    "If the error stays with this GPU, test it, take it out of use, and report it to the vendor.",
    "sudo dcgmi diag -r 3",
)
_RESET_LINKS: Final = Fix(
    "The error ended the work of programs: end all processes on all GPUs and reset the GPUs together, or reboot; if an"
    " Xid 154 names another action, take that one.",
    "sudo nvidia-smi --gpu-reset",
)
_FIRST_LINK_XID: Final = Fix(
    "Read the first Xid of 144 to 150 before this one, which contains the unit, the link and the severity.",
    "sudo dmesg -T | grep -i xid",
)
_NO_TRANSFERS: Final = Fix(
    "The group has not completed a single collective, so that the transfers themselves may hang: on one host, disable"
    " peer-to-peer transfers as a test. If that helps, turn off the IOMMU or ACS of the host; between hosts, test"
    " the network instead.",
    "NCCL_P2P_DISABLE=1 torchrun --nproc-per-node=gpu train.py",
)
_LINK_CONTINUES: Final = Fix("Let programs continue, unless an Xid 154 requires an action.")


def case_fixes(error: KnownError, values: Values, text: str) -> tuple[Fix, ...]:
    """The fixes of an error, the best one for this message first.

    Args:
        error: The entry.
        values: The values in the message, by name.
        text: The line with the error.
    """
    case = case_of(text, values)
    ranked = tuple(fixes_of(error, case))
    of_sizes = shape_fix(case.text) if error.id == "shape" else None
    if of_sizes is not None:
        own = sum(1 for _ in takewhile(lambda fix: fix.when and not fix.is_hidden_otherwise, ranked))
        ranked = (*ranked[:own], of_sizes, *ranked[own:])
    rank = _CASES.get(error.id)
    fitting = named_gpu(values, ranked if rank is None else rank(values, ranked))
    return program_fixes(error, str(values.get("program", "")), fitting)


def wheel_index(capability: str) -> str | None:
    """The index of PyTorch's wheels that have kernels for a GPU, by its compute capability; None if it is no number."""
    number = _capability(capability)
    return None if number is None else _NEWEST_INDEX if number >= _TURING else _VOLTA_INDEX


def _fitting_build(values: Values, fixes: Sequence[Fix]) -> tuple[Fix, ...]:
    index = wheel_index(str(values.get("capability", "")))
    if index is None:
        return tuple(fixes)
    other = _NEWEST_INDEX if index == _VOLTA_INDEX else _VOLTA_INDEX
    kept = [fix for fix in fixes if not fix.code.endswith(f"/{other}")]
    return tuple(sorted(kept, key=lambda fix: not fix.code.endswith(f"/{index}")))


def _capability(text: str) -> float | None:
    """A compute capability from ``8.6`` or from the digits of ``sm_86``, ``sm_120`` or ``sm_90a``."""
    digits = text.rstrip("abcdefghijklmnopqrstuvwxyz")
    try:
        return float(digits) if "." in digits else int(digits) / 10
    except ValueError:
        return None


def _host_memory(values: Values, fixes: Sequence[Fix]) -> tuple[Fix, ...]:
    """The log of the kernel or of Ray shows what was killed; the constraint shows whose memory was full."""
    constraint = str(values.get("constraint", ""))
    if not constraint and not {"process", "threshold"} & values.keys():
        return tuple(fixes)
    kept = [fix for fix in fixes if "dmesg" not in fix.code]
    is_limited = constraint.endswith("MEMCG") or bool({"cgroup", "killed_processes", "threshold"} & values.keys())
    return tuple(kept) if is_limited else (_FULL_HOST, *kept)


def _jetson(values: Values, fixes: Sequence[Fix]) -> tuple[Fix, ...]:
    """On Jetson, only the mode csv generates a specification."""
    is_jetson = "Jetson host" in str(values.get("signs", ""))
    return tuple(fix for fix in fixes if not (is_jetson and "generate --output" in fix.code))


def _old_gpu(values: Values, fixes: Sequence[Fix]) -> tuple[Fix, ...]:
    """No version of Triton helps a GPU that it does not support."""
    return tuple(fix for fix in fixes if not ("name" in values and "pip install" in fix.code))


def _nccl_reason(values: Values, fixes: Sequence[Fix]) -> tuple[Fix, ...]:
    """The fix for the call that NCCL's last error names."""
    reason = str(values.get("last_error", "")).lower()
    marker = next((marker for word, marker in _NCCL_REASONS.items() if word in reason), "")
    if not marker:
        return tuple(fixes)
    read, *others = fixes
    return *sorted(others, key=lambda fix: marker not in fix.code), read


def _timeout_at_start(values: Values, fixes: Sequence[Fix]) -> tuple[Fix, ...]:
    """At one of the first collectives, one rank mostly still prepares data or downloads, while the others wait.

    If the group never completed a collective and has many in its queue, its transfers may not work at all.
    """
    sequence, enqueued = (str(values.get(name, "")) for name in ("sequence", "enqueued"))
    is_first = sequence.isdigit() and int(sequence) <= _FIRST_COLLECTIVES
    if is_first and values.get("completed") == "-1" and enqueued.isdigit() and int(enqueued) > _FIRST_COLLECTIVES:
        return (_NO_TRANSFERS, *fixes)
    return tuple(sorted(fixes, key=lambda fix: not (is_first and "timedelta" in fix.code)))


def _legacy_driver(values: Values, fixes: Sequence[Fix]) -> tuple[Fix, ...]:
    """The branch that the driver names, if this GPU needs an older one."""
    branch = str(values.get("legacy", ""))[:3]
    if not branch.isdigit():
        return tuple(fixes)
    install = f"sudo apt-get install nvidia-driver-{branch}-server && sudo reboot"
    first = Fix(f"Install the last branch of the driver that supports this GPU, {branch}.", install)
    return (first, *(fix for fix in fixes if "nvidia-driver-" not in fix.code))


def _host_compiler(values: Values, fixes: Sequence[Fix]) -> tuple[Fix, ...]:
    """The newest compiler that the message allows."""
    newest, limit = str(values.get("newest", "")), str(values.get("limit", ""))
    version = newest if newest.isdigit() else str(int(limit) - 1) if limit.isdigit() else ""
    return tuple(Fix(fix.text, fix.code.replace("-13", f"-{version}")) if version else fix for fix in fixes)


def _recovery(values: Values, fixes: Sequence[Fix]) -> tuple[Fix, ...]:
    action = str(values.get("action", "")).lower()
    first = next((fix for word, fix in _RECOVERY.items() if word in action), None)
    return tuple(fixes) if first is None else (first, *(fix for fix in fixes if fix.code != first.code))


def _fault(values: Values, fixes: Sequence[Fix]) -> tuple[Fix, ...]:
    """If several processes fail on one GPU, another GPU shows whether the program or the GPU is the cause."""
    return (_OTHER_GPU, *fixes, _TEST_GPU) if "processes" in values else tuple(fixes)


def _link_event(values: Values, fixes: Sequence[Fix]) -> tuple[Fix, ...]:
    """An event of NVLink 5 that is not fatal needs no reset; one that ended the work of programs does."""
    if "previous" in values:
        return (
            _RESET_LINKS,
            _FIRST_LINK_XID,
            *(fix for fix in fixes if "--gpu-reset" not in fix.code and "154" not in fix.code),
        )
    if values.get("severity") != "Nonfatal":
        return tuple(fixes)
    return (_LINK_CONTINUES, *(fix for fix in fixes if "--gpu-reset" not in fix.code))


def _worker(values: Values, fixes: Sequence[Fix]) -> tuple[Fix, ...]:
    """A worker that crashed in a library, or that was ended on purpose, has no use for more shared memory."""
    signal = str(values.get("signal", ""))
    if "ending" in values:
        return (_WORKER_ERROR, *fixes)
    if not signal or signal.startswith("Bus"):
        return tuple(fixes)
    first = _ENDED if signal.split(maxsplit=1)[0] in _ENDING_SIGNALS else _CRASHED
    return (first, *(fix for fix in fixes if "shm" not in fix.code))


def _fitting_length(values: Values, fixes: Sequence[Fix]) -> tuple[Fix, ...]:
    """Name the number of tokens for which the cache has room, as the message reports it."""
    tokens = str(values.get("fits", "")) or str(values.get("limit", ""))
    if not tokens.isdigit():
        return tuple(fixes)
    first = Fix(f"Limit a request to {tokens} tokens, which fit.", f"vllm serve MODEL --max-model-len {tokens}")
    return (first, *(fix for fix in fixes if "--max-model-len " not in fix.code or "--hf-overrides" in fix.code))


def _free_fraction(values: Values, fixes: Sequence[Fix]) -> tuple[Fix, ...]:
    """Name the part of the GPU that is free, rounded down, in the command that limits vLLM to it."""
    try:
        fraction = math.floor(100 * float(values["free"]) / float(values["total"])) / 100
    except (KeyError, ValueError, ZeroDivisionError):
        return tuple(fixes)
    option = "--gpu-memory-utilization"
    named = (Fix(fix.text, f"vllm serve MODEL {option} {fraction:.2f}") if option in fix.code else fix for fix in fixes)
    return tuple(sorted(named, key=lambda fix: not (fraction > _ALMOST_FREE and option in fix.code)))


def _reach_host(values: Values, fixes: Sequence[Fix]) -> tuple[Fix, ...]:
    """Name the address that could not be reached; the connection itself failed, so it is the first to check."""
    host, port = str(values.get("host", "")), str(values.get("port", ""))
    named = [Fix(fix.text, fix.code.replace("29500", port)) if port and "ss -l" in fix.code else fix for fix in fixes]
    if not re.fullmatch(r"[\w.:-]{1,200}", host):
        return tuple(named)
    first = Fix("Check whether the host of the store can be reached from this one.", f"nc -vz {host} {port}")
    return *reachable_name(host), first, *(fix for fix in named if "nc -vz" not in fix.code)


def _driver_build(values: Values, fixes: Sequence[Fix]) -> tuple[Fix, ...]:
    """The build that runs with the CUDA version that the driver reports: builds for CUDA 12 run with every 12.x.

    A driver for an older CUDA version runs none of the current builds, so it has to be upgraded.
    """
    digits = str(values.get("found", ""))
    if not digits.isdigit():
        return tuple(fixes)
    if int(digits) < _CUDA_12:
        upgrade = Fix(
            "Upgrade the driver to branch 580 or later, and reboot: this one is older than 525, the first for CUDA 12.",
            "sudo ubuntu-drivers install && sudo reboot",
        )
        rest = (fix for fix in fixes if "/whl/" not in fix.code and fix.code != upgrade.code)
        return (upgrade, *((_LAST_OF_CUDA_11,) if int(digits) >= _CUDA_11 else ()), *rest)
    version = f"{int(digits) // 1000}.{int(digits) % 1000 // 10}"
    install = next(fix for fix in fixes if "/whl/" in fix.code)
    first = Fix(f"Install a PyTorch that runs with this driver, which supports CUDA {version}.", install.code)
    return (first, *(fix for fix in fixes if fix is not install and "nvidia-smi" not in fix.code))


def _cudnn_status(values: Values, fixes: Sequence[Fix]) -> tuple[Fix, ...]:
    """Only some of cuDNN's codes can mean that memory is missing."""
    status = str(values.get("status", ""))
    if "NOT_SUPPORTED" in status or "BAD_PARAM" in status:
        return tuple(sorted(fixes, key=lambda fix: "contiguous" not in fix.code))
    if "EXECUTION_FAILED" in status or "MAPPING_ERROR" in status:
        return tuple(sorted(fixes, key=lambda fix: "LAUNCH_BLOCKING" not in fix.code))
    return tuple(fixes)


def _cudnn_plan(values: Values, fixes: Sequence[Fix]) -> tuple[Fix, ...]:
    """Where cuDNN's frontend gives a reason, no memory is missing: the operation is not supported."""
    is_refused = "reason" in values
    return tuple(sorted(fixes, key=lambda fix: not (is_refused and ("sdp" in fix.code or "pip" in fix.code))))


def _missing_package(values: Values, fixes: Sequence[Fix]) -> tuple[Fix, ...]:
    """The command that installs a package whose name for pip, or whose place, is not that of its module."""
    check, install, *others = fixes
    name = str(values.get("module", "")).split(",")[0].split(".")[0].strip()
    if name == "torch":
        return _OTHER_INTERPRETER, check, *(fix for fix in others if fix.code.startswith("env "))
    command = install_command(name)
    return (Fix(install.text, command), check, *others) if command else (check, install, *others)


_CASES: Final[Mapping[str, Callable[[Values, Sequence[Fix]], tuple[Fix, ...]]]] = {
    "arch-warning": _fitting_build,
    "container-cdi": _jetson,
    "cuda-home": fitting_toolkit,
    "batch-unequal": fitting_batch,
    "cudnn-engine": _cudnn_plan,
    "cudnn-init": _cudnn_status,
    "device-assert": assertion_meaning,
    "device-mismatch": moved_model,
    "driver-old": _driver_build,
    "dtype-mismatch": same_half,
    "no-kernel-image": _fitting_build,
    "flash-attn-abi": same_library,
    "gpu-unsupported": _legacy_driver,
    "host-compiler": _host_compiler,
    "host-oom": _host_memory,
    "inductor-old-gpu": _old_gpu,
    "install-not-found": available_version,
    "lib-missing": missing_library,
    "library-arguments": fitting_version,
    "library-attribute": fitting_version,
    "multimodal-input": fitting_image_tokens,
    "nccl-system": _nccl_reason,
    "nccl-timeout": _timeout_at_start,
    "nccl-usage": visible_gpus,
    "no-wheel": available_version,
    "package-missing": _missing_package,
    "package-version": fitting_version,
    "weights-only": permitted_type,
    "xid-154": _recovery,
    **{f"xid-{number}": _fault for number in (13, 31, 43)},
    **{f"xid-{number}": _link_event for number in range(144, 151)},
    "shm": _worker,
    "state-dict-mismatch": checkpoint_names,
    "toolkit-old": supported_architecture,
    "torchcodec-load": fitting_codec,
    "torch-attribute": fitting_torch,
    "port-in-use": _reach_host,
    "tcpstore": _reach_host,
    "vllm-max-len": _fitting_length,
    "vllm-context-limit": _fitting_length,
    "vllm-memory-taken": _free_fraction,
    "vllm-weights-shape": four_bit_weights,
    "vllm-batched-tokens": batched_tokens,
    "serving-too-few-gpus": available_gpus,
}
