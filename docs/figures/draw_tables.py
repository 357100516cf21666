"""Draw tables.svg of benchmarks/results/tables-47.json: ours minus each other, table by table."""

import json
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

HERE = Path(__file__).parent
BEYOND = 12  # points, at which a table is drawn that lies further out


def draw() -> None:
    """A row a reference, a dot a table, a bar from the lower to the upper quartile."""
    found = json.loads((HERE.parents[1] / "benchmarks/results/tables-47.json").read_text())
    levels = list(found["tables"])
    first, *others = found["means"][levels[0]]["models"]
    figure, axes = plt.subplots(
        1, len(levels), figsize=(10, 3.6), sharex=True, sharey=True, layout="constrained"
    )
    draw_from = np.random.default_rng(0)
    for axis, level in zip(axes, levels, strict=True):
        for place, other in enumerate(others):
            lead = [one[first][0] - one[other][0] for one in found["tables"][level].values()]
            up = draw_from.uniform(-0.22, 0.22, len(lead))
            shown = np.clip(lead, -BEYOND, BEYOND)
            axis.plot(shown, place + up, "o", color="#7f7f7f", ms=2.5, mew=0, alpha=0.8)
            axis.plot(np.quantile(lead, [0.25, 0.75]), [place] * 2, color="#2166ac", lw=2.5)
            axis.plot(np.mean(lead), place, "D", color="#b2182b", ms=5)
        axis.axvline(0, color="#333333", lw=0.8, zorder=0)
        share = f"{float(level):.0%}".replace("%", " %")
        axis.set_title("clean labels" if level == "0" else f"{share} of labels at random")
        axis.set_xlabel("points that ours is ahead")
        axis.set_xlim(-BEYOND - 0.5, BEYOND + 0.5)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_yticks(range(len(others)), others)
    axes[0].invert_yaxis()
    figure.savefig(HERE / "tables.svg", metadata={"Date": None, "Creator": None}, facecolor="white")


if __name__ == "__main__":
    mpl.rcParams["svg.hashsalt"] = "expacc"
    mpl.rcParams["font.size"] = 9
    draw()
