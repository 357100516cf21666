"""Cells of a table of networks, and the items that fill them: one run an item."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from expacc.data.images import ImageSet
from expacc.recipes.recipe import RecipeOptions, Work
from expacc.recipes.sweep import Sweep
from expacc.recipes.vision.sets import WHOLE, pack
from expacc.recipes.vision.train import SWEEP, minutes_of

SMALL = "small"  # the short protocol where there is no GPU


def protocol_of(options: RecipeOptions) -> str:
    """'full', 'short', 'small' or 'quick'."""
    short_here = options.protocol == "short" and options.device == "cpu"
    return SMALL if short_here else options.protocol


@dataclass(frozen=True)
class Cell:
    """A set and whatever else its methods share.

    Args:
        table: the set.
        labels: what tells its rows from those of the set's other cells.
        network: a name of ``networks.NAMES``.
        epochs: of each run.
        losses: method → its loss, as ``loss_of`` takes it.
        settings: method → its numbers; several are tried on the held-out rows of every fold.
        seeds: how many.
        folds: names; ``WHOLE`` is all training rows.
        rows: the most training rows; None for all.
        test_rows: the most test rows.
        how: whatever else training asks for: batch, changes, optimizer, weight_decay, and rate_end
            or rate_falls.
    """

    table: str
    labels: Mapping[str, str]
    network: str
    epochs: int
    losses: Mapping[str, Mapping[str, Any]]
    settings: Mapping[str, Sequence[Mapping[str, float]]]
    seeds: int
    folds: Sequence[str] = (WHOLE,)
    rows: int | None = None
    test_rows: int | None = None
    how: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> list[str]:
        """As ``Cells`` of the page know it."""
        return [self.table, *self.labels.values()]


def work_of(
    cells: Sequence[Cell],
    sets: Mapping[str, ImageSet],
    options: RecipeOptions,
    *,
    missing: Iterable[str],
    protocol: str,
    facts: Mapping[str, Any],
    sweep: Sweep = SWEEP,
) -> Work:
    """An item for every run; the cells' facts; and about how long it takes."""
    items, about = [], []
    for cell in cells:
        rows = len(sets[cell.table].targets[: cell.rows])
        about.append(
            {"key": cell.key, "network": cell.network, "epochs": cell.epochs, "rows": rows}
        )
        items += [
            sweep.item(
                "|".join([protocol, *cell.key, method, fold, str(seed)]),
                options,
                table=cell.table,
                folds=[fold],
                settings={method: settings},
                seeds=[seed],
                search="none" if len(settings) == 1 else "keep",
                labels=cell.labels,
                network=cell.network,
                epochs=cell.epochs,
                losses={method: dict(cell.losses[method])},
                rows=cell.rows,
                test_rows=cell.test_rows,
                **cell.how,
            )
            for seed in range(cell.seeds)
            for fold in cell.folds
            for method, settings in cell.settings.items()
        ]
    shared: dict[str, Any] = {}
    for name in dict.fromkeys(cell.table for cell in cells):
        shared |= pack(name, sets[name])
    told = {"protocol": protocol, "cells": about, **facts}
    work = sweep.work(items, shared=shared, missing=list(missing), facts=told)
    asks = [item.payload for item in items]
    return replace(work, minutes=minutes_of(asks, sets, options.device))
