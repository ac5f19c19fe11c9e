"""Test that lines differ in exactly the settings that can change a number."""

import dataclasses
import inspect
import itertools

import numpy as np
import pytest

from dp_erm_bench.api import problem_from_arrays
from dp_erm_bench.datasets.spec import DEFAULTS, dataset_spec, is_generated
from dp_erm_bench.errors import UsageError
from dp_erm_bench.experiment import schema
from dp_erm_bench.registry import CHOSEN, OBJECTIVE, locate, names, read_choice
from dp_erm_bench.report.view import View, rows_of_view, summary_of
from dp_erm_bench.results.settings import final_rows, label_table
from dp_erm_bench.results.statistics import check_alike
from dp_erm_bench.results.table import schema_of, table_of
from tests.loops import each

X = np.random.default_rng(0).uniform(-0.5, 0.5, (12, 4))
Y = np.where(X.sum(axis=1) > 0, 1.0, -1.0)


def spec_of(dataset="log1", loss="logistic", penalty="l2", constraint="none", **others):
    """The spec of a trial, its parts described as a trial's are."""
    penalty = {"name": penalty} if isinstance(penalty, str) else penalty
    if penalty["name"] not in ("none", "box"):
        penalty = {"strength": 0.1, **penalty}
    posed = problem_from_arrays(X, Y, loss=loss, penalty=penalty, constraint=constraint)
    dataset = dataset if isinstance(dataset, dict) else {"name": dataset}
    usual = {
        "algorithm": {"name": "gd", "params": {"step": 0.5}},
        "budget": {"epsilon": 1.0, "delta": 1e-5, "adjacency": "replace_one"},
        "calibration": "certified",
    }
    parts = {part: posed.spec[part] for part in OBJECTIVE}
    return {"dataset": dataset_spec(**dataset), **parts, **usual, **others}


def table(*specs, contents=(), phase="sweep", repeats=2):
    """Some runs of each spec, those of the k-th ending at k."""
    trials = []
    for k, spec in enumerate(specs):
        for seed in range(repeats):
            line = {
                **{
                    "key": f"{k} {seed}",
                    "experiment": "study",
                    "panel": "",
                    "line": "",
                },
                **{"phase": phase, "tuned": False, "spec": {**spec, "seed": seed}},
                "content": contents[k] if contents else "",
            }
            path = {"iteration": [0, 4], "objective": [9.0, float(k)]}
            facts = {"n": 12, "p": 4, "epsilon_certified": 1.0}
            record = {"status": "ok", "facts": facts, "trajectory": path}
            trials.append((line, record))
    return table_of(trials, schema_of()).to_pandas()


def medians(rows):
    """The medians of what is told apart, by its panel and line."""
    ends = final_rows(label_table(rows))
    return ends.groupby(["panel", "line"])["objective"].median().to_dict()


def check_told_apart(*specs):
    """Refuse one line, or wrong medians, of specs that differ."""
    found = medians(table(*specs))
    assert sorted(found.values()) == [float(k) for k in range(len(specs))], found


@each(
    "key, values",
    [
        ("dataset", [{"name": "log1"}, {"name": "log1", "p": 50}]),
        ("constraint", [{"name": "l2_ball", "radius": r} for r in (1.0, 2.0, 3.0)]),
    ],
)
def test_every_door_keeps_apart_what_differs(key, values):
    specs = [spec_of(**{key: value}) for value in values]
    ends = [float(k) for k in range(len(specs))]
    rows = table(*specs)
    drawn = summary_of(
        rows_of_view(label_table(rows), View(x="epsilon", y="objective"))
    )
    assert sorted(drawn.loc[drawn["runs"] > 0, "median"]) == ends
    lines = label_table(final_rows(rows)).groupby(["panel", "line"])["objective"]
    assert sorted(lines.median()) == ends
    with pytest.raises(UsageError, match=f"would pool {len(specs)} values of"):
        check_alike(final_rows(rows), ["algorithm"], "keep one")


WORDS = {
    "positive": ([1], [-1]),
    "standardise": (True, "scale"),
    "bounds": ({"columns": 2}, {"columns": 3}),
    "n_fresh": (10, 20),
    "classes": ([-1, 1], [0, 1]),
    "scale": ("bounds", None),
    "task": ("regression", "unlabelled"),
    "set": ("a1a", "a9a"),
    "blocks": (2, 4),
    "path": ("a.csv", "b.csv"),
    "format": ("csv", "npz"),
    "label": ("y", "z"),
    "header": (False, True),
    "onehot": (["a"], ["b"]),
    "index": ("a", "b"),
    "text": (["a"], ["b"]),
    "first": (0, 1),
    "plateau": (0.1, 0.2),
    "drop": (["a"], ["b"]),
    "p": (3, 4),
}
"""Two values of keys of datasets that are no numbers."""

