"""What there is to know of a loss."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from torch import Tensor, nn

__all__ = ["REFERENCE", "Family", "LossSpec", "Pull", "Range"]

# -dL/du of u = log p(target), (runs, 1, rows), with a tensor (runs, 1, 1) for every parameter.
Pull = Callable[["Tensor", Mapping[str, "Tensor"]], "Tensor"]
# (least, largest, usual): searched by equal ratios.
Range = tuple[float, float, float]
Family = Literal["reference", "ours", "robust", "classic", "binary"]
REFERENCE = "cross_entropy"  # what all others are compared with
MOVES = ("shift", "scale")  # of the soft margin: arguments of every curve over u
MIXTURE = ("ce_weight", "error_weight")  # in place of a focus


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value).lower()


MANY_CLASSES = 31  # beyond, by ratio, a hundred is nearer than ten


@dataclass(frozen=True, kw_only=True)
class LossSpec:
    """What there is to know of a loss; the function and the Module are named after ``name``.

    Args:
        name: by which ``get_loss``, the trainer and ``compare`` know it.
        label: its name for people.
        formula: the value of a row, with u = log p(target), p = e^u and logits z.
        source: paper and equation.
        when: to use it.
        family: 'ours'; 'robust', made against wrong labels; 'classic'; or 'binary', ours for yes/no
            labels.
        needs: what it takes beside logits and labels; such a loss is no choice of the trainer and
            of ``compare``, and the fields below say nothing.
        look: colour by day and by night, marker and dash, as matplotlib names them.
        defaults: its own parameters, as the trainer starts them: numbers or schedules.
        hundred: the parameters that its paper changed for a hundred classes; ``defaults`` are those
            for ten.
        options: its own settings that are no numbers.
        slope: -dL/du for the batched trainer; or the name of a slope in
            ``training/loss_slopes.py`` or ``robust_slopes.py``; or None, which leaves it to
            autograd.
        counts: its parameters that are whole numbers: what a schedule gives is rounded.
        search: parameter → the range that ``compare`` searches.
        other: usual numbers of a second kind, which have a trial of their own.
        params_of: from what the search found to the parameters of the loss.
        polish: the parameters that the estimators try.
        decay_factor: part of the usual weight decay, for losses whose slopes are small.
        for_accuracy: its value is the expected error or bounds it; wrong labels cost it little.
        function_name: where it is not ``name``.
        base: of which this is a variant, as 'exact:noise=laplace' is of 'exact'; else ``name``.

    Example:
        >>> from expacc.registry import SPECS
        >>> SPECS["leaky_expected_error"].formula
        '1 − p − leak·u'
    """

    name: str
    label: str
    formula: str
    source: str
    when: str
    family: Family
    needs: str = ""
    look: tuple[str, str, str, str] = ("", "", "", "")
    defaults: Mapping[str, Any] = field(default_factory=dict)
    hundred: Mapping[str, float] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    slope: Pull | str | None = None
    counts: tuple[str, ...] = ()
    search: Mapping[str, Range] = field(default_factory=dict)
    other: Mapping[str, float] = field(default_factory=dict)
    params_of: Callable[[dict[str, float]], dict[str, Any]] = dict
    polish: tuple[Mapping[str, Any], ...] = ({},)
    decay_factor: float = 1.0
    for_accuracy: bool = False
    function_name: str = ""
    base: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "function_name", self.function_name or self.name)
        object.__setattr__(self, "base", self.base or self.name)

    def variant(self, settings: Mapping[str, Any]) -> "LossSpec":
        """The loss with some of its own arguments fixed: neither defaulted nor searched."""
        known = [*self.defaults, *self.options]
        known += MOVES if callable(self.slope) else ()
        known += MIXTURE if "focus" in self.defaults else ()
        for name in settings:
            if name not in known:
                cure = f"It has: {', '.join(known)}." if known else "It has none."
                raise ValueError(
                    f"losses must name parameters of {self.name}; got {name!r}. {cure}"
                )
        numbers = {name: value for name, value in settings.items() if name not in self.options}
        out = {*settings, "focus"} if settings.keys() & set(MIXTURE) else {*settings}

        def fixed(params: Mapping[str, Any]) -> dict[str, Any]:
            return {key: value for key, value in params.items() if key not in out} | numbers

        params_of = self.params_of
        return replace(
            self,
            name=":".join([self.name, *(f"{key}={_text(settings[key])}" for key in settings)]),
            label=", ".join([self.label, *(f"{key} {_text(settings[key])}" for key in settings)]),
            base=self.name,
            defaults=fixed(self.defaults),
            options={key: settings.get(key, usual) for key, usual in self.options.items()},
            search={key: value for key, value in self.search.items() if key not in settings},
            other={key: value for key, value in self.other.items() if key not in settings},
            params_of=lambda found: fixed(params_of(found)),
            polish=tuple(
                dict(one)
                for one in dict.fromkeys(tuple(fixed(params).items()) for params in self.polish)
            ),
        )

    def by_classes(self, classes: int) -> Mapping[str, float]:
        """What its paper chose instead of ``defaults`` for so many classes."""
        return self.hundred if classes > MANY_CLASSES else {}

    @property
    def has_module(self) -> bool:
        """Is a Module made of its function, which takes (logits, target) and settings alone?"""
        return (not self.needs or self.family == "binary") and self.name != REFERENCE

    @property
    def module_name(self) -> str:
        """The name of the Module: the words of ``name``, and Loss."""
        return "".join(word.capitalize() for word in self.base.split("_")) + "Loss"

    @cached_property
    def function(self) -> "Callable[..., Tensor] | None":
        """The function of (logits, target); None for a loss that is a Module only."""
        where = "torch.nn" if self.base == REFERENCE else "expacc"
        found: Callable[..., Tensor] | None = getattr(
            import_module(f"{where}.functional"), self.function_name, None
        )
        return found

    @cached_property
    def module(self) -> "type[nn.Module] | None":
        """The Module class; None for a loss that is a function only."""
        where = "torch.nn" if self.base == REFERENCE else "expacc"
        found: type[nn.Module] | None = getattr(import_module(where), self.module_name, None)
        return found
