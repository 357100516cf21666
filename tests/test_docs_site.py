"""The site: a page for each loss, every table of the papers, links that lead somewhere."""

import inspect
import math
import re
from pathlib import Path

import pytest
import torch
import write_site
from pages import curve, links, losses, measured, papers
from pages.formula import mathml

from expacc.recipes.recipe import recipes
from expacc.registry import SPECS

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "docs" / "results"


# ---------------------------------------------------------------------- formulas


def text_of(element: str) -> str:
    return re.sub(r"<[^>]+>|\s", "", element)


@pytest.mark.parametrize("spec", SPECS.values(), ids=lambda spec: spec.name)
def test_a_formula_keeps_every_sign(spec):
    """Brackets that a bar, a power or a root makes needless go; nothing else does."""
    pieces = mathml(spec.formula, losses.own_names(spec))
    for piece in pieces:
        assert re.findall(r"<(?!/)", piece).__len__() == len(re.findall(r"</", piece)) + len(
            re.findall(r"/>", piece)
        )
    shown = "".join(map(text_of, pieces)).replace("&#x27;", "'")
    plain = spec.formula.replace("²", "2").replace("Σ", "∑")
    gone = r"[\s()_^/`,{}√]"
    assert re.sub(gone, "", shown) == re.sub(gone, "", plain)


def test_formulas_are_set_as_meant():
    (quotient,) = mathml("(1 − p^q)/q")
    assert "<mfrac><mrow><mn>1</mn><mo>−</mo><msup>" in quotient
    assert "(" not in text_of(quotient)
    first, second = mathml("f(p)/Σ_j f(p_j), f(p) = (1 − p)^gamma·log p", frozenset({"gamma"}))
    assert "<munder>" in first
    assert '<mi class="argument">gamma</mi>' in second
    assert text_of(mathml("((a + 1)^q − (a + p)^q)/q")[0]) == "(a+1)q−(a+p)qq"
    with pytest.raises(ValueError, match="close"):
        mathml("(1 − p")


# Said in words: a noise, an expectation over it, a batch, features, a λ that is solved for.
IN_WORDS = [
    "exact",
    "expected_cost",
    "linear_mixed_expected_error",
    "expected_distance",
    "expected_balanced_error",
    "expected_f1_error",
    "hinge",
    "complement_entropy",
    "max_mahalanobis_center",
    "bi_tempered",
]
SIGNS = {"−": "-", "·": "*", "^": "**", "√2": "2**0.5", "≥": ">=", "`": "", "h_j": "h(p_j)"}
SCORES = [0.3, -1.2, 0.9, 0.1]


def as_python(formula: str) -> str:
    for sign, code in SIGNS.items():
        formula = formula.replace(sign, code)
    for found, code in (
        (r"Σ_{i ≤ terms} (.*)", r"sum(\1 for i in range(1, int(terms) + 1))"),
        (r"Σ_j ((?:log )?\w+(?:\(p_j\))?)", r"sum(\1 for p_j in P)"),
        (r"\bh\b(?!\()", "h(p)"),
        ("max_j p_j", "max(P)"),
        (r"1\[y wins\]", "(p == max(P))"),
        (r"\blog (\d+e-\d+|\w+)", r"log(\1)"),
        (r"(.*) where (.*), else (.*)", r"\1 if \2 else \3"),
        (", (or by focus|truncation|leads cut at margin)$", ""),
    ):
        formula = re.sub(found, code, formula)
    return formula


