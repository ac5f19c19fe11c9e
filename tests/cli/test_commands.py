import dataclasses

import pandas as pd
import pytest

from dp_erm_bench import registry
from dp_erm_bench.cli.listing import GROUPS, KEYS, list_choices
from dp_erm_bench.cli.main import main, run_command
from dp_erm_bench.experiment.schema import block_keys
from dp_erm_bench.paths import sealed_json
from tests.contract.own import SOUND
from tests.loops import each

CLAIMS = """\
paper,figure,statement,measured,threshold,value,verdict,profile
p,log1,Greedy [is] best,final error,<= 2,1.23456,holds,smoke
p,log1,Greedy is first,passes,<= 1,3.0,fails,smoke
p,mtp,Greedy is there,nothing yet,,,not run (no data set (yet)),smoke
"""


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "tiny"
    (made / "figures").mkdir(parents=True)
    (made / "claims.csv").write_text(CLAIMS)
    (made / "figures" / "log1.png").touch()
    return made


NEW = """\
paper,figure,statement,whose,good,measured,threshold,value,interval,of_zero,verdict,\
expected,open,profile
p,log1,Greedy is best,ours,gcd,final error,<= 2,1.5,"[1.2, 1.8]","0.5 [0.4, 0.6]",\
holds,fails: a tie,,default
p,log1,Greedy is first,paper,none (a width),steps,<= 1,1.0,"[1, 1]",,holds,,,default
p,log1,Greedy moves,paper,gcd,error,<= 1,0.9,"[0.8, 1.1]","1 [0.9, 1.1]",\
vacuous (error of gcd / that of w = 0: 1),,gcd: trials,default
"""


