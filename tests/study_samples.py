"""Studies that were never run: realistic rows from a seed, for the tests of what reads them."""

import numpy as np

from expacc.compare.record import StudyRecord, TableFacts
from expacc.runner.rows import Predictions, Row

COLUMNS = ("colour", "weight", "height", "the width of the whole thing in inches", "code")
LOSSES = ("cross_entropy", "exact", "leaky_expected_error", "mixed_expected_error", "focal")
# How far each shifts a row's margin, and how much of that a wrong label takes away.
SKILL = {
    "cross_entropy": (0.0, 6.0),
    "exact": (0.55, 2.0),
    "leaky_expected_error": (0.25, 1.2),
    "mixed_expected_error": (0.05, 2.2),
    "focal": (-0.35, 5.0),
    "logistic_regression": (-0.1, 6.0),
}

# Each would show itself: a console message, a request, a changed title or a marked window.
_RUN = "window.hit=1;document.title='hit';console.error('hit')"
PAYLOADS = (
    f"<script>{_RUN}</script>",
    f"</title><script>{_RUN}</script>",
    f"</style><script>{_RUN}</script>",
    f"</script><script>{_RUN}</script>",
    f"</svg><script>{_RUN}</script>",
    f'</desc></svg><img src=x onerror="{_RUN}">',
    f'<img src=x onerror="{_RUN}">',
    f"<img src='http://127.0.0.1:9/x.png' onload=\"{_RUN}\">",
    f'<svg onload="{_RUN}">',
    f'<svg><animate onbegin="{_RUN}" attributeName=x dur=1s>',
    f'<svg><set attributeName=x onbegin="{_RUN}">',
    f'<body onload="{_RUN}">',
    f'<iframe src="javascript:{_RUN}"></iframe>',
    f'<iframe srcdoc="<script>parent.{_RUN}</script>"></iframe>',
    f'<a href="javascript:{_RUN}" autofocus onfocus="{_RUN}">x</a>',
    f'<input autofocus onfocus="{_RUN}">',
    f'<details open ontoggle="{_RUN}">',
    f'<video><source onerror="{_RUN}"></video>',
    f'<object data="javascript:{_RUN}"></object>',
    f'<embed src="data:text/html,<script>{_RUN}</script>">',
    f'<meta http-equiv=refresh content="0;url=javascript:{_RUN}">',
    "<meta http-equiv=refresh content='0;url=http://127.0.0.1:9/gone'>",
    "<link rel=stylesheet href=http://127.0.0.1:9/x.css>",
    "<base href=http://127.0.0.1:9/>",
    "<style>@import 'http://127.0.0.1:9/y.css';body{display:none}</style>",
    "<form action=http://127.0.0.1:9/><button autofocus>go</button></form>",
    f'"><script>{_RUN}</script>',
    f"' onmouseover='{_RUN}' x='",
    "{{ 7*7 }}{% for x in ().__class__.__base__.__subclasses__() %}{{ x }}{% endfor %}",
    f"$\\frac{{<script>{_RUN}</script>}}$ \x00\x1b[31m\u202e\ud800 `${{{_RUN}}}`",
    f"<!--><script>{_RUN}</script>-->]]><script>{_RUN}</script>",
    f'<noscript><p title="</noscript><script>{_RUN}</script>">',
)


