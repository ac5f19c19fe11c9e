import copy
import json
import pickle

import numpy as np
import pytest

from dp_erm_bench import code_identity
from dp_erm_bench.constraints.sets import Polytope
from dp_erm_bench.experiment import lines
from dp_erm_bench.experiment.expand import expand_blocks
from dp_erm_bench.experiment.lines import code_fingerprint, line_of
from dp_erm_bench.runner.execute import problem_of_trial

SOLVER = "dp_erm_bench.solvers.random_cd.RandomCD"


def only(block):
    (line,), missing = expand_blocks([block])
    assert missing == []
    return line.setting().trial(0, 51)


def trial_of(spec):
    """The trial of a complete spec, as `expand_blocks` would make it."""
    return line_of(spec).setting().trial(spec["seed"], spec["n_checkpoints"])


def changed(block, path, value):
    made = copy.deepcopy(block)
    *parents, last = path.split(".")
    inner = made
    for key in parents:
        inner = inner.setdefault(key, {})
    inner[last] = value
    return made


CHANGES = {
    "dataset.seed": 11,
    "dataset.noise": 0.5,
    "dataset.standardise": True,
    "dataset.test_fraction": 0.25,
    "loss": "squared",
    "penalty": {"name": "l2", "strength": 0.5},
    "constraint": "none",
    "algorithm.passes": 3,
    "algorithm.step": 0.5,
    "algorithm.clip": 2.0,
    "algorithm.order": "cyclic",
    "algorithm.smoothness": "data",
    "budget.epsilon": 2,
    "budget.delta": 1e-6,
    "budget.adjacency": "zero_out",
    "calibration": "paper",
}


def test_each_field_that_decides_a_number_changes_the_key(block):
    base = block()
    trials = [only(changed(base, path, value)) for path, value in CHANGES.items()]
    same = [i for i, path in enumerate(CHANGES) if path == "constraint"]
    keys = [trial.key for trial in trials]
    identities = [trial.identity for trial in trials]
    assert len(set(keys) | {only(base).key}) == len(CHANGES) + 1 - len(same)
    assert len(set(identities)) == len(CHANGES)
    assert keys[same[0]] == only(base).key


def test_vertices_count_by_their_content_not_by_their_file(block, tmp_path):
    base = block(algorithm={"name": "frank_wolfe", "clip": 1.0})
    p = only(base).spec["dataset"]["p"]
    listed = Polytope.example(p)["vertices"]
    np.save(tmp_path / "v.npy", listed)
    np.savetxt(tmp_path / "v.csv", listed, delimiter=",", fmt="%.17g")

    def trial(vertices):
        space = {"name": "polytope", "vertices": vertices}
        return only(changed(base, "constraint", space))

    same = [trial(v) for v in (listed, *map(str, sorted(tmp_path.iterdir())))]
    assert len({one.key for one in same}) == len({one.identity for one in same}) == 1
    stored = json.loads(json.dumps(same[-1].spec))
    assert str(tmp_path) not in json.dumps(stored)
    assert trial_of(stored).key == same[0].key
    assert problem_of_trial(stored).constraint == Polytope(listed)
    other = trial(Polytope.example(p, 2.0)["vertices"])
    assert other.key != same[0].key and other.identity != same[0].identity
    files = [str(path) for path in tmp_path.iterdir()]
    many = changed(base, "constraint", {"name": "polytope", "vertices": files})
    assert len(expand_blocks([many])[0]) == 2


@pytest.mark.parametrize(
    "path, value",
    [
        ("panel", "another"),
        ("line", "another"),
        ("algorithm.passes", 2.0),
        ("algorithm.passes", "2"),
        ("algorithm.clip", 1),
        ("algorithm.step", 1),
        ("algorithm.step", 1.0),
        ("algorithm.n_iter", None),
        ("budget.epsilon", "1"),
        ("budget.adjacency", "replace_one"),
        ("budget.delta", "1/n^2"),
        ("calibration", "certified"),
        ("loss", "logistic"),
        ("penalty", {"name": "l2", "strength": 0.001}),
        ("penalty", {"name": "auto"}),
        ("dataset.seed", 10),
        ("dataset.sigma", 1),
    ],
)
def test_labels_defaults_and_spelling_do_not(block, path, value):
    assert only(changed(block(), path, value)).key == only(block()).key


