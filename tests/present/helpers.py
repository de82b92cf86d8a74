"""What tests of drawn lines share: the text of lines, and cells of tables by their headings."""

from collections.abc import Sequence

from gpumon.core.model import Device, Frame
from gpumon.core.store import Store
from gpumon.present.device_table import DEVICE_COLUMNS, DeviceRow, device_rows
from gpumon.present.paint.line import Line, Span, plain
from gpumon.present.paint.table import Column, fit_columns
from gpumon.session.view_state import ViewState
from tests import builders


def texts(lines: Sequence[Line]) -> list[str]:
    return [plain(line) for line in lines]


def text(lines: Sequence[Line]) -> str:
    return "\n".join(texts(lines))


def view(frame: Frame) -> ViewState:
    """A moment without a history before it."""
    store = Store()
    store.apply(frame)
    return ViewState(store, frame, (), "")


def only_span(cell: Span | Line) -> Span:
    """A cell of one role."""
    assert isinstance(cell, Span)
    return cell


def device_cells(frame: Frame, heading: str, width: int = 200) -> list[Span]:
    """The cells of one column of the device table."""
    placed = fit_columns(DEVICE_COLUMNS, width)
    column = next(item for item in placed if item.column.title(item.width) == heading)
    return [only_span(column.column.cell(row, column.width)) for row in device_rows(view(frame))]


def device_texts(device: Device, columns: Sequence[Column[DeviceRow]] = DEVICE_COLUMNS) -> dict[str, str]:
    """Heading to text of one device's row."""
    (row,) = device_rows(view(builders.frame(devices=(device,))))
    placed = fit_columns(columns, 200)
    return {item.column.title(item.width): only_span(item.column.cell(row, item.width)).text for item in placed}
