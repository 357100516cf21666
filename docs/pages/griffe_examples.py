"""For mkdocstrings: a section "Example" is one of code, as "Examples" is."""

from typing import Any

import griffe


class Examples(griffe.Extension):
    """Renames the heading before the docstring is parsed."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = obj.docstring.value.replace("\nExample:\n", "\nExamples:\n")
