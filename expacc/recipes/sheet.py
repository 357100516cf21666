"""Templates and style of the recipes' pages: those of a study's report, and a little more.

As there, a page is one file that asks for nothing: a Content-Security-Policy allows its own style
sheet, by hash, and nothing more. Every string goes through the template's escaping; charts are the
only markup that does not, and they are made in this package.
"""

import base64
import hashlib
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from expacc.study.palette import DARK
from expacc.study.plain_text import plain

__all__ = ["render"]


def render(template: str, values: dict[str, Any]) -> str:
    """The page as text: the same bytes for the same values."""
    environment = Environment(
        loader=ChoiceLoader(
            [
                PackageLoader("expacc.recipes", "templates"),
                PackageLoader("expacc.study", "templates"),  # report.css
            ]
        ),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=lambda value: plain(value) if type(value) is str else value,
        trim_blocks=True,
    )
    environment.filters["picture"] = Markup  # what this package drew, and nothing else
    environment.filters["tight"] = lambda text: text.replace(" %", "\u00a0%")
    css = _style_sheet(environment)
    digest = base64.b64encode(hashlib.sha256(css.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; "
        f"form-action 'none'"
    )
    return environment.get_template(template).render(css=css, policy=policy, **values)


def _style_sheet(environment: Environment) -> str:
    parts = [environment.get_template(name).render() for name in ("report.css", "page.css")]
    night = "".join(
        f'.picture [fill="{day}"]{{fill:{dark}}}.picture [stroke="{day}"]{{stroke:{dark}}}\n'
        for day, dark in DARK.items()
    )
    return f"{''.join(parts)}@media screen and (prefers-color-scheme: dark) {{\n{night}}}\n"
