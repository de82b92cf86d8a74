"""Checks of how the GPUs are shared: their modes, and who else is on them."""

from typing import Final

from gpumon.core.model import ComputeMode, Switch
from gpumon.core.units import bytes_text
from gpumon.diagnosis.checks import Finding, fail, ok, skip, warn
from gpumon.diagnosis.doctor.facts import Environment
from gpumon.diagnosis.doctor.rule import Gpus, Rule
from gpumon.diagnosis.doctor.wording import counted, gpus_text
from gpumon.diagnosis.health import is_much_unattributed

_UNTOLD: Final = "The chips or their driver do not tell it."
_DEFAULT_MODE: Final = "sudo nvidia-smi -c DEFAULT opens them again."


def mig(gpus: Gpus) -> Finding:
    """Whether GPUs are split into instances, which a program must name one by one."""
    pending = [device for device in gpus.devices if device.mig_mode != device.mig_mode_pending]
    if pending:
        return warn(f"The MIG mode changes at the next reset: {gpus_text(pending)}.", "Reset the GPU, or reboot.")
    split = [device for device in gpus.devices if device.mig_mode is Switch.ENABLED]
    if split:
        return warn(
            f"MIG is on for {gpus_text(split)}: a program sees one instance of it at most.",
            "Name one in CUDA_VISIBLE_DEVICES (nvidia-smi -L lists them), or switch MIG off: sudo nvidia-smi -mig 0.",
        )
    return ok("off") if any(device.mig_mode is not None for device in gpus.devices) else skip(_UNTOLD)


def compute_mode(gpus: Gpus) -> Finding:
    """Programs may compute on the GPUs."""
    closed = [device for device in gpus.devices if device.compute_mode is ComputeMode.PROHIBITED]
    if closed:
        return fail(f"Closed to all programs (compute mode PROHIBITED): {gpus_text(closed)}.", _DEFAULT_MODE)
    single = [
        device
        for device in gpus.devices
        if device.compute_mode in {ComputeMode.EXCLUSIVE_PROCESS, ComputeMode.EXCLUSIVE_THREAD}
    ]
    if single:
        return warn(f"Open to one process at a time (compute mode EXCLUSIVE): {gpus_text(single)}.", _DEFAULT_MODE)
    return ok("default") if any(device.compute_mode is not None for device in gpus.devices) else skip(_UNTOLD)


def others(gpus: Gpus, environment: Environment) -> Finding:
    """Nobody else works on the GPUs."""
    known = [device for device in gpus.devices if device.processes is not None]
    foreign = {
        device.index: [each for each in device.processes or () if each.user not in {None, environment.user}]
        for device in known
    }
    taken = [device for device in known if foreign[device.index]]
    if taken:
        processes = [each for found in foreign.values() for each in found]
        users = ", ".join(sorted({each.user or "" for each in processes}))
        return warn(
            f"{counted(len({each.pid for each in processes}), 'process')} of {users} on {gpus_text(taken)}.",
            "Take other GPUs with CUDA_VISIBLE_DEVICES, or agree with them.",
        )
    unseen = sum(each.user is None for device in known for each in device.processes or ())
    if unseen:
        return ok(f"none that can be seen; of {unseen} the owner cannot be told from here")
    return ok("none") if known else skip(_UNTOLD)


def unowned(gpus: Gpus) -> Finding:
    """All memory in use belongs to a process that can be seen."""
    held = [device for device in gpus.devices if is_much_unattributed(device)]
    if held:
        much = ", ".join(f"{bytes_text(each.get('memory_unattributed_bytes'))} on {gpus_text([each])}" for each in held)
        return warn(
            f"Memory that no visible process owns: {much}.",
            "Look for its holder: sudo fuser -v /dev/nvidia*; it may run in a container, or be about to end.",
        )
    known = [device for device in gpus.devices if device.get("memory_unattributed_bytes") is not None]
    return ok(f"none ({gpus_text(known)})") if known else skip(_UNTOLD)


SHARING_RULES: Final = (
    Rule("gpu.mig", mig, (Gpus,)),
    Rule("gpu.compute_mode", compute_mode, (Gpus,)),
    Rule("gpu.other_users", others, (Gpus, Environment)),
    Rule("gpu.unowned_memory", unowned, (Gpus,)),
)
