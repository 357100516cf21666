"""What fit and comparisons report while they run: to TensorBoard, MLflow, Weights & Biases."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from loops import RATE, batches, network, run_block, scheduled_loss

from expacc.cli import main
from expacc.runner.rows import MOST, Row, RunningScores
from expacc.training.network import fit


def trained(report, epochs=3):
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    rate = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    loaders = (batches(4), batches(2))
    return fit(
        model,
        loaders,
        scheduled_loss(),
        epochs=epochs,
        optimizer=optimizer,
        scheduler=rate,
        device="cpu",
        progress=False,
        report=report,
    )


def scalars(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    read = EventAccumulator(str(folder))
    read.Reload()
    return {
        tag: {event.step: event.value for event in read.Scalars(tag)}
        for tag in read.Tags()["scalars"]
    }


def test_tensorboard_has_every_epoch(tmp_path):
    from expacc.integrations.tensorboard import TensorBoard

    with TensorBoard(tmp_path) as report:
        history = trained(report).history
    found = scalars(tmp_path)
    for tag, field in (
        ("train/loss", "loss"),
        ("train/accuracy", "accuracy"),
        ("validation/loss", "validation_loss"),
        ("validation/accuracy", "validation_accuracy"),
    ):
        expected = {4 * record.epoch: getattr(record, field) for record in history}
        assert found[tag] == pytest.approx(expected)
    assert found["learning_rate"] == pytest.approx({4: RATE, 8: RATE / 2, 12: RATE / 4})
    assert found["loss/focus"] == pytest.approx({4: 0.1, 8: 0.3, 12: 0.5})
    assert len(found) == 6


def test_the_page(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"model": network(), "loaders": batches(4), "loss": scheduled_loss()}
    run_block("TensorBoard, MLflow, Weights & Biases", **names)
    assert scalars("runs/leaky")["train/accuracy"].keys() == {4, 8, 12}


def test_a_report_that_is_none():
    with pytest.raises(TypeError, match="report must be callable as report"):
        trained("tensorboard")


@pytest.fixture
def quick(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return [
        *("compare", "iris", "--folds", "2", "--trials", "2", "--losses", "focal"),
        *("--references", "none", "--workers", "0", "--quiet", "--out", "study"),
    ]


@pytest.mark.slow
def test_compare_reports_running_means(quick, tmp_path, capsys):
    assert main([*quick, "--report-to", "tensorboard"]) == 0
    found = scalars(tmp_path / "study/tensorboard")
    assert {"accuracy/focal", "accuracy/cross_entropy"} <= found.keys()
    assert all(0.5 < value <= 1 for values in found.values() for value in values.values())
    assert list(found["accuracy/focal"]) == sorted(found["accuracy/focal"])
    assert main([*quick, "--overwrite", "--report-to", "papyrus"]) == 2
    assert "report-to must be tensorboard, mlflow, wandb; got 'papyrus'" in capsys.readouterr().err


def test_compare_networks_reports(tmp_path):
    from expacc import compare_networks

    told = []
    compare_networks(
        network,
        (torch.cat([x for x, _ in batches(20)]), torch.cat([y for _, y in batches(20)])),
        losses=["leaky_expected_error"],
        epochs=1,
        trials=1,
        seeds=2,
        folds=2,
        device="cpu",
        out=tmp_path,
        progress=False,
        report=lambda step, numbers: told.append((step, numbers)),
    )
    steps = [step for step, _ in told]
    assert steps == sorted(steps)
    assert {"accuracy/leaky_expected_error", "accuracy/cross_entropy"} <= told[-1][1].keys()


def final(loss, accuracy, noise=0.0):
    metrics = {"accuracy": accuracy}
    return Row(f"{loss}{accuracy}", "i", "final", "t", loss, "1", noise=noise, metrics=metrics)


def test_running_scores():
    told = []
    scores = RunningScores(str.upper, lambda step, numbers: told.append((step, numbers)))
    assert scores([]) == ""
    assert scores([final("a", 0.5), final("b", 0.75)]) == "B 75.0 %"
    failed = Row("x", "i", "final", "t", "a", "1", failure="died")
    assert scores([final("a", 1.0), failed]) == "B 75.0 %"  # level: the name decides
    assert told == [
        (2, {"accuracy/a": 0.5, "accuracy/b": 0.75}),
        (3, {"accuracy/a": 0.75, "accuracy/b": 0.75}),
    ]
    scores([final("a", 0.25, noise=0.2)])
    expected = {"accuracy/a, noise 0": 0.75, "accuracy/b, noise 0": 0.75}
    assert told[-1] == (4, {**expected, "accuracy/a, noise 0.2": 0.25})
    assert scores.table() == [("B", "75.0 %", "1 runs"), ("A", "58.3 %", "3 runs")]
    scores([final(f"loss {number}", 0.1) for number in range(20)])
    assert len(scores.table()) == MOST


FOREIGN = """
import sys
sys.path[:0] = {path!r}
from test_trackers import trained
from expacc.integrations.mlflow import MLflow
from expacc.integrations.wandb import WandB
import mlflow
with MLflow(run_name="one") as report:
    history = trained(report).history
run = mlflow.search_runs(output_format="list")[0].info.run_id
kept = mlflow.MlflowClient().get_metric_history(run, "validation/accuracy")
assert [(one.step, one.value) for one in kept] == [
    (4 * record.epoch, record.validation_accuracy) for record in history
]
with WandB(project="one") as report:
    trained(report)
    assert report._run.step == 12
"""


@pytest.mark.slow
def test_mlflow_and_wandb(tmp_path):
    """Not in the extra dev (186 MB, with servers): installed here, and used without network."""
    constraints = Path(__file__).parent.parent / "constraints.txt"
    command = f"-m pip install --quiet --target {tmp_path / 'packages'} -c {constraints}"
    subprocess.run(
        [sys.executable, *command.split(), "mlflow-skinny", "wandb"],
        check=True,
        capture_output=True,
    )
    here = Path(__file__).parent
    path = [str(tmp_path / "packages"), str(here), str(here.parent)]
    settings = {
        "MLFLOW_TRACKING_URI": (tmp_path / "mlruns").as_uri(),
        "MLFLOW_ALLOW_FILE_STORE": "true",
        "WANDB_MODE": "offline",
        "WANDB_DIR": str(tmp_path),
    }
    done = subprocess.run(
        [sys.executable, "-c", FOREIGN.replace("{path!r}", repr(path))],
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert list(tmp_path.glob("wandb/offline-run-*/*.wandb"))
