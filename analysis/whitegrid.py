"""seaborn's style "whitegrid" on "paper", and its palette "colorblind", written down.

A test compares this with seaborn. Importing seaborn brings all of scipy.stats and takes more than a second, where a
whole report should take a few.
"""

from __future__ import annotations

from typing import Any

FONT: dict[Any, Any] = {"font.family": ["sans-serif"]} | {
    f"font.{kind}": ["DejaVu Sans"] for kind in ("sans-serif", "serif", "cursive", "fantasy", "monospace")
}
"""The one font that comes with matplotlib: words are as wide, and files the same, on every machine.

Every list of fonts is that short because matplotlib goes through all of them for each word.
"""
SIZES = {
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.labelsize": 9,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.fontsize": 8,
}
STYLE: dict[Any, Any] = {
    "axes.axisbelow": True,
    "axes.edgecolor": ".8",
    "axes.facecolor": "white",
    "axes.grid": True,
    "axes.labelcolor": ".15",
    "axes.linewidth": 1.0,
    "axes.spines.bottom": True,
    "axes.spines.left": True,
    "axes.spines.right": True,
    "axes.spines.top": True,
    "axes.titley": 1.0,
    "figure.facecolor": "white",
    "grid.color": "0.9",
    "grid.linestyle": "-",
    "grid.linewidth": 0.8,
    "legend.title_fontsize": 9.6,
    "lines.linewidth": 1.2,
    "lines.markersize": 4.8,
    "lines.solid_capstyle": "round",
    "patch.edgecolor": "w",
    "patch.force_edgecolor": True,
    "patch.linewidth": 0.8,
    "text.color": ".15",
    "text.parse_math": False,
    "xtick.bottom": False,
    "xtick.color": ".15",
    "xtick.direction": "out",
    "xtick.major.size": 4.8,
    "xtick.major.width": 1.0,
    "xtick.minor.size": 3.2,
    "xtick.minor.width": 0.8,
    "xtick.top": False,
    "ytick.color": ".15",
    "ytick.direction": "out",
    "ytick.left": False,
    "ytick.major.size": 4.8,
    "ytick.major.width": 1.0,
    "ytick.minor.size": 3.2,
    "ytick.minor.width": 0.8,
    "ytick.right": False,
} | FONT | SIZES  # fmt: skip
PALETTE = (
    "#0173b2", "#de8f05", "#029e73", "#d55e00", "#cc78bc", "#ca9161", "#fbafe4", "#949494", "#ece133", "#56b4e9",
)  # fmt: skip
