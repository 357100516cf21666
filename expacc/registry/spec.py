"""What there is to know of a loss."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from torch import Tensor, nn

__all__ = ["REFERENCE", "Family", "LossSpec", "Pull", "Range"]

# -dL/du of u = log p(target), (runs, 1, rows), with a tensor (runs, 1, 1) for every parameter.
Pull = Callable[["Tensor", Mapping[str, "Tensor"]], "Tensor"]
# (least, largest, usual): searched by equal ratios; the usual may depend on the number of rows.
Range = tuple[float, float, float | Callable[[int], float]]
Family = Literal["reference", "ours", "robust", "classic", "binary"]
REFERENCE = "cross_entropy"  # what all others are compared with


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
    def has_module(self) -> bool:
        """Is a Module made of its function, which takes (logits, target) and settings alone?"""
        return (not self.needs or self.family == "binary") and self.name != REFERENCE

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
