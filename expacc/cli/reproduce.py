"""The papers' tables and figures again: list the recipes, run one or all, write page and index."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from expacc.cli.screen import RunOptions, Screen, shown_path, user_input
from expacc.plain import UsageError

if TYPE_CHECKING:
    from expacc.recipes.recipe import Recipe, RecipeOptions, Work


OUT = Path("expacc-reproduce")


def recipe_options(
    data: Path | None,
    repeats: int | None,
    quick: bool,
    seed: int,
    device: str = "cpu",
    short: bool = False,
) -> "RecipeOptions":
    """What the user asked for, checked."""
    from expacc.recipes.recipe import RecipeOptions

    if data is not None and not data.expanduser().is_dir():
        raise UsageError(f"--data must be a folder; got {str(data)!r}.")
    if repeats is not None and repeats < 1:
        raise UsageError(f"--repeats must be >= 1; got {repeats}.")
    if quick and short:
        raise UsageError("--quick must stand without --short; got both.")
    folder = data.expanduser() if data is not None else None
    return RecipeOptions(folder, repeats, quick, seed, device, short)


def _list(data: Path | None, screen: Screen) -> None:
    """What recipes there are, and whether their data is at hand."""
    from expacc.recipes.recipe import recipes

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
    from expacc.recipes.recipe import data_folder

    return all(data_folder(data, need) is not None for need in one.needs)


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
    if minutes >= 120:
        return f"{minutes / 60:.0f} h"
    return f"{max(1, round(60 * minutes))} s" if minutes < 1 else f"{minutes:.0f} min"


def _minutes_of(one: "Recipe", options: "RecipeOptions", work: "Work") -> float:
    if work.minutes is not None:
        return work.minutes
    return min(one.minutes, 1.0) if options.quick else one.minutes


def _takes(one: "Recipe", options: "RecipeOptions", work: "Work") -> str:
    place = "two idle cores" if options.device == "cpu" or work.minutes is None else "one H200"
    return f"{_minutes(_minutes_of(one, options, work))} on {place}"


def reproduce(
    name: str | None,
    options: "RecipeOptions",
    how: RunOptions,
    screen: Screen,
    *,
    everything: bool = False,
) -> None:
    """Run one recipe or all and say where the page is; list them if neither is asked for."""
    from expacc.recipes.recipe import recipe, recipes

    if name is not None and everything:
        raise UsageError(f"NAME must be left out with --all; got {name!r}.")
    if how.no_run and (how.overwrite or how.dry_run):
        raise UsageError("--no-run must stand without --overwrite and --dry-run; got both.")
    if name is None:
        if everything:
            _all(list(recipes().values()), options, how, screen)
        else:
            _list(options.data, screen)
        return
    with user_input():
        one = recipe(name)
    if how.no_run:
        result = _page(one, options, how, screen)
    else:
        from expacc.compare.study import check_device  # brings scipy, which a list need not

        if not how.gpus:
            check_device(options.device)
        work = _plan(one, options)
        if how.dry_run:
            screen.give(_forecast(one, options, work, how, screen))
            return
        result = _run(one, options, work, how, screen)
    _index(options, how, {})
    screen.say(f"Page: {result['page']}", "bold")
    screen.give(result)


def _plan(one: "Recipe", options: "RecipeOptions") -> "Work":
    """Cut the work; what stands in the way of it, data that is not there above all, is a line."""
    with user_input():
        return one.plan(options)


def _all(
    found: Sequence["Recipe"], options: "RecipeOptions", how: RunOptions, screen: Screen
) -> None:
    """Everything that the data allows, one after the other; then the index."""
    from expacc.compare.study import check_device
    from expacc.recipes.runner import has_rows

    left_out: dict[str, str] = {}
    results = []
    if not how.no_run and not how.gpus:
        check_device(options.device)
    for one in found:
        if how.no_run:
            if has_rows(_folder(one, options, how)):
                results.append(_page(one, options, how, screen))
            continue
        try:
            work = _plan(one, options)
        except UsageError as error:  # nothing of it can be done; the others can
            left_out[one.name] = str(error)
            screen.warn(f"Left out {one.name}: {error}")
            continue
        run = _forecast if how.dry_run else _run
        results.append(run(one, options, work, how, screen))
    if how.dry_run:
        screen.give({"recipes": results, "left_out": left_out})
        return
    index = shown_path(_index(options, how, left_out))
    screen.say(f"Index: {index}", "bold")
    # Its old name, book, goes with the next release.
    screen.give({"index": index, "book": index, "recipes": results, "left_out": left_out})


def _folder(one: "Recipe", options: "RecipeOptions", how: RunOptions) -> Path:
    from expacc.recipes.results import folder_of

    return folder_of((how.out or OUT), one.name, quick=options.quick)


def _run(
    one: "Recipe", options: "RecipeOptions", work: "Work", how: RunOptions, screen: Screen
) -> dict[str, Any]:
    """Run what is not done yet and write the page."""
    from expacc.recipes.runner import How, run_recipe

    out = _folder(one, options, how)
    for sentence in work.missing:
        screen.warn(sentence)
    runs = sum(item.runs for item in work.items)
    takes = "" if work.minutes is None else f", about {_takes(one, options, work)} in all"
    screen.remark(
        f"{one.name}: {runs:,} runs in {len(work.items)} parts{takes} → {shown_path(out)}", "bold"
    )
    with how.resumable(out):
        result, outcome = run_recipe(
            one,
            options,
            work,
            out,
            How(
                command=_command(one, how),
                engine=how.engine,  # type: ignore[arg-type] # checked there
                workers=how.workers,
                gpus=how.gpus,
                address=how.address,
                progress=screen.progress,
                fresh=how.overwrite,
            ),
        )
        if outcome.skipped:
            screen.remark(f"{outcome.skipped} of {len(work.items)} parts were there already.")
        return _tell(result, out, screen)


def _command(one: "Recipe", how: RunOptions) -> str:
    """What makes this page alone: --all becomes the recipe's name."""
    words = [one.name if word == "--all" else word for word in how.command]
    return shlex.join(word for word in words if word != "--overwrite")


def _page(
    one: "Recipe", options: "RecipeOptions", how: RunOptions, screen: Screen
) -> dict[str, Any]:
    """The page anew, of the rows that there are."""
    from expacc.recipes.runner import load_result

    out = _folder(one, options, how)
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


def _index(options: "RecipeOptions", how: RunOptions, left_out: Mapping[str, str]) -> Path:
    from expacc.recipes.recipe import recipes
    from expacc.recipes.results import write_book

    return write_book((how.out or OUT), recipes(), quick=options.quick, left_out=left_out)


def _forecast(
    one: "Recipe", options: "RecipeOptions", work: "Work", how: RunOptions, screen: Screen
) -> dict[str, Any]:
    """What would run, and how long it takes on two cores."""
    from expacc.recipes.runner import parts_done

    out = _folder(one, options, how)
    runs, done = sum(item.runs for item in work.items), parts_done(one, options, work, out)
    for sentence in work.missing:
        screen.warn(sentence)
    screen.say(
        f"{one.name}: {runs:,} runs in {len(work.items)} parts, {done} of them done; all takes "
        f"about {_takes(one, options, work)}. It would write to {shown_path(out)}."
    )
    return {
        "name": one.name,
        "runs": runs,
        "items": len(work.items),
        "items_done": done,
        "minutes": _minutes_of(one, options, work),
        "out": str(out),
        "missing": list(work.missing),
    }
