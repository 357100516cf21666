"""Templates and style of every page: one HTML file that asks for nothing.

No script runs in a page and none could: its Content-Security-Policy allows its own style sheet, by
hash, and nothing more. Every string goes through the template's escaping; pictures are the only
markup that does not, and they are made in this package.
"""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from expacc.plain import plain
from expacc.report.loss_names import DARK

_HERE = "expacc.report"


def render(
    template: str,
    values: Mapping[str, Any],
    *,
    package: str = _HERE,
    styles: Sequence[str] = ("report.css",),
) -> str:
    """A page as text: the same bytes for the same values.

    Args:
        template: name of a file in the templates of ``package``, or of this one.
        values: for the template.
        package: whose templates come first.
        styles: names of style sheets there, one after the other.
    """
    environment = Environment(
        loader=ChoiceLoader([PackageLoader(name, "templates") for name in (package, _HERE)]),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=lambda value: plain(value) if type(value) is str else value,
        trim_blocks=True,
    )
    environment.filters["picture"] = Markup  # what this package drew, and nothing else
    environment.filters["tight"] = lambda text: text.replace(" %", "\u00a0%")
    css = "".join(environment.get_template(name).render() for name in styles) + _night()
    digest = base64.b64encode(hashlib.sha256(css.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; "
        f"form-action 'none'"
    )
    return environment.get_template(template).render(css=css, policy=policy, **values)


def _night() -> str:
    """The pictures' colours in dark mode."""
    rules = "".join(
        f'.picture [fill="{day}"]{{fill:{dark}}}.picture [stroke="{day}"]{{stroke:{dark}}}\n'
        for day, dark in DARK.items()
    )
    return f"@media screen and (prefers-color-scheme: dark) {{\n{rules}}}\n"
