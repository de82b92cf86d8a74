"""A moving picture: screenshots of Textual in one SVG, which shows one after the other, also in ``<img>`` of a page."""

import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple
from xml.sax.saxutils import escape

FRAME_SECONDS: Final = 2.5

_ID: Final = re.compile(r"terminal-\d+-")
"""The names in a screenshot begin with a checksum of its content."""
_STYLE: Final = re.compile(r"^\s*\.(r\d+) \{ (.*?) \}$", re.MULTILINE)
_CAPTION: Final = re.compile(r'(<text class="title" [^>]*>)[^<]*</text>')
_FONT_ADDRESS: Final = re.compile(r",\s*url\(\"https:[^)]*\) format\(\"\w+\"\)")
"""A picture in a page may not load fonts."""
_CLIP: Final = re.compile(r' clip-path="url\(#(.+?)\)"')
"""Rich refers to a clip path of the last line, but does not define one."""
_RECT: Final = re.compile(r'<rect fill="(.+?)" x="(.+?)" y="(.+?)" width="(.+?)" height="(.+?)" [^>]*/>')
_ANIMATION: Final = """\
.frame {{ visibility: hidden; animation: show {total:g}s step-end infinite }}
.first {{ visibility: visible }}
@keyframes show {{ 0% {{ visibility: visible }} {share:.4g}% {{ visibility: hidden }} }}
@media (prefers-reduced-motion: reduce) {{ .frame {{ animation: none }} }}"""
"""A viewer without animations shows the first frame."""


class Scene(NamedTuple):
    """One picture of the movie.

    Attributes:
        caption: What it shows, for the title of the window.
        svg: A screenshot; all scenes have the same size.
    """

    caption: str
    svg: str


def movie(scenes: Sequence[Scene]) -> str:
    """An SVG that shows each scene for `FRAME_SECONDS`, over and over.

    The window, the fonts, the clip paths and each style of text are contained once for all scenes.
    """
    window, _ = _split(scenes[0].svg)
    head, window = _FONT_ADDRESS.sub("", _STYLE.sub("", window)).split("</style>")
    caption = _CAPTION.search(window)
    assert caption is not None, "a screenshot has a title"
    clip_paths = set(re.findall(r'id="(.+?)"', window))
    styles: dict[str, str] = {}
    frames = []
    for number, scene in enumerate(scenes):
        own_head, content = _split(scene.svg)
        content = _CLIP.sub(lambda match: match[0] if match[1] in clip_paths else "", content)
        names = {name: styles.setdefault(rule, f"s{len(styles)}") for name, rule in _STYLE.findall(own_head)}
        title = f"{caption[1]}{escape(scene.caption)}</text>"
        kind = "frame" if number else "frame first"
        delay = f"{number * FRAME_SECONDS:g}s"
        frames.append(f'<g class="{kind}" style="animation-delay: {delay}">{title}{_content(content, names)}</g>\n')
    rules = "\n".join(f".{name} {{ {rule} }}" for rule, name in styles.items())
    animation = _ANIMATION.format(total=FRAME_SECONDS * len(scenes), share=100 / len(scenes))
    text = f"{head}{rules}\n{animation}\n</style>{window.replace(caption[0], '')}{''.join(frames)}</svg>\n"
    return re.sub(r"\n\s+", "\n", text)


def _split(svg: str) -> tuple[str, str]:
    """The styles and the window of a screenshot, and the content of the window."""
    svg = _ID.sub("", svg).replace(' xml:space="preserve"', "").replace("<svg ", '<svg xml:space="preserve" ', 1)
    start = svg.index("<g transform", svg.index("<circle"))
    return svg[:start], svg[start : svg.rindex("</svg>")]


def _content(content: str, names: Mapping[str, str]) -> str:
    """The content of a window with the names of the common styles, and with adjacent rectangles of a color joined."""
    content = re.sub(r'class="(r\d+)"', lambda match: f'class="{names[match[1]]}"', content)
    matches = list(_RECT.finditer(content))
    if not matches:
        return content
    joined: list[tuple[str, float, float, float, float]] = []
    for match in matches:
        fill, (x, y, width, height) = match[1], map(float, match.groups()[1:])
        last = joined[-1] if joined else None
        if last is not None and (last[0], last[2], round(last[1] + last[3], 1)) == (fill, y, x):
            joined[-1] = (fill, last[1], y, round(last[3] + width, 1), height)
        else:
            joined.append((fill, x, y, width, height))
    rects = [
        f'<rect fill="{fill}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}"/>\n'
        for fill, x, y, width, height in joined
    ]
    background = f'<g shape-rendering="crispEdges">{"".join(rects)}</g>'
    return content[: matches[0].start()] + background + content[matches[-1].end() :]
