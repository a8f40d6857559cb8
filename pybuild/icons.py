"""The page's icon as PNG, for those who install the page where SVG icons are not taken.

Knows SVG images made of rounded rectangles only, which is what web/app/icon.svg is.
"""

from __future__ import annotations

import struct
import xml.etree.ElementTree as ET
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from typedecide.errors import UnsupportedError

SIZES = (192, 512)
"""Pixels of the icons that a browser asks for."""

_RECT = "{http://www.w3.org/2000/svg}rect"
_FINER = 3
"""Samples of a pixel in each direction."""


def png(svg: Path, size: int) -> bytes:
    """The image as a PNG of `size` times `size` pixels, with transparency."""
    root = ET.parse(svg).getroot()
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    places = (np.arange(size * _FINER) + 0.5) / (size * _FINER)
    image = np.zeros((size * _FINER, size * _FINER, 4))
    for shape in root:
        if shape.tag != _RECT:
            raise UnsupportedError(
                f"{svg}: an icon is drawn of rectangles, not of {shape.tag}", tag=shape.tag
            )
        inside = _rounded(shape.attrib, places * width, places[:, None] * height)
        alpha = inside * float(shape.get("opacity", "1"))
        colour = np.array([*_colour(shape.attrib["fill"]), 1.0])
        # Colours are held multiplied by their alpha, so that this one line lays one over another.
        image = image * (1 - alpha[..., None]) + colour * alpha[..., None]
    pixels = image.reshape(size, _FINER, size, _FINER, 4).mean(axis=(1, 3))
    opacity = pixels[..., 3:]
    pixels[..., :3] = np.divide(
        pixels[..., :3], opacity, out=np.zeros_like(pixels[..., :3]), where=opacity > 0
    )
    return _encode(np.rint(pixels * 255).astype(np.uint8))


def _rounded(rect: dict[str, str], x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
    """1 where a point lies in the rectangle, else 0."""
    left, top = float(rect.get("x", 0)), float(rect.get("y", 0))
    width, height, radius = float(rect["width"]), float(rect["height"]), float(rect.get("rx", 0))
    # Distance from the rectangle that the corners' centres span.
    across = np.abs(x - left - width / 2) - (width / 2 - radius)
    down = np.abs(y - top - height / 2) - (height / 2 - radius)
    return (np.hypot(np.maximum(across, 0), np.maximum(down, 0)) <= radius).astype(np.float64)


def _colour(text: str) -> list[float]:
    """`#rgb` or `#rrggbb` as three numbers from 0 to 1."""
    digits = text.removeprefix("#")
    if len(digits) == 3:
        digits = "".join(digit * 2 for digit in digits)
    return [int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)]


def _encode(pixels: NDArray[np.uint8]) -> bytes:
    size = len(pixels)
    lines = b"".join(b"\0" + line.tobytes() for line in pixels)
    parts = (
        (b"IHDR", struct.pack(">IIBBBBB", size, size, 8, 6, 0, 0, 0)),
        (b"IDAT", zlib.compress(lines, 9)),
        (b"IEND", b""),
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in parts
    )