NO_OPTION = ("seed", "words", "labelled", "intercept")
"""Arguments of loaders that other keys give."""

NO_NUMBER = {
    "usual": "chooses loss, penalty and strength, which have columns",
    "usual_standardised": "as usual",
    "usual_regression": "as usual",
    "public": "a declaration",
}
"""Keys of datasets that decide no number, and why."""


def options_of(name):
    """The keys of a dataset, each with its usual value and others.

    Keys that all datasets have are those of a few: generated, published, of a file.
    """
    yaml = read_choice("dataset", name)
    loader = inspect.signature(locate(yaml["_target_"])).parameters
    common = DEFAULTS if name in ("log1", "wine", "file") else {}
    for key in {**common, **{k: 0 for k in loader if k not in NO_OPTION}}:
        if key == "seed" or key in NO_NUMBER:
            continue
        own = loader[key].default if key in loader else DEFAULTS.get(key)
        usual = yaml.get(key, own)
        if isinstance(usual, bool):
            others = (not usual,)
        elif isinstance(usual, int | float) and (key in loader or key not in WORDS):
            others = (usual + 1, usual + 2)
        else:
            others = WORDS[key]
        yield key, usual, [one for one in others if one != usual]


def test_each_key_of_a_dataset_tells_lines_apart():
    """The usual value, unsaid and said, and another one; then two others."""
    rounds = itertools.zip_longest(*map(cases_of, names("dataset")))
    for cases in rounds:
        specs, expected = [], []
        for specs_of_case, ends in filter(None, cases):
            expected += [len(specs) + end for end in ends]
            specs += specs_of_case
        found = medians(table(*specs))
        assert sorted(found.values()) == expected, [*found]


def cases_of(name):
    """Yield specs of a dataset that differ in one key, and what their lines end at."""
    for key, usual, others in options_of(name):
        member = {"set": "a2a"} if name == "libsvm" and key != "set" else {}
        unsaid, said, *rest = (
            spec_of({"name": name, **member, **given})
            for given in ({}, *({key: one} for one in (usual, *others)))
        )
        if key not in ("path", "set"):
            yield [unsaid, said, rest[0]], [0.5, 2.0]
        if len(rest) > 1:
            yield rest[:2], [0.0, 1.0]


GROUPS = [[0, 1], [2, 3]], [[0, 1, 2], [2, 3]]
CORNERS = [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1], [-1, -1, -1, -1]]
COUNTS = [[bin(one).count("1") ** power for one in range(16)] for power in (0.5, 0.7)]
VALUES = {
    **{"kappa": (1.0, 2.0, 3.0), "h": (0.5, 0.6, 0.7), "l1_ratio": (0.5, 0.6, 0.7)},
    **{"lower": (-1.0, -2.0, -3.0), "upper": (1.0, 2.0, 3.0), "l2": (0.0, 0.1, 0.2)},
    **{"radius": (1.0, 2.0, 3.0), "function": ("count", "sqrt"), "groups": GROUPS},
    **{"cap": (2.0, 3.0), "weights": ([[1, 1]], [[1, 2]], [[2, 2]])},
    **{"values": [[one] for one in COUNTS], "uncovered": ("refused", "free")},
    "norm": ("cardinality", "range"),
    "vertices": [(scale * np.array(CORNERS)).tolist() for scale in (1.0, 2.0, 3.0)],
}
"""Values of each parameter of a loss, penalty or constraint, the usual one first."""

BESIDE = {
    "cap": {"function": "capped"},
    "weights": {"groups": GROUPS[0]},
    "uncovered": {"groups": GROUPS[0]},
}
NEEDED = {"groups": {"groups": GROUPS[0]}, "submodular": {"values": [COUNTS[0]]}}


@each("part", OBJECTIVE)
def test_each_parameter_of_an_objective_tells_lines_apart(part):
    for name in names(part):
        made = locate(read_choice(part, name)["_target_"])
        for key in {field.name for field in dataclasses.fields(made)} - {"strength"}:
            beside = {**NEEDED.get(name, {}), **BESIDE.get(key, {})}
            if name == "norm_ball" and key in ("groups", "weights", "values"):
                kind = "submodular" if key == "values" else "groups"
                beside |= {"norm": kind, **NEEDED[kind]}
            specs = [
                spec_of(**{part: {"name": name, **beside, key: value}})
                for value in VALUES[key]
            ]
            check_told_apart(*specs)


