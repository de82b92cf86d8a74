"""Managed memory: pages that fault at the first touch of the GPU, and pages that were moved before it."""

import ctypes
import time

import torch

if not torch.cuda.is_available():
    raise SystemExit("Needs a GPU.")
torch.cuda.init()
torch.zeros(1, device="cuda").sum().item()  # creates the context, and loads the kernel of a sum
driver = ctypes.CDLL("libcuda.so.1")
SIZE, ATTACH_GLOBAL = 1 << 30, 1


class Managed:
    """Memory that the host and the GPU share; torch uses it through the interface of array libraries."""

    def __init__(self) -> None:
        address = ctypes.c_uint64()
        assert driver.cuMemAllocManaged(ctypes.byref(address), ctypes.c_size_t(SIZE), ATTACH_GLOBAL) == 0
        self.address = address.value
        data = {"data": (self.address, False), "shape": (SIZE // 4,), "typestr": "<f4", "strides": None, "version": 2}
        self.__cuda_array_interface__ = data


for moves in (False, True):
    memory = Managed()
    host = torch.frombuffer((ctypes.c_ubyte * SIZE).from_address(memory.address), dtype=torch.float32)
    gpu = torch.as_tensor(memory, device="cuda")
    host.fill_(1.0)  # now the pages are on the host
    torch.cuda.synchronize()
    start = time.perf_counter()
    if moves:
        arguments = ctypes.c_uint64(memory.address), ctypes.c_size_t(SIZE), torch.cuda.current_device(), None
        assert driver.cuMemPrefetchAsync(*arguments) == 0
    gpu.sum().item()
    print(f"{'prefetch' if moves else 'first touch'}: {SIZE / (time.perf_counter() - start) / 1e9:.1f} GB/s")
    driver.cuMemFree_v2(ctypes.c_uint64(memory.address))
