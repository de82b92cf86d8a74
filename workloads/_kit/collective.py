"""The collectives of torch.distributed, their bandwidth as nccl-tests defines it, and what their result must be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

_PERIOD = 1021
"""Values are below this prime, so that sums are exact in float32 and the data of the ranks differs."""
_SHIFT = 131
"""The data of a rank is that of the one before, moved by this many elements."""


def all_reduce(dist: Any, _: Any, target: Any) -> None:
    """Replaces the tensor of every rank with the sum of all of them."""
    dist.all_reduce(target)


def all_gather(dist: Any, source: Any, target: Any) -> None:
    """Gives every rank the tensors of all ranks, one after another."""
    dist.all_gather_into_tensor(target, source)


def reduce_scatter(dist: Any, source: Any, target: Any) -> None:
    """Gives every rank its part of the sum of all tensors."""
    dist.reduce_scatter_tensor(target, source)


def broadcast(dist: Any, _: Any, target: Any) -> None:
    """Replaces the tensor of every rank with that of rank 0."""
    dist.broadcast(target, src=0)


def send_receive(dist: Any, source: Any, target: Any) -> None:
    """Sends to the next rank, and receives from the one before at the same time."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    requests = dist.batch_isend_irecv(
        [dist.P2POp(dist.isend, source, (rank + 1) % ranks), dist.P2POp(dist.irecv, target, (rank - 1) % ranks)]
    )
    for request in requests:
        request.wait()


@dataclass(frozen=True)
class Operation:
    """One collective.

    Attributes:
        call: Calls it.
        bus_factor: Bus bandwidth divided by algorithm bandwidth, by the number of ranks.
        in_place: Whether the target also is the input.
        splits_source: Whether the source is one rank's part of the size.
        splits_target: Whether the target is one rank's part of the size.
    """

    call: Callable[[Any, Any, Any], None]
    bus_factor: Callable[[int], float]
    in_place: bool = False
    splits_source: bool = False
    splits_target: bool = False


OPERATIONS = {
    "all_reduce": Operation(all_reduce, lambda n: 2 * (n - 1) / n, in_place=True),
    "all_gather": Operation(all_gather, lambda n: (n - 1) / n, splits_source=True),
    "reduce_scatter": Operation(reduce_scatter, lambda n: (n - 1) / n, splits_target=True),
    "broadcast": Operation(broadcast, lambda _: 1.0, in_place=True),
    "send_receive": Operation(send_receive, lambda _: 1.0),
}


def values(torch: Any, rank: int, start: int, count: int, device: Any) -> Any:
    """Returns the data of a rank from element ``start`` on: whole numbers, so that a sum is exact."""
    numbers = torch.arange(start, start + count, dtype=torch.int64, device=device)
    return numbers.add_(_SHIFT * rank).remainder_(_PERIOD).to(torch.float32)


def fill(torch: Any, piece: Any, rank: int, start: int) -> None:
    """Fills a piece, which starts at element ``start``, with the data of a rank."""
    piece.copy_(values(torch, rank, start, piece.numel(), piece.device))


def expected(torch: Any, name: str, rank: int, ranks: int, part: int, start: int, count: int, device: Any) -> Any:
    """Returns what ``count`` elements of the target must be from element ``start`` on.

    Args:
        torch: The torch module.
        name: A key of `OPERATIONS`.
        rank: The rank whose target it is.
        ranks: Number of ranks.
        part: Number of elements of one rank's part.
        start: First element.
        count: Number of elements.
        device: Device of the answer.
    """
    if name == "all_gather":
        index = torch.arange(start, start + count, dtype=torch.int64, device=device)
        return (index % part).add_((index // part).mul_(_SHIFT)).remainder_(_PERIOD).to(torch.float32)
    if name == "broadcast":
        return values(torch, 0, start, count, device)
    if name == "send_receive":
        return values(torch, (rank - 1) % ranks, start, count, device)
    first = start + (rank * part if name == "reduce_scatter" else 0)
    total = torch.zeros(count, device=device)
    for other in range(ranks):
        total += values(torch, other, first, count, device)
    return total