def test_names_of_parts_and_the_strength_tell_lines_apart():
    for part, pair in {
        **{"loss": ("logistic", "hinge"), "penalty": ("l2", "l1")},
        "constraint": ("none", "l2_ball"),
    }.items():
        check_told_apart(*(spec_of(**{part: name}) for name in pair))
    l2 = [{"name": "l2", "strength": strength} for strength in (0.1, 0.2, 0.3)]
    check_told_apart(*(spec_of(penalty=one) for one in l2))
    check_told_apart(*(spec_of(calibration=one) for one in ("certified", "paper")))
    usual = {"epsilon": 1.0, "delta": 1e-5, "adjacency": "replace_one"}
    for key, value in {"delta": 1e-6, "adjacency": "zero_out"}.items():
        check_told_apart(spec_of(), spec_of(budget={**usual, key: value}))


FRAME = {
    "seed": "repeats",
    "mode": "says whether anything runs",
    "name": "of the folder",
    "results_dir": "of the folder",
    "panel": "picks panels of an experiment",
    "profile": "picks values of other keys",
}


def test_no_other_key_of_the_schema_decides_a_number():
    """What a sweep may set: parts, a budget, the seed, and how it is run."""
    others = {key for key in schema.frame_keys() if "." not in key}
    assert others == {*FRAME}
    sections = {key.partition(".")[0] for key in schema.frame_keys() if "." in key}
    assert sections == {"budget", "runner"}
    assert {*CHOSEN} == {"problem", "dataset", *OBJECTIVE, "algorithm", "calibration"}


def test_numbers_that_agree_in_six_digits_are_two():
    pair = [{"name": "log1", "noise": noise} for noise in (0.9, 0.90000004)]
    check_told_apart(*map(spec_of, pair))
    strengths = [{"name": "l2", "strength": s} for s in (0.3, 0.30000004)]
    check_told_apart(*(spec_of(penalty=one) for one in strengths))


def test_objectives_that_differ_in_an_option_do_not_compete():
    balls = [{"name": "l2_ball", "radius": radius} for radius in (1.0, 2.0)]
    rows = label_table(table(*(spec_of(constraint=one) for one in balls), repeats=7))
    drawn = rows_of_view(rows, View(x="epsilon", y="objective"))
    assert not summary_of(drawn)["best"].any()
    assert "Lines that differ in constraint's radius minimise different" in drawn.unlike
    # Nor do lines on other data, in a panel that was asked for.
    data = [{"name": "log1"}, {"name": "log1", "p": 50}, {"name": "log2"}]
    rows = label_table(table(*(spec_of(one) for one in data), repeats=7))
    asked = View(x="epsilon", y="objective", panel=("loss",))
    drawn = rows_of_view(rows, asked)
    assert not summary_of(drawn)["best"].any() and drawn.rows["line"].nunique() == 3
    assert "Lines that differ in dataset and log1's p minimise" in drawn.unlike


def test_what_differs_of_the_data_is_of_a_panel_that_a_plan_names():
    """As of two folders of `tune`, which calls a panel by the stem of a file."""
    specs = [spec_of({"name": "file", "path": f"{one}/data.csv"}) for one in "ab"]
    rows = table(*specs, contents="ab", phase="report")
    rows = rows.assign(panel="data", line="gd")
    drawn = rows_of_view(rows, View(x="epsilon", y="objective"))
    assert {*drawn.rows["panel"]} == {"data, path=a/data.csv", "data, path=b/data.csv"}
    assert {*drawn.rows["line"]} == {"gd"}


def test_seeds_of_data_are_repeats():
    splits = [
        spec_of({"name": "wine", "test_fraction": 0.2, "seed": k}) for k in range(5)
    ]
    rows = table(*splits).assign(test_objective=1.0)
    assert medians(rows) == {("wine", "gd"): 2.0}
    drawn = rows_of_view(label_table(rows), View(x="epsilon", y="objective"))
    assert "2 seeds, 5 splits" in drawn.pooled
    draws = [spec_of({"name": "log1", "seed": k}) for k in range(2)]
    drawn = rows_of_view(label_table(table(*draws)), View(x="epsilon", y="objective"))
    assert "2 draws of the data" in drawn.pooled
    assert is_generated("log1") and not is_generated("wine")


def test_a_file_is_its_content():
    def files(*paths, contents=()):
        specs = [spec_of({"name": "file", "path": path}) for path in paths]
        return medians(table(*specs, contents=contents))

    both = "siteA/data.csv", "siteB/data.csv"
    apart = files(*both, contents="ab")
    assert [panel for panel, _ in apart] == [f"file, path={path}" for path in both]
    assert len(files(*both, contents="aa")) == 1
    changed = files("data.csv", "data.csv", contents="ab")
    assert sorted(changed.values()) == [0.0, 1.0]
    assert all("path=data.csv (" in panel for panel, _ in changed)
    (alone, _), *_ = files("/home/me/data.csv", contents="a")
    assert "path" not in alone
