"""Every loss told once: its names, formula and source, its looks, what to search, its slope.

The Modules, the batched trainer, ``compare``, the estimators, the benchmarks, the figure and
``docs/losses.md`` all read this list. To add a loss: a function in ``functional/``, a ``LossSpec``
here, a row in ``tests/losses.py``, and ``python docs/write_losses.py``.

Reading the list needs no torch: functions and Modules are imported when they are asked for.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any

from expacc.schedules import focus_gradual, geometric, sigma_tabular

if TYPE_CHECKING:
    from torch import Tensor, nn

__all__ = ["REFERENCE", "SPECS", "LossSpec", "get_loss", "list_losses"]

# -dL/du of u = log p(target), (runs, 1, rows), with a tensor (runs, 1, 1) for every parameter.
Pull = Callable[["Tensor", Mapping[str, "Tensor"]], "Tensor"]
# (least, largest, usual): searched by equal ratios; the usual may depend on the number of rows.
Range = tuple[float, float, float | Callable[[int], float]]


@dataclass(frozen=True, kw_only=True)
class LossSpec:
    """What there is to know of a loss; the function and the Module are named after ``name``.

    Args:
        name: by which ``get_loss``, the trainer and ``compare`` know it.
        label: its name for people.
        formula: the value of a row, with u = log p(target), p = e^u and logits z.
        source: paper and equation.
        when: to use it.
        needs: what it takes beside logits and labels; such a loss is no choice of the trainer and
            of ``compare``, and the fields below say nothing.
        look: colour by day and by night, marker and dash, as matplotlib names them.
        defaults: its own parameters, as the trainer starts them: numbers or schedules.
        options: its own settings that are no numbers.
        slope: -dL/du for the batched trainer; or the name of a slope in
            ``training/loss_slopes.py``; or None, which leaves it to autograd.
        search: parameter → the range that ``compare`` searches.
        params_of: from what the search found to the parameters of the loss.
        polish: the parameters that the estimators try.
        rate_factor: model → part of the usual learning rates.
        regularizes: itself, so that little weight decay is usual.
        for_accuracy: its value is the expected error or bounds it; wrong labels cost it little.
        function_name: where it is not ``name``.

    Example:
        >>> SPECS["leaky_expected_error"].formula
        '1 − p − leak·u'
    """

    name: str
    label: str
    formula: str
    source: str
    when: str
    needs: str = ""
    look: tuple[str, str, str, str] = ("", "", "", "")
    defaults: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    slope: Pull | str | None = None
    search: Mapping[str, Range] = field(default_factory=dict)
    params_of: Callable[[dict[str, float]], dict[str, Any]] = dict
    polish: tuple[Mapping[str, Any], ...] = ({},)
    rate_factor: Mapping[str, float] = field(default_factory=dict)
    regularizes: bool = False
    for_accuracy: bool = False
    function_name: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "function_name", self.function_name or self.name)

    @property
    def module_name(self) -> str:
        """The name of the Module: the words of ``name``, and Loss."""
        return "".join(word.capitalize() for word in self.name.split("_")) + "Loss"

    @cached_property
    def function(self) -> "Callable[..., Tensor] | None":
        """The function of (logits, target); None for a loss that is a Module only."""
        where = "torch.nn" if self.name == REFERENCE else "expacc"
        found: Callable[..., Tensor] | None = getattr(
            import_module(f"{where}.functional"), self.function_name, None
        )
        return found

    @cached_property
    def module(self) -> "type[nn.Module] | None":
        """The Module class; None for a loss that is a function only."""
        where = "torch.nn" if self.name == REFERENCE else "expacc"
        found: type[nn.Module] | None = getattr(import_module(where), self.module_name, None)
        return found


REFERENCE = "cross_entropy"  # what all others are compared with
_FIRST_SIGMA = 10.0
# EXACT's margin is its regulariser, and the usual one falls as one part in the rows: on rows held
# out of the training parts of small UCI tables 0.3 was best below 250 rows, 0.05 up to 1,000.
_MARGIN_ROWS, _LEAST_MARGIN, _LARGEST_MARGIN = 60.0, 0.05, 0.3
_SIGMAS_IN_A_MARGIN = 25.0


def _usual_margin(rows: int) -> float:
    return min(max(_MARGIN_ROWS / rows, _LEAST_MARGIN), _LARGEST_MARGIN)


def _exact_params(found: dict[str, float]) -> dict[str, Any]:
    own = dict(found)
    return {"sigma": geometric(_FIRST_SIGMA, own.pop("last_sigma")), **own}


def _focal_pull(u: "Tensor", n: "Mapping[str, Tensor]") -> "Tensor":
    import torch

    tiny = torch.finfo(u.dtype).tiny
    error = -u.expm1()
    quotient = u.clamp(min=-1e30, max=-tiny) / error.clamp(min=tiny)  # -1 where both vanish
    return error.pow(n["gamma"]) * (1 - n["gamma"] * u.exp() * quotient) * n["alpha"]


# Colours are Okabe and Ito's, then Tol's muted ones: both can be told apart by the colour-blind.
# Cross entropy, which all others are compared with, is drawn in the ink of the page.
_ALL = (
    LossSpec(
        name=REFERENCE,
        label="cross entropy",
        formula="−u",
        source="`torch.nn.functional.cross_entropy`",
        when="the reference",
        look=("#3b4553", "#d3dae3", "o", "-"),
        slope="cross_entropy",
    ),
    LossSpec(
        name="exact",
        function_name="exact_error",
        label="EXACT",
        formula="1 − P(y wins) with Gaussian noise on the logits",
        source="Karpukhin, Dereka and Kolesnikov (EXACT), Eq. 15 to 19",
        when="linear models on tables, with its schedule and `GradientNormalizer`",
        look=("#0072b2", "#4db1ea", "s", "-"),
        defaults={"sigma": sigma_tabular, "margin": None},
        options={"standardize": True, "noise": "normal", "log": False},
        slope="exact",
        search={
            "margin": (0.02, 1.0, _usual_margin),
            "last_sigma": (0.001, 0.1, lambda rows: _usual_margin(rows) / _SIGMAS_IN_A_MARGIN),
        },
        params_of=_exact_params,
        # The smaller the last sigma, the closer to the error rate itself, and to its noise.
        polish=tuple({"sigma": geometric(1.0, last)} for last in (0.3, 0.1, 0.03)),
        # EXACT divides its logits by their deviation, so its weights stay small, and so must steps.
        rate_factor={"linear": 0.05, "mlp": 0.2},
        regularizes=True,
        for_accuracy=True,
    ),
    LossSpec(
        name="leaky_expected_error",
        label="leaky expected error",
        formula="1 − p − leak·u",
        source="İrsoy 2019, Eq. 6",
        when="a first choice when labels may be wrong",
        look=("#d55e00", "#ff8f47", "D", "-"),
        defaults={"leak": 0.1},
        slope=lambda u, n: u.exp() + n["leak"],
        search={"leak": (0.01, 1.0, 0.1)},
        polish=({"leak": 0.03}, {"leak": 0.1}, {"leak": 0.3}),
        for_accuracy=True,
    ),
    LossSpec(
        name="mixed_expected_error",
        label="mixed expected error",
        formula="−ce_weight·u + error_weight·(1 − p), or by `focus`",
        source="Battash, Hazan and Wolf (mixing), Eq. 12 and 14",
        when="with a schedule that shifts from one to the other",
        look=("#009e73", "#3ccca3", "^", "-"),
        defaults={"focus": 0.0},
        slope=lambda u, n: u.exp() * n["error_weight"] + n["ce_weight"],
        params_of=lambda found: {"focus": focus_gradual},
        polish=({"focus": focus_gradual},),
        for_accuracy=True,
    ),
    LossSpec(
        name="expected_error",
        label="expected error",
        formula="1 − p",
        source="İrsoy 2019, Eq. 5; mixing, Eq. 9 and 10",
        when="to fine-tune a trained model; many wrong labels",
        look=("#b8578e", "#e58fc0", "v", "--"),
        slope=lambda u, n: u.exp(),
        for_accuracy=True,
    ),
    LossSpec(
        name="hinge",
        label="hinge",
        formula="mean over rivals j of max(0, margin − z_y + z_j)",
        source="EXACT, Eq. 4",
        when="comparator; takes no class probabilities",
        look=("#c98900", "#f0b93a", "P", "--"),
        defaults={"margin": 1.0},
        slope="hinge",
        search={"margin": (0.1, 5.0, 1.0)},
    ),
    LossSpec(
        name="focal",
        label="focal",
        formula="−alpha·(1 − p)^gamma·u",
        source="Lin et al. 2017; mixing, Eq. 2",
        when="comparator; the opposite of what wrong labels ask for",
        look=("#3f9fd6", "#8fd0f5", "X", "--"),
        defaults={"gamma": 2.0, "alpha": 0.25},
        slope=_focal_pull,
        search={"gamma": (0.5, 4.0, 2.0)},
    ),
    LossSpec(
        name="mean_absolute_error",
        label="mean absolute error",
        formula="2·(1 − p)",
        source="Ghosh, Kumar and Sastry 2017; mixing, Eq. 3",
        when="comparator; the expected error under another name",
        look=("#882255", "#d9699f", "<", "--"),
        slope=lambda u, n: u.exp() * 2,
        for_accuracy=True,
    ),
    LossSpec(
        name="generalized_cross_entropy",
        label="generalised cross entropy",
        formula="(1 − p^q)/q, `truncation`",
        source="Zhang and Sabuncu 2018; mixing, p. 2",
        when="wrong labels, the standard answer",
        look=("#332288", "#9c8cf0", ">", "-."),
        defaults={"q": 0.7, "truncation": None},
        slope=lambda u, n: (u * n["q"]).exp().where(u > n["truncation"].log(), 0),
        search={"q": (0.1, 1.0, 0.7)},
    ),
    LossSpec(
        name="tamed_cross_entropy",
        label="tamed cross entropy",
        formula="((1 − u)^(1 − taming) − 1)/(1 − taming)",
        source="Martinez and Stiefelhagen 2018; mixing, Eq. 4",
        when="comparator",
        look=("#117733", "#62c281", "p", "-."),
        defaults={"taming": 0.8},
        slope=lambda u, n: (1 - u).pow(-n["taming"]),
        search={"taming": (0.2, 1.5, 0.8)},
    ),
    LossSpec(
        name="poly1_cross_entropy",
        label="Poly-1",
        formula="−u + epsilon·(1 − p)",
        source="Leng et al. 2022; mixing, Eq. 12",
        when="comparator; an alias of the mixture",
        look=("#999933", "#cdcd6a", "h", "-."),
        defaults={"epsilon": 1.0},
        slope=lambda u, n: u.exp() * n["epsilon"] + 1,
        search={"epsilon": (0.3, 5.0, 1.0)},
    ),
    LossSpec(
        name="partially_huberized_cross_entropy",
        label="partially Huberised",
        formula="−u where p ≥ threshold, else 1 − log(threshold) − p/threshold",
        source="Menon et al. 2020",
        when="wrong labels: cross entropy for rows that are believed",
        look=("#6b4c9a", "#b79ae0", "*", "-."),
        defaults={"threshold": 0.1},
        slope=lambda u, n: (u.exp() / n["threshold"]).clamp(max=1),
        search={"threshold": (0.02, 0.5, 0.1)},
    ),
    LossSpec(
        name="complement_entropy",
        label="complement entropy",
        formula="Σ over rivals of r·log r, their shares r = p_j/(1 − p)",
        source="Chen et al. 2019; mixing, Eq. 6",
        when="beside cross entropy, never alone; takes no class probabilities",
        look=("#cc6677", "#f295a3", "8", ":"),
    ),
    LossSpec(
        name="maximum_probability_cross_entropy",
        label="maximum probability",
        formula="−(max_j p_j − p)·u",
        source="Zhou et al. 2019; mixing, Eq. 7",
        when="comparator",
        look=("#44aa99", "#7fdccb", "d", ":"),
    ),
    LossSpec(
        name="expected_cost",
        label="expected cost",
        formula="Σ_j cost[y, j]·P(argmax = j)",
        source="the expectation of EXACT, Eq. 15, or of the softmax",
        when="when mistakes differ in cost",
        needs="a matrix of costs",
    ),
    LossSpec(
        name="linear_mixed_expected_error",
        label="mixed expected error of a linear layer",
        formula="as `mixed_expected_error`, of features @ weight.T + bias",
        source="mixing, Eq. 12 to 14",
        when="vocabularies: the logits are never kept",
        needs="features and the layer's weight",
    ),
    LossSpec(
        name="max_mahalanobis_center",
        label="Max-Mahalanobis centers",
        formula="½‖features − centre_y‖²",
        source="Pang et al. 2020, Eq. 8; mixing, Eq. 5",
        when="replaces the last layer",
        needs="features, and the number of classes",
    ),
)

SPECS: Mapping[str, LossSpec] = {spec.name: spec for spec in _ALL}
_ALIASES = {spec.function_name: spec.name for spec in _ALL}


def list_losses() -> tuple[str, ...]:
    """Names of the losses of (logits, target), cross entropy first.

    Returns:
        What ``get_loss``, ``expacc.training.Run`` and ``expacc compare --losses`` take.

    Example:
        >>> list_losses()[:3]
        ('cross_entropy', 'exact', 'leaky_expected_error')
    """
    return tuple(spec.name for spec in _ALL if not spec.needs)


def get_loss(name: str, **arguments: Any) -> "nn.Module":
    """Make a loss Module from its name, as a line of a configuration file would.

    Args:
        name: one of ``list_losses()``, or 'max_mahalanobis_center'.
        **arguments: of the Module: ``weight``, ``ignore_index``, ``reduction``,
            ``label_smoothing`` and the loss's own.

    Returns:
        The Module; 'cross_entropy' gives ``torch.nn.CrossEntropyLoss``.

    Raises:
        TypeError: an argument that the loss does not have.
        ValueError: an unknown name, or a number out of its range.

    Example:
        >>> get_loss("leaky_expected_error", leak=0.2)
        LeakyExpectedErrorLoss(leak=0.2)
    """
    spec = SPECS.get(_ALIASES.get(name, name))
    if spec is None:
        cure = _nearest(name, [*SPECS, *_ALIASES], f"Names: {', '.join(list_losses())}.")
        raise ValueError(f"name must be a loss of expacc; got {name!r}. {cure}")
    if spec.module is None:
        raise ValueError(
            f"name must be a loss of logits and labels; got {name!r}, which needs {spec.needs}. "
            f"Call expacc.functional.{spec.function_name}."
        )
    known = list(inspect.signature(spec.module).parameters)
    for argument in arguments:
        if argument not in known:
            cure = _nearest(argument, known, f"It takes: {', '.join(known)}.")
            raise TypeError(f"arguments must be those of {name}; got {argument!r}. {cure}")
    return spec.module(**arguments)


def _nearest(given: object, known: Iterable[str], otherwise: str) -> str:
    near = get_close_matches(str(given), list(dict.fromkeys(known)), n=1, cutoff=0.7)
    return f"Did you mean {near[0]!r}?" if near else otherwise
