"""What one rank does: it connects to the process that started it, and joins the process group."""

from __future__ import annotations

import inspect
import json
import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from _kit.context import Context


def join(address: str) -> int:
    """Connects this rank; returns the file descriptor for its events. The rank ends when the other side is gone."""
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(f"\0{address}")
    document = {"event": "rank", "rank": int(os.environ["RANK"]), "local_rank": int(os.environ["LOCAL_RANK"])}
    connection.sendall(json.dumps(document).encode() + b"\n")
    threading.Thread(target=_end_with, args=(connection,), name="parent", daemon=True).start()
    return connection.fileno()


def device_of_rank(devices: str) -> str:
    """Returns the device of this rank from those of all local ranks, separated by commas."""
    return devices.split(",")[int(os.environ["LOCAL_RANK"])]


@contextmanager
def process_group(context: Context) -> Iterator[Any]:
    """Joins the process group: NCCL on GPUs, Gloo on the CPU. Yields ``torch.distributed``.

    After an error the group is left as it is, because destroying it may wait for the other ranks; the process ends.
    """
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # torchrun ends ranks with it, and they need not clean up
    distributed = context.torch.distributed
    options: dict[str, Any] = {"timeout": timedelta(seconds=context.parameters.timeout_seconds)}
    if context.on_gpu and "device_id" in inspect.signature(distributed.init_process_group).parameters:
        options["device_id"] = context.device
    context.position("init_process_group")
    distributed.init_process_group("nccl" if context.on_gpu else "gloo", **options)
    yield distributed
    context.position("destroy_process_group")
    distributed.destroy_process_group()


def gathered(context: Context, values: list[float]) -> list[list[float]]:
    """Returns the numbers of all ranks, by rank."""
    torch, distributed = context.torch, context.torch.distributed
    own = torch.tensor(values, dtype=torch.float64, device=context.device)
    every = [torch.empty_like(own) for _ in range(distributed.get_world_size())]
    distributed.all_gather(every, own)
    rows: list[list[float]] = torch.stack(every).tolist()
    return rows


def _end_with(connection: socket.socket) -> None:
    """Ends this process when the process that started it is gone."""
    try:
        while connection.recv(1):
            pass
    finally:
        os._exit(1)
