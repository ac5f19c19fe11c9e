"""Test the report as one page: self-contained, escaped, with working links."""

import base64
import csv
import json
import re
import shutil
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from dp_erm_bench.cli.main import main, run_command
from dp_erm_bench.errors import UsageError
from dp_erm_bench.paths import sealed_json
from dp_erm_bench.report.html import page
from dp_erm_bench.report.html.page import (
    NOTHING,
    chapter_of,
    errata_of_paper,
    failures_grid,
    report_page,
    results_grid,
    write_report,
)
from dp_erm_bench.report.make import draw_and_judge
from dp_erm_bench.report.view import View, rows_of_view, summary_of
from dp_erm_bench.results.runs import read_manifest, write_run
from tests.report import browser

SWEEP = """
    dataset=log1,log2 dataset.n=80 dataset.p=4 algorithm=random_cd,gd
    algorithm.random_cd.clip=1 algorithm.random_cd.passes=2 algorithm.gd.clip=1
    algorithm.gd.n_iter=2 budget.epsilon=1,4 seed=range(0,2) runner.n_jobs=1
""".split()
PNG = b"\x89PNG\r\n\x1a\n"
HOSTILE = "<script>alert(1)</script><img src=//evil.invalid/x>\"'&"
NAMES = ("log1", HOSTILE, "a/b", r"$\frac{1}{n}$_%#", "数据集 données")
BRINGS = ("src", "href", "srcset", "action", "data", "poster", "background")
FETCHES = re.compile(r"url\(|@import|fetch\(|XMLHttpRequest|WebSocket|import\(|eval\(")


