"""A result as one Markdown text, and that text as one HTML file that needs nothing else.

Every string of a page is escaped when it becomes Markdown, and the parser takes no HTML: what a
table or a class is called can become neither. Charts are the only markup that is not parsed, and
they are made in this package; a Markdown file has what they show in words.
"""

import functools
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import escape as html_escape

from expacc.plain import plain
from expacc.recipes.page import (
    Grid,
    Section,
    answer_of,
    beside_table,
    claim_counts,
    counts_text,
    verdict_counts,
)
from expacc.recipes.recipe import Account, Result
from expacc.report.html import render
from expacc.report.words import NONE, counted, duration

if TYPE_CHECKING:
    from expacc.report.figures import Chart

MOST_FAILURES = 30
MANY = 25  # rows of a table from which on a Markdown file folds it away
LONG = 150  # letters of an answer from which on it is set smaller
# What Markdown and GitHub's additions to it (formulas, strikethrough) read as signs.
_SIGNS = re.compile(r"([\\`*_\[\]<>|~$&])")
_STARTS = re.compile(r"^(\s*)([#+=-]|\d+[.)](?=\s|$))")
_NUMBER = re.compile(r"[-+−±≤≥<>≈~]?\s*[\d.,]+(?:e[-−+]?\d+)?\b.*|[–—-]?", re.S)
_CHART = "chart:"


def escape(text: str) -> str:
    """Any text as one line of Markdown that shows it as it is.

    >>> escape("a_b|c <b> & $x$"), escape("# no heading"), escape("1. no list")
    ('a\\\\_b\\\\|c \\\\<b\\\\> \\\\& \\\\$x\\\\$', '\\\\# no heading', '1\\\\. no list')
    """
    line = _SIGNS.sub(r"\\\1", " ".join(plain(text).split()))
    return _STARTS.sub(lambda m: m[1] + re.sub(r"([#+=.)-])$", r"\\\1", m[2]), line)


def table(head: Sequence[str], rows: Sequence[Sequence[str]], *, fold: bool = False) -> list[str]:
    """A Markdown table of cells that are escaped already; words stand left, numbers right.

    Args:
        head: one text per column.
        rows: cells; short ones are filled up.
        fold: fold it away if it is long.
    """
    width = max([len(head), *(len(row) for row in rows)])
    full = [(*row, *[""] * (width - len(row))) for row in (head, *rows)]
    left = [
        not column or not all(_NUMBER.fullmatch(row[column].strip(" *\\")) for row in full[1:])
        for column in range(width)
    ]
    rule = ["---" if words else "---:" for words in left]
    lines = [f"| {' | '.join(cells)} |" for cells in (full[0], rule, *full[1:])]
    if fold and len(rows) >= MANY:
        about = ["<details>", f"<summary>{len(rows)} rows</summary>", ""]
        return [*about, *lines, "", "</details>", ""]
    return [*lines, ""]


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], *, fold: bool) -> list[str]:
    escaped = [[escape(cell) for cell in row] for row in (head, *rows)]
    return table(escaped[0], escaped[1:], fold=fold)


def page_markdown(result: Result) -> str:
    """The page as a Markdown file."""
    recipe = result.recipe
    lines = [
        *(f"# {escape(result.page.title)}", ""),
        *(f"`{recipe.name}`: {recipe.paper}, {recipe.shows}.", ""),
        *(f"**{escape(answer_of(result.page))}**", ""),
    ]
    for note in _notes(result.account):
        lines += [escape(note), ""]
    return "\n".join([*lines, *_body(result, fold=True)]).rstrip() + "\n"


def _body(result: Result, *, fold: bool) -> list[str]:
    """All below the answer; ``fold`` for a file, which has no charts and hides long tables."""
    page, account = result.page, result.account
    lines = ["## What the paper says", "", f"> {escape(page.claim)}", ""]
    if page.claims:
        rows = [(one.says, one.paper, one.ours or NONE, one.verdict) for one in page.claims]
        lines += _table(("claim", "paper", "ours", "verdict"), rows, fold=False)
    for section in page.sections:
        lines += _section(section, fold=fold)
    lines += ["## How it was done", "", f"{counts_text(verdict_counts(page))}.", ""]
    if account.command:
        lines += ["```", plain(account.command).replace("```", "'''"), "```", ""]
    lines += [f"- {name}: {escape(value)}" for name, value in facts(account)]
    lines += [f"- left out: {escape(sentence)}" for sentence in account.missing]
    lines.append("")
    if account.failures:
        failed = [
            (one.what, f"{one.count}", one.reason) for one in account.failures[:MOST_FAILURES]
        ]
        lines += ["### Runs that failed, which have no score and enter no mean", ""]
        lines += _table(("what", "runs", "reason"), failed, fold=False)
    if more := len(account.failures[MOST_FAILURES:]):
        lines += [f"And {counted(more, 'more kind')} of failure.", ""]
    if page.deviations:
        lines += ["### What we did otherwise than the paper", ""]
        lines += [f"- {escape(text)}" for text in page.deviations]
    return lines


