"""The overview as plain text for output that is not a terminal: no escape sequences, colors or cursor."""

import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from difflib import get_close_matches
from string import Formatter
from typing import Final

from gpumon.core.metrics import METRICS
from gpumon.core.model import Frame, short_product_name
from gpumon.core.problems import CommandError, ProblemCode
from gpumon.core.store import Store
from gpumon.core.text import safe_text
from gpumon.core.units import MISSING, gibibytes_text
from gpumon.health.alerts import DEFAULT_THRESHOLDS, Severity, Thresholds, check, merged_alerts
from gpumon.present.device_table import DEVICE_COLUMNS, DeviceRow, device_rows, state_span
from gpumon.present.header import host_line, versions_text
from gpumon.present.paint.line import Span, plain
from gpumon.present.paint.table import fit_columns, headings, row_line
from gpumon.present.process_table import PROCESS_COLUMNS, process_line, process_rows
from gpumon.present.table_state import columns_for, visible_columns
from gpumon.session.table_memory import TableState
from gpumon.session.view_state import ViewState

FORMAT_NAMES: Final = (
    *("index", "name", "uuid", "state", "user", "program"),
    *("utilization", "temperature", "power", "memory_used", "memory_total"),
)
"""What a format can show in addition to the metrics."""
_SPEC: Final = re.compile(r"[<>^]?0?\d{0,2},?(\.\d)?[defgs%]?")
"""The part of Python's formats that cannot make a text large."""
_ALIGNMENT: Final = re.compile(r"[<>^]?\d{0,2}")
_DEFAULT_WIDTH: Final = 120
_MIN_WIDTH: Final = 80


class _MissingSign(str):
    """The sign of a missing value, in any format of a number."""

    __slots__ = ()

    def __format__(self, spec: str) -> str:
        """The sign with the alignment and width of the format."""
        return super().__format__(_ALIGNMENT.match(spec.replace("=", ">"))[0])  # type: ignore[index] # may be empty


def check_format(template: str) -> None:
    """Check a text for `formatted`; it may come from another process.

    Raises:
        CommandError: It has a name that no value has, a brace too much, or a format that Python does not know.
    """
    remedy = f"Names: {', '.join(FORMAT_NAMES)}, and those of the metrics in --json."
    problem = ""
    try:
        fields = [field for field in Formatter().parse(template) if field[1] is not None]
    except ValueError as error:
        fields, problem = [], f"{str(error).capitalize()}."
    for _, name, spec, conversion in fields:
        if name not in FORMAT_NAMES and name not in METRICS:
            similar = get_close_matches(str(name), (*FORMAT_NAMES, *METRICS), n=1)
            problem = (
                f"There is no {safe_text(str(name), 40)!r}.{''.join(f' Did you mean {name}?' for name in similar)}"
            )
        elif conversion or not _SPEC.fullmatch(spec or ""):
            problem = f"{safe_text(spec or str(conversion), 40)!r} is not a format such as >5 or .1f."
    if problem:
        reason = f"The format {safe_text(template, 80)!r} cannot be used. {problem}"
        raise CommandError.usage(ProblemCode.INVALID_VALUE, reason, remedy)


def formatted(frame: Frame, template: str) -> Iterator[str]:
    """A text for each device, with its values in place of their names in braces.

    Args:
        frame: The moment.
        template: The text; names are those of `FORMAT_NAMES` and of the metrics.

    Raises:
        CommandError: The text has a name that no value has, a brace too much, or a format that is not for the value.
    """
    check_format(template)
    for row in device_rows(ViewState(Store(), frame, (), "")):
        device = row.device
        values: dict[str, object] = {metric: device.get(metric) for metric in METRICS}
        values |= zip(
            FORMAT_NAMES,
            (
                *(device.label, short_product_name(device.name), device.uuid, _one_word(row, 0).text),
                *(row.owner.user, row.owner.program, _number(device.get("utilization_gpu_percent"))),
                *(_number(device.get("temperature_celsius")), _number(device.get("power_watts"))),
                *(gibibytes_text(device.get("memory_used_bytes")), gibibytes_text(device.get("memory_total_bytes"))),
            ),
            strict=True,
        )
        try:
            yield template.format_map(
                {name: _MissingSign(MISSING) if value is None else value for name, value in values.items()}
            )
        except ValueError as error:
            reason = f"The format {safe_text(template, 80)!r} cannot be used: {error}."
            raise CommandError.usage(ProblemCode.INVALID_VALUE, reason, "Only metrics are numbers.") from None


def _one_word(row: DeviceRow, _: int) -> Span:
    """The state in one word, so that scripts can split a line at its spaces."""
    return Span(state_span(row).text.replace(" ", "-") or "ok")


def _number(value: float | None) -> str:
    return MISSING if value is None else f"{value:.0f}"


def status_text(frame: Frame, thresholds: Thresholds = DEFAULT_THRESHOLDS) -> str:
    """Returns the output of ``gpumon status``."""
    width = max(shutil.get_terminal_size((_DEFAULT_WIDTH, 40)).columns, _MIN_WIDTH)
    with_words = [replace(item, cell=_one_word) if item.heading == "State" else item for item in DEVICE_COLUMNS]
    device_columns = fit_columns(with_words, width)
    processes = process_rows(frame)
    columns = [column for column in PROCESS_COLUMNS if column.id != "share"]
    process_columns = fit_columns(visible_columns(columns_for(columns, processes), TableState()), width)
    store = Store()
    store.apply(frame)
    view = ViewState(store, frame, (), "", thresholds=thresholds)
    lines = [f"{(plain(host_line(frame)))} · {versions_text(frame)}".strip(), "", plain(headings(device_columns))]
    lines += [plain(row_line(device_columns, row)) for row in device_rows(view)]
    if processes:
        lines += ["", *([plain(headings(process_columns))] if any(row.unread is None for row in processes) else [])]
        lines += [plain(process_line(process_columns, row)) for row in processes]
    alerts = check(frame, thresholds)
    if alerts:
        problems = [alert for alert in alerts if alert.severity is not Severity.INFO]
        infos = merged_alerts([alert for alert in alerts if alert.severity is Severity.INFO])
        lines += ["", *(f"! {alert.detail} {alert.action}".rstrip() for alert in problems)]
        lines += [f"i {alert.detail}" for alert in infos]
    return "\n".join(line.rstrip() for line in lines)
