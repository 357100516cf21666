"""The frame around the recipes: registry, runner, pages, book and command line."""

import itertools
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import time
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import fake_recipes
import pytest
import write_results
from crafted import changing, mutated, seeded
from study_samples import PAYLOADS

from expacc.cli import main
from expacc.plain import UsageError
from expacc.recipes import recipe as registry
from expacc.recipes.page import (
    Comparison,
    Number,
    Page,
    Section,
    answer_of,
    beside_table,
    verdict_counts,
)
from expacc.recipes.recipe import Account, Failure, RecipeOptions, Result
from expacc.recipes.results import content_of, read_content, write_book, write_files
from expacc.recipes.runner import How, commit, load_result, machine, run_recipe
from expacc.recipes.writer import page_html, page_markdown
from expacc.runner.store import Store

ONE, ALONE, DATA = fake_recipes.RECIPES
HERE = How(workers=0, progress=False)


@pytest.fixture
def fake(monkeypatch, tmp_path):
    """The fake recipes alone, no data, an empty folder to work in."""
    monkeypatch.setattr(registry, "MODULES", ["fake_recipes"])
    monkeypatch.setattr(registry, "PAPERS", [])
    monkeypatch.delenv("EXPACC_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(recipe, folder, *, how=HERE, **asked):
    ask = RecipeOptions(**asked)
    return run_recipe(recipe, ask, recipe.plan(ask), folder, how)


def command(*words):
    return main(["reproduce", *words])


def refusal(capsys, *words):
    assert command(*words) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    assert line.startswith("expacc: ")
    return line


# Registry and sources


def test_the_registry_has_every_recipe_of_the_papers():
    assert set(registry.recipes()) == {
        *("exact-toy", "exact-integral", "exact-cost"),
        *("exact-uci", "exact-ablation", "exact-normalizer", "exact-noise"),
        *("exact-vision", "exact-samples"),
        *("leerr-uci", "leerr-mnist-logistic", "leerr-mnist-mlp", "leaky-cifar"),
        *("mixing-gradients", "mixing-uci", "mixing-vision", "mixing-imagenet"),
        *("mixing-cot", "mixing-regularisation", "mixing-dynamics"),
    }
    for one in registry.recipes().values():
        assert set(one.needs) <= set(registry.ORIGINS)
        assert one.minutes > 0
        # Which measures time, and which has all GPUs.
        assert one.alone == (one.name in ("exact-cost", "mixing-imagenet"))
        assert "\n" not in one.what


def test_the_list_needs_nothing_heavy():
    code = (
        "import sys\n"
        "for name in ('torch', 'sklearn', 'scipy', 'matplotlib'): sys.modules[name] = None\n"
        "from expacc.cli import main\n"
        "sys.exit(main(['reproduce']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "mixing-uci" in done.stdout


def test_a_wrong_name_gets_the_one_that_was_meant(fake):
    assert registry.recipe("fake-one") is ONE
    with pytest.raises(ValueError, match=r"got 'fake-oen'\. Did you mean fake-one\?"):
        registry.recipe("fake-oen")
    with pytest.raises(ValueError, match=r"got 'zz'\. expacc reproduce lists all 3\."):
        registry.recipe("zz")


def test_two_recipes_of_one_name_are_refused(fake, monkeypatch):
    monkeypatch.setattr(registry, "MODULES", ["fake_recipes", "fake_recipes"])
    with pytest.raises(ValueError, match="'fake-one' twice"):
        registry.recipes()


def test_folders_and_files_are_found(tmp_path):
    inner = tmp_path / "mnist"
    inner.mkdir()
    (inner / "labels.gz").write_bytes(b"")
    assert registry.data_folder(None, "mnist") is None
    assert registry.data_folder(tmp_path, "mnist") == inner
    assert registry.data_folder(inner, "mnist") == inner  # the folder itself was named
    assert registry.data_folder(tmp_path, "uci121") is None
    assert registry.data_file(inner, "labels") == inner / "labels.gz"
    assert registry.data_file(inner, "images") is None
    with pytest.raises(ValueError, match=r"uci121 is missing: .*bioinf-jku/SNNs"):
        registry.need_data(tmp_path, "uci121")


@pytest.mark.parametrize("folder", registry.ORIGINS)
def test_missing_is_one_sentence(folder):
    assert registry.missing_data(folder, "a/b").startswith(f"{folder}/a/b is missing: ")
    many = registry.missing_data(folder, *(f"t{n}" for n in range(9)))
    assert f"{folder}/t5 and 3 more are missing" in many
    for sentence in (many, registry.missing_data(folder)):
        assert "https://" in sentence
        assert sentence.endswith(".")
        assert ". " not in sentence.replace("et al. ", "")


# Runner


def test_a_run_gives_its_page_and_its_account(tmp_path):
    result, outcome = run(ONE, tmp_path, how=replace(HERE, command="expacc reproduce fake-one"))
    assert (outcome.done, outcome.skipped) == (12, 0)
    account = result.account
    assert (account.parts, account.parts_done, account.runs, account.failed) == (6, 6, 12, 0)
    assert account.finished
    assert account.command == "expacc reproduce fake-one"
    assert account.machines == (machine(),)
    assert "torch" in account.versions[0]
    assert account.commits == tuple(filter(None, [commit()]))
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC", account.started)
    assert verdict_counts(result.page) == {"within": 1, "above": 1, "below": 2, "new": 3}


def test_the_machine_has_a_name_and_the_commit_is_of_this_repository():
    assert re.fullmatch(r".{3,}, \d+ cores?", machine())
    root = Path(fake_recipes.__file__).parents[1]
    git = subprocess.run(["git", "-C", root, "rev-parse", "HEAD"], capture_output=True, text=True)
    if git.returncode:
        assert commit() == ""
    else:
        assert git.stdout.startswith(commit().rstrip("+"))


def test_it_goes_on_where_it_stopped(tmp_path, monkeypatch):
    whole, _ = run(ONE, tmp_path / "whole")
    run(ONE, tmp_path / "cut")
    with sqlite3.connect(tmp_path / "cut/study.sqlite") as file:
        file.execute("PRAGMA foreign_keys = ON")
        file.execute("DELETE FROM items WHERE key LIKE 'car%'")
    file.close()
    part = load_result(ONE, tmp_path / "cut")
    assert (part.account.parts_done, part.account.runs) == (4, 8)
    assert not part.account.finished
    assert verdict_counts(part.page)["not run"] == 2
    again, outcome = run(ONE, tmp_path / "cut")
    assert outcome.skipped == 4
    assert again.page.sections[0].beside == whole.page.sections[0].beside
    assert again.account.seconds > part.account.seconds


def test_an_interrupted_run_counts_its_time(tmp_path, monkeypatch):
    def stop(*_, **__):
        time.sleep(0.2)
        raise KeyboardInterrupt

    monkeypatch.setattr("expacc.recipes.runner.run_items", stop)
    with pytest.raises(KeyboardInterrupt):
        run(ONE, tmp_path)
    assert load_result(ONE, tmp_path).account.seconds >= 0.2


@pytest.mark.parametrize("place", ["notes", "study", "rows"])
def test_no_value_of_a_store_is_a_bug(fake, capsys, place):
    """Whatever someone writes into it, and makes the digests again: a page or one sentence."""
    out, generator = fake / "out", seeded(place)
    column = {"notes": "value", "study": "settings", "rows": "metrics"}[place]
    run(ONE, fake / "whole/fake-one", seeds=1)
    for _ in range(25):
        with changing(out / "fake-one", source=fake / "whole/fake-one") as file:
            found = file.execute(f"SELECT rowid, {column} FROM {place}").fetchall()
            rowid, text = generator.choice(found)
            value = json.dumps(mutated(json.loads(text), generator))
            file.execute(f"UPDATE {place} SET {column} = ? WHERE rowid = ?", (value, rowid))
        code = command("fake-one", "--no-run", "--out", str(out), "--json")
        captured = capsys.readouterr()
        assert code in (0, 2), captured.err
        assert len(captured.err.splitlines()) == (code == 2)


@pytest.mark.parametrize("bad", ["[]", "{}", "{", "[" * 10**5, '{"name": 1}', "\ud800", None])
def test_a_damaged_summary_is_no_page(fake, bad):
    result, _ = run(ONE, fake, seeds=1)
    content = write_files(result, fake)
    assert read_content(fake) is not None
    if bad is None:
        content["seconds"] = 1e300
        bad = json.dumps(content)
    (fake / "page.json").write_bytes(bad.encode("utf-8", "surrogatepass"))
    assert read_content(fake) is None


def test_failed_parts_are_rows_with_a_reason_and_are_tried_again(tmp_path, monkeypatch):
    monkeypatch.setenv(fake_recipes.FAIL, "car")
    result, _ = run(ONE, tmp_path)
    assert result.account.failed == 4
    reasons = {failure.reason for failure in result.account.failures}
    assert reasons == {"ArithmeticError: the step was not finite"}
    assert verdict_counts(result.page)["not run"] == 2
    assert "the step was not finite" in page_html(result)
    assert "the step was not finite" in page_markdown(result)
    monkeypatch.delenv(fake_recipes.FAIL)
    result, outcome = run(ONE, tmp_path)
    assert (outcome.skipped, result.account.failed) == (4, 0)


@pytest.mark.parametrize("other", [{"quick": True}, {"seeds": 3}, {"seed": 7}])
def test_another_run_is_refused_and_fresh_deletes_it(tmp_path, other):
    run(ONE, tmp_path)
    with pytest.raises(ValueError, match=f"{next(iter(other))} is .* there and .* here"):
        run(ONE, tmp_path, **other)
    result, outcome = run(ONE, tmp_path, how=replace(HERE, fresh=True), **other)
    assert outcome.skipped == 0
    assert result.account.quick is other.get("quick", False)


def with_tables(recipe, *, change=None, leave=()):
    """The recipe when a table is another, or not there."""

    def plan(ask):
        work = recipe.plan(ask)
        items = tuple(item for item in work.items if item.payload["table"] not in leave)
        shared = {k: v for k, v in work.shared.items() if k.split("/")[0] not in leave}
        if change:
            shared[f"{change}/values"] = shared[f"{change}/values"] + 1e-9
        return replace(work, items=items, shared=shared)

    return replace(recipe, plan=plan)


def test_other_data_is_refused(tmp_path):
    run(ONE, tmp_path)
    with pytest.raises(ValueError, match=r"data\.car is .* there and .* here.* --overwrite"):
        run(with_tables(ONE, change="car"), tmp_path)


def test_data_named_by_its_facts_is_held_to_them(tmp_path):
    def named(digest):
        def plan(ask):
            work = ONE.plan(ask)
            return replace(work, facts={**work.facts, "digests": {"images": digest}})

        return replace(ONE, plan=plan)

    run(named("a"), tmp_path)
    run(named("a"), tmp_path)
    with pytest.raises(ValueError, match=r'data\.images is "a" there and "b" here'):
        run(named("b"), tmp_path)


def test_tables_may_come_later_and_go_without_losing_rows(tmp_path):
    part, _ = run(with_tables(ONE, leave=("wine",)), tmp_path)
    assert part.account.runs == 8
    whole, outcome = run(ONE, tmp_path)
    assert (outcome.skipped, whole.account.runs) == (4, 12)
    part, _ = run(with_tables(ONE, leave=("wine",)), tmp_path)
    assert part.account.runs == 8  # what the facts do not speak of is not on the page
    _, outcome = run(ONE, tmp_path)
    assert outcome.skipped == 6


def test_what_measures_time_runs_alone(tmp_path, monkeypatch):
    asked = []

    def record(*_, workers, **__):
        asked.append(workers)
        raise KeyboardInterrupt

    monkeypatch.setattr("expacc.recipes.runner.run_items", record)
    for recipe, workers in ((ALONE, None), (ALONE, 4), (ALONE, 0), (ONE, 4), (ONE, None)):
        with pytest.raises(KeyboardInterrupt):
            run(recipe, tmp_path / recipe.name, how=replace(HERE, workers=workers))
    assert asked == [1, 1, 0, 4, None]


def test_workers_of_their_own_do_the_work(tmp_path):
    """What measures time does so in one process, which is not this one."""
    run(ALONE, tmp_path, how=replace(HERE, workers=2))
    with Store.read(tmp_path) as store:
        processes = {row.metrics["process"] for row in store.rows()}
    assert len(processes) == 1
    assert os.getpid() not in processes


def test_an_error_of_a_page_is_a_bug_where_the_rows_are_new(tmp_path):
    def broken(rows, facts):
        raise KeyError("accuracy")

    for folder, error in (("new", KeyError), ("new", UsageError)):  # then they are taken as found
        with pytest.raises(error, match="accuracy"):
            run(replace(ONE, write=broken), tmp_path / folder)


def test_a_folder_of_something_else(tmp_path):
    with pytest.raises(FileNotFoundError, match="Run expacc reproduce fake-one"):
        load_result(ONE, tmp_path)
    run(ALONE, tmp_path)
    with pytest.raises(ValueError, match='recipe is "fake-alone" there and "fake-one" here'):
        load_result(ONE, tmp_path)
    with Store.open(tmp_path / "begun", {"recipe": "fake-one"}):  # killed at once
        pass
    with pytest.raises(FileNotFoundError, match="it has none"):
        load_result(ONE, tmp_path / "begun")


# Pages


def sample(words=fake_recipes.as_it_is, rows=None, **account):
    """A result that was never run."""
    found = _rows() if rows is None else rows
    return Result(ONE, fake_recipes.page_of(found, words=words), Account(**account))


def _rows():
    work = ONE.plan(RecipeOptions())
    return [row for item in work.items for row in fake_recipes.execute(item, work.shared)]


def test_a_page_says_all_that_it_must(tmp_path):
    account = {
        "command": "expacc reproduce fake-one --data d",
        "started": "2026-01-01 10:00 UTC",
        "seconds": 312.0,
        "machines": ("Fast processor, 2 cores",),
        "versions": ({"torch": "2.13"},),
        "commits": ("abc1234",),
        "parts": 6,
        "parts_done": 6,
        "runs": 12,
        "failures": (Failure("exact on car", "diverged at step 3", 2),),
        "missing": ("mnist is missing.",),
    }
    result = sample(**account)
    wanted = [
        *("Of 12 runs, all were fast.", "EXACT is 2.5 points better.", "We had two seeds."),
        *("5 min 12 s", "Fast processor, 2 cores", "torch 2.13", "abc1234", "diverged at step 3"),
        *("mnist is missing.", "expacc reproduce fake-one --data d", "85.20 ± 0.10", "+3.05"),
        *("within", "above", "below", "new", "In words", "seed 0", "2026-01-01 10:00 UTC"),
    ]
    html = page_html(result)
    assert [text for text in wanted if text not in html] == []
    text = page_markdown(result)
    assert [part for part in wanted if part not in text.replace("\\_", "_")] == ["In words"]
    # The answer first, then the claim, then the numbers, then how it was done.
    for shown in (html, text):
        order = ["Of 12 runs", "EXACT is 2.5", "85.20", "5 min 12 s of work", "We had two seeds"]
        places = [shown.index(part) for part in order]
        assert places == sorted(places)
    assert html == page_html(result)
    assert html.count("<svg") == html.count('role="img"') == 2
    assert "<desc" in html


def test_a_page_that_is_not_whole_says_so():
    quick = sample(quick=True, parts=2, parts_done=2)
    part = sample(parts=6, parts_done=2)
    assert "Quick run" in page_html(quick)
    assert "not those to judge by" in page_markdown(quick)
    assert "2 of 6 parts" in page_html(part)
    assert "Not finished: 2 of 6 parts" in page_markdown(part)
    assert "Not finished" not in page_html(sample())


def test_a_page_of_no_rows_at_all():
    result = sample(rows=[], parts=6)
    assert set(verdict_counts(result.page)) == {"below", "not run"}
    assert "Not finished" in page_html(result)
    assert "not run" in page_markdown(result)
    empty = Result(ONE, Page("Title", "Claim.", "Answer.", ()), Account())
    assert "Done again" in page_html(empty)
    assert "no number of the paper" in page_markdown(empty)


def test_numbers_are_written_to_the_digit_that_counts():
    row = Comparison(("x",), Number(0.5, 0.01, 3), Number(0.51234, 0.001, 3))
    section = Section("t", beside=(row,), beside_head=("name",), slack=0.01)
    caption, head, (line,) = beside_table(section)
    assert line == ["x", "0.500 ± 0.010", "0.512 ± 0.001", "+0.012", "within"]
    assert head == ["name", "paper", "ours", "difference", "verdict"]
    assert "Ours over 3 runs." in caption
    two = replace(row, ours=Number(0.5, None, 7), note="why")
    _, head, rows = beside_table(Section("t", beside=(row, two)))
    assert head[-1] == "note"
    assert [(line[2][-4:], line[-1]) for line in rows] == [(" (3)", ""), (" (7)", "why")]


def hostile():
    """Each string of a page gets the next payload."""
    left = itertools.cycle(PAYLOADS)
    return lambda text: f"{text} {next(left)}"


def hostile_result():
    words = hostile()
    return sample(
        words,
        command=" ".join(PAYLOADS),
        machines=(words("m"),),
        commits=PAYLOADS,
        failures=tuple(Failure(words("f"), payload, 1) for payload in PAYLOADS[:20]),
        missing=PAYLOADS,
    )


class _Marks(HTMLParser):
    """The elements and attributes that a page is made of."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.attributes = set(), set()
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}


def test_no_string_of_a_page_becomes_markup():
    result = hostile_result()
    parts = {"command": "c", "machines": ("m",), "missing": ("a",)}
    failures = (Failure("f", "r", 1),)
    own = _Marks(page_html(sample(lambda text: text + " x", failures=failures, **parts)))
    found = _Marks(page_html(result))
    assert found.tags <= own.tags
    assert found.attributes <= own.attributes
    text = re.sub(r"^```\n.*?^```\n", "", page_markdown(result), flags=re.S | re.M)
    assert set(re.findall(r"(?<!\\)<[^>]*>?", text)) == set()


def test_long_tables_are_folded_away_in_markdown():
    rows = [row for row in _rows() for _ in range(3)]
    text = page_markdown(sample(rows=rows))
    assert re.findall(r"<[^>]*>", text) == ["<details>", "<summary>", "</summary>", "</details>"]
    assert "<summary>36 rows</summary>" in text


def test_files_of_a_result_and_what_the_book_reads_of_them(tmp_path):
    result = sample(seconds=3.0, runs=12, parts=6, parts_done=6, missing=("a",))
    content = write_files(result, tmp_path)
    assert read_content(tmp_path) == json.loads(json.dumps(content_of(result)))
    assert json.loads((tmp_path / "page.json").read_text()) == json.loads(json.dumps(content))
    first = content["numbers"][0]
    assert first["labels"] == {"table": "adult", "method": "EXACT", "rows": "test"}
    assert first["verdict"] == "within"
    assert read_content(tmp_path / "nowhere") is None


# The book and the documents


def test_the_book_lists_all_and_links_what_is_there(fake):
    out = fake / "out"
    write_files(sample(runs=12, seconds=61), out / "fake-one")
    path = write_book(out, registry.recipes(), left_out={"fake-data": "no <data> here"})
    text = path.read_text()
    assert path.name == "index.html"
    assert re.findall(r'<a href="(?!#)([^"]+)"', text) == ["fake-one/page.html"]
    for part in ("Of 12 runs", "no &lt;data&gt; here", "12 runs, 0 failed; 1 min 1 s"):
        assert part in text
    assert "Not run yet: expacc reproduce fake-alone" in text
    assert "1 of 4 numbers agree with the paper&#39;s, 1 above, 2 below; 3 new." in text
    empty = write_book(fake / "none", registry.recipes(), quick=True)
    assert empty.name == "index-quick.html"
    assert "Nothing has been run yet." in empty.read_text()


def test_documents_are_made_of_results():
    command = "expacc reproduce fake-one --data /home/me/d --out=/x -q --seeds 3 --workers 2"
    result = sample(
        lambda text: text + PAYLOADS[0],
        command=command,
        machines=("Fast one",),
        runs=12,
        commits=("abc",),
    )
    content = write_results.portable(content_of(result))
    assert content["command"] == "expacc reproduce fake-one --data DIR --seeds 3"
    text = write_results.results_markdown([content])
    assert "`expacc reproduce fake-one --data DIR --seeds 3`" in text
    assert "/home/me" not in text
    assert text.count("\n# ") + text.startswith("# ") == 1
    assert "## fake-one" in text
    assert "| [fake-one](#fake-one) | EXACT, Table 1 | 1 of 2 | 1 of 4 | 12 |" in text
    section = write_results.readme_section([content])
    assert section.count("docs/results.md#fake-one") == 1  # one claim is a headline
    assert "| holds |" in section
    assert "Fast one" in text
    assert "commit abc" in section
    assert not re.search(r"(?<!\\)<script", text + section)


@pytest.mark.parametrize(
    ("commits", "more", "why"),
    [
        (("abc",), {}, ""),
        (("abc+",), {}, "clean commit"),
        ((), {}, "clean commit"),
        (("abc", "def"), {}, "one commit"),
        (("abc",), {"quick": True}, "whole"),
        (("abc",), {"parts": 2}, "whole"),
    ],
)
def test_only_what_can_be_made_again_is_published(commits, more, why):
    reason = write_results.refuse_unclean(content_of(sample(commits=commits, **more)))
    assert (why in reason) if why else not reason


def test_a_page_without_an_answer_counts_its_claims_and_numbers():
    page = replace(fake_recipes.page_of(_rows()), answer="")
    assert answer_of(page) == (
        "1 of 2 claims hold. 1 of 4 numbers agree with the paper's, 1 above, 2 below; 3 new."
    )
    text = page_markdown(Result(ONE, page, Account()))
    assert "| adult is best | 85 | – | not run |" in text


def test_a_document_keeps_what_is_outside_its_markers():
    begin, end = write_results.MARKERS
    text = f"a\n{begin}\nold\n{end}\nz\n"
    assert write_results.put_between(text, "new\n") == f"a\n{begin}\nnew\n{end}\nz\n"
    for bad in ("a", f"{end}{begin}", f"{begin}{begin}{end}"):
        with pytest.raises(ValueError, match="once each"):
            write_results.put_between(bad, "new")
    readme = Path(fake_recipes.__file__).parents[1] / "README.md"
    assert "new rows" in write_results.put_between(readme.read_text(), "new rows")


# The command line


def test_the_list(fake, capsys, monkeypatch):
    assert command() == 0
    shown = capsys.readouterr().out
    for part in ("fake-one", "leaky expected error", "Fig. 7, §6.3", "mnist", "12 min", "6 s"):
        assert part in shown
    assert command("--json") == 0
    listed = json.loads(capsys.readouterr().out)
    assert [(one["name"], one["data_found"]) for one in listed] == [
        ("fake-one", True),
        ("fake-alone", True),
        ("fake-data", False),
    ]
    (fake / "d/mnist").mkdir(parents=True)
    monkeypatch.setenv("EXPACC_DATA", str(fake / "d"))
    assert command("--json") == 0
    assert json.loads(capsys.readouterr().out)[2]["data_found"] is True


def test_one_recipe_from_the_command_to_the_page(fake, capsys):
    assert command("fake-one", "--workers", "0") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "fake-one: Of 12 runs, all were fast."
    assert lines[1] == "  12 runs."
    assert lines[-1] == "Page: expacc-reproduce/fake-one/page.html"
    page = fake / "expacc-reproduce/fake-one/page.html"
    assert "expacc reproduce fake-one --workers 0" in page.read_text()
    assert "fake-one/page.html" in (fake / "expacc-reproduce/index.html").read_text()
    before = page.read_bytes()
    page.unlink()
    assert command("fake-one", "--no-run", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["page"] == "expacc-reproduce/fake-one/page.html"
    assert found["runs"] == 12
    assert page.read_bytes() == before
    assert command("fake-one", "--workers", "0", "--quick", "--quiet") == 0
    captured = capsys.readouterr()
    assert captured.out.splitlines()[-1] == "Page: expacc-reproduce/fake-one-quick/page.html"
    assert captured.err == ""
    assert page.read_bytes() == before


def test_all_does_what_the_data_allows(fake, capsys):
    assert command("--all", "--workers", "0") == 0
    captured = capsys.readouterr()
    (line,) = [line for line in captured.err.splitlines() if "Left out" in line]
    assert line.startswith("Left out fake-data: mnist is missing: ")
    assert captured.out.splitlines()[-1] == "Index: expacc-reproduce/index.html"
    shown = (fake / "expacc-reproduce/index.html").read_text()
    assert "mnist is missing" in shown
    assert "fake-alone/page.html" in shown
    page = (fake / "expacc-reproduce/fake-alone/page.html").read_text()
    assert "expacc reproduce fake-alone --workers 0" in page
    (fake / "d/mnist").mkdir(parents=True)
    assert command("--all", "--workers", "0", "--data", "d", "--json", "-q") == 0
    captured = capsys.readouterr()
    found = json.loads(captured.out)
    assert (len(found["recipes"]), found["left_out"]) == (3, {})
    assert captured.err.startswith("mnist/train-images-idx3-ubyte is missing: ")
    assert found["recipes"][2]["missing"] == [captured.err.strip()]
    assert command("--all", "--no-run", "--json") == 0
    assert len(json.loads(capsys.readouterr().out)["recipes"]) == 3


def test_dry_run_runs_nothing(fake, capsys):
    assert command("fake-one", "--dry-run", "--json") == 0
    planned = json.loads(capsys.readouterr().out)
    assert (planned["runs"], planned["items"], planned["items_done"]) == (12, 6, 0)
    assert command("--all", "--dry-run") == 0
    shown = capsys.readouterr().out
    assert "fake-alone: 12 runs in 6 parts, 0 of them done; all takes about 12 min" in shown
    assert not (fake / "expacc-reproduce").exists()
    assert command("fake-one", "--workers", "0", "-q") == 0
    capsys.readouterr()
    assert command("fake-one", "--dry-run", "--json") == 0
    assert json.loads(capsys.readouterr().out)["items_done"] == 6


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["fake-oen"], "Did you mean fake-one?"),
        (["fake-one", "--all"], "NAME must be left out with --all; got 'fake-one'."),
        (["fake-one", "--data", "nowhere"], "--data must be a folder; got 'nowhere'."),
        (["fake-one", "--repeats", "0"], "--repeats must be >= 1; got 0."),
        (["fake-one", "--engine", "cloud", "-q"], "engine must be 'local' or 'ray'"),
        (["fake-one", "--device", "moon"], "device must be one that torch can use here"),
        (["fake-data"], "mnist is missing: the folder mnist under --data holds"),
        (["fake-one", "--no-run"], "Run expacc reproduce fake-one."),
        (["fake-one", "--no-run", "--overwrite"], "--no-run must stand without --overwrite"),
        (["fake-one", "--nonsense"], "--nonsense"),
    ],
)
def test_an_error_of_the_user_is_one_line(fake, capsys, words, sentence):
    assert sentence in refusal(capsys, *words)


def test_help_fits_a_screen_and_shows_an_example(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert command("--help") == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 45
    assert max(map(len, lines)) <= 80
    assert any(re.search(r"expacc reproduce \S+", line) for line in lines[2:])


def test_an_interrupt_says_how_to_go_on(fake, capsys, monkeypatch):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("expacc.recipes.runner.run_items", stop)
    assert command("fake-one", "--overwrite", "--repeats", "3") == 130
    last = capsys.readouterr().err.splitlines()[-1]
    assert last == (
        "expacc: Stopped; what was finished is saved in expacc-reproduce/fake-one. "
        "To go on: expacc reproduce fake-one --repeats 3"
    )


def test_make_writes_documents_from_stored_rows(fake, capsys, monkeypatch):
    """docs/write_results.py, with documents of its own."""
    root = Path(fake_recipes.__file__).parents[1]
    shutil.copy(root / "README.md", fake / "README.md")
    for commits, code, told in (
        ("abc+", 1, "0 of 3 recipes → results.md, README.md; 2 refused\n"),
        ("abc", 0, "2 of 3 recipes → results.md, README.md; 0 refused\n"),
    ):
        monkeypatch.setattr("expacc.recipes.runner.commit", lambda found=commits: found)
        assert command("--all", "--workers", "0", "-q", "--fresh") == 0
        assert write_results.main(fake / "expacc-reproduce", fake, fake / "README.md") == code
        out = capsys.readouterr().out
        assert out.endswith(told)
        assert ("uncommitted changes" in out) == bool(code)
    assert read_content(fake / "results/fake-one.json")["commit"] == "abc"
    assert "| [fake-one](#fake-one) | EXACT, Table 1 |" in (fake / "results.md").read_text()
    between = (
        (fake / "README.md")
        .read_text()
        .split(write_results.MARKERS[0])[1]
        .split(write_results.MARKERS[1])[0]
    )
    assert "| [fake-alone](docs/results.md#fake-alone) | car is best |" in between