def _section(section: Section, *, fold: bool) -> list[str]:
    lines = [f"## {escape(section.title)}", ""]
    for text in section.text:
        lines += [escape(text), ""]
    if section.beside:
        caption, head, rows = beside_table(section)
        lines += [escape(caption), "", *_table(head, rows, fold=fold)]
    for grid in section.grids:
        lines += [f"### {escape(grid.title)}", "", *_grid(grid, fold=fold)]
        if grid.note:
            lines += [escape(grid.note), ""]
    for chart in section.charts:
        words = f"### {escape(chart.title)}\n\nThe chart in words: {escape(chart.finding)}"
        lines += [words if fold else f"![]({_CHART}{chart.key})", ""]
    return lines


def _grid(grid: Grid, *, fold: bool) -> list[str]:
    marked = set(grid.marked)
    rows = [
        [
            f"**{escape(cell)}**" if (down, across) in marked and cell else escape(cell)
            for across, cell in enumerate(row)
        ]
        for down, row in enumerate(grid.rows)
    ]
    return table([escape(name) for name in grid.head], rows, fold=fold)


# ------------------------------------------------------------------------------- how it was done


def _notes(account: Account) -> list[str]:
    """What a reader must know before the numbers."""
    found = []
    if not account.finished:
        found.append(
            f"Not finished: {account.parts_done:,} of {account.parts:,} parts are done, and the "
            f"numbers are of those."
        )
    if account.quick:
        found.append("A quick run, to see that it runs: its numbers are not those to judge by.")
    if account.missing:
        parts = counted(len(account.missing), "part")
        found.append(f"Left out for want of data: {parts}; see “How it was done”.")
    return found


def facts(account: Account) -> list[tuple[str, str]]:
    """How it was done, as pairs of a name and a text; the command is left to the page."""
    runs = f"{account.runs:,} in {account.parts_done:,} of {account.parts:,} parts"
    seeds = "as many as the paper has" if account.seeds is None else f"{account.seeds}"
    found = [
        ("runs", runs),
        ("failed runs", f"{account.failed:,}"),
        ("time", f"{duration(account.seconds)} of work, begun {account.started}"),
        ("machine", "; then ".join(account.machines) or "not recorded"),
        ("device", account.device),
        ("repeats", f"{seeds}; all random numbers come from seed {account.seed}"),
    ]
    found += [
        ("versions", ", ".join(f"{name} {value}" for name, value in one.items()))
        for one in account.versions
    ]
    return [*found, ("commit", "; then ".join(account.commits) or "not recorded")]


def badge(counts: Mapping[str, int], account: Account) -> dict[str, str]:
    """The verdict in a few words, and its colour; what is not whole says so."""
    if not account.finished:
        return {"text": "Not finished", "kind": "unfinished"}
    if account.quick:
        return {"text": "Quick run: a part of the whole", "kind": "unfinished"}
    judged = sum(counts.get(name, 0) for name in ("within", "above", "below"))
    if not judged:
        return {"text": "Done again", "kind": ""}
    within = counts.get("within", 0)
    kind = "better" if within == judged else ""
    return {"text": f"{within} of {judged} numbers as in the paper", "kind": kind}


# ------------------------------------------------------------------------------------------ HTML


def page_html(result: Result) -> str:
    """The page as HTML: the same bytes for the same result."""
    page, account, recipe = result.page, result.account, result.recipe
    held, judged = claim_counts(page)
    counts = verdict_counts(page)
    figures = [
        ("runs", f"{account.runs:,}", f"{account.failed:,} failed"),
        ("time", duration(account.seconds), account.started),
        ("machine", account.device, "; then ".join(account.machines)),
    ]
    if judged:
        figures.insert(0, ("claims that hold", f"{held} of {judged}", ""))
    return html_page(
        "\n".join(_body(result, fold=False)),
        title=page.title,
        eyebrow=f"expacc reproduce {recipe.name} · {recipe.paper} · {recipe.shows}",
        answer=answer_of(page),
        badge=badge(counts, account),
        notes=_notes(account),
        figures=figures,
        charts={chart.key: chart for section in page.sections for chart in section.charts},
    )


