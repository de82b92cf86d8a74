"""The pictures of the documents show values where their texts promise some."""

import re
from collections import defaultdict
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from gpumon.core.units import MISSING
from gpumon.streams.recording import RecordingReader
from gpumon.streams.replay import DEMO

DOCS = Path(__file__).resolve().parents[2] / "docs"
PROMISED = {
    "overview.svg": ("SM", "tensor", "DRAM", "occ", "NVLink", "PCIe", "clock", "ECC", "CUDA"),
    "device-chart.svg": ("GPU utilization", "Power", "Temperature"),
    "memory.svg": ("allocated", "reserved"),
}
"""Words of a picture that are followed by a value."""


def lines_of(path: Path) -> list[str]:
    """The lines of a picture from top to bottom."""
    lines: dict[float, list[str]] = defaultdict(list)
    for element in ET.parse(path).getroot().iter("{http://www.w3.org/2000/svg}text"):
        if "clip-path" in element.attrib:
            lines[float(element.attrib["y"])].append("".join(element.itertext()))
    return ["".join(lines[y]).replace("\xa0", " ") for y in sorted(lines)]


def has_activity() -> bool:
    frame = next(iter(RecordingReader(DEMO))).frame
    return any(device.get("tensor_activity_percent") is not None for device in frame.devices)


@pytest.mark.skipif(not has_activity(), reason="the bundled recording has no activity")
@pytest.mark.parametrize("name", PROMISED)
def test_a_picture_has_a_value_where_it_promises_one(name: str) -> None:
    shown = "\n".join(lines_of(DOCS / name))
    for word in PROMISED[name]:
        values = re.findall(rf"\b{re.escape(word)}\b[^\w\n{MISSING}]*\d", shown)
        assert values, f"{word} has no value in {name}"
    assert "require gpumon on the same host" not in shown
