"""Test random command lines and experiments: exit code 0 or 2, no traceback.

Everything is planned, and nothing is run. `DP_ERM_BENCH_EXAMPLES=3000` makes the search
longer.
"""

import contextlib
import copy
import io
import os

import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from dp_erm_bench import registry
from dp_erm_bench.cli.main import main
from dp_erm_bench.experiment.schema import frame_keys as keys

EXAMPLES = int(os.environ.get("DP_ERM_BENCH_EXAMPLES", "0"))
SLOW = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
PARAMETERS = ["step", "clip", "passes", "n_iter", "batch_size", "order", "smoothness"]


def budget_of(examples):
    searching = EXAMPLES > 0
    return settings(
        max_examples=EXAMPLES or examples,
        derandomize=not searching,
        deadline=None,
        suppress_health_check=SLOW,
    )


def outcome(arguments):
    """Run a command line; return its code, which is 0, or 2 with one sentence."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(arguments)
    said = err.getvalue()
    assert code in (0, 2), said
    if code == 2:
        assert said.startswith("dp-erm-bench: ") and len(said.splitlines()) == 1, said
        assert said.rstrip() != "dp-erm-bench:" and not out.getvalue()
    else:
        assert "total" in out.getvalue()
    return code


@pytest.fixture(scope="module")
def away(tmp_path_factory):
    """A folder to be in."""
    folder = tmp_path_factory.mktemp("away")
    (folder / "experiment").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        yield folder


def choices(group):
    return st.sampled_from(registry.names(group))


# Data that must be fetched, or are large, would only be slow.
SMALL = st.sampled_from(["log1", "breast_cancer", "diabetes", "quasi_sparse", "file"])
NEAR = st.sampled_from(
    ["0", "1", "-1", "0.5", "1e-3", "inf", "nan", "null", "true", "''", "1/n", "1/n^2"]
    + ["auto", "data", "full", "cyclic", "[]", "[1,2]", "{a:1}", "1,2", "range(0,3)"]
    + ["range(0,0)", "range(0,", "choice(1,2)", "sort(2,1)", "glob(*)", "glob(z*)"]
    + ["interval(0,1)", "shuffle(1,2)", "tag(a,1)", "float(1)", "${seed}", "${nope}"]
    + ["${", "???", "1e999", "range(0,1e9)", "{unit:gradient_rms,values:[1]}", "a b"]
)
ANY = st.text(max_size=6)
VALUES = st.one_of(NEAR, NEAR, ANY, st.integers().map(str), st.floats().map(str))
KEYS = st.one_of(
    st.sampled_from([key for key in keys() if key != "mode"]),
    st.sampled_from(["calibration", "runner", "experiment", "sede", "budget", "+seed"]),
    st.sampled_from([f"dataset.{key}" for key in ["n", "p", "seed", "usual", "name"]]),
    st.sampled_from([f"dataset.{key}" for key in ["bounds", "standardise", "task"]]),
    st.sampled_from(["penalty.strength", "loss.kappa", "constraint.radius", "~seed"]),
    st.builds(
        "algorithm.{}.{}".format, choices("algorithm"), st.sampled_from(PARAMETERS)
    ),
    ANY,
)
ARGUMENTS = st.one_of(
    st.builds("{}={}".format, KEYS, VALUES),
    st.builds("{}={}".format, KEYS, VALUES),
    st.builds("dataset={}".format, SMALL),
    st.builds("algorithm={}".format, choices("algorithm")),
    st.builds("loss={}".format, choices("loss")),
    st.builds("penalty={}".format, choices("penalty")),
    st.builds("constraint={}".format, choices("constraint")),
    st.sampled_from(["-m", "--multirun", "--nope", "-p=a", "--resolve", "-cd=."]),
)


@budget_of(80)
@given(st.lists(ARGUMENTS, max_size=4))
@example(["dataset=log1", "algorithm=sgd"])
@example(["seed=" + "9" * 5000])
def test_no_command_line_gives_a_traceback(away, arguments):
    words = {"help", "-h", "--help", "list", "collect", "report", "compare", "check"}
    shown = [one for one in arguments if one not in words]
    outcome(["mode=plan", *shown])
    assert {*os.listdir(away)} <= {"experiment", ".hypothesis"}


TREE = yaml.safe_load(
    """
