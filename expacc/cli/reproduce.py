"""The papers' tables and figures again: list the recipes, run one or all, write page and book."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from expacc.cli.compare import Interrupted
from expacc.cli.screen import Screen, shown_path

if TYPE_CHECKING:
    from expacc.recipes.recipe import Recipe, RecipeOptions, Work

__all__ = ["Where", "ask_for", "reproduce"]


@dataclass(frozen=True)
class Where:
    """How the work is done, which does not change its results.

    Args:
        out: folder with one folder for each recipe.
        engine: 'local' or 'ray'.
        workers: None for all cores.
        address: of a Ray cluster.
        fresh: delete the rows that are there.
        dry_run: only say what would run.
        no_run: write pages of the rows that there are.
        command: as it was typed.
    """

    out: Path
    engine: str = "local"
    workers: int | None = None
    address: str | None = None
    fresh: bool = False
    dry_run: bool = False
    no_run: bool = False
    command: tuple[str, ...] = ()


def ask_for(
    data: Path | None, seeds: int | None, quick: bool, seed: int, device: str = "cpu"
) -> "RecipeOptions":
    """What the user asked for, checked."""
    from expacc.recipes.recipe import RecipeOptions

    if data is not None and not data.expanduser().is_dir():
        raise ValueError(f"--data must be a folder; got {str(data)!r}.")
    if seeds is not None and seeds < 1:
        raise ValueError(f"--seeds must be >= 1; got {seeds}.")
    folder = data.expanduser() if data is not None else None
    return RecipeOptions(data=folder, seeds=seeds, quick=quick, seed=seed, device=device)


def _list(data: Path | None, screen: Screen) -> None:
    """What recipes there are, and whether their data is at hand."""
    from expacc.recipes.registry import recipes

    found = recipes()
    have = {name: _have(one, data) for name, one in found.items()}
    if not screen.as_json:
        _print_list(found, have, screen)
    screen.give(
        [
            {
                "name": one.name,
                "paper": one.paper,
                "shows": one.shows,
                "what": one.what,
                "needs": list(one.needs),
                "data_found": have[one.name],
                "minutes": one.minutes,
            }
            for one in found.values()
        ]
    )


def _have(one: "Recipe", data: Path | None) -> bool:
    from expacc.recipes.sources import folder

    return all(folder(data, need) is not None for need in one.needs)


def _print_list(found: Mapping[str, "Recipe"], have: Mapping[str, bool], screen: Screen) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="dim")
    for head, right in (("recipe", 0), ("paper", 0), ("shows", 0), ("data", 0), ("2 cores", 1)):
        wrap = head in ("paper", "shows")
        table.add_column(head, justify="right" if right else "left", no_wrap=not wrap)
    for one in found.values():
        style = "" if have[one.name] else "yellow"
        needs = Text(", ".join(one.needs) or "none", style=style if one.needs else "dim")
        cells = [Text(one.name, "bold"), Text(one.paper), Text(one.shows), needs]
        table.add_row(*cells, Text(_minutes(one.minutes)))
    screen.console().print(table)
    screen.say("")
    if not all(have.values()):
        screen.say("Data is looked for under --data, or under $EXPACC_DATA.", "dim")
    screen.say("expacc reproduce NAME runs one, --all runs all; --quick does a part in a minute.")


def _minutes(minutes: float) -> str:
    return f"{max(1, round(60 * minutes))} s" if minutes < 1 else f"{minutes:.0f} min"


def reproduce(
    name: str | None,
    ask: "RecipeOptions",
    where: Where,
    screen: Screen,
    *,
    everything: bool = False,
) -> None:
    """Run one recipe or all and say where the page is; list them if neither is asked for."""
    from expacc.recipes.registry import recipe, recipes

    if name is not None and everything:
        raise ValueError(f"NAME must be left out with --all; got {name!r}.")
    if where.no_run and (where.fresh or where.dry_run):
        raise ValueError("--no-run must stand without --fresh and --dry-run; got both.")
    if name is None:
        if everything:
            _all(list(recipes().values()), ask, where, screen)
        else:
            _list(ask.data, screen)
        return
    one = recipe(name)
    if where.no_run:
        result = _page(one, ask, where, screen)
    else:
        _check_device(ask)
        work = one.plan(ask)
        if where.dry_run:
            screen.give(_forecast(one, ask, work, where, screen))
            return
        result = _run(one, ask, work, where, screen)
    _book(ask, where, {})
    page = result["page"]
    screen.say(f"Page: {page}", "bold")
    screen.give(result)


def _all(found: Sequence["Recipe"], ask: "RecipeOptions", where: Where, screen: Screen) -> None:
    """Everything that the data allows, one after the other; then the book."""
    from expacc.recipes.results import folder_of
    from expacc.recipes.runner import has_rows

    left_out: dict[str, str] = {}
    results = []
    if not where.no_run:
        _check_device(ask)
    for one in found:
        if where.no_run:
            if has_rows(folder_of(where.out, one.name, quick=ask.quick)):
                results.append(_page(one, ask, where, screen))
            continue
        try:
            work = one.plan(ask)
        except ValueError as error:  # nothing of it can be done; the others can
            left_out[one.name] = str(error)
            screen.warn(f"Left out {one.name}: {error}")
            continue
        run = _forecast if where.dry_run else _run
        results.append(run(one, ask, work, where, screen))
    if where.dry_run:
        screen.give({"recipes": results, "left_out": left_out})
        return
    book = shown_path(_book(ask, where, left_out))
    screen.say(f"Book: {book}", "bold")
    screen.give({"book": book, "recipes": results, "left_out": left_out})


def _check_device(ask: "RecipeOptions") -> None:
    from expacc.compare.study import check_device

    check_device(ask.device)


def _folder(one: "Recipe", ask: "RecipeOptions", where: Where) -> Path:
    from expacc.recipes.results import folder_of

    return folder_of(where.out, one.name, quick=ask.quick)


def _run(
    one: "Recipe", ask: "RecipeOptions", work: "Work", where: Where, screen: Screen
) -> dict[str, Any]:
    """Run what is not done yet and write the page."""
    from expacc.recipes.runner import How, run_recipe

    out = _folder(one, ask, where)
    for sentence in work.missing:
        screen.warn(sentence)
    runs = sum(item.runs for item in work.items)
    screen.remark(
        f"{one.name}: {runs:,} runs in {len(work.items)} parts → {shown_path(out)}", "bold"
    )
    how = How(
        command=_command(one, where),
        engine=where.engine,  # type: ignore[arg-type] # checked there
        workers=where.workers,
        address=where.address,
        progress=screen.progress,
        fresh=where.fresh,
    )
    try:
        result, outcome = run_recipe(one, ask, work, out, how)
        if outcome.skipped:
            screen.remark(f"{outcome.skipped} of {len(work.items)} parts were there already.")
        return _tell(result, out, screen)
    except KeyboardInterrupt:
        again = [word for word in where.command if word != "--fresh"]
        raise Interrupted(
            f"Stopped; what was finished is saved in {shown_path(out)}. "
            f"To go on: {shlex.join(again) or 'run the same command again'}"
        ) from None


def _command(one: "Recipe", where: Where) -> str:
    """What makes this page alone: --all becomes the recipe's name."""
    words = [one.name if word == "--all" else word for word in where.command]
    return shlex.join(word for word in words if word != "--fresh")


