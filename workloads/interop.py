"""Tensors shared with NumPy, CuPy and Numba: without a copy where both use the same memory, and what a copy costs."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from _kit import LOWER, DeclaredMetric, Uses, Verdict, Workload, integer
from _kit.timing import host_seconds, median

if TYPE_CHECKING:
    from _kit.context import Context

_REPETITIONS = 20
_INSTALL = {"numpy": "pip install numpy", "cupy": "pip install cupy-cuda13x", "numba": "pip install numba-cuda"}


def views(tensor: Any, library: str, module: Any) -> dict[str, Callable[[], Any]]:
    """Returns functions that hand a tensor to a library without a copy, by the way that they use."""
    if library == "numpy":
        return {"numpy()": tensor.numpy, "DLPack": lambda: module.from_dlpack(tensor)}
    if library == "cupy":
        return {
            "DLPack": lambda: module.from_dlpack(tensor),
            "__cuda_array_interface__": lambda: module.asarray(tensor),
        }
    return {"__cuda_array_interface__": lambda: module.cuda.as_cuda_array(tensor)}


def address_of(array: Any) -> int:
    """Returns the address of the first element of an array of NumPy, CuPy or Numba."""
    for name in ("__cuda_array_interface__", "__array_interface__"):
        interface = getattr(array, name, None)
        if interface is not None:
            return int(interface["data"][0])
    raise TypeError(f"{type(array).__name__} names no address")


def back(torch: Any, array: Any) -> Any:
    """Returns a tensor with the memory of an array."""
    return torch.from_dlpack(array) if hasattr(array, "__dlpack__") else torch.as_tensor(array, device="cuda")


def _share(context: Context, library: str, module: Any, tensor: Any) -> list[str]:
    """Measures every way to hand a tensor to a library and back; returns what is wrong."""
    torch, wrong = context.torch, []
    for way, view in views(tensor, library, module).items():
        case = f"{library}, {way}"
        array = view()
        tensor[0] = 7.0
        returned = back(torch, array)
        is_shared = address_of(array) == tensor.data_ptr() == returned.data_ptr()
        if not is_shared or float(returned[0]) != 7.0:
            wrong.append(case)
        context.checked += 1
        _measure(context, "view", case, view)
        context.step(f"{case}: the same memory, at {tensor.data_ptr():#x}; a write on one side is seen on the other.")
    return wrong


def _measure(context: Context, name: str, case: str, call: Callable[[], Any]) -> None:
    """Adds the median time of a call, in microseconds."""
    seconds = [host_seconds(context, call)[1] for _ in range(_REPETITIONS)]
    context.result(name, median(seconds) * 1e6, repetitions=_REPETITIONS, case=case)


def _copies(context: Context, tensor: Any) -> dict[str, Callable[[], Any]]:
    """Returns the copies to compare with: on the device, and to the host where the device is a GPU."""
    copies: dict[str, Callable[[], Any]] = {"copy on the device" if context.on_gpu else "copy": tensor.clone}
    if context.on_gpu:
        pinned = context.torch.empty(tensor.shape, pin_memory=True)
        copies["copy to the host"] = tensor.cpu
        copies["copy to pinned memory"] = lambda: pinned.copy_(tensor, non_blocking=True)
    return copies


def _uses(context: Context) -> Uses:
    size = context.parameters.size_mebibytes << 20
    return Uses(3 * size, 10, 2 * size) if context.on_gpu else Uses(0, 5, host_memory_bytes=3 * size)


def _run(context: Context) -> Verdict:
    torch, size = context.torch, context.parameters.size_mebibytes << 20
    context.cap_memory(3 * size + (64 << 20))
    tensor = torch.ones(size // 4, device=context.device)
    missing, wrong = [], []
    for library in ("cupy", "numba", "numpy") if context.on_gpu else ("numpy",):
        try:
            module = importlib.import_module(library)
            if library == "numba":
                importlib.import_module("numba.cuda")
            wrong += _share(context, library, module, torch.ones(size // 4) if library == "numpy" else tensor)
        except (ImportError, RuntimeError) as error:  # NumPy built for another torch raises RuntimeError
            reason = (str(error).splitlines() or [""])[0]
            missing.append(f"{library} cannot be used here ({reason}): {_INSTALL[library]}.")
            context.step(missing[-1])
    if torch.from_dlpack(tensor).data_ptr() != tensor.data_ptr():
        wrong.append("torch, DLPack")
    context.checked += 1
    _measure(context, "view", "torch, DLPack", lambda: torch.from_dlpack(tensor))
    for case, copy in _copies(context, tensor).items():
        copy()
        _measure(context, "copy", case, copy)
    if wrong:
        return context.fail(f"Not the same memory: {', '.join(wrong)}.")
    return context.ok(_advice(context, missing))


def _advice(context: Context, missing: list[str]) -> str:
    values = {(result.name, result.case): result.value for result in context.results}
    slowest = max(value for (name, _), value in values.items() if name == "view")
    copies = [f"a {case} takes {value / 1e3:.3g} ms" for (name, case), value in values.items() if name == "copy"]
    text = f"Share memory in place of copying it: a view takes up to {slowest:.3g} µs, whatever the size. Of "
    text += f"{context.parameters.size_mebibytes} MiB, {', '.join(copies)}. A view is valid while its owner lives, "
    text += "and both sides must use the same stream or synchronize."
    return " ".join([text, *missing])


WORKLOAD = Workload(
    name="interop",
    purpose="Shares tensors with NumPy, CuPy and Numba without a copy, checks the addresses, and measures copies.",
    needs="A GPU or the CPU; CuPy and Numba are optional.",
    uses=_uses,
    run=_run,
    main_metric="view",
    code=(views, address_of, back),
    metrics=(DeclaredMetric("*", "us", LOWER),),
    parameters=(integer("size_mebibytes", 256, 1, 16384, "Size of the tensor.", unit="MiB", default_cpu=16),),
)
