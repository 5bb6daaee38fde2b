"""How the report's page looks. Figures are drawn for light paper; in the dark their lightness is turned around."""

from __future__ import annotations

CSS = """
:root { --ink: #1b1b1b; --faint: #595959; --line: #d5d5d5; --paper: #ffffff; --soft: #f5f6f7; --link: #0b5cad; }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1240px; padding: 1.2rem; color: var(--ink); background: var(--paper);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: .2rem 0 .6rem; }
h2 { font-size: 1.25rem; margin: 2.2rem 0 .6rem; border-bottom: 2px solid var(--line); padding-bottom: .2rem; }
h3 { font-size: 1.05rem; margin: 0 0 .2rem; }
p { margin: .3rem 0 .7rem; max-width: 46rem; }
nav { display: flex; flex-wrap: wrap; gap: .3rem 1rem; font-size: .92rem; }
a { color: var(--link); }
article { display: grid; grid-template-columns: minmax(0, 540px) minmax(0, 1fr); gap: .2rem 1.6rem;
  padding: 1.2rem 0; border-bottom: 1px solid var(--line); }
article > h3, article > p { grid-column: 1 / -1; }
article:not(:has(figure)) .words { grid-column: 1 / -1; }
figure { margin: 0; min-width: 0; }
figure img { display: block; width: 100%; height: auto; }
.words { min-width: 0; font-size: .9rem; }
.caption { font-weight: 600; margin: .2rem 0 .3rem; }
.table { margin-bottom: 1rem; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; font-size: .84rem; }
th, td { text-align: left; vertical-align: top; padding: .18rem .5rem .18rem 0; border-bottom: 1px solid var(--line);
  overflow-wrap: break-word; }
th { color: var(--faint); font-weight: 600; }
.n { text-align: right; }
@media (min-width: 641px) { td.n { white-space: nowrap; } }
ul { margin: .4rem 0; padding-left: 1.1rem; max-width: 46rem; }
li { margin-bottom: .3rem; }
dl { display: grid; grid-template-columns: repeat(auto-fill, minmax(15rem, 1fr)); gap: .5rem 1.4rem; margin: .6rem 0; }
dt { color: var(--faint); font-size: .82rem; }
dd { margin: 0; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; background: var(--soft); padding: .7rem .9rem;
  font: .82rem/1.45 ui-monospace, "DejaVu Sans Mono", monospace; }
summary { cursor: pointer; color: var(--link); margin: .3rem 0; }
@media (max-width: 900px) { article { grid-template-columns: minmax(0, 1fr); } figure { max-width: 620px; } }
@media (max-width: 640px) {
  body { padding: .8rem; }
  thead { display: none; }
  table, tbody, tr, td { display: block; width: 100%; }
  tr { padding: .35rem 0; border-bottom: 1px solid var(--line); }
  td, td.n { border: 0; text-align: right; padding: .05rem 0; display: flex; gap: 1rem;
    justify-content: space-between; }
  td:empty { display: none; }
  td::before { content: attr(data-of); color: var(--faint); text-align: left; flex: none; max-width: 55%; }
}
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e6e6; --faint: #a8a8a8; --line: #3a3a3a; --paper: #121212; --soft: #1d1d1d; --link: #7db8f0; }
  figure img { filter: invert(.93) hue-rotate(180deg); }
}
@media print {
  :root { --ink: #000; --faint: #444; --line: #bbb; --paper: #fff; --soft: #f5f5f5; --link: #000; }
  body { max-width: none; padding: 0; font-size: 10.5pt; }
  nav { display: none; }
  article { grid-template-columns: minmax(0, 1fr); }
  figure { max-width: 13cm; break-inside: avoid; }
  figure img { filter: none; }
  h2, h3, .caption { break-after: avoid; }
  tr { break-inside: avoid; }
  details::details-content { content-visibility: visible; block-size: auto; }
}
"""
