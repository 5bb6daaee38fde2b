"""The report's page: whole without a network, legible wide and narrow, and a spec that runs again."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from statelab.analysis.layout import Section
from statelab.analysis.page import as_toml, table
from statelab.analysis.report import write_report
from statelab.sweeps.demo import demo_spec_path
from statelab.sweeps.read import parse_spec, read_spec
from tests.analysis.frames import by_length, grid, write_study

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class Structure(HTMLParser):
    """Tags opened and closed in order, and what each refers to."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.references: list[str] = []
        self.alts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.references += [given[name] or "" for name in ("src", "href", "srcset") if name in given]
        if tag == "img":
            self.alts.append(given.get("alt") or "")
        if tag not in ("meta", "img", "br", "link"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a small study whose names need escaping."""
    lanes = grid(
        ["parity"], ["gru <1>", 'rnn & "co"'], [1e-3, 1e-2], 3,
        lambda task, model, rate, seed: [0.95, 0.6, None][seed] if rate > 5e-3 else 0.95,
    )  # fmt: skip
    folder = write_study(tmp_path_factory.mktemp("page") / "s", lanes, by_length(lanes, [16, 64]))
    return write_report(folder, formats=["svg"]).files["report.html"]


def test_the_page_is_whole_by_itself(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    found = Structure()
    found.feed(text)
    assert found.open == []
    assert all(reference.startswith(("data:image/", "#")) for reference in found.references)
    assert not re.search(r"@import|url\(|<script|https?://(?!www\.w3\.org)", text.split("</style>")[0])
    assert len(found.alts) == 12
    assert all(len(alt) > 30 for alt in found.alts)
    assert "gru &lt;1&gt;" in text
    for word in ("What was asked", "How sure, and how chosen", "prefers-color-scheme: dark", "@media print"):
        assert word in text
    assert "statelab report s" in text


def test_cells_know_their_headings_on_a_narrow_screen() -> None:
    html = table(Section(title="t", header=("", "n"), rows=(("*", "<1>"),)))
    assert '<td data-of="chosen">*</td><td data-of="n" class="n">&lt;1&gt;</td>' in html


def test_the_spec_on_the_page_asks_for_the_same_study() -> None:
    spec = read_spec(demo_spec_path())
    text = as_toml(spec.model_dump(mode="json"))
    assert parse_spec(tomllib.loads(text), "page") == spec


def shot(page: Path, out: Path, width: int, *options: str) -> np.ndarray:
    assert BROWSER is not None
    size = f"--window-size={width},{9000 if width > 500 else 16000}"
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", size, *options]
    profile = f"--user-data-dir={out.parent / 'profile'}"
    command = [BROWSER, *flags, profile, f"--screenshot={out}", page.as_uri()]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    pixels: np.ndarray = np.asarray(Image.open(out).convert("L"))
    return pixels


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason="no chromium on this machine")
@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_is_cut_or_overlaps_in_a_browser(page: Path, tmp_path: Path, width: int) -> None:
    """Ink at the sides would be something cut; a page wider than the window would be cut at the right."""
    pixels = shot(page, tmp_path / "page.png", width)
    assert pixels.shape[1] == width
    assert (pixels[:, :4] > 250).all()
    assert (pixels[:, -4:] > 250).all()
    assert (pixels < 100).mean() > 0.002
    measured = tmp_path / "measured.html"
    script = f"<script>{OVERLAPS}</script></body>"
    measured.write_text(page.read_text(encoding="utf-8").replace("</body>", script), encoding="utf-8")
    assert BROWSER is not None
    flags = ["--headless", "--no-sandbox", "--disable-gpu", f"--window-size={width},2000", "--dump-dom"]
    command = [BROWSER, *flags, f"--user-data-dir={tmp_path / 'second'}", measured.as_uri()]
    found = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300).stdout
    assert re.search(r"<title>(.*?)</title>", found, re.DOTALL).group(1) == "wide: 0 over: 0"  # type: ignore[union-attr]


OVERLAPS = """
const all = [...document.querySelectorAll('h1, h2, h3, p, img, th, td, li, dt, dd, summary')]
  .filter(e => e.offsetParent !== null && e.getClientRects().length);
const boxes = all.map(e => e.getBoundingClientRect());
const wide = boxes.filter(b => b.right > window.innerWidth + 1 || b.left < -1).length
  + all.filter(e => e.scrollWidth > e.clientWidth + 1 && e.clientWidth > 0).length;
let over = 0;
for (let i = 0; i < all.length; i++) for (let j = i + 1; j < all.length; j++) {
  if (all[i].contains(all[j]) || all[j].contains(all[i])) continue;
  const a = boxes[i], b = boxes[j];
  if (Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1
    && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 1) over++;
}
document.title = `wide: ${wide} over: ${over}`;
"""


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason="no chromium on this machine")
def test_in_the_dark_the_page_is_dark(page: Path, tmp_path: Path) -> None:
    dark = shot(page, tmp_path / "page.png", 1280, "--blink-settings=preferredColorScheme=0")
    assert np.median(dark) < 40
    assert (dark > 180).mean() > 0.001
