"""Contrast as WCAG defines it, and distances between colors as people with and without red-green blindness see them."""

import math
from collections.abc import Sequence
from typing import Final

Rgb = tuple[int, int, int]
_Matrix = Sequence[Sequence[float]]

_NORMAL: Final[_Matrix] = ((1, 0, 0), (0, 1, 0), (0, 0, 1))
_PROTANOPIA: Final[_Matrix] = (
    (0.152286, 1.052583, -0.204868),
    (0.114503, 0.786281, 0.099216),
    (-0.003882, -0.048116, 1.051998),
)
_DEUTERANOPIA: Final[_Matrix] = (
    (0.367322, 0.860646, -0.227968),
    (0.280085, 0.672501, 0.047413),
    (-0.011820, 0.042940, 0.968881),
)
"""Machado, Oliveira and Fernandes 2009, severity 1.0; they apply to linear RGB."""
VISIONS: Final[dict[str, _Matrix]] = {"normal": _NORMAL, "protanopia": _PROTANOPIA, "deuteranopia": _DEUTERANOPIA}

_TO_CONES: Final[_Matrix] = (
    (0.4122214708, 0.5363325363, 0.0514459929),
    (0.2119034982, 0.6806995451, 0.1073969566),
    (0.0883024619, 0.2817188376, 0.6299787005),
)
_TO_OKLAB: Final[_Matrix] = (
    (0.2104542553, 0.7936177850, -0.0040720468),
    (1.9779984951, -2.4285922050, 0.4505937099),
    (0.0259040371, 0.7827717662, -0.8086757660),
)
"""Ottosson 2020. The smallest difference that people see is about 0.02."""


def rgb(color: str) -> Rgb:
    """``#rrggbb`` as three numbers."""
    red, green, blue = bytes.fromhex(color[1:7])
    return red, green, blue


def contrast(one: Rgb, other: Rgb) -> float:
    """The contrast ratio of WCAG 2.2, from 1 to 21."""
    dark, light = sorted((_luminance(one), _luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def distance(one: Rgb, other: Rgb) -> float:
    """The least distance in OKLab over all kinds of vision."""
    return min(math.dist(_oklab(one, vision), _oklab(other, vision)) for vision in VISIONS.values())


def _linear(color: Rgb) -> list[float]:
    parts = [part / 255 for part in color]
    return [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]


def _luminance(color: Rgb) -> float:
    return sum(share * part for share, part in zip((0.2126, 0.7152, 0.0722), _linear(color), strict=True))


def _oklab(color: Rgb, vision: _Matrix) -> list[float]:
    seen = [min(1.0, max(0.0, part)) for part in _product(vision, _linear(color))]
    return _product(_TO_OKLAB, [part ** (1 / 3) for part in _product(_TO_CONES, seen)])


def _product(matrix: _Matrix, vector: Sequence[float]) -> list[float]:
    return [sum(factor * part for factor, part in zip(row, vector, strict=True)) for row in matrix]
