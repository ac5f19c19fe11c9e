"""Test the analysis notebook: read it, and run it with and without results."""

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pandas as pd
import pytest
from nbclient import NotebookClient

from dp_erm_bench import registry
from dp_erm_bench.results.table import COLUMNS

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
PATH = ROOT / "notebooks" / "analysis.ipynb"
TEXT = PATH.read_text()
NOTEBOOK = nbformat.reads(TEXT, as_version=4)
CODE = [cell.source for cell in NOTEBOOK.cells if cell.cell_type == "code"]
PROSE = "\n".join(c.source for c in NOTEBOOK.cells if c.cell_type == "markdown")
TREES = [ast.parse(source) for source in CODE]
NODES = [node for tree in TREES for node in ast.walk(tree)]

SECONDS = 300
"""Limit of a cell; the slowest takes ten on a free machine."""

PROBE = """
import json

json.dumps({
    "panel": PANEL,
    "epsilon": EPSILON,
    "lines": list(lines),
    "varied": varied,
    "best": json.loads(best.to_json(orient="records")),
    "phases": table.groupby("phase")["seed"].unique().map(sorted).to_dict(),
    "uncharged": sorted(set(reports["uncharged"])),
    "pairs": comparison["pairs"].to_dict(),
    "median": comparison["median"].to_dict(),
    "fair": sorted(set(fair["line"])),
    "spent": promises.set_index("line")["spent"].to_dict(),
}, default=int)
"""

# A grid with one setting too bold, a line at another epsilon, printed noise, and a
# line that must be skipped: clipping or bounds are missing.
EXPERIMENT = """# @package _global_
blocks:
  - &cd
    panel: log1
    line: DP-CD cyclic
    dataset: {name: log1, n: 200, p: 5}
    algorithm: {name: random_cd, order: cyclic, passes: 2}
    tune: &tune
      axes: {step: [0.5, 1], clip: [0.5, 1]}
      seeds: range(0,2)
      report: range(100,104)
  - {<<: *cd, line: DP-CD printed, calibration: paper}
  - <<: *cd
    line: DP-SGD
    algorithm: {name: sgd, passes: 2, batch_size: 20}
  - {<<: *cd, line: DP-CD cyclic over epsilon, budget: {epsilon: [0.5, 10]}}
  - {<<: *cd, panel: second, dataset: {name: log1, n: 100, p: 5, seed: [1, 2]}}
  - panel: second
    line: without clipping
    dataset: {name: california}
    algorithm: {name: random_cd}
    seed: 0
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """What the kernel and the commands run in: this checkout, nobody's settings."""
    home = tmp_path_factory.mktemp("home")
    folders = ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR")
    changes = {name: str(home / name.lower()) for name in folders}
    kept = {k: v for k, v in os.environ.items() if k != "MPLBACKEND"}
    return {**kept, **changes, "PYTHONPATH": str(ROOT)}


@pytest.fixture(scope="module")
def execute(environment):
    """Run the notebook on a folder of results; return what it said and found."""

    def run(results, panel=None):
        notebook = nbformat.reads(TEXT, as_version=4)
        if panel is not None:
            (first,) = [c for c in notebook.cells if "\nRESULTS = " in c.source]
            first.source = re.sub(r"\nPANEL = .*", f"\nPANEL = {panel!r}", first.source)
        notebook.cells.append(nbformat.v4.new_code_cell(PROBE))
        where = {"metadata": {"path": str(PATH.parent)}}
        client = NotebookClient(notebook, timeout=SECONDS, resources=where)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("JUPYTER_RUNTIME_DIR", environment["JUPYTER_RUNTIME_DIR"])
            client.execute(env={**environment, "DP_ERM_BENCH_RESULTS": str(results)})
        return observed(notebook)

    return run


def observed(notebook):
    outputs = [o for c in notebook.cells for o in c.get("outputs", ())]
    streams = [o for o in outputs if o.output_type == "stream"]
    probe = notebook.cells[-1].outputs[0].data["text/plain"]
    return SimpleNamespace(
        said="".join(o.text for o in streams if o.name == "stdout"),
        warned="".join(o.text for o in streams if o.name == "stderr"),
        figures=sum("image/png" in o.get("data", {}) for o in outputs),
        tables=sum("text/html" in o.get("data", {}) for o in outputs),
        **json.loads(ast.literal_eval(probe)),
    )


@pytest.fixture(scope="module")
def fresh(execute, tmp_path_factory):
    return execute(tmp_path_factory.mktemp("fresh") / "results")


