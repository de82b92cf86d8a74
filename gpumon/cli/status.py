"""`gpumon status`: one sample of all GPUs, or one after the other, as a table, CSV, JSON or in a format."""

import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from gpumon.cli.group import thresholds
from gpumon.cli.options import debug_option, options
from gpumon.cli.output import print_json
from gpumon.core.problems import CommandError, ExitCode

if TYPE_CHECKING:
    from gpumon.operations.one_shot import HostSample


@click.command(short_help="Print one sample of all GPUs.")
@options("status")
@debug_option
def status(  # noqa: PLR0917 - click passes them by name
    gpu: str, as_json: bool, as_csv: bool, template: str | None, processes: bool, on_demand: bool, watch: float | None
) -> None:
    """Print one sample of the GPUs of this host, their processes and alerts."""
    if as_json + as_csv + (template is not None) > 1:
        raise click.UsageError("--json, --csv and --format exclude each other.")
    if template is not None:
        from gpumon.present.text.status import check_format

        check_format(template)
    problem = None
    for number, sample in enumerate(_samples(watch, on_demand=on_demand, has_probes=as_json)):
        frame = sample.frame
        problem = frame.problems.get("driver")
        if gpu and frame.devices:
            from gpumon.operations.device_selection import select_devices

            frame = replace(frame, devices=select_devices(gpu, frame.devices))
        if not processes:
            frame = replace(frame, devices=tuple(replace(device, processes=()) for device in frame.devices))
        if number and not (as_json or as_csv or template):
            click.clear() if sys.stdout.isatty() else click.echo()
        _print(sample._replace(frame=frame), template, is_first=not number, as_json=as_json, as_csv=as_csv)
        sys.stdout.flush()
    if problem is not None:
        raise CommandError(problem, ExitCode.MISSING_PREREQUISITE)


def _samples(interval: float | None, *, on_demand: bool, has_probes: bool) -> "Iterator[HostSample]":
    """One sample, or one at each interval."""
    from gpumon.operations.one_shot import HostSample, sample_frame, sample_with_probes

    if interval is None:
        no_probes = HostSample(sample_frame(on_demand=on_demand), {}) if not has_probes else None
        yield no_probes or sample_with_probes(on_demand=on_demand)
        return
    from gpumon.operations.one_shot import live_frames

    with live_frames(interval) as source:
        for frame in source.frames():
            if on_demand:
                source.request_on_demand(frame)
            yield HostSample(frame, {})


def _print(sample: "HostSample", template: str | None, *, is_first: bool, as_json: bool, as_csv: bool) -> None:
    if as_json:
        from gpumon.operations.status import status_document

        print_json(status_document(sample.frame, thresholds(), sample.probes))
    elif as_csv:
        from gpumon.operations.csv_table import write_rows
        from gpumon.operations.status import CSV_COLUMNS, csv_row

        write_rows([CSV_COLUMNS] if is_first else [], sys.stdout)
        write_rows((csv_row(sample.frame, device) for device in sample.frame.devices), sys.stdout)
    elif template is not None:
        from gpumon.present.text.status import formatted

        for line in formatted(sample.frame, template):
            click.echo(line)
    elif sample.frame.devices:
        from gpumon.present.text.status import status_text

        click.echo(status_text(sample.frame, thresholds()))