def test_seed_changes_the_draws_but_checkpoints_only_the_record(block):
    (line,), _ = expand_blocks([block()])
    setting = line.setting()
    first, again = setting.trial(0, 51), setting.trial(0, 51)
    assert (first.key, first.identity) == (again.key, again.identity)
    assert setting.trial(1, 51).identity != first.identity
    coarse = setting.trial(0, 2)
    assert coarse.identity == first.identity
    assert coarse.key != first.key


def test_infinite_epsilon_is_spelled_in_json(block):
    trial = only(block(budget={"epsilon": float("inf")}))
    assert trial.spec["budget"]["epsilon"] == "inf"
    assert trial.key == only(block(budget={"epsilon": "inf"})).key


def test_a_trial_is_made_again_from_its_spec(block):
    trial = only(block())
    again = trial_of(trial.spec)
    assert (again.key, again.identity) == (trial.key, trial.identity)
    assert again.spec == trial.spec


def test_a_worker_gets_the_same_trial_without_its_line(block):
    trial = only(block())
    sent = pickle.dumps(trial)
    again = pickle.loads(sent)
    for part in ("spec", "identity", "key", "owner"):
        assert getattr(again, part) == getattr(trial, part)
    assert b"Problem" not in sent and again.setting.line.panel == ""


def fresh_fingerprint(target=SOLVER, *chosen):
    for cached in (code_fingerprint, code_identity.file_of):
        cached.cache_clear()
    return code_fingerprint(target, chosen)


def test_a_solver_of_ones_own_is_followed_into_its_imports(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    package = tmp_path / "own_solver_package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "helper.py").write_text("VALUE = 1\n")
    (package / "solver.py").write_text(
        "from own_solver_package.helper import VALUE\nimport json\n\n"
        "class Mine:\n    value = VALUE\n"
    )
    target = "own_solver_package.solver.Mine"
    before = fresh_fingerprint(target)
    assert before == fresh_fingerprint(target)
    (package / "helper.py").write_text("VALUE = 2\n")
    after = fresh_fingerprint(target)
    assert after != before
    (package / "unused.py").write_text("VALUE = 3\n")
    (package / "helper.py").write_text("# A comment.\nVALUE = (\n    2\n)\n")
    assert fresh_fingerprint(target) == after


def test_solvers_differ_and_a_library_of_another_version_counts(monkeypatch):
    before = fresh_fingerprint()
    assert before != code_fingerprint("dp_erm_bench.solvers.sgd.SGD")
    monkeypatch.setattr(lines, "_minor_version", lambda name: "0.1")
    assert fresh_fingerprint() != before
    monkeypatch.undo()
    assert fresh_fingerprint() == before


def test_what_is_chosen_by_its_name_is_in_the_key(block):
    """Its class, the loader of its data and the norm of a ball."""
    norms = [{"name": "norm_ball", "norm": name} for name in ("cardinality", "range")]
    base = changed(block(algorithm={"name": "gd", "clip": 1.0}), "dataset.p", 4)
    both = [expand_blocks([changed(base, "constraint", norm)])[0][0] for norm in norms]
    chosen = [{*map(name_of, lines.chosen_by(line.problem))} for line in both]
    assert chosen[0] ^ chosen[1] == {"CardinalityNorm", "RangeNorm"}
    assert {"Logistic", "NormBall", "linear_classification"} <= chosen[0]


def name_of(code):
    return code.rpartition(".")[2] if isinstance(code, str) else code.__name__
