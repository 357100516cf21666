"""Losses by name: families, variants with arguments fixed, and the command that prints them."""

import json

import pytest
import torch

import expacc
from expacc.cli import main
from expacc.compare.training_budget import trials_of
from expacc.registry import SPECS, choose_losses, spec_of
from expacc.registry.beside import BESIDE
from expacc.registry.limits import limits_of
from expacc.training import Run, TensorTable, TrainConfig, train_runs


def test_families_part_the_losses():
    names = expacc.list_losses()
    parts = [expacc.list_losses(family) for family in ("reference", "ours", "robust", "classic")]
    assert sorted(name for part in parts for name in part) == sorted(names)
    assert all(parts)
    with pytest.raises(ValueError, match=r"family must be one of .*; got 'mine'"):
        expacc.list_losses("mine")


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["focal", "leaky-expected-error"], ("focal", "leaky_expected_error")),
        (["exact_error", "exact"], ("exact",)),
        (["robust"], expacc.list_losses("robust")),
        (["all", "focal"], expacc.list_losses()),
        (["exact:noise=laplace"], ("exact:noise=laplace",)),
        (["expected_error:scale=0.50"], ("expected_error:scale=0.5",)),
    ],
)
def test_words_become_names(words, names):
    assert choose_losses(words) == names


@pytest.mark.parametrize(
    ("word", "sentence"),
    [
        ("leeky_expected_error", "Did you mean 'leaky_expected_error'"),
        ("zz", "Families: ours, robust, classic, all"),
        ("exact:noise", "NAME:argument=value"),
        ("exact:nois=laplace", r"parameters of exact; got 'nois'. It has: .*noise"),
        ("hinge:shift=1", r"parameters of hinge; got 'shift'. It has: margin"),
        ("elr", r"'elr' is a Module with a memory .*Use expacc\.EarlyLearningRegularization in a"),
        ("LogitClip", r"is a transform of logits, not a loss\. Use expacc\.LogitClip .*: clip = "),
    ],
)
def test_a_word_that_is_no_loss_is_refused(word, sentence):
    with pytest.raises(ValueError, match=sentence):
        choose_losses([word])


def test_a_variant_trains_as_its_arguments_say():
    generator = torch.Generator().manual_seed(0)
    rows = TensorTable(torch.randn(60, 3, generator=generator), torch.arange(60) % 3, classes=3)
    for variant, loss, params in (
        ("leaky_expected_error:leak=0.3", "leaky_expected_error", {"leak": 0.3}),
        ("mixed_expected_error:error_weight=2", "mixed_expected_error", {"error_weight": 2.0}),
        ("exact:noise=logistic:margin=0.5", "exact", {"noise": "logistic", "margin": 0.5}),
        ("expected_error:shift=1.5", "expected_error", {"shift": 1.5}),
    ):
        every = torch.arange(60)
        runs = Run("a", every, loss=variant), Run("a", every, loss=loss, loss_params=params)
        config = TrainConfig(epochs=3, keep="last")
        one, two = (train_runs(rows, [run], config)[0].model for run in runs)
        assert torch.equal(one.layers[0].weight, two.layers[0].weight)


def test_what_is_fixed_is_not_searched():
    free = trials_of("leaky_expected_error", "linear", 5, 0, "t", 100, 3)
    fixed = trials_of("leaky_expected_error:leak=0.2:shift=auto", "linear", 5, 0, "t", 100, 3)
    assert {trial.loss_params["leak"] for trial in fixed} == {0.2}
    assert {trial.loss_params["shift"] for trial in fixed} == {"auto"}
    assert "leak" not in fixed[1].found
    assert [t.learning_rate for t in free] == [t.learning_rate for t in fixed]
    assert spec_of("exact:noise=laplace").label == "EXACT, noise laplace"


def test_numbers_of_papers_for_many_classes():
    few, many = (
        trials_of("symmetric_cross_entropy", "mlp", 1, 0, "t", 500, classes)[0].loss_params
        for classes in (10, 100)
    )
    assert few["ce_weight"] == 0.1
    assert many == {"ce_weight": 6.0, "rce_weight": 0.1}


def test_the_command_prints_every_loss(capsys):
    assert main(["losses"]) == 0
    text = capsys.readouterr().out
    assert all(name in text for name in SPECS)
    assert "cost[y, j]" in text  # no markup
    assert main(["losses", "ours", "focal", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [one["name"] for one in told] == [n for n, s in SPECS.items() if s.family == "ours"] + [
        "focal"
    ]
    assert told[-1]["numbers"]["gamma"] == {"allowed": "≥ 0", "start": 2.0, "searched": [0.5, 4.0]}
    assert main(["losses", "zz"]) == 2
    assert "got 'zz'" in capsys.readouterr().err


NUMBERS = [
    (loss, name)
    for loss, spec in SPECS.items()
    for name in (*spec.defaults, *(("shift", "scale") if callable(spec.slope) else ()))
]


@pytest.mark.parametrize(("loss", "name"), NUMBERS, ids=[" ".join(one) for one in NUMBERS])
def test_what_is_said_to_be_allowed_is_and_nothing_else(loss, name):
    spec, said = SPECS[loss], limits_of(loss, name)
    binary = spec.family == "binary"
    logits = torch.tensor([[0.3], [-1.0]] if binary else [[0.3, 0.0], [1.0, -1.0]])
    target = torch.ones(2, 1) if binary else torch.tensor([1, 0])
    low, high = (float(end) for end in (said.strip("in ([])").replace("any", "0, 0") + ", 4")
                 .replace("> ", "").replace("≥ ", "").split(", ")[:2])  # fmt: skip
    closed = "≥" in said or "[" in said
    inside = [(low + high) / 2, *([low] if closed else []), *([high] if "]" in said else [])]
    outside = [low - 0.5, *([] if closed else [low]), *([high + 0.5] if "in" in said else [])]
    whole = name in spec.counts
    for value in inside:
        spec.function(logits, target, **{name: round(value) if whole else value})
    for value in () if said == "any" else outside:
        with pytest.raises((ValueError, TypeError), match=f"^{name} must"):
            spec.function(logits, target, **{name: round(value - 1) if whole else value})


def test_what_changes_a_loss_is_listed_beside_the_losses(capsys):
    for one in BESIDE.values():
        assert issubclass(getattr(expacc, one.module), torch.nn.Module)
        assert one.name not in expacc.list_losses()
        with pytest.raises(ValueError, match=f"expacc.{one.module} in a training loop"):
            expacc.get_loss(one.module)
    assert main(["losses"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in BESIDE)
    assert main(["losses", "elr", "focal", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(one["name"], one["module"]) for one in found] == [
        ("focal", "expacc.FocalLoss"),
        ("early_learning_regularization", "expacc.EarlyLearningRegularization"),
    ]
    assert found[0].keys() == found[1].keys()