def test_claims_are_shown_with_whose_they_are_and_what_is_wrong_by_chance(
    folder, capsys
):
    (folder / "claims.csv").write_text(NEW)
    assert main(["report", str(folder)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "2 holds, 1 vacuous" in said and "holds, unexpected" in said
    assert "vacuous, open" in said and "whose" in said and "interval" in said
    assert "1 of 2 verdicts holds or fails rest on such an interval" in said
    assert "at most 0.0 of them are wrong by chance" in said


@pytest.mark.parametrize("group", [g for g in GROUPS if g not in KEYS])
def test_every_choice_is_listed_with_what_it_is(group):
    lines = list_choices(group).splitlines()
    for name in registry.names(group):
        # Parameters stand further in, and may have the name of a choice.
        chosen = [line for line in lines if not line.startswith("    ")]
        (line,) = [line for line in chosen if line.split()[0] == name]
        assert len(line.split()) > 2, f"{group} {name} says nothing about itself"


@each("name", registry.names("algorithm"))
def test_every_parameter_is_listed_with_default_and_meaning(name):
    text = list_choices("algorithm", [name])
    for field in dataclasses.fields(registry.target("algorithm", name)):
        assert field.metadata["help"] in text
        assert f"      {field.name} " in text


def test_list_takes_groups(capsys):
    assert run_command("list", ["penalty"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "penalty" and len(lines) == 1 + len(registry.names("penalty"))
    assert run_command("list", []) == 0
    assert "electricity" in capsys.readouterr().out


def test_settings_are_listed_with_their_words(capsys):
    assert run_command("list", ["settings"]) == 0
    said = capsys.readouterr().out
    assert "budget.adjacency" in said and "replace_one" in said


def test_every_key_of_a_block_is_listed_with_its_meaning(capsys):
    assert run_command("list", ["blocks"]) == 0
    lines = capsys.readouterr().out.splitlines()[1:]
    assert [line.split()[0] for line in lines] == [*block_keys()]
    assert all(entry.metadata["help"] for entry, _ in block_keys().values())


def test_list_takes_names_of_a_group(capsys):
    assert main(["list", "algorithm", "greedy_cd", "loss", "huber"]) == 0
    lines = capsys.readouterr().out.splitlines()
    heads = [line.split()[0] for line in lines if line and line[:3] != "   "]
    assert heads == ["algorithm", "greedy_cd", "loss", "huber"]


def test_the_parameters_of_a_file_are_listed(tmp_path, capsys):
    (tmp_path / "noisy_gd.py").write_text(SOUND)
    assert main(["list", "algorithm", str(tmp_path / "noisy_gd.py")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split()[0] == "noisy_gd" and len(lines[1].split()) > 1
    assert {"n_iter", "clip", "step"} & {line.split()[0] for line in lines[2:]}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["algorithm", "gredy_cd"], "did you mean greedy_cd?"),
        (["greedy_cd"], "list=greedy_cd"),
        (["settings", "seed"], "list=seed"),
        (["dataset", "log3"], "list dataset=log3"),
    ],
)
def test_list_refuses_other_names(arguments, said, capsys):
    assert main(["list", *arguments]) == 2
    out, err = capsys.readouterr()
    assert said in err and len(err.splitlines()) == 1 and not out


@pytest.mark.parametrize(
    ("group", "cells"),
    [
        ("algorithm greedy_cd", "rule GS-r GS-r|GS-s|GS-q greedy"),
        ("algorithm random_cd", "n_iter null integer >= 0|null number"),
        ("loss huber", "kappa 1.0 number"),
        ("constraint l2_ball", "radius 1.0 number"),
        ("settings", "runner.n_jobs auto integer|auto number of worker"),
        ("settings", "runner.retry [] [error|timeout|killed] run trials"),
        ("settings", "runner.progress true true|false show"),
        ("settings", "name null word|null name"),
        ("blocks", "tune.splits 1 integer number of values"),
        ("blocks", "budget.adjacency replace_one replace_one|zero_out which"),
    ],
)
def test_types_words_limits_and_defaults_are_listed(group, cells):
    name, *only = group.split()
    lines = [" ".join(line.split()) for line in list_choices(name, only).splitlines()]
    assert any(line.startswith(cells) for line in lines)


def test_report_prints_verdicts_and_figures(folder, capsys):
    assert run_command("report", [str(folder)]) == 0
    said = capsys.readouterr().out
    assert "tiny (profile smoke): 1 holds, 1 fails, 1 not run" in said
    assert "Greedy [is] best" in said and "1.235" in said
    assert "no data set (yet)" in said
    assert "log1.pdf and .png" in said


def test_report_of_an_empty_folder(tmp_path, capsys):
    assert run_command("report", [str(tmp_path)]) == 0
    assert "no claims" in capsys.readouterr().out


def test_collect_needs_a_plan(folder, capsys):
    assert run_command("collect", [str(folder)]) == 2
    assert "no results folder" in capsys.readouterr().err


@pytest.mark.parametrize("manifest", ["", "{", "[]", "{}", '{"config": null}'])
def test_collect_lives_without_a_manifest(folder, manifest, capsys):
    (folder / "manifest.json").write_text(manifest)
    (folder / "plan.jsonl").touch()
    assert run_command("collect", [str(folder)]) == 0
    assert "results.parquet" in capsys.readouterr().err


def test_collect_draws_and_judges_again(folder, monkeypatch, capsys):
    seen = []
    figures = registry.read_choice("experiment", "mangold2022")["figures"][:1]
    config = {"figures": figures, "claims": [{"id": "x"}]}
    (folder / "manifest.json").write_bytes(sealed_json({"config": config}))
    (folder / "plan.jsonl").touch()
    monkeypatch.setattr(
        "dp_erm_bench.report.panels.Panels.draw",
        lambda panels, given: seen.append((given.folder, given.paper)) or [],
    )
    monkeypatch.setattr(
        "dp_erm_bench.report.claims.judge.evaluate_claims",
        lambda table, given: pd.DataFrame({"verdict": ["holds"], "figure": ["log1"]}),
    )
    assert run_command("collect", [str(folder)]) == 0
    assert seen == [(folder / "figures", "tiny")]
    assert "tiny: 1 holds" in capsys.readouterr().out


def test_a_word_that_is_no_command(capsys):
    assert main(["colect", "x"]) == 2
    assert "did you mean collect?" in capsys.readouterr().err
