"""Figures as pixels, for tests that nothing is cut."""

from __future__ import annotations

import io

import numpy as np
from matplotlib.figure import Figure
from PIL import Image


def drawn(figure: Figure) -> np.ndarray:
    """The figure's pixels, as the report writes them; text cut at the border shows as ink there."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=80)
    pixels: np.ndarray = np.asarray(Image.open(buffer).convert("L"))
    return pixels


def uncut(figure: Figure) -> bool:
    pixels = drawn(figure)
    border = np.concatenate([pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]])
    return bool((border > 250).all())