def _page(one: "Recipe", ask: "RecipeOptions", where: Where, screen: Screen) -> dict[str, Any]:
    """The page anew, of the rows that there are."""
    from expacc.recipes.runner import load_result

    out = _folder(one, ask, where)
    return _tell(load_result(one, out), out, screen)


def _tell(result: Any, out: Path, screen: Screen) -> dict[str, Any]:
    """Write the page; print the answer, and how the numbers compare."""
    from expacc.recipes.results import PAGE, write_files

    content = write_files(result, out)
    account = result.account
    screen.say(f"{result.recipe.name}: {content['answer']}", "bold")
    failed = f", {account.failed:,} failed" if account.failed else ""
    screen.say(f"  {account.runs:,} runs{failed}.")
    if not account.finished:
        screen.say(f"  Not finished: {account.parts_done} of {account.parts} parts are done.")
    return {**content, "page": shown_path(out / PAGE)}


def _book(ask: "RecipeOptions", where: Where, left_out: Mapping[str, str]) -> Path:
    from expacc.recipes.registry import recipes
    from expacc.recipes.results import write_book

    return write_book(where.out, recipes(), quick=ask.quick, left_out=left_out)


def _forecast(
    one: "Recipe", ask: "RecipeOptions", work: "Work", where: Where, screen: Screen
) -> dict[str, Any]:
    """What would run, and how long it takes on two cores."""
    from expacc.recipes.runner import parts_done

    out = _folder(one, ask, where)
    runs, done = sum(item.runs for item in work.items), parts_done(one, ask, work, out)
    for sentence in work.missing:
        screen.warn(sentence)
    minutes = min(one.minutes, 1.0) if ask.quick else one.minutes
    screen.say(
        f"{one.name}: {runs:,} runs in {len(work.items)} parts, {done} of them done; all takes "
        f"about {_minutes(minutes)} on two idle cores. It would write to {shown_path(out)}."
    )
    return {
        "name": one.name,
        "runs": runs,
        "items": len(work.items),
        "items_done": done,
        "minutes": minutes,
        "out": str(out),
        "missing": list(work.missing),
    }
