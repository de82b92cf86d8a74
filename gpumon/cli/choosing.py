"""`gpumon pick` and `gpumon wait`: choose GPUs for a program that is about to start, or wait until a GPU is free."""

import time
from typing import Final

import click

from gpumon.cli.options import AnyDuration, Size, debug_option, interval_option, json_option
from gpumon.cli.output import print_json
from gpumon.core.problems import ExitCode


class Percent(click.ParamType[float]):
    """A percentage such as ``90%`` or ``90``."""

    name = "percent"

    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number."""
        try:
            percent = float(str(value).strip().removesuffix("%"))
        except ValueError:
            percent = -1.0
        if not 0 <= percent <= 100:
            self.fail(f"{value!r} is not a percentage such as 90%.", param, ctx)
        return percent


_PERCENT: Final = Percent()


@click.command(short_help="Wait until a GPU is free, or a process ends.")
@click.option(
    "--gpu", "--device", "gpu", metavar="DEVICE", help="The GPUs: an index, a range, a UUID, cuda:0, all, or a list."
)
@click.option("--free", is_flag=True, help="Wait until no process uses the GPUs.")
@click.option("--memory-above", type=_PERCENT, metavar="PERCENT", help="Wait until more of the memory is in use.")
@click.option("--utilization-below", type=_PERCENT, metavar="PERCENT", help="Wait until the utilization is lower.")
@click.option(
    "--for",
    "duration",
    type=AnyDuration(),
    envvar="GPUMON_WAIT_FOR",
    default=0.0,
    metavar="DURATION",
    help="How long it must be true.",
)
@click.option("--pid", type=click.IntRange(1), metavar="PID", help="Wait until this process ends.")
@click.option("--timeout", type=AnyDuration(), metavar="DURATION", help="Longest time to wait.")
@interval_option
@debug_option
def wait(  # noqa: PLR0917 - click passes them by name
    gpu: str | None,
    free: bool,
    memory_above: float | None,
    utilization_below: float | None,
    duration: float,
    pid: int | None,
    timeout: float | None,
    interval: float,
) -> int:
    """Wait until every condition is true of every given GPU, or until a process has ended.

    Prints one sentence and exits with 0; exits with 1 after the timeout. Example: gpumon wait --gpu 3
    --utilization-below 5% --for 5m && mail -s "GPU 3 is idle" me
    """
    from gpumon.operations import wait as waiting

    conditions = [waiting.is_free()] if free else []
    conditions += [] if memory_above is None else [waiting.memory_above(memory_above)]
    conditions += [] if utilization_below is None else [waiting.utilization_below(utilization_below)]
    if (pid is None) == (not conditions) or (gpu is None) != (not conditions):
        raise click.UsageError(
            "Give --pid, or --gpu with at least one of --free, --memory-above and --utilization-below."
        )
    deadline = None if timeout is None else time.monotonic() + timeout
    if pid is not None:
        sentence = waiting.wait_for_process(pid, deadline)
    else:
        from gpumon.operations.one_shot import live_frames

        with live_frames(interval) as source:
            watch = waiting.GpuWatch(gpu or "", conditions, duration)
            sentence = waiting.wait_for_gpus(source.frames(deadline), watch)
    if sentence is None:
        click.echo("gpumon: The timeout has passed.", err=True)
        return ExitCode.BAD_VERDICT
    click.echo(sentence)
    return ExitCode.OK


@click.command(short_help="Choose free GPUs for a program.")
@click.option("--count", type=click.IntRange(1, 64), default=1, show_default=True, help="How many GPUs.")
@click.option(
    "--gpu",
    "--device",
    "device",
    default="all",
    show_default=True,
    metavar="DEVICE",
    envvar=("GPUMON_PICK_GPU", "GPUMON_PICK_DEVICE"),
    help="Choose from these GPUs.",
)
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
        print_json({"schema": 1, "reserved_for_pid": picked.pid, "devices": documents})
    else:
        click.echo(",".join(item.label for item in picked.devices) if index else picked.visible_devices)
