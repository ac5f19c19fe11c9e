"""Test problems that an algorithm refuses: a skipped row, or the same message.

A sweep records the row, and a fit raises the error.
"""

import functools

import pytest

from dp_erm_bench.api import fit
from dp_erm_bench.datasets.spec import dataset_spec
from dp_erm_bench.errors import Unsupported, UsageError, in_python
from dp_erm_bench.experiment.lines import Setting, Trial
from dp_erm_bench.rules.settings import RULES, Rule
from dp_erm_bench.runner.execute import problem_of_trial, run_batch
from tests.loops import each
from tests.serving import RISKS, constraint_of, known

ALGORITHMS = RISKS
BOUNDS = {"columns": 3.0, "norm": 3.0, "label": 1.0}
SETS = ("l2_ball", "l1_ball", "simplex")
NONE = Rule("", {}, dict)
STRONG = {"name": "l2", "strength": 0.1}


def spec_of(algorithm, loss="logistic", penalty=STRONG, delta="1/n^2", **given):
    data = {**dataset_spec("log1"), "n": 60, "p": 4}
    bounded = {"bounds": BOUNDS, "clip_to_bounds": True}
    bounds = bounded if given.pop("bounds", True) else {}
    constraint = given.pop("constraint", constraint_of(algorithm))
    return {
        "dataset": {**data, **bounds},
        "loss": {"name": loss},
        "penalty": penalty,
        "constraint": {"name": constraint},
        "algorithm": {"name": algorithm, "params": given.pop("params", {})},
        "budget": {"epsilon": 1.0, "delta": delta, "adjacency": "replace_one"},
        "calibration": "certified",
        "seed": 0,
        "n_checkpoints": 2,
        **given,
    }


@functools.cache
def clipped(algorithm):
    given = known(algorithm, clip=1.0, n_iter=3, passes=1)
    if "ridge" in RULES.get(algorithm, NONE).meanings and algorithm != "ssp":
        given["ridge"] = 0.0
    if "n_iter" in given:  # it stands in place of passes
        given.pop("passes", None)
    return tuple(given.items())


# What is wrong, and words of the reason; an algorithm may serve it all the same.
CASES = {
    "no bounds and no clip": ({"bounds": False}, False, "declared bounds"),
    "no strong convexity": ({"penalty": {"name": "none"}}, True, "strong convexity"),
    "squared loss on the whole space": ({"loss": "squared"}, False, "needs "),
    **{
        f"the set {name}": ({"constraint": name}, True, f"constraint={name}")
        for name in SETS
    },
    "a set with an L1 penalty": (
        {"constraint": "l1_ball", "penalty": {"name": "l1", "strength": 0.1}},
        True,
        "penalty=l1|constraint=l1_ball|strong convexity",
    ),
    "normal noise at delta = 0": ({"delta": 0.0}, True, "delta=0"),
}


def outcome(algorithm, case):
    """The record of a batch, and the sentence of a single fit, None if it ran."""
    change, clips, _ = CASES[case]
    spec = spec_of(algorithm, params=dict(clipped(algorithm)), **change)
    if not clips and "clip" in spec["algorithm"]["params"]:
        spec["algorithm"]["params"]["clip"] = None  # not the default threshold
    (record,) = run_batch([Trial(Setting(spec, (), (), "digest"), 0, 2, "key")])
    budget = spec["budget"]
    try:
        fit(problem_of_trial(spec), algorithm, **budget, **spec["algorithm"]["params"])
    except Unsupported as error:
        return record, str(error)
    return record, None


@each("case", CASES)
@each("algorithm", ALGORITHMS)
def test_it_is_served_or_refused_alike_by_sweeps_and_fits(algorithm, case):
    record, sentence = outcome(algorithm, case)
    if sentence is None:
        assert (record["status"], record["message"]) == ("ok", "")
        return
    # Of a fit it names arguments of Python.
    said = str(in_python(UsageError(record["message"])))
    # Of a shipped dataset it names the default bounds, too.
    hint = "; load_problem('log1', bounds='default') takes those of its yaml"
    assert record["status"] == "skipped" and sentence in (said, said + hint)
    assert "\n" not in sentence and len(sentence.split()) > 4


@pytest.mark.parametrize("case", CASES)
def test_some_refuse_it_with_the_reason(case):
    found = {name: outcome(name, case)[1] for name in ALGORITHMS}
    refused = {name: sentence for name, sentence in found.items() if sentence}
    assert refused
    words = CASES[case][2].split("|")
    for name, sentence in refused.items():
        assert any(word in sentence for word in words), (name, sentence)


def test_who_refuses_what():
    def refusing(case):
        return {name for name in ALGORITHMS if outcome(name, case)[1]}

    solving = {name for name in ALGORITHMS if "perturbation" in name}
    solving.add("dual_frank_wolfe")
    assert refusing("no strong convexity") == solving
    assert refusing("no bounds and no clip") == {*ALGORITHMS}
    free = {name for name in ALGORITHMS if constraint_of(name) == "none"}
    # Least squares are exact without clipping, where records and labels are bounded.
    assert refusing("squared loss on the whole space") == free - {"ssp"}
    unconstrained = {"greedy_cd", "random_cd", "svrg"}
    unconstrained |= {"feature_covariance", "newton", "ssp"}
    assert refusing("the set l1_ball") == unconstrained
    assert refusing("the set l2_ball") == unconstrained | {
        "frank_wolfe",
        "mirror_descent",
    }
    assert {"sgd", "gd", "output_perturbation"} <= refusing("normal noise at delta = 0")
    assert "greedy_cd" not in refusing("normal noise at delta = 0")