@pytest.mark.parametrize("name", [name for name in SPECS if name not in IN_WORDS])
@pytest.mark.parametrize("label", [0, 2])
def test_a_formula_is_what_the_loss_computes(name, label):
    spec = SPECS[name]
    binary = spec.family == "binary"
    formula, *named = re.split(r", (?=\w+(?:\(\w\))? = )", spec.formula)
    shares = [math.exp(score) for score in SCORES]
    known = {name: getattr(math, name) for name in ("log", "exp")}
    known |= {"ce_weight": 1.0, "error_weight": 1.0}  # a focus of 0
    known |= {"z": SCORES[label], "t": 1.0, "P": [share / sum(shares) for share in shares]}
    known["sigmoid"] = lambda z: 1 / (1 + math.exp(-z))
    known["Φ"] = lambda z: math.erfc(-z / 2**0.5) / 2
    known["p"] = known["sigmoid"](known["z"]) if binary else known["P"][label]
    known["u"] = math.log(known["p"])
    for one in inspect.signature(spec.function).parameters.values():
        known |= {one.name: one.default} if type(one.default) in (int, float) else {}
    for definition in reversed(named):
        left, right = definition.split(" = ")[:2]
        if inner := re.fullmatch(r"(\w)(?:_j|\((\w)\))", left):
            right, left = f"lambda {inner[2] or 'p_j'}: {right}", inner[1]
        known[left] = eval(as_python(right), known)
    scores = torch.tensor(SCORES[label] if binary else SCORES, dtype=torch.float64)
    value = spec.function(scores, torch.ones_like(scores) if binary else torch.tensor(label))
    try:
        computed = eval(as_python(formula), known)
    except (NameError, SyntaxError) as error:
        pytest.fail(f"{spec.formula!r} must be computable, or {name} be in IN_WORDS: {error}")
    assert computed == pytest.approx(value.item(), rel=1e-5)


def test_a_picture_shows_the_loss():
    """The leaky expected error at p = 0.5: 0.5 + 0.1 log 2, and its pull (p + leak)(1 − p)."""
    loss, pull = curve.curves(SPECS["leaky_expected_error"])
    assert min(loss, key=lambda point: abs(point[0] - 0.5))[1] == pytest.approx(0.56931, abs=1e-4)
    assert max(pull, key=lambda point: point[1])[0] == pytest.approx(0.45, abs=0.006)
    for spec in SPECS.values():
        drawn = curve.picture(spec)
        assert drawn.count("<svg") == (2 if curve.curves(spec) else 0)
        assert "nan" not in drawn


# ---------------------------------------------------------------------- pages


def test_every_loss_has_a_page_in_full():
    pages = losses.pages()
    assert pages.pop("losses.md").count("](losses/") == len(SPECS)
    listed = [path for _, entries in losses.navigation() for _, path in entries]
    assert sorted(listed) == sorted(pages) == sorted(f"losses/{name}.md" for name in SPECS)
    for name, text in pages.items():
        places = [
            text.find(f"\n## {heading}\n")
            for heading in (
                "Equation",
                "Implementation notes",
                "Paper's settings",
                "Where it helped",
                "Arguments",
            )
        ]
        assert "## Where it helped, and where not" in text
        assert places[0] > 0, name
        assert "**Gradient**" in text
        assert "**Source**" in text
    assert papers.listed()["settings"].keys() < SPECS.keys()


NAMED = ("cross_entropy", "expected_error", "leaky_expected_error")  # by docs/which-loss.md


def test_what_a_page_says_was_measured():
    text = measured.measured(SPECS["leaky_expected_error"])
    for words in ("+1.92 ± 0.33", "| fashion-mnist pairs | CNN, 12 epochs | 40 % | 70.4 | 80.5 |"):
        assert words in text
    assert "does not hold" in text  # gains and non-gains alike
    assert "claim nothing" in measured.measured(SPECS["jensen_shannon"])
    page = (ROOT / "docs/which-loss.md").read_text()
    for one in measured.read("benchmarks/results/many-classes.json")["rows"]:
        shifted = one["shift"] != 0 and one["loss"] != "expected_error"
        if "CNN" in one["model"] and one["noise"] and one["loss"] in NAMED and not shifted:
            number = 100 * sum(one["accuracies"]) / len(one["accuracies"])
            assert f"{number:.1f}" in page, f"{one['set']}, {one['loss']}: {number:.1f}"
    found = page.split("<!-- contest -->")[1].split("<!-- /contest -->")[0]
    assert found.strip() == measured.contest_table(), "put measured.contest_table() there"


# ---------------------------------------------------------------------- the papers