@pytest.fixture(scope="module")
def results(environment, tmp_path_factory):
    """Results of a small experiment under the name of a published one."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "experiment").mkdir()
    (folder / "experiment" / "tiny.yaml").write_text(EXPERIMENT)
    command = [f"--config-dir={folder}", "experiment=tiny", "name=mangold2023"]
    command += [f"results_dir={folder / 'results'}", "runner.n_jobs=1"]
    done = subprocess.run(
        [sys.executable, "-m", "dp_erm_bench", *command],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return folder / "results"


@pytest.fixture(scope="module")
def made(execute, results):
    return execute(results)


def test_nothing_of_a_run_is_committed():
    nbformat.validate(NOTEBOOK)
    for cell in NOTEBOOK.cells:
        assert cell.metadata == {}
        if cell.cell_type == "code":
            assert cell.outputs == []
            assert cell.execution_count is None
    assert set(NOTEBOOK.metadata) == {"kernelspec", "language_info"}
    assert NOTEBOOK.metadata.kernelspec.name == "python3"
    assert NOTEBOOK.metadata.language_info == {"name": "python"}


def test_it_names_no_place_of_a_machine():
    written = "\n".join(cell.source for cell in NOTEBOOK.cells)
    assert not re.search(r"(?<![\w.])/(home|root|tmp|work|usr|Users)\b", written)
    assert not re.search(r"https?://|[A-Z]:\\\\", written)


def test_every_step_is_explained_before_it_is_taken():
    kinds = [cell.cell_type for cell in NOTEBOOK.cells]
    assert kinds[0] == kinds[-1] == "markdown"
    assert NOTEBOOK.cells[0].source.startswith("# ")
    figures = [c for c in NOTEBOOK.cells if "plt.show()" in c.source]
    for before, cell in zip(NOTEBOOK.cells, NOTEBOOK.cells[1:], strict=False):
        explained = before.cell_type == "markdown" or cell in figures
        assert cell.cell_type == "markdown" or explained
    assert max(source.count("\n") + 1 for source in CODE) <= 40


def test_it_reads_results_and_computes_none():
    imported = {
        f"{node.module}.{alias.name}"
        for node in NODES
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if node.module.startswith("dp_erm_bench")
    }
    assert "dp_erm_bench.load_results" in imported
    reads = ("load_results", "plot", "registry.names")
    for name in imported - {f"dp_erm_bench.{one}" for one in reads}:
        assert name.startswith("dp_erm_bench.results."), name
    called = {
        n.func.id for n in NODES if isinstance(n, ast.Call) and "id" in vars(n.func)
    }
    assert not called & {"fit", "load_problem", "problem_from_arrays"}


def test_no_loop_goes_over_seeds():
    loops = [n for n in NODES if isinstance(n, ast.For | ast.comprehension)]
    assert loops
    for loop in loops:
        assert "seed" not in ast.unparse(loop.iter) + ast.unparse(loop.target)
    assert not [n for n in NODES if isinstance(n, ast.While)]


def test_every_column_of_the_table_is_explained():
    (legend,) = re.findall(r"\| columns \|.*?\n\n", PROSE, re.DOTALL)
    rows = [row.split("|")[1] for row in legend.strip().splitlines()[2:]]
    named = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert sorted(named) == sorted(COLUMNS)


def test_without_results_it_says_what_makes_them(fresh):
    for name in registry.names("experiment"):
        assert f"make reproduce-figures EXPERIMENT={name}\n" in fresh.said
    assert re.search(r"^small sweep: \d+ trials$", fresh.said, re.MULTILINE)


def test_without_results_it_shows_a_sweep_of_its_own(fresh):
    assert fresh.warned == ""
    assert (fresh.figures, fresh.tables) == (3, 7)
    assert (fresh.panel, fresh.epsilon) == ("log1", 1.0)
    assert fresh.lines == ["greedy_cd", "random_cd", "sgd"]
    found = {(row["epsilon"], row["algorithm"]) for row in fresh.best}
    assert found == {(e, a) for e in (0.1, 1.0, 10.0) for a in fresh.lines}
    assert {"clip", "n_iter", "passes", "step"} <= set(fresh.varied)


def test_the_sweeps_runs_are_chosen_and_judged_on_other_seeds(fresh):
    assert fresh.phases == {"report": list(range(4, 14)), "tune": list(range(4))}
    assert all(row["seeds"] == 4 for row in fresh.best)
    assert set(fresh.pairs.values()) == {10}
    assert all("tuning" in told.split(",") for told in fresh.uncharged)
    assert fresh.fair == fresh.lines


def test_the_sweep_shows_a_difference(fresh):
    assert fresh.median["greedy_cd"] == 1.0
    assert fresh.median["sgd"] < 0.5


def test_with_results_it_reads_them(made):
    assert made.warned == ""
    assert "mangold2023: " in made.said
    assert "make reproduce-figures EXPERIMENT=mangold2023" not in made.said
    assert "small sweep" not in made.said
    assert (made.figures, made.tables) == (3, 7)
    assert made.lines == ["DP-CD cyclic"]
    assert made.pairs == {"DP-CD cyclic": 4, "DP-CD printed": 4, "DP-SGD": 4}


def test_printed_noise_is_not_among_the_fair(made):
    assert made.fair == ["DP-CD cyclic", "DP-SGD"]
    assert made.spent["DP-CD cyclic"] == pytest.approx(1.0)
    assert abs(made.spent["DP-CD printed"] - 1.0) > 0.05
    assert {row["line"] for row in made.best} == {"DP-CD cyclic", "DP-SGD"}


def test_the_best_settings_are_those_that_the_experiment_chose(results, made):
    choices = pd.read_csv(results / "mangold2023" / "choices.csv")
    choices["line"] = choices["line"].str.removesuffix(" over epsilon")
    choices = choices[choices["panel"] == "log1"].set_index(["epsilon", "line"])
    assert len(made.best) == 4
    for row in made.best:
        chosen = json.loads(choices.loc[(row["epsilon"], row["line"]), "chosen"])
        assert {name: row[name] for name in ("clip", "step")} == chosen


def test_a_panel_of_several_data_sets_is_paired_within_them(execute, results):
    found = execute(results, panel="second")
    assert found.warned == ""
    assert (found.panel, found.figures) == ("second", 3)
    assert found.pairs == {"DP-CD cyclic": 8}
    assert found.median == {"DP-CD cyclic": 1.0}
