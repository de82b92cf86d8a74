"""Pictures of the screen: what a font may lack is a path, and every word stands at its cell."""

import re
from xml.etree import ElementTree as ET

from gpumon.ui.drawn_glyphs import with_drawn_glyphs

PICTURE = (
    '<svg><text class="r1" x="12.2" y="20" textLength="134.2" clip-path="url(#line-0)">'
    "50%&#160;┤⣿⣿⣀─░&#160;&#160;ok</text></svg>"
)


def test_braille_blocks_and_lines_are_paths_and_words_keep_their_cells() -> None:
    root = ET.fromstring(with_drawn_glyphs(PICTURE))
    texts = {float(text.get("x", "0")): (text.text or "").strip() for text in root.iter("text")}
    assert texts == {12.2: "50%", 158.6: "ok"}, "the cells of the words, counted from the left end"
    drawn = [path.get("d", "") for path in root.iter("path")]
    assert len(drawn) == 5
    assert drawn[1] == "M73.2 1.5h24.4v24.4h-24.4z", "two full cells are one rectangle"
    assert all(re.fullmatch(r"(M[\d.]+ [\d.]+h[\d.]+v[\d.]+h-[\d.]+z)+", path) for path in drawn)
    assert [path.get("fill-opacity") for path in root.iter("path")] == [None, None, None, None, "0.25"]
    assert {path.get("class") for path in root.iter("path")} == {"r1"}