def fold_rows(folds, rows, random):
    """Name → test rows, as the protocol deals them."""
    if folds == "holdout":
        return {"holdout": np.sort(random.permutation(rows)[: rows // 4])}
    dealt = {}
    if folds == "5x2":
        for repeat in range(1, 6):
            order = random.permutation(rows)
            dealt[f"{repeat}a"] = np.sort(order[: rows // 2])
            dealt[f"{repeat}b"] = np.sort(order[rows // 2 :])
        return dealt
    repeats, _, count = folds.rpartition("x")
    for repeat in range(1, int(repeats or 1) + 1):
        order = random.permutation(rows)
        for k in range(int(count)):
            name = f"{repeat}.{k + 1}" if repeats else str(k + 1)
            dealt[name] = np.sort(order[k :: int(count)])
    return dealt


def said(loss, test, labels, hard, wrong, noise, effect, random, classes):
    """Predictions of a model that is right where a noisy margin is positive."""
    shift, hurt = SKILL.get(loss, (0.1, 3.0))
    margin = 2.4 + effect * shift - noise * hurt - hard[test] + 0.45 * random.normal(size=len(test))
    margin[wrong[test]] = -2.5 - 0.5 * random.random(int(wrong[test].sum()))
    right = margin > 0
    other = (labels[test] + 1 + (random.random(len(test)) < 0.25)) % classes
    other = np.where(other == labels[test], (labels[test] + 1) % classes, other)
    sharp = 1 / (1 + np.exp(-2.0 * np.abs(margin) + 0.15 * shift))
    given = np.where(right, sharp, (1 - sharp) * 0.9)
    confidence = np.where(right, sharp, np.maximum(sharp, given))
    return Predictions(
        test.astype(np.int32),
        np.where(right, labels[test], other).astype(np.int32),
        confidence.astype(np.float32),
        given.astype(np.float32),
    )


def measured(said, labels, classes):
    right = said.predicted == labels[said.rows]
    bins = np.minimum((said.confidence * 10).astype(int), 9)
    gaps = [
        abs(right[bins == b].mean() - said.confidence[bins == b].mean()) * (bins == b).mean()
        for b in range(10)
        if (bins == b).any()
    ]
    per_class = [
        right[labels[said.rows] == c].mean()
        for c in range(classes)
        if (labels[said.rows] == c).any()
    ]
    return {
        "accuracy": float(right.mean()),
        "balanced_accuracy": float(np.mean(per_class)),
        "log_loss": float(-np.log(np.maximum(said.given, 1e-6)).mean()),
        "calibration_error": float(np.sum(gaps)),
        "train_accuracy": min(1.0, float(right.mean()) + 0.02),
        "temperature": 1.3,
    }


def curves(accuracy, random, epochs=30):
    time = np.arange(1, epochs + 1)
    rise = 1 - np.exp(-time / 6)
    value = 0.3 + (accuracy - 0.3) * rise + 0.006 * random.normal(size=epochs)
    train = 0.3 + (min(1, accuracy + 0.02) - 0.3) * rise
    return {
        "validation_accuracy": tuple(value.clip(0, 1).tolist()),
        "train_accuracy": tuple(train.tolist()),
    }


def trial_numbers(loss, random):
    numbers = {
        "learning_rate": float(10 ** random.uniform(-4, 0)),
        "weight_decay": float(10 ** random.uniform(-6, -2)),
    }
    own = {"exact": ("margin", 0.5, 8.0), "leaky_expected_error": ("leak", 0.01, 0.5)}
    own |= {"mixed_expected_error": ("focus", 0.0, 0.5), "focal": ("gamma", 0.5, 4.0)}
    if loss in own:
        name, low, high = own[loss]
        numbers[name] = float(random.uniform(low, high))
    return numbers


def sample(
    tables=("digits",),
    *,
    losses=LOSSES,
    classes=10,
    rows=600,
    folds="5x2",
    seeds=1,
    noises=(0.0,),
    trials=16,
    effect=1.0,
    outside=True,
    fail=(),
    wrong_share=0.0,
    class_names=None,
    targets=("label",),
    columns=COLUMNS,
    reason="diverged at step {step}: its gradient is not finite",
    notes=(),
    command=None,
    seed=0,
    settings=None,
):
    """A study; ``fail`` holds (loss, fold) pairs whose runs diverge ('*' is any fold)."""
    random = np.random.default_rng(seed)
    facts, found = {}, []
    names = tuple(class_names or (str(c) for c in range(classes)))
    for place, table in enumerate(tables):
        labels = random.integers(0, classes, rows).astype(np.int32)
        hard = random.gamma(1.3 + 0.3 * (place % 4), 0.8, rows)
        wrong = random.random(rows) < wrong_share
        labels[:classes] = np.arange(classes)[:rows]
        more = (tuple(notes), f"{place:064x}", targets[place % len(targets)])
        facts[table] = TableFacts(table, rows, 64, names, labels, *more, columns=columns)
        dealt = fold_rows(folds, rows, random)
        wobble = effect * random.normal(1, 0.35)
        for noise in noises:
            for loss in (*losses, *(("logistic_regression",) if outside else ())):
                for fold, test in dealt.items():
                    item = f"{place}/{noise:g}/{loss}/{fold}"
                    best = None
                    for trial in range(trials if loss in losses else 0):
                        numbers = trial_numbers(loss, random)
                        off = abs(np.log10(numbers["learning_rate"]) + 1.7)
                        score = float(np.clip(0.93 - 0.04 * off**2 + 0.01 * random.normal(), 0, 1))
                        metrics = {"validation_accuracy": score, "validation_loss": 1 - score}
                        found.append(
                            Row(f"{item}/t{trial}", item, "trial", table, loss, fold, noise, 0,
                                numbers, metrics, seconds=0.2)
                        )  # fmt: skip
                        best = max(best or (-1, {}), (score, numbers), key=lambda pair: pair[0])
                    for repeat in range(seeds if loss in losses else 1):
                        kind = "final" if loss in losses else "outside"
                        head = (f"{item}/s{repeat}", item, kind, table, loss, fold, noise, repeat)
                        numbers = best[1] if best else {}
                        if (loss, fold) in fail or (loss, "*") in fail:
                            why = reason.replace("{step}", str(120 + repeat))
                            found.append(Row(*head, numbers, seconds=0.1, failure=why))
                            continue
                        told = said(loss, test, labels, hard, wrong, noise, wobble, random, classes)
                        metrics = measured(told, labels, classes)
                        drawn = curves(metrics["accuracy"], random)
                        if loss in losses:
                            drawn["importance"] = tuple(0.1 / (1 + i) for i in range(len(columns)))
                        found.append(
                            Row(*head, numbers, metrics, drawn, told,
                                seconds=1.5 if loss in losses else 0.3)
                        )  # fmt: skip
    known = {"losses": list(losses), "label_noise": list(noises), "model": "linear", "seed": 7}
    known |= {"trials": trials, "folds": folds, "seeds": seeds, **(settings or {})}
    return StudyRecord(
        settings=known,
        tables=facts,
        rows=tuple(found),
        versions={"expacc": "0.3.0", "torch": "2.13.0", "numpy": "2.4.6", "python": "3.11.9"},
        started="2026-11-15 10:12 UTC",
        seconds=312.4,
        command=command or f"expacc compare {tables[0]}.csv --folds {folds} --seed 7",
    )


def hostile(trials=0):
    """Every payload as a table, a column, a class, a note, a setting and in the command."""
    own = (PAYLOADS[0], PAYLOADS[29])  # losses of the user's own
    named = {"tables": PAYLOADS, "targets": PAYLOADS, "class_names": PAYLOADS, "columns": PAYLOADS}
    named |= {"reason": PAYLOADS[3], "notes": PAYLOADS[:2], "command": " ".join(PAYLOADS)}
    named |= {"losses": ("cross_entropy", "exact", *own), "fail": [(own[1], "1")]}
    settings = {"model": PAYLOADS[1], "run": list(PAYLOADS), **{p: p for p in PAYLOADS}}
    sizes = {"classes": len(PAYLOADS), "rows": 2 * len(PAYLOADS), "folds": "3", "trials": trials}
    return sample(**named, **sizes, settings=settings, wrong_share=0.1)
