"""`gpumon devices`: the hardware of every GPU."""

import json
import shutil
from typing import Final

import click

from gpumon.cli.options import debug_option, json_option
from gpumon.core.problems import CommandError, ExitCode

_MIN_WIDTH: Final = 60
_MAX_WIDTH: Final = 120


@click.command(short_help="Show the hardware of every GPU.")
@json_option("devices", "Print one JSON document; missing values are null, with the reason.")
@debug_option
def devices(as_json: bool) -> None:
    """Print the hardware of every GPU: multiprocessors, registers, shared memory, caches, memory, PCIe and MIG.

    NVML and the CUDA driver are queried once, without a CUDA context and without PyTorch.
    """
    from gpumon.core.device_properties import to_document
    from gpumon.operations.devices import read_devices

    gpus, problem = read_devices()
    if as_json:
        click.echo(json.dumps(to_document(gpus), indent=2, ensure_ascii=False))
    elif gpus:
        from gpumon.present.device_list import device_list_lines
        from gpumon.present.paint.line import plain

        width = min(max(shutil.get_terminal_size((_MAX_WIDTH, 40)).columns, _MIN_WIDTH), _MAX_WIDTH)
        click.echo("\n".join(plain(text).rstrip() for text in device_list_lines(gpus, width)))
    if problem is not None:
        raise CommandError(problem, ExitCode.MISSING_PREREQUISITE)
