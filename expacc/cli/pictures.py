"""The command ``compare`` of a set of pictures."""

import json
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from expacc.cli.compare import answer, read_shares
from expacc.cli.screen import RunOptions, Screen, shown_path, user_input
from expacc.plain import UsageError

if TYPE_CHECKING:
    from expacc.compare.networks import NetworkStudy
    from expacc.compare.vision import VisionOptions
    from expacc.data.images import ImageSet


_LONG, _VERY_LONG = 120, 3600  # seconds


class _Planned(Exception):
    """A dry run ends here."""


def options_of(
    model: str | None,
    pretrained: Path | None,
    losses: Sequence[str] | None,
    epochs: int | None,
    repeats: int | None,
    trials: int | None,
    folds: str | None,
    label_noise: str,
    mirror: bool,
    seed: int,
    device: str | None,
) -> "VisionOptions":
    """What was typed, checked."""
    from expacc.compare.vision import VisionOptions
    from expacc.registry import choose_losses

    words = [word.strip() for part in losses or () for word in part.split(",") if word.strip()]
    with user_input():
        chosen = tuple(choose_losses(words)) if words else None
    if folds is not None and not (folds.isdecimal() and int(folds) > 1):
        raise UsageError(f"--folds must be a number from 2 on for pictures; got {folds!r:.40}.")
    return VisionOptions(
        *(model, pretrained, chosen, epochs, repeats, trials),
        folds=None if folds is None else int(folds),
        label_noise=read_shares(label_noise),
        mirror=mirror,
        seed=seed,
        device=device or "auto",
    )


def compare(
    data: str, size: int | None, asked: "VisionOptions", how: RunOptions, screen: Screen
) -> None:
    """Run the study, or what is left of it, and print its answer."""
    from expacc.data.images import read_images
    from expacc.training.progress import progress_bar

    _ = how.gpus  # which refuses a share of a GPU without Ray
    screen.begins(f"Reading {data} …")
    with progress_bar(total=1, title="pictures", enabled=screen.progress) as bar:

        def tell(done: int, whole: int) -> None:
            bar.total = whole  # known now
            bar.update(done)

        images = read_images(data, size=size, workers=how.workers, progress=tell)
        bar.update(bar.total)
    _describe(images, screen)
    from expacc.compare.networks import compare_networks
    from expacc.compare.vision import arguments_of

    out = how.out or Path(f"expacc-{images.name}")
    arguments = arguments_of(images, asked)
    try:
        with how.resumable(out), how.tracker(out) as report:
            found = compare_networks(
                **arguments,
                report=report,
                out=out,
                pictures=_large(data, images),
                resume=not how.overwrite,
                progress=screen.progress,
                command=shlex.join(how.command),
                before=_before(out, how, screen),
            )
            answer(found.record, out, screen, found.board)
    except _Planned:
        return


def _describe(images: "ImageSet", screen: Screen) -> None:
    counts = images.targets.bincount(minlength=len(images.classes))
    channels, high, wide = images.images.shape[1:]
    test = "" if images.test is None else f", {len(images.test):,} to test on"
    colour = "grey" if channels == 1 else "colour"
    screen.remark(
        f"{images.name}: {len(images):,} pictures, {wide} × {high}, {colour}, "
        f"{len(images.classes)} classes{test}",
        "bold",
    )
    order = counts.argsort(descending=True).tolist()
    told = [f"{images.classes[code]} {int(counts[code]):,}" for code in order]
    screen.remark(f"  {', '.join(told[:8])}{', …' if len(told) > 8 else ''}", "dim")
    for note in images.notes:
        screen.remark(f"  {note}", "yellow" if note.startswith("Left out") else "")


def _before(out: Path, how: RunOptions, screen: Screen) -> Callable[["NetworkStudy"], None]:
    """What is said before the study starts: what will run, where, how long it takes."""

    def say(study: "NetworkStudy") -> None:
        from expacc.compare.vision import pictures_a_second, pictures_to_train
        from expacc.report.words import duration, loss_name

        plan, settings = study.plan, study.settings
        done = set() if how.overwrite else _done(out, study)
        speed = pictures_a_second(study)
        left = pictures_to_train(study, done)
        rows, tested = len(plan.train), "a test part" if plan.test else f"{len(plan.folds)} folds"
        network = str(settings["network"]).partition(" with ")[0]
        planned = (
            f"{len(study.items):,} runs: {len(plan.losses)} losses, {network}, "
            f"{plan.epochs} epochs of {rows:,} pictures, {tested}, {settings['seeds']} seeds"
        )
        say_line = screen.say if how.dry_run else screen.remark
        say_line(f"{planned} → {shown_path(out)}", "bold")
        if done:
            say_line(f"{len(done)} of {len(study.items)} runs are done.")
        where = "this CPU" if plan.device.type == "cpu" else "this GPU"
        say_line(f"Roughly {duration(left / speed)} on {where}, at {speed:,.0f} pictures a second.")
        for line in _advice(study, left, speed):
            say_line(line)
        if not how.dry_run:
            return
        say_line(f"losses: {', '.join(map(loss_name, plan.losses))}")
        screen.give(
            {
                "runs": len(study.items),
                "items_done": len(done),
                "seconds": round(left / speed, 1),
                "pictures_a_second": round(speed, 1),
                "out": str(out),
                "losses": list(plan.losses),
                "settings": {name: value for name, value in settings.items() if name != "losses"},
            }
        )
        raise _Planned

    return say


def _advice(study: "NetworkStudy", left: float, speed: float) -> list[str]:
    """On a CPU: what a GPU would bring, and what makes the study smaller."""
    from expacc.compare.vision import H200
    from expacc.report.words import duration

    if study.plan.device.type != "cpu" or left < _LONG * speed:
        return []
    lines = [
        f"A GPU is used where there is one: an H200 trains cnn on up to {H200:,} pictures of "
        f"32 × 32 a second, which would be {duration(left / H200)} at best."
    ]
    if left > _VERY_LONG * speed:
        lines.append("Less: --epochs 2, --repeats 2, --losses leaky_expected_error, --trials 1.")
    return lines


def _done(out: Path, study: "NetworkStudy") -> set[str]:
    from expacc.runner.store import FILE, Store

    if not (out / FILE).is_file():
        return set()
    with Store.read(out) as store:
        if store.study() != json.loads(json.dumps(study.identity)):
            return set()
        return store.done_items() & {item.key for item in study.items}


def _large(data: str, images: "ImageSet") -> Callable[[Sequence[int]], Sequence[bytes]] | None:
    """How suspects are drawn: from their files, larger than the network saw them."""
    root = Path(data)
    if not root.is_dir() or not (root / images.files[0]).is_file():
        return None
    files = [*images.files, *(images.test.files if images.test is not None else ())]

    def draw(rows: Sequence[int]) -> list[bytes]:
        import torch

        from expacc.compare.pictures import SIDE, png_file
        from expacc.data.images_decode import read_pictures

        pixels = read_pictures([str(root / files[row]) for row in rows], SIDE)
        whole = torch.from_numpy(pixels.images).permute(0, 3, 1, 2)
        return [png_file(one) for one in whole]

    return draw
