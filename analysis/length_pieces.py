"""The pieces of a report that are drawn over length: accuracy, scaled accuracy, rows without a mistake."""

from __future__ import annotations

from dataclasses import replace

from statelab.analysis import notes, render, tables
from statelab.analysis.findings import Findings
from statelab.analysis.lengths import length_table, with_prefix_exact
from statelab.analysis.pieces import Piece, cut_note, drawn_by

MEASURED = {"scaled_accuracy": "scaled accuracy", "prefix_exact": "rows without a mistake"}


def length_piece(found: Findings) -> Piece | None:
    """Accuracy over length."""
    if found.by_length.empty:
        return None
    shown = found.shown

    draw = drawn_by(
        "draw_lengths", "length_figure", shown.lengths, shown.lanes, chance=found.chance, chosen=shown.chosen
    )

    return Piece(
        name="lengths",
        title="Beyond the training length",
        about="Accuracy against length at the chosen rates.",
        table=found.by_length,
        sections=(*tables.reach_sections(found.reach), *render.length_sections(found.by_length)),
        notes=(*notes.length_notes(found.by_length), *cut_note(found)),
        draw=draw if not shown.lengths.empty else None,
    )


def scaled_piece(found: Findings) -> Piece | None:
    """Scaled accuracy over length, where there is more than one, and tasks whose accuracies do not compare."""
    if found.by_length["length"].nunique() < 2 or found.by_length["task"].nunique() < 2:
        return None
    return _over_length(
        found,
        "lengths_scaled",
        "scaled_accuracy",
        "Beyond the training length, scaled",
        "Accuracy with guessing at 0 and no mistake at 1, so that tasks of different chance compare.",
    )


def exact_piece(found: Findings) -> Piece | None:
    """Rows without a mistake over length, where the metric was asked for at more than one."""
    if found.metrics.empty or found.lengths.empty:
        return None
    with_exact = replace(found, lengths=with_prefix_exact(found.lengths, found.metrics))
    measured = with_exact.lengths["prefix_exact"].notna()
    if with_exact.lengths.loc[measured, "length"].nunique() < 2:
        return None
    return _over_length(
        with_exact,
        "lengths_exact",
        "prefix_exact",
        "Beyond the training length, whole rows",
        "The share of rows read without one mistake.",
    )


def _over_length(found: Findings, name: str, value: str, title: str, about: str) -> Piece:
    shown = found.shown
    table = length_table(found.lengths, found.lanes, found.chosen, value=value)
    draw = drawn_by(
        "draw_lengths", "length_figure", shown.lengths, shown.lanes, value=value, chosen=shown.chosen
    )
    return Piece(
        name=name,
        title=title,
        about=about,
        table=table,
        sections=tuple(render.length_sections(table, MEASURED[value])),
        notes=cut_note(found),
        draw=draw if not shown.lengths.empty else None,
    )
