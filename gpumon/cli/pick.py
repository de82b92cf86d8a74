"""`gpumon pick`: chooses GPUs for a program that is about to start."""

import json

import click

from gpumon.cli.options import AnyDuration, Size, debug_option, json_option


@click.command(short_help="Choose free GPUs for a program.")
@click.option("--count", type=click.IntRange(1, 64), default=1, show_default=True, help="How many GPUs.")
@click.option("--device", "device", default="all", show_default=True, metavar="DEVICE", help="Choose from these GPUs.")
@click.option(
    "--free-memory",
    type=Size(),
    metavar="SIZE",
    help="Free memory of each GPU, such as 20G; then other processes may use the GPU too.",
)
@click.option(
    "--idle",
    type=AnyDuration(),
    metavar="DURATION",
    help="Also take a GPU whose processes have not computed for this long; gpumon watches them until then.",
)
@click.option("--wait", is_flag=True, help="Wait until enough GPUs fit.")
@click.option("--timeout", type=AnyDuration(), metavar="DURATION", help="Longest time to wait.")
@click.option("--index", is_flag=True, help="Print indices of nvidia-smi in place of UUIDs.")
@click.option("--pid", type=click.IntRange(1), metavar="PID", help="Reserve for this process.  [default: the caller]")
@json_option("pick")
@debug_option
def pick(  # noqa: PLR0917 - click passes them by name
    count: int,
    device: str,
    free_memory: float | None,
    idle: float | None,
    wait: bool,
    timeout: float | None,
    index: bool,
    pid: int | None,
    as_json: bool,
) -> None:
    """Print the UUIDs of free GPUs, as CUDA_VISIBLE_DEVICES expects them.

    For example: CUDA_VISIBLE_DEVICES=$(gpumon pick --count 2) python train.py

    Several GPUs are chosen with NVLink between them, where there is NVLink. Another gpumon pick of this user does not
    choose the same GPU for one minute, or until the calling process ends. Exits with 1 if too few GPUs fit.
    """
    from gpumon.operations.pick import pick_devices
    from gpumon.operations.pick_reservations import picking_process

    picked = pick_devices(
        count,
        devices=device,
        free_bytes=free_memory,
        idle_seconds=idle,
        wait_seconds=timeout if wait else 0.0,
        pid=pid or picking_process(),
    )
    if as_json:
        documents = [
            {
                "index": item.index,
                "uuid": item.uuid,
                "name": item.name,
                "memory_free_bytes": item.get("memory_free_bytes"),
            }
            for item in picked.devices
        ]
        click.echo(json.dumps({"schema": 1, "reserved_for_pid": picked.pid, "devices": documents}, indent=2))
    else:
        click.echo(",".join(item.label for item in picked.devices) if index else picked.visible_devices)