def html_page(
    markdown: str,
    *,
    title: str,
    eyebrow: str,
    answer: str,
    badge: Mapping[str, str] | None = None,
    notes: Sequence[str] = (),
    figures: Sequence[tuple[str, str, str]] = (),
    charts: Mapping[str, "Chart"] | None = None,
) -> str:
    """A page around a text whose parts begin with headings of the second level."""
    tokens = _parser().parse(markdown)
    contents = _dressed(tokens)
    _put_charts(tokens, charts or {})
    body = _parser().renderer.render(tokens, _parser().options, {})
    values: dict[str, Any] = {
        "title": title,
        "eyebrow": eyebrow,
        "answer": answer,
        "long": len(answer) > LONG,
        "badge": badge,
        "notes": notes,
        "figures": figures,
        "contents": [("answer", "The answer"), *contents],
        "body": body.replace(" %", "\u00a0%"),
    }
    styles = ("report.css", "page.css")
    return render("page.html", values, package="expacc.recipes", styles=styles)


@functools.cache
def _parser() -> MarkdownIt:
    return MarkdownIt("commonmark", {"html": False}).enable("table")


def _dressed(tokens: list[Token]) -> list[tuple[str, str]]:
    """Sections, anchors, and tables that scroll within themselves; the table of contents.

    Alignment becomes a class, for the page allows no inline style; a row begins with its heading.
    """
    contents: list[tuple[str, str]] = []
    heads: list[str] = []
    heading, column = "", 0
    for place, token in enumerate(tokens):
        if token.type == "heading_open":
            heading = _text(tokens[place + 1])
            if token.tag == "h2":
                contents.append((f"part-{len(contents) + 1}", heading))
                close = "</section>\n" if len(contents) > 1 else ""
                token.meta["before"] = f'{close}<section id="{contents[-1][0]}">\n'
        elif token.type == "table_open":
            ends = next(i for i in range(place, len(tokens)) if tokens[i].type == "tr_close")
            heads = [_text(one) for one in tokens[place:ends] if one.type == "inline"]
            # A row with a verdict is set one below the other on a phone.
            token.attrSet("class", "board compact" + (" beside" if "verdict" in heads else ""))
            name = html_escape(heading)
            region = f'<div class="scroll" tabindex="0" role="region" aria-label="{name}">\n'
            token.meta["before"] = region
        elif token.type == "tr_open":
            column = 0
        elif token.type in ("th_open", "td_open"):
            left = "right" not in str(token.attrs.pop("style", ""))
            names = ["text"] if left else []
            if token.type == "td_open" and heads[column] == "verdict":
                names.append(f"verdict {_text(tokens[place + 1]).replace(' ', '-')}")
            if token.type == "td_open" and not column:
                token.tag = tokens[place + 2].tag = "th"
                token.attrSet("scope", "row")
                names = ["name"]
            if names:
                token.attrSet("class", " ".join(names))
            if token.type == "td_open" and column and "verdict" in heads:
                token.attrSet("data-head", heads[column])
            column += 1
    _wrap(tokens, closed=bool(contents))
    return contents


def _text(token: Token) -> str:
    return "".join(child.content for child in token.children or ())


def _raw(content: str) -> Token:
    return Token("html_block", "", 0, content=content)


def _wrap(tokens: list[Token], *, closed: bool) -> None:
    """Put in place what ``_dressed`` noted."""
    whole = []
    for token in tokens:
        if before := token.meta.get("before"):
            whole.append(_raw(before))
        whole.append(token)
        if token.type == "table_close":
            whole.append(_raw("</div>\n"))
    tokens[:] = [*whole, _raw("</section>\n")] if closed else whole


def _put_charts(tokens: list[Token], charts: Mapping[str, "Chart"]) -> None:
    """A paragraph that is a chart's place becomes the chart."""
    for place, token in enumerate(tokens):
        image = (token.children or [token])[0]
        source = str(image.attrs.get("src", "")) if image.type == "image" else ""
        if source.startswith(_CHART):
            chart = charts[source.removeprefix(_CHART)]
            for edge in (tokens[place - 1], tokens[place + 1]):
                edge.hidden = True
            tokens[place] = _raw(_figure(chart))


def _figure(chart: "Chart") -> str:
    title, caption, finding = (
        html_escape(plain(text)) for text in (chart.title, chart.caption, chart.finding)
    )
    return (
        f'<figure id="{html_escape(chart.key)}">\n<h3>{title}</h3>\n'
        f"<figcaption>{caption}</figcaption>\n"
        f'<div class="wide">{chart.wide}</div>\n<div class="narrow">{chart.narrow}</div>\n'
        f'<details class="finding"><summary>In words</summary>{finding}</details>\n</figure>\n'
    )
