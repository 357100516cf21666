"""Formulas of the registry, plain text such as '(1 − p^q)/q', as MathML: no script, no font.

A formula is items with operators between them. Names, powers, quotients, roots, sums and groups
are set as mathematics; other words stand as they are.
"""

import re
from html import escape

# A number; a name with its subscript; words between backticks; any other sign by itself.
_TOKEN = re.compile(r"\d+e-?\d+|\d+(?:\.\d+)?|Σ_?|[^\W\d_]\w*(?:\.\w+)*|`[^`]*`|\s+|.")
_FUNCTIONS = ("log", "exp", "max", "min", "mean", "argmax", "sigmoid")
_CLOSING = {"(": ")", "[": "]", "{": "}", "|": "|", "‖": "‖"}
_SPACE = "\N{NO-BREAK SPACE}"
_BRACKET = '<mo form="{}fix"{}>{}</mo>'
_BETWEEN = "+−=≤≥<>,"


def _is_name(word: str) -> bool:
    return len(word.split("_")[0].rstrip("0123456789")) == 1 and word not in ("a_", "A_")


class _Formula:
    def __init__(self, text: str, names: frozenset[str]) -> None:
        self.tokens = [found.group() for found in _TOKEN.finditer(text)]
        self.place = 0
        self.names = names

    def peek(self) -> str:
        """The next token that is no blank, '' at the end."""
        while self.place < len(self.tokens) and self.tokens[self.place].isspace():
            self.place += 1
        return self.tokens[self.place] if self.place < len(self.tokens) else ""

    def take(self) -> str:
        token = self.peek()
        self.place += 1
        return token

    def touching(self) -> str:
        """The next token, '' if a blank comes first."""
        follows = self.place < len(self.tokens) and not self.tokens[self.place].isspace()
        return self.tokens[self.place] if follows else ""

    def until(self, end: str) -> str:
        """Terms and the signs between them, up to a closing sign."""
        parts: list[str] = []
        sign = True  # a minus that comes now has nothing before it
        while (token := self.peek()) and token != end:
            if token in _BETWEEN:
                form = ' form="prefix"' if sign else ""
                parts.append(f"<mo{form}>{escape(self.take())}</mo>")
            else:
                parts.append(self.term())
            sign = token in _BETWEEN
        if end and self.take() != end:
            raise ValueError(f"a formula must close {end!r}")
        return "".join(parts)

    def term(self) -> str:
        """Factors with · and / between them."""
        factors = [self.factor()]
        while (token := self.peek()) in ("·", "/"):
            self.take()
            if token == "·":
                factors += ["<mo>·</mo>", self.factor()]
            else:
                above, below = _bare(factors.pop()), _bare(self.factor())
                factors.append(f"<mfrac>{_row(above)}{_row(below)}</mfrac>")
        return "".join(factors)

    def factor(self) -> str:
        base = self.atom()
        while self.touching() in ("^", "²"):
            power = "<mn>2</mn>" if self.take() == "²" else _row(_bare(self.signed()))
            base = f"<msup>{_row(base)}{power}</msup>"
        return base

    def signed(self) -> str:
        return f"<mo>−</mo>{self.atom()}" if self.peek() == "−" and self.take() else self.atom()

    def atom(self) -> str:
        token = self.take()
        if token in _CLOSING:
            end = _CLOSING[token]
            inside = self.until(end)
            high = "" if "<mfrac>" in inside else ' stretchy="false"'
            left, right = _BRACKET.format("pre", high, token), _BRACKET.format("post", high, end)
            return f"<mrow>{left}{inside}{right}</mrow>"
        if token in ("Σ", "Σ_"):
            return self.sum(indexed=token == "Σ_")
        if token == "√":
            return f"<msqrt>{_bare(self.atom())}</msqrt>"
        if token.startswith("`"):
            return f"<mtext>{escape(token.strip('`'))}</mtext>"
        if token[:1].isdigit() or token == "½":
            number = f"<mn>{token}</mn>"
            return number + (self.atom() if self.touching() == "[" else "")
        if not token or not (token[0].isalpha()):
            return f"<mo>{escape(token)}</mo>"
        return self.word(token)

    def word(self, token: str) -> str:
        function = token.split("_")[0] in _FUNCTIONS
        if not (function or token in self.names or _is_name(token)):
            if self.touching() in ("[", "("):  # cost[y, j]
                return _identifier(token, self.names) + self.atom()
            return f"<mtext>{_SPACE}{escape(' '.join([token, *self.words()]))}{_SPACE}</mtext>"
        name = _identifier(token, self.names)
        if self.touching() in ("(", "["):
            return name + self.atom()
        if function and self.peek() not in ("", ",", ")", "=", "over"):
            return f'{name}<mspace width="0.17em"/>{self.factor()}'
        return name

    def words(self) -> list[str]:
        """The plain words that follow."""
        found: list[str] = []
        while (token := self.peek()).isalpha() and len(token) > 1:
            if token in self.names or token in _FUNCTIONS:
                break
            found.append(self.take())
        return found

    def sum(self, *, indexed: bool) -> str:
        sign = '<mo largeop="true" movablelimits="false">∑</mo>'
        if not indexed:  # "Σ over rivals of": words follow
            return sign
        index = _bare(self.atom())
        return f"<munder>{sign}{_row(index)}</munder>{self.term()}"


def _identifier(name: str, names: frozenset[str]) -> str:
    if name in names:
        return f'<mi class="argument">{name}</mi>'
    stem, _, index = name.partition("_")
    digits = re.fullmatch(r"([^\W\d])(\d+)", stem)
    if digits and not index:
        return f"<msub><mi>{digits[1]}</mi><mn>{digits[2]}</mn></msub>"
    upright = "" if len(stem) == 1 else ' mathvariant="normal"'
    return (
        f"<msub><mi{upright}>{stem}</mi>{_identifier(index, names)}</msub>"
        if index
        else (f"<mi{upright}>{stem}</mi>")
    )


def _row(inside: str) -> str:
    return f"<mrow>{inside}</mrow>"


def _bare(group: str) -> str:
    """Without the round or curly brackets that a bar, a power or a root makes needless."""
    found = re.fullmatch(r'<mrow><mo form="pre[^>]*>[({]</mo>(.*)<mo [^>]*>[)}]</mo></mrow>', group)
    if not found:
        return group
    depth = 0
    for tag in re.finditer(r"</?mrow>", group[: -len("</mrow>")]):
        depth += -1 if tag.group() == "</mrow>" else 1
        if not depth:  # the first bracket closes before the end
            return group
    return found[1]


def mathml(formula: str, names: frozenset[str] = frozenset()) -> list[str]:
    """A formula as MathML, one piece for it and one for each name that it defines after a comma.

    Args:
        formula: as the registry has it, such as 'h(q), q = (p + 1)/2'.
        names: arguments, which are set as they are typed.

    Returns:
        Elements ``<math display="block">``, each with its text for those who hear the page.
    """
    pieces = re.split(r", (?=\w+(?:\(\w\))? = )", formula)
    return [
        f'<math display="block" aria-label="{escape(piece, quote=True)}">'
        f"<mrow>{_Formula(piece, names).until('')}</mrow></math>"
        for piece in pieces
    ]