class Page(HTMLParser):
    """The elements of a page."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.text, self.ids, self.links, self.brought = [], [], [], [], []
        self.handlers = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        for name, value in attrs:
            self.handlers += [name] * name.startswith("on")
            if name == "id":
                self.ids.append(value)
            elif tag == "a" and name == "href":
                self.links.append(value)
            elif name in BRINGS:
                self.brought.append(value)

    def handle_data(self, data):
        self.text.append(data)


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    home = tmp_path_factory.mktemp("sweep")
    assert main([*SWEEP, f"results_dir={home}", "name=small"]) == 0
    return home / "small"


def write_csv(path, rows):
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)


@pytest.fixture
def folder(sweep, tmp_path):
    """A folder of an experiment, with claims of panels of any name."""
    copy = tmp_path / "paper"
    shutil.copytree(sweep, copy)
    verdicts = ("holds", "fails", "not run (no data)", "holds", "holds")
    claim = {"statement": HOSTILE, "measured": "m", "threshold": "<= 1", "value": 0.5}
    write_csv(
        copy / "claims.csv",
        [
            {**claim, "figure": name, "verdict": verdict, "open": "gd: trials"}
            for name, verdict in zip(NAMES, verdicts, strict=True)
        ],
    )
    choice = {"line": HOSTILE, "epsilon": 1, "chosen": '{"clip": 1}'}
    write_csv(
        copy / "choices.csv",
        [
            {**choice, "panel": "log1", "open": ""},
            {**choice, "panel": "log1", "open": "clip limit"},
        ],
    )
    write_run(copy, {**read_manifest(copy), "drawn": None})
    (copy / "figures").mkdir()
    for stem in ("log1", "log1_epsilon", "paper", HOSTILE.replace("/", "")):
        Image.new("RGB", (900, 20)).save(copy / "figures" / f"{stem}.png")
        (copy / "figures" / f"{stem}.txt").write_text(HOSTILE)
    return copy


@pytest.fixture(scope="module")
def drawn(sweep, tmp_path_factory):
    """A folder with the figures that its manifest asks for."""
    home = tmp_path_factory.mktemp("drawn") / "small"
    shutil.copytree(sweep, home)
    config = {"figures": [{"kind": "curves"}, {"kind": "profile"}], "profile": "paper"}
    manifest = read_manifest(home)
    write_run(home, {**manifest, "config": {**manifest["config"], **config}})
    draw_and_judge(home, {**manifest["config"], **config})
    return home


@pytest.fixture
def shown(drawn, tmp_path):
    """A copy of that folder, and what the report says of its pictures."""
    copy = tmp_path / "small"
    shutil.copytree(drawn, copy)

    def shown():
        made = chapter_of(copy)
        return {one.name: one for one in made.pictures}

    return copy, shown


def test_captions_are_those_beside_the_pictures(shown):
    folder, look = shown
    before = look()
    for path in (folder / "figures").glob("*.txt"):
        assert before[path.stem].caption.split() == path.read_text().split()
        path.unlink()
    assert {one.caption for one in look().values()} == {"It has no caption file."}


def test_a_damaged_picture_is_not_shown(shown):
    folder, look = shown
    first, second = sorted((folder / "figures").glob("*.png"))[:2]
    one = first.read_bytes()
    assert look()[first.stem].data and look()[second.stem].data
    for place in np.random.default_rng(0).integers(0, len(one), 40):
        flipped = bytearray(one)
        flipped[place] ^= 1 << (place % 8)
        first.write_bytes(flipped)
        with pytest.raises(UsageError):
            page.picture_of(first, folder)
    first.write_bytes(one[:-20])
    with pytest.raises(UsageError, match="it is no PNG, or damaged"):
        page.picture_of(first, folder)
    made = chapter_of(folder)
    assert f"{first.name} cannot be shown: it is no PNG, or damaged" in made.notes
    assert first.stem not in {one.name for one in made.pictures}
    first.write_bytes(one)
    assert look()[first.stem].data


def checked(text):
    """The parsed page, once it is known to bring nothing from elsewhere."""
    found = Page(text)
    assert not found.handlers
    assert all(one.startswith("data:") for one in found.brought), found.brought
    assert found.links and all(link.startswith("#") for link in found.links)
    assert {link[1:] for link in found.links} <= set(found.ids)
    assert len(set(found.ids)) == len(found.ids)
    assert found.tags.count("script") == 1
    assert not FETCHES.search(text)
    return found


def test_every_claim_links_to_its_figure(folder):
    text = report_page([folder])
    found = checked(text)
    linked = [link[1:] for link in found.links if re.fullmatch(r"#c1-p\w+", link)]
    assert len(linked) == len(NAMES) and set(linked) <= set(found.ids)
    # A figure of its own, else all of them.
    first = text.index(f'id="{linked[0]}"')
    section = text[first : text.index("</section>", first)]
    assert "<h4>log1</h4>" in section and section.count("data:image/png;base64,") == 1
    assert linked[2] == "c1-ps"
    said = "".join(found.text)
    for name in NAMES:
        assert name in said


def test_claims_say_whose_they_are_and_what_their_intervals_are_worth(folder):
    row = {"figure": "log1", "statement": "s", "whose": "ours", "good": "gcd"}
    row |= {"measured": "m", "threshold": "<= 1", "value": 0.5}
    row |= {"interval": "[0.4, 0.6]"}
    row |= {"of_zero": "0.2 [0.1, 0.3]", "expected": "fails: a tie", "open": ""}
    verdicts = ["holds", "vacuous (error of gcd / that of w = 0: 1)", "undecided"]
    write_csv(folder / "claims.csv", [{**row, "verdict": one} for one in verdicts])
    made = chapter_of(folder)
    assert made.verdicts == {"holds": 1, "vacuous": 1, "undecided": 1}
    (note,) = [one for one in made.notes if "chosen settings as given" in one]
    assert "1 of 1 verdicts holds or fails rest on such an interval" in note
    text = report_page([folder])
    for said in ("whose", "interval", "expected", "ours", "[0.4, 0.6]", "fails: a tie"):
        assert said in text
    assert '<span class="mark vacuous">vacuous</span>' in text


def test_hostile_words_are_text(folder):
    said = {"cpu": HOSTILE, "packages": {HOSTILE: [HOSTILE]}, "git": {"commit": 3}}
    changed = {"environment": said, "command": HOSTILE, "version": HOSTILE}
    write_run(folder, read_manifest(folder) | changed)
    text = report_page([folder])
    found = checked(text)
    assert "evil.invalid" in "".join(found.text)
    assert "<img src=//" not in text and "<script>alert" not in text


def test_open_choices_are_marked_and_first(folder):
    text = report_page([folder])
    assert "Choices: 1 open" in text
    assert '<span class="mark open">clip limit</span>' in text
    table = text[text.index('aria-label="Choices: 1 open of') :]
    assert table.index("clip limit") < table.index("</tr>", table.index("<tbody>"))


def test_a_sweep_shows_its_plots_results_and_uncharged_uses(sweep):
    text = report_page([sweep])
    found = checked(text)
    assert text.count("data:image/png;base64,") == 4
    said = " ".join(found.text)
    assert "certified epsilon" in said and "smoothness" in said
    assert "random_cd" in said and "numpy" in said


def test_what_was_plotted_is_on_the_page_with_its_caption(sweep, tmp_path):
    own = tmp_path / "own"
    shutil.copytree(sweep, own)
    given = ["--x=passes", "--y=objective", "--names", "random_cd=Ours <b>"]
    assert run_command("plot", [str(own), *given, "--format=png"]) == 0
    said = checked(report_page([own])).text
    text = " ".join(said)
    assert "curves_objective_passes" in text and "objective F(w)" in text


def test_the_page_begins_with_what_was_asked_and_the_answer(sweep):
    made = chapter_of(sweep)
    asked = dict(made.asked)
    assert {*asked} == {"log1", "log2"}
    for words in (
        "n x p: 80 x 4",
        "epsilon: 1, 4",
        "adjacency: replace_one",
        "options: ",
    ):
        assert words in asked["log1"]
    assert any(
        "fewer than 6 runs" in line or "nothing" in line for line in made.answers
    ) or (made.answers == [])
    text = report_page([sweep])
    places = [text.index(one) for one in ("What was asked", "<h4>", "Machine, commit")]
    assert places == sorted(places)


def test_audits_twins_and_errata_are_only_where_a_folder_has_them(sweep, folder):
    said = "".join(checked(report_page([sweep])).text)
    assert "Audits" not in said and "twins" not in said
    write_csv(folder / "audits.csv", [{"algorithm": "gd", "verdict": "VIOLATION"}])
    text = report_page([folder])
    said = "".join(checked(text).text)
    assert "Audits of this folder" in said and "the_noise_is_recounted" in said
    assert '<span class="mark violation">VIOLATION</span>' in text


def test_a_paper_has_the_section_of_its_own_errata(folder):
    found = "What we found in the paper"
    assert found not in "".join(checked(report_page([folder])).text)
    for name in ("kumar2019", "arora2020", "ghazi2024", "mangold2022", "mangold2023"):
        assert errata_of_paper(name).strip()
    assert "Theorem 3.2" in errata_of_paper("mangold2022")
    for name in ("audit", "wang2018", "2022", "m2022"):
        assert errata_of_paper(name) == ""
    own = folder.rename(folder.with_name("kumar2019"))
    assert found in "".join(checked(report_page([own])).text)


def summary_grid(table):
    drawn = rows_of_view(table, View("epsilon"))
    return results_grid(drawn.rows, summary_of(drawn))


def test_results_mark_what_is_not_certified(tabulate):
    table = tabulate(
        {"line": HOSTILE, "certified": 0.99},
        {"line": "more", "certified": 1.5, "uncharged": ""},
        {"line": "failed", "status": "error", "message": "E: no\nTraceback"},
    ).assign(
        relative_error=lambda own: own["relative_error"].mask(own["line"] == "failed")
    )
    shown = summary_grid(table)
    # It is among the columns that a narrow window shows.
    assert [*shown.rows.columns[:4]] == [
        "panel",
        "line",
        "epsilon",
        "certified epsilon",
    ]
    ran = shown.rows[shown.rows["runs"] > 0].set_index("line")
    kept = ran[["certified epsilon", page.BEYOND]]
    kinds = kept.astype(object).where(kept.notna(), "").T.to_dict("list")
    assert kinds == {HOSTILE: [0.99, ""], "more": [1.5, "yes"]}
    failed = failures_grid(table[table["status"] == "error"].drop_duplicates("trial"))
    assert failed.rows.to_numpy().tolist() == [[4, "error", "E: no"]]


def test_results_say_which_lines_do_not_beat_nothing(tabulate):
    """The median of all runs, a lost one among them, as `export` has it."""
    table = tabulate(
        {"line": "good", "end": 0.1, "n_seeds": 7},
        {"line": "bad", "end": 0.9, "n_seeds": 7},
        {"line": "few", "end": 0.1, "n_seeds": 5},
    )
    lost = (table["line"] == "bad") & (table["seed"] < 4) & (table["iteration"] > 0)
    table.loc[lost, ["relative_error", "status"]] = [np.nan, "diverged"]
    shown = summary_grid(table).rows.set_index("line")
    assert not shown.loc["good", NOTHING] or shown.isna().loc["good", NOTHING]
    assert np.isinf(shown.loc["bad", "median"]) and shown.loc["bad", NOTHING] == "w = 0"
    assert shown.loc["few", NOTHING] == "w = 0"


def test_held_out_measures_stand_beside_the_base_rate_and_the_optimum(tabulate):
    models = {"base_rate": {"auc": 0.5}, "optimum": {"auc": 0.9}}
    table = tabulate({"n_seeds": 7}).assign(auc=0.7, references=json.dumps(models))
    shown = summary_grid(table).rows.set_index("line")["auc"]
    assert shown["DP-CD cyclic"] == 0.7 and shown["w = 0"] == 0.5
    known = rows_of_view(table, View("epsilon", "auc"))
    rows = results_grid(known.rows, summary_of(known)).rows.set_index("line")["auc"]
    assert rows["base rate (not private)"] == 0.5
    assert rows["optimum (not private)"] == 0.9


@pytest.mark.parametrize(
    "change",
    [
        lambda table: table.iloc[:0],
        lambda table: table.iloc[:1],
        lambda table: table.assign(status="error", message=HOSTILE),
        lambda table: table.assign(panel="a/b", line=r"$\x{_%"),
        lambda table: table.assign(panel="数据", line="données", relative_error=None),
        lambda table: table[["trial", "status"]],
        lambda table: table.assign(epsilon="x"),
    ],
)
def test_odd_tables_are_pictures_or_sentences(sweep, change, monkeypatch):
    from dp_erm_bench.report.html import page

    table = page.load_results(sweep)
    monkeypatch.setattr(page, "load_results", lambda folder: change(table))
    text = report_page([sweep])
    checked(text)
    assert 'class="note"' in text or "data:image/png" in text
    assert "Traceback" not in text


def test_folders_without_results_of_damaged_files_and_other_versions(
    folder, tmp_path, capsys
):
    (tmp_path / "empty").mkdir()
    assert run_command("report", [str(tmp_path / "empty")]) == 0
    assert "no plan.jsonl" in (tmp_path / "empty" / "report.html").read_text()
    (folder / "choices.csv").write_text("x")
    (folder / "figures" / "log1.png").write_bytes(b"<svg onload=alert(1)>")
    (folder / "figures" / "paper.png").write_bytes(PNG)
    text = report_page([folder])
    checked(text)
    assert "choices.csv: is damaged" in text
    assert "log1.png cannot be shown: it is no PNG" in text
    assert "paper.png cannot be shown: it is no PNG" in text


@pytest.mark.slow
@pytest.mark.parametrize("version", ["0.0.1", "99.0", None, [HOSTILE]])
def test_folders_of_other_versions_say_so_everywhere(sweep, tmp_path, version, capsys):
    old = tmp_path / "old"
    shutil.copytree(sweep, old)
    manifest = {"version": version, "profile": {}, "config": 3, "environment": []}
    for path in (old / "runs").iterdir():
        for copy in (path, old / "manifest.json"):
            copy.write_bytes(sealed_json({"run": path.stem, **manifest}))
    assert run_command("report", [str(old)]) == 0
    assert "recorded by version" in (old / "report.html").read_text()
    assert run_command("plot", [str(old), "--format=png"]) == 0
    assert not capsys.readouterr().err
    assert run_command("export", [str(old), "--y=objective"]) == 0
    assert capsys.readouterr().err.startswith("Objective F(w).\nData: ")


@pytest.mark.slow
@pytest.mark.parametrize("columns", ["more", "fewer"])
def test_tables_with_other_columns_are_made_again_or_a_sentence(
    sweep, tmp_path, columns, capsys
):
    old = tmp_path / "old"
    shutil.copytree(sweep, old)
    table = pd.read_parquet(old / "results.parquet")
    other = (
        table.assign(new=1) if columns == "more" else table.drop(columns="accountant")
    )
    other.to_parquet(old / "results.parquet")
    for name, options in (
        ("report", ()),
        ("plot", ("--format=png",)),
        ("export", ("--y=objective", f"--out={tmp_path / 'ends.md'}")),
    ):
        assert run_command(name, [str(old), *options]) in (0, 2)
        said = capsys.readouterr().err.partition("Objective F(w).\nData: ")
        assert said[0].count("\n") <= 1
    checked((old / "report.html").read_text())


def test_several_folders_are_one_page_beside_the_first(folder, sweep, tmp_path, capsys):
    assert run_command("report", [str(folder), str(sweep)]) == 0
    assert f"report: {tmp_path / 'report.html'}" in capsys.readouterr().out
    text = (tmp_path / "report.html").read_text()
    assert {"c1", "c2"} <= set(checked(text).ids)
    for given in (
        ["--out", str(tmp_path / "a.html")],
        [f"--out={tmp_path / 'a.html'}"],
    ):
        (tmp_path / "a.html").unlink(missing_ok=True)
        assert run_command("report", [str(sweep), *given]) == 0
        assert (tmp_path / "a.html").is_file()


@pytest.mark.parametrize("given", [["--out"], ["--out="], ["--png"], []])
def test_wrong_options_are_a_sentence(sweep, given, capsys):
    assert run_command("report", [*given, *[str(sweep)] * (given == ["--png"])]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_page_has_at_most_15_mb(folder, monkeypatch):
    monkeypatch.setattr(page, "LARGEST", 10_000)
    with pytest.raises(UsageError, match="name fewer folders"):
        write_report([folder], folder / "report.html")
    monkeypatch.setattr(page, "MOST_ROWS", 2)
    assert "more rows are left out" in report_page([folder])


def test_prose_has_no_links_and_no_html():
    text = page.prose_as_html(
        f"# One\n[two](http://x.invalid) {HOSTILE}\n\n![i](a.png)"
    )
    found = Page(text)
    assert not found.links and not found.brought and "script" not in found.tags
    assert found.tags[0] == "h3"


def test_pictures_are_those_of_the_folder(folder, tmp_path):
    (tmp_path / "secret.png").write_bytes(PNG + bytes(50))
    (folder / "figures" / "link.png").symlink_to(tmp_path / "secret.png")
    text = report_page([folder])
    assert "link.png cannot be shown: leads out of its folder" in text
    assert base64.b64encode(PNG + bytes(50)).decode() not in text


@pytest.mark.skipif(browser.PATH is None, reason="no Chromium on this machine")
def test_a_browser_asks_for_nothing_and_is_silent(folder, sweep, tmp_path):
    path = write_report([folder, sweep], tmp_path / "report.html")
    with browser.Browser(tmp_path / "home") as opened:
        opened.open(path)
        rows = "document.querySelectorAll('#c2-grid1 tbody tr:not([hidden])').length"
        every = opened.run(rows)
        opened.run(
            "const f = document.querySelector('#c2-grid1 input');"
            "f.value = 'random_cd'; f.dispatchEvent(new Event('input'))"
        )
        # Of each problem and budget a third: w = 0 is a row, too.
        assert opened.run(rows) == every / 3 > 0
        head = "document.querySelector('#c2-grid1 th:last-child')"
        opened.run(f"{head}.click()")
        assert opened.run(f"{head}.ariaSort") == "ascending"
        opened.run("document.querySelector('button.zoom').click()")
        assert opened.run("document.querySelector('dialog').open")
        assert opened.run("document.documentElement.scrollWidth <= innerWidth")
        assert opened.console == [] and opened.requests == []


@pytest.mark.skipif(browser.PATH is None, reason="no Chromium on this machine")
def test_the_browser_would_tell(tmp_path):
    path = tmp_path / "bad.html"
    path.write_text("<img src='http://x.invalid/a.png'><script>console.log(1)</script>")
    with browser.Browser(tmp_path / "home") as opened:
        opened.open(path)
        assert opened.requests == ["http://x.invalid/a.png"] and opened.console
