"""Tables and figures of finished lanes, from their records alone: nothing here needs torch.

What a notebook wants can be taken from here; each name is imported when first asked for, so that importing
this package costs nothing. Tables are tidy DataFrames, figures are matplotlib's with their axes to restyle, and the
`draw_…_panel` functions draw one panel onto axes of your own, in the looks_of the models. Lanes may be a study's
(sweeps.record.collect) or anybody's: a frame with `model`, `seed`, `accuracy` and a threshold is enough
(tidy.as_lanes).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from statelab.analysis.capacity import capacity_table as capacity_table
    from statelab.analysis.differences import paired_differences as paired_differences
    from statelab.analysis.draw_capacity import capacity_figure as capacity_figure
    from statelab.analysis.draw_capacity import draw_capacity_panel as draw_capacity_panel
    from statelab.analysis.draw_curves import curve_figure as curve_figure
    from statelab.analysis.draw_curves import draw_curve_panel as draw_curve_panel
    from statelab.analysis.draw_differences import difference_figure as difference_figure
    from statelab.analysis.draw_lengths import draw_length_panel as draw_length_panel
    from statelab.analysis.draw_lengths import length_figure as length_figure
    from statelab.analysis.draw_metrics import draw_metric_panel as draw_metric_panel
    from statelab.analysis.draw_metrics import metric_figure as metric_figure
    from statelab.analysis.draw_metrics import range_figure as range_figure
    from statelab.analysis.draw_published import published_figure as published_figure
    from statelab.analysis.draw_rates import draw_rate_panel as draw_rate_panel
    from statelab.analysis.draw_rates import rate_figure as rate_figure
    from statelab.analysis.draw_solved import solved_figure as solved_figure
    from statelab.analysis.draw_solved import success_map as success_map
    from statelab.analysis.draw_time import draw_time_panel as draw_time_panel
    from statelab.analysis.draw_time import threshold_figure as threshold_figure
    from statelab.analysis.draw_time import time_figure as time_figure
    from statelab.analysis.escape import escape_times as escape_times
    from statelab.analysis.escape import survival_curves as survival_curves
    from statelab.analysis.escape import time_differences as time_differences
    from statelab.analysis.escape import time_table as time_table
    from statelab.analysis.findings import find as find
    from statelab.analysis.inference import bootstrap_interval as bootstrap_interval
    from statelab.analysis.inference import boschloo_test as boschloo_test
    from statelab.analysis.inference import holm as holm
    from statelab.analysis.inference import mcnemar_test as mcnemar_test
    from statelab.analysis.inference import sign_flip_test as sign_flip_test
    from statelab.analysis.lengths import length_table as length_table
    from statelab.analysis.lengths import reach_table as reach_table
    from statelab.analysis.lengths import with_prefix_exact as with_prefix_exact
    from statelab.analysis.published import compare_published as compare_published
    from statelab.analysis.published import read_published as read_published
    from statelab.analysis.report import write_comparison as write_comparison
    from statelab.analysis.report import write_report as write_report
    from statelab.analysis.solved import choose_rates as choose_rates
    from statelab.analysis.solved import fixed_rate as fixed_rate
    from statelab.analysis.solved import solved_table as solved_table
    from statelab.analysis.solved import threshold_table as threshold_table
    from statelab.analysis.statistics import exact_interval as exact_interval
    from statelab.analysis.statistics import interquartile_mean as interquartile_mean
    from statelab.analysis.statistics import mean_interval as mean_interval
    from statelab.analysis.statistics import wilson_interval as wilson_interval
    from statelab.analysis.style import looks_of as looks_of
    from statelab.analysis.summaries import curve_table as curve_table
    from statelab.analysis.summaries import metric_table as metric_table
    from statelab.analysis.summaries import range_table as range_table
    from statelab.analysis.survival import hazard_ratio as hazard_ratio
    from statelab.analysis.survival import kaplan_meier as kaplan_meier
    from statelab.analysis.survival import log_rank as log_rank
    from statelab.analysis.survival import restricted_mean as restricted_mean
    from statelab.analysis.tidy import as_lanes as as_lanes
    from statelab.analysis.tidy import lanes_of_curves as lanes_of_curves

_OFFERED = {
    "capacity": ("capacity_table",),
    "differences": ("paired_differences",),
    "draw_capacity": ("capacity_figure", "draw_capacity_panel"),
    "draw_curves": ("curve_figure", "draw_curve_panel"),
    "draw_differences": ("difference_figure",),
    "draw_lengths": ("draw_length_panel", "length_figure"),
    "draw_metrics": ("draw_metric_panel", "metric_figure", "range_figure"),
    "draw_published": ("published_figure",),
    "draw_rates": ("draw_rate_panel", "rate_figure"),
    "draw_solved": ("solved_figure", "success_map"),
    "draw_time": ("draw_time_panel", "threshold_figure", "time_figure"),
    "escape": ("escape_times", "survival_curves", "time_differences", "time_table"),
    "findings": ("find",),
    "inference": ("boschloo_test", "bootstrap_interval", "holm", "mcnemar_test", "sign_flip_test"),
    "lengths": ("length_table", "reach_table", "with_prefix_exact"),
    "published": ("compare_published", "read_published"),
    "report": ("write_comparison", "write_report"),
    "solved": ("choose_rates", "fixed_rate", "solved_table", "threshold_table"),
    "statistics": ("exact_interval", "interquartile_mean", "mean_interval", "wilson_interval"),
    "style": ("looks_of",),
    "summaries": ("curve_table", "metric_table", "range_table"),
    "survival": ("hazard_ratio", "kaplan_meier", "log_rank", "restricted_mean"),
    "tidy": ("as_lanes", "lanes_of_curves"),
}
_HOMES = {name: home for home, names in _OFFERED.items() for name in names}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"statelab.analysis has no '{name}'; it has {', '.join(sorted(_HOMES))}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