profile: small
profiles: {small: {steps: [0.5, 1], seeds: "range(0,2)"}}
blocks:
  - panel: a
    line: b
    dataset: {name: log1, n: 60, p: 5, seed: [1, 2]}
    loss: logistic
    penalty: {name: l2, strength: 1/n}
    algorithm: {name: random_cd, order: "cyclic,uniform"}
    budget: {epsilon: [1, 10], delta: 1/n^2, adjacency: replace_one}
    calibration: certified
    tune:
      axes:
        step: ${profiles.${profile}.steps}
        clip: {unit: gradient_rms, values: [0.5, 1]}
      seeds: ${profiles.${profile}.seeds}
      aside: [clip]
      report: "range(10,12)"
  - panel: a
    line: c
    dataset: {name: log1, n: 60, p: 5}
    algorithm: {name: sgd, clip: 1, batch_size: full}
    budget: {epsilon: 1, delta: 1.0e-6}
    seed: [0, 1]
figures: [{kind: leaderboard}]
claims:
  - {id: ratio, figure: a, under: [b, c], over: c, measure: ratio, at_most: 1,
     whose: ours, good: "{under}",
     statement: "{under} is best"}
"""
)
LEAVES = st.one_of(
    st.sampled_from([None, True, 0, 1, -1, 0.5, "", "a", "b", "log1", "sgd", "1/n"]),
    st.sampled_from([[], {}, [1, 2], {"name": "sgd"}, {"name": "log1"}, [[]], [{}]]),
    st.sampled_from(["range(0,2)", "range(0,", "1,2", "${profile}", "${nope}", "${"]),
    st.sampled_from(["${blocks}", "${..panel}", "???", float("nan"), float("inf")]),
    st.sampled_from([10**30, "interval(0,1)", {"unit": "gradient_rms", "values": [1]}]),
    ANY,
)
NAMES = st.one_of(
    st.sampled_from(["name", "axes", "seeds", "seed", "tune", "blocks", "epsilon"]),
    st.sampled_from(["_target_", "values", "inherit", "defaults", "runner", 3, None]),
    ANY,
)
CHANGES = st.sampled_from(["delete", "replace", "rename", "nest", "list", "copy"])


def places(tree):
    """Return every container in a tree with each of its keys."""
    inner = tree.items() if isinstance(tree, dict) else enumerate(tree)
    found = []
    for key, value in inner:
        found.append((tree, key))
        if isinstance(value, dict | list):
            found += places(value)
    return found


def changed(tree, change, where, name, leaf):
    """Change one node of a tree in place."""
    every = places(tree)
    if not every:
        return
    inside, key = every[where % len(every)]
    value = inside[key]
    if change == "delete":
        del inside[key]
    elif change == "rename" and isinstance(inside, dict):
        inside[name] = inside.pop(key)
    elif change == "copy":
        other, at = every[(where * 7 + 3) % len(every)]
        inside[key] = copy.deepcopy(other[at])
    else:
        new = {"replace": leaf, "rename": leaf, "nest": {name: value}, "list": [value]}
        inside[key] = new[change]


@pytest.mark.slow
@budget_of(80)
@given(
    st.lists(st.tuples(CHANGES, st.integers(0, 10**6), NAMES, LEAVES), max_size=3),
    st.sampled_from([[], ["panel=a"], ["profile=small"], ["budget.epsilon=2,3"]]),
)
def test_no_experiment_gives_a_traceback(away, changes, more):
    tree = copy.deepcopy(TREE)
    for change in changes:
        changed(tree, *copy.deepcopy(change))
    text = "# @package _global_\n" + yaml.safe_dump(tree, allow_unicode=True)
    file = away / "experiment" / "tiny.yaml"
    file.write_text(text, encoding="utf-8")
    code = outcome(["-cd=.", "experiment=tiny", "mode=plan", *more])
    assert code == 0 or changes
    assert {*os.listdir(away)} <= {"experiment", ".hypothesis"}


@budget_of(40)
@given(st.binary(max_size=60) | st.text(max_size=60).map(lambda t: t.encode()))
def test_no_file_gives_a_traceback(away, content):
    file = away / "experiment" / "tiny.yaml"
    file.write_bytes(b"# @package _global_\n" + content)
    outcome(["-cd=.", "experiment=tiny", "mode=plan"])