OF_PAPER = {"leaky": "leaky expected error", "mixing": "mixing", "exact": "EXACT", "blog": "blog"}


def test_every_table_and_figure_is_listed():
    found = papers.listed()
    for key, source in found["source"].items():
        own = [item["number"] for item in found["item"] if item["source"] == key]
        wanted = [
            f"{kind} {place + 1}"
            for kind, count in (("Figure", source["figures"]), ("Table", source["tables"]))
            for place in range(count)
        ]
        assert [name for name in own if re.fullmatch(r"(Table|Figure) \d+", name)] == wanted
        assert len({*own}) == len(own)
    counts = {key: (one["tables"], one["figures"]) for key, one in found["source"].items()}
    assert counts == {"leaky": (7, 4), "mixing": (6, 3), "exact": (8, 10), "blog": (0, 0)}


def test_every_item_has_a_recipe_or_a_reason():
    found = papers.listed()["item"]
    for item in found:
        assert item["shows"].endswith(".")
        assert papers.recipe_of(item) or item["without"].endswith("."), item["number"]
        if papers.recipe_of(item) and papers.read_content(RESULTS / f"{item['recipe']}.json"):
            assert papers.verdict(item)[0], (
                f"{item['number']}: nothing of {item['recipe']} is its own"
            )
    used = {item.get("recipe") for item in found}
    for one in recipes().values():
        if one.paper in OF_PAPER.values() and re.search(r"Tables? \d|Figures? \d", one.shows):
            assert one.name in used, f"docs/papers.toml has no table that {one.name} does"


def test_verdicts_are_those_of_the_results():
    items = {(one["source"], one["number"]): one for one in papers.listed()["item"]}
    words, ours = papers.verdict(items["exact", "Table 2"])
    assert "25 of 28 numbers as in the paper" in words
    assert "+0.45" in ours
    assert "does not hold" in papers.verdict(items["exact", "Table 8"])[0]
    assert papers.verdict(items["exact", "Figure 3"])[0].startswith("drawn again")


# ---------------------------------------------------------------------- the site


def test_pages_that_are_not_there_are_not_in_the_navigation():
    settings = (ROOT / "mkdocs.yml").read_text()
    shown = write_site.navigation(settings, {"index.md", "losses.md"})
    assert "index.md" in shown
    assert '- "leaky expected error": losses/leaky_expected_error.md' in shown
    assert ": networks.md" not in shown


def test_links_of_the_root_lead_to_pages():
    page = ROOT / "docs" / "reliability.md"
    assert "](security.md)" in write_site.text_of(page)
    assert "<!-- run" not in write_site.text_of(ROOT / "docs" / "index.md")


def test_broken_links_are_found(tmp_path):
    (tmp_path / "a.html").write_text(
        '<a href="b.html#there">1</a><a href="b.html#gone">2</a><a href="c.html">3</a>'
        '<a href="https://x.org">4</a><script src="https://x.org/y.js"></script><a href="#q">5</a>'
    )
    (tmp_path / "b.html").write_text('<h1 id="there">b</h1>')
    assert links.broken(tmp_path) == [
        "a.html fetches https://x.org/y.js",
        "a.html → b.html#gone: there is no such place",
        "a.html → c.html: there is no such page",
        "a.html → #q: there is no such place",
    ]


def test_the_site_is_written_once(tmp_path):
    assert write_site.write(tmp_path) > 80
    assert write_site.write(tmp_path) == 0
    (tmp_path / "docs" / "old.md").write_text("x")
    write_site.write(tmp_path)
    assert not (tmp_path / "docs" / "old.md").exists()
    text = (tmp_path / "mkdocs.yml").read_text()
    for path in re.findall(r": ([\w/-]+\.md)$", text, re.M):
        assert (tmp_path / "docs" / path).exists(), path
    named = {*re.findall(r": ([\w/-]+\.md)$", text, re.M)}
    pages = {str(path.relative_to(tmp_path / "docs")) for path in (tmp_path / "docs").rglob("*.md")}
    assert pages == named, f"in no place of mkdocs.yml's navigation: {pages - named}"
