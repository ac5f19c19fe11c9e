"""Test the commands that the tutorial on own data and the page on experiments show."""

import re

import pandas as pd
import pytest

from dp_erm_bench.cli.main import main
from tests.pages import code_blocks, command_lines

QUICK = ["runner.n_jobs=1", "runner.progress=false"]


def test_the_commands_of_the_tutorial(here, capsys):
    typed = command_lines(*code_blocks("own_data", "sh"))
    assert len(typed) == 7
    said = {}
    for line in typed:
        searches = line[0] == "tune"
        extra = ["profile=smoke", "tune.report=range(100,106)", *QUICK]
        extra *= searches
        assert main([*line, *extra]) == 0, line
        said[line[0]] = capsys.readouterr().out
    folder = here / "results" / "tune"
    assert "best first" in said["tune"] and "FILL_IN" in said["look"]
    assert (
        folder / "plots" / "curves_relative_error_epsilon.pdf"
    ).stat().st_size > 1000
    assert said["export"].startswith(r"\begin{tabular}")
    assert r"\bfseries" in said["export"]
    assert "results/tune" in said["report"]
    assert "results/tune" in said["list"]
    assert "dp-erm-bench tune dataset=file" in said["list"]


def test_the_example_of_experiments(here, capsys):
    (here / "mine.yaml").write_text(code_blocks("experiments", "yaml")[0])
    (line,) = command_lines(*code_blocks("experiments", "sh"))
    assert main([*line, *QUICK]) == 0
    said = capsys.readouterr().out
    assert "1 not judged" in said and "Tuning pays: gradient " in said
    folder = here / "results" / "mine"
    for name in ("results.parquet", "choices.csv", "claims.csv", "manifest.json"):
        assert (folder / name).is_file()
    drawn = {path.stem for path in (folder / "figures").glob("*.pdf")}
    assert drawn == {"mine_accuracy", "mine_curves_relative_error_passes"}
    table = pd.read_csv(folder / "choices.csv")
    assert {*table["line"]} == {"gradient descent"}
    assert {*table["epsilon"]} == {1.0, 10.0}
    assert main([*line, *QUICK, "budget.epsilon=1", "mode=plan"]) == 0
    assert "gradient descent" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("typed", "sentence"),
    [
        ("experiment=none.yaml", "experiment=none.yaml: no such file"),
        ("experiment=gone/none.yaml", "no such file"),
        ("experiment=mangold2022.yaml", "is called mangold2022, rename the file"),
        ("experiment=text.yaml", "text.yaml: needs `blocks`"),
        ("experiment=figure.yaml", "curves): statistic=most: must be one of"),
    ],
)
def test_a_file_that_is_no_experiment_gets_a_sentence(here, capsys, typed, sentence):
    (here / "text.yaml").write_text("blocks: []\n")
    (here / "mangold2022.yaml").write_text("blocks: []\n")
    run = "[{dataset: log1, algorithm: gd, seed: 0}]"
    figure = "[{kind: curves, statistic: most}]"
    head = "# @package _global_\n"
    text = f"{head}blocks: {run}\nfigures: {figure}\n"
    (here / "figure.yaml").write_text(text)
    assert main([typed]) == 2
    said = capsys.readouterr().err
    assert sentence in said and said.count("\n") == 1


def test_an_experiment_may_be_anywhere_and_be_called_anything(here, capsys):
    folder = here / "a folder" / "deeper"
    folder.mkdir(parents=True)
    run = "[{dataset: {name: log1, n: 50}, algorithm: {name: gd, clip: 1}, seed: 0}]"
    text = f"# @package _global_\nblocks: {run}\nfigures: [{{kind: winners}}]\n"
    (folder / "my run.yaml").write_text(text)
    assert main([f"experiment={folder / 'my run.yaml'}", *QUICK]) == 0
    assert (here / "results" / "my run" / "results.parquet").is_file()
    assert main(["experiment='a folder/deeper/my run.yaml'", "mode=plan"]) == 0
    assert re.search(r"total +1 +1 +0 +0", capsys.readouterr().out)
