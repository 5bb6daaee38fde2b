"""The pieces that a study's findings give, in a report's order."""

from __future__ import annotations

from statelab.analysis import notes, render, tables
from statelab.analysis.findings import Findings
from statelab.analysis.length_pieces import exact_piece, length_piece, scaled_piece
from statelab.analysis.pieces import Piece, cut_note, drawn_by
from statelab.analysis.solved import threshold_table
from statelab.analysis.summaries import curve_table, metric_table, range_table

_MOST_LINES = 48

NAMES = (
    "solved", "success", "published", "differences", "pairs", "lengths", "lengths_scaled", "lengths_exact",
    "time", "thresholds", "rates", "capacity", "curves", "ranges", "metrics",
)  # fmt: skip
"""Every piece there can be, in a report's order."""


def pieces_of(found: Findings) -> list[Piece]:
    """The pieces that a study has something to show for."""
    makers = (
        _solved, _success, _published, _differences, _pairs, length_piece, scaled_piece, exact_piece,
        _time, _thresholds, _rates, _capacity, _curves, _ranges, _metrics,
    )  # fmt: skip
    return [piece for make in makers if (piece := make(found)) is not None]


def _solved(found: Findings) -> Piece:
    few = len(found.table) <= _MOST_LINES
    shown = found if few else found.shown

    draw = drawn_by("draw_solved", "solved_figure", shown.lanes, chance=found.chance, table=shown.table)

    return Piece(
        name="solved",
        title="Who solved it",
        about="Every setting of every model: lanes solved with the Wilson interval of their share, and each seed.",
        table=render.mark_chosen(found.table, found.chosen),
        sections=tuple(render.solved_sections(found.table, found.chosen, found.chance)),
        notes=() if few else cut_note(found),
        draw=draw,
    )


def _success(found: Findings) -> Piece | None:
    if len(found.chosen) < 2:
        return None

    draw = drawn_by("draw_solved", "success_map", found.lanes, found.chosen)

    return Piece(
        name="success",
        title="Success rates",
        about="Models down, tasks across, each at its chosen rate.",
        table=found.chosen,
        sections=tuple(render.chosen_sections(found.chosen)),
        draw=draw,
    )


def _published(found: Findings) -> Piece | None:
    if found.published.empty:
        return None

    draw = drawn_by(
        "draw_published", "published_figure", found.published, found.lanes, found.lengths, found.chosen
    )

    sources = dict.fromkeys(
        " ".join(part for part in (row["citation"], row["url"]) if part)
        for _, row in found.published.iterrows()
    )
    return Piece(
        name="published",
        title="Beside published figures",
        about="Ours at the chosen rates, theirs as they printed them, and whether the 95 % intervals meet.",
        table=found.published,
        sections=tuple(tables.published_sections(found.published)),
        notes=tuple(f"Published: {source}." for source in sources if source),
        draw=draw,
    )


def _differences(found: Findings) -> Piece | None:
    table = found.differences
    if table.empty:
        return None

    draw = drawn_by("draw_differences", "difference_figure", table, found.lanes, found.chosen)

    return Piece(
        name="differences",
        title="Differences between models",
        about="Paired by seed at the chosen rates: mean difference, its BCa bootstrap interval, and every pair.",
        table=table,
        sections=tuple(render.difference_sections(table)),
        notes=tuple(notes.difference_notes(table)),
        draw=draw if len(table) <= render.MOST_DIFFERENCES else None,
    )


def _pairs(found: Findings) -> Piece | None:
    table = tables.pair_table(found.chosen, found.differences)
    if table.empty:
        return None
    return Piece(
        name="pairs",
        title="Two models side by side",
        about="As papers print it: mean ± half-width of the 95 % t-interval (solved lanes), and the difference.",
        table=table,
        sections=tuple(tables.pair_sections(table)),
    )


def _time(found: Findings) -> Piece:
    shown = found.shown

    draw = drawn_by("draw_time", "time_figure", shown.times, shown.chosen)

    return Piece(
        name="time",
        title="Time to solve",
        about="The first evaluation at or above the threshold; a lane that never got there is censored, not left out.",
        table=found.by_time,
        sections=tuple(tables.time_sections(found.by_time, found.time_pairs)),
        notes=(*notes.time_notes(found.by_time, found.time_pairs), *cut_note(found)),
        draw=draw,
    )


def _thresholds(found: Findings) -> Piece:
    shown = found.shown
    table = threshold_table(found.lanes, found.chosen)

    draw = drawn_by("draw_time", "threshold_figure", shown.lanes, shown.chosen)

    return Piece(
        name="thresholds",
        title="If the threshold were another",
        about="Solved lanes as a function of the threshold: where a curve is flat, its place does not matter.",
        table=table,
        sections=tuple(tables.threshold_sections(table)),
        notes=cut_note(found),
        draw=draw,
    )


def _rates(found: Findings) -> Piece | None:
    if found.chosen["tried"].max() < 2:
        return None
    shown = found.shown

    draw = drawn_by("draw_rates", "rate_figure", shown.lanes, table=shown.table)

    return Piece(
        name="rates",
        title="Learning rates",
        about="Every lane by rate and seed, and success against rate.",
        table=found.table,
        sections=tuple(tables.rate_sections(found.table)),
        notes=tuple(note for note in (*notes.rate_notes(found.chosen), *cut_note(found)) if note),
        draw=draw,
    )


def _capacity(found: Findings) -> Piece:
    shown = found.shown

    draw = drawn_by("draw_capacity", "capacity_figure", shown.lanes, shown.chosen)

    return Piece(
        name="capacity",
        title="What it costs",
        about="Accuracy against floats of state and against the seconds that one lane took of its population's time.",
        table=found.capacity,
        sections=tuple(tables.capacity_sections(found.capacity)),
        notes=cut_note(found),
        draw=draw,
    )


def _curves(found: Findings) -> Piece | None:
    if found.curves.empty:
        return None
    shown, table = found.shown, curve_table(found.curves, found.lanes, found.chosen)

    draw = drawn_by("draw_curves", "curve_figure", shown.curves, shown.lanes, shown.chosen)

    return Piece(
        name="curves",
        title="Training",
        about="Loss and accuracy at the chosen rates by step.",
        table=table,
        sections=tuple(tables.curve_sections(table)),
        notes=cut_note(found),
        draw=draw if not shown.curves.empty else None,
    )


def _ranges(found: Findings) -> Piece | None:
    table = range_table(found.ranges, found.lanes, found.chosen)
    if table.empty:
        return None
    shown = found.shown

    draw = drawn_by("draw_metrics", "range_figure", shown.ranges, shown.lanes, shown.chosen)

    return Piece(
        name="ranges",
        title="Over ranges of lengths",
        about="One accuracy over lengths drawn from a range, at the chosen rates.",
        table=table,
        sections=tuple(tables.summary_sections(table, "Accuracy over ranges of lengths")),
        notes=cut_note(found),
        draw=draw if not shown.ranges.empty else None,
    )


def _metrics(found: Findings) -> Piece | None:
    table = metric_table(found.metrics, found.lanes, found.chosen)
    if table.empty:
        return None
    shown = found.shown

    draw = drawn_by("draw_metrics", "metric_figure", shown.metrics, shown.lanes, shown.chosen)

    return Piece(
        name="metrics",
        title="By category",
        about="What was measured beside accuracy, at the tested length nearest to the training length.",
        table=table,
        sections=tuple(tables.summary_sections(table, "Metrics beside accuracy")),
        notes=cut_note(found),
        draw=draw if not shown.metrics.empty else None,
    )
