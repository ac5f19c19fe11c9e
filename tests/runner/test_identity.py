"""Test that identities never change: they seed the noise of published numbers."""

import dataclasses
import hashlib
import os
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from dp_erm_bench import (
    fit,
    load_problem,
    paths,
    problem_from_arrays,
    registry,
)
from dp_erm_bench.constraints.sets import Polytope
from dp_erm_bench.datasets import spec as dataset_specs
from dp_erm_bench.datasets.load import VARIABLE
from dp_erm_bench.errors import Unsupported, in_python
from dp_erm_bench.experiment import lines, parameters
from dp_erm_bench.experiment.expand import expand_blocks
from dp_erm_bench.plugins import passed
from dp_erm_bench.run import Run
from dp_erm_bench.runner import execute
from dp_erm_bench.runner.execute import run_batch
from dp_erm_bench.solvers.base import shape, value

RECORDS = "a,b,label\n" + "".join(
    f"{i % 7 - 3},{i % 5 - 2.5},{i % 2}\n" for i in range(40)
)
# Without the name of any module of ours: that is part of a file's content.
OWN = '''"""A solver of one's own."""

from dataclasses import dataclass, field

from identity_base import Base
from own_helper import LENGTH


@dataclass(frozen=True)
class Own(Base):
    """Gradient descent with a number more.

    References
    ----------
    None.
    """

    more: int = field(default=LENGTH, metadata={"kind": "shape", "help": "a number"})
'''
FILES = {"records.csv": RECORDS, "own.py": OWN, "own_helper.py": "LENGTH = 3\n"}

SMALL = {"name": "log1", "n": 60, "p": 5}
CLIPPED = {"columns": 3, "norm": 4.0, "label": 1}
RANDOM = {"name": "random_cd", "clip": 1.0, "passes": 2, "step": 1.0}
ALL = {"step": 1.0, "batch_size": 1}
"""What was a default before it was a rule."""

GREEDY = {"name": "greedy_cd", "n_iter": 7, "rule": "GS-r", "step": 1.0, "clip": None}
BLOCKS = {
    "as it stands": {},
    "another seed": {"seed": 2**40},
    "defaults": {"algorithm": {"name": "gd", "n_iter": 20, "step": 1, "clip": None}},
    "null words": {
        "dataset": {"name": "quasi_sparse", "n": 40, "p": 6},
        "algorithm": {
            "name": "random_cd",
            "order": "cyclic",
            "clip": None,
            "n_iter": 9,
            "step": 1,
        },
    },
    "private M": {"algorithm": {**RANDOM, "smoothness": "private"}},
    "no noise": {"budget": {"epsilon": "inf", "delta": 1e-6}},
    "a budget": {"budget": {"epsilon": 0.5, "delta": "1/n", "adjacency": "zero_out"}},
    "paper": {"calibration": "paper"},
    "authors": {
        "algorithm": {"name": "sgd", "clip": 1, "passes": 10, **ALL},
        "calibration": "authors",
    },
    "overrides": {
        "dataset": {**SMALL, "sigma": 2, "standardise": True, "test_fraction": 0.2}
    },
    "scaled": {"dataset": {**SMALL, "seed": 3, "standardise": "scale"}},
    "bounds": {
        "dataset": {**SMALL, "bounds": CLIPPED, "clip_to_bounds": True},
        "algorithm": GREEDY,
    },
    "bundled": {"dataset": "breast_cancer", "algorithm": {"name": "svrg", "clip": 1}},
    "a mirror's": {"dataset": "libsvm:heart_scale", "algorithm": RANDOM},
    "a regression": {
        "dataset": {"name": "sparse_lasso", "n": 80, "p": 20},
        "loss": {"name": "huber", "kappa": 2},
        "penalty": {"name": "elastic_net", "strength": "1/n", "l1_ratio": 0.25},
    },
    "own bounds": {
        "dataset": {"name": "quasi_sparse", "n": 60, "p": 6, "alpha": 0.5},
        "penalty": "none",
        "algorithm": {"name": "output_perturbation", "ridge": 0.5},
    },
    "a ball": {
        "constraint": {"name": "l1_ball", "radius": 2},
        "algorithm": {"name": "mirror_descent", "clip": 0.5, "n_iter": 20, "step": 1.0},
    },
    "vertices.npy": {
        "constraint": {"name": "polytope", "vertices": "vertices.npy"},
        "algorithm": {"name": "frank_wolfe", "n_iter": 5, "clip": 1},
    },
    "records.csv": {
        "dataset": {
            "name": "file",
            "path": "records.csv",
            "positive": [1],
            "bounds": {"columns": 3},
        },
        "penalty": {"name": "l2", "strength": 0.25},
        "algorithm": {"name": "permutation_sgd", "passes": 2, "clip": None, **ALL},
    },
    "own.py": {"algorithm": {"name": "own.py", "step": 0.5, "clip": 2}},
    "entry point": {"algorithm": {"name": "outside", "step": 0.5, "clip": 2}},
    "an audit": {"task": {"name": "audit", "runs": 3}, "seed": 1},
    "an accounting": {"task": {"name": "accounting", "lengths": [7]}},
}
FROZEN = {
    "as it stands": "8b162769c5cacaca92f2aee3b894afbbbfc413bcca365219c354181ba1b0f6be",
    "another seed": "80c2d389c1e00aacc3ed6ba8a65a7e3859fa873bafacc1f8bddc1f294a900445",
    "defaults": "de658d85f6d27ca1cda92aba966e9c5c711674ba73406ac5f89187e62437a709",
    "null words": "94223024baef6f2f2be6ef447e77f0d9e769d9ebc9cafee103a0b671d822fd98",
    "private M": "0a8aa1f8ea3e0816235ab845f2fa69c994fb3e2ad37be55ca752ccf78ef11558",
    "no noise": "719cd381594f62a0896ee265dd5e4c4e8848299ea9efb9dca4074d20a03c6620",
    "a budget": "af695988acbc90caf91520f374c0caed264b3fe86ce6eeb8ce14327d609a85eb",
    "paper": "a1668689ca851431adbba1d844b2b10cdd7633cd1136b590fad55d666047506a",
    "authors": "6ebb8981a261a324afade0efae4d8de2f0fbd5ce5f8245412005ffb2cbbff9e0",
    "overrides": "12dc5c0772b34778ee0bf6d09f804faf91b18eb529755933735415dc67490618",
    "scaled": "7589a482ff792c595cebb5c0947d75a21d8c5f3691d8c495e2e8edd6ef8151d7",
    "bounds": "edf217990dedcca3356a042a682e87e33a7f6be312c27030d371e403054ff5b1",
    "bundled": "6c584e5c6d8a84b6d69cfd7258f4f3fcb08308fe6c46ba7c11802fa1ae497581",
    "a mirror's": "cbe34e255d27be9249e721b56b7a667410b974918ccc7effbc5f9beecd1b9726",
    "a regression": "3b1086d7bb2da6dcc49eb1cadf21ea299f135a042c6a0b0ecfabb9608de7c1fc",
    "own bounds": "4796bd5e0e78de9b55283f565f4c88312946443d99f6334bf367bc25f6255070",
    "a ball": "24924985d3b7d47fe163f5ebb0281902486883e332599a1a8abd9fda33f54b58",
    "vertices.npy": "91ae0232a51a6faef41a0c2b7edccfed732e85651df729bed12dbf0430dce93b",
    "records.csv": "52a6ac2c459e0f2c5cd7308efad88a728c8b533743da5df1acef1155da7b2945",
    "own.py": "87dbe595eaed7ad6d3a337045c14e1485984ff7aa8eafd18ebe5e0a12a61d9e2",
    "entry point": "41e0020d73eb1ebe1b9ad2f7dda18ecee177ec94f318ba3dc3a08dd1f3e4c74d",
    "an audit": "78ffb348d04f4803f07b3f35c5dbaa8868f74bd364b42bbc8eac6e0f77cd4881",
    "an accounting": "40d3e8976e99e8f6782a5bee9b0248ac2406ce1f6a04e497ce657df6f4cfc1bd",
}
MOVED = """the identity of {name!r} has moved: every published number of such trials \
would be drawn anew. If you
- added a parameter to a solver, loss, penalty, constraint or task: mark its field \
`later=True` (solvers: shape(...), value(...); else metadata={{"later": True}}), with \
a default that does what was done before;
- added a key to a dataset's yaml or an option to its loader: name it in \
datasets.spec.LATER with that value;
- moved or renamed modules, or changed how something is computed: code and layout \
belong to the key, never to the identity;
- changed a default: do not; add a parameter instead.
Change the digest here only if published numbers must move, and say so in CHANGELOG."""


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A working directory with a file of each kind, and an entry point."""
    monkeypatch.chdir(tmp_path)
    np.save("vertices.npy", Polytope.example(5)["vertices"])
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    gd = registry.target("algorithm", "gd")
    monkeypatch.setitem(sys.modules, "identity_base", SimpleNamespace(Base=gd))
    offered = f"{gd.__module__}.{gd.__name__}"
    for module in (registry, passed):
        monkeypatch.setattr(module, "entry_points", lambda: {"outside": offered})
    return tmp_path


USUAL = {"dataset": SMALL, "algorithm": RANDOM, "budget": {"epsilon": 1.0}}


def settings_of(changes):
    """The settings of a block that differs from the usual one, and its first seed."""
    usual = {"algorithm": "gd"} if "task" in changes else USUAL
    (line,), missing = expand_blocks([{**usual, **changes}])
    assert missing == []
    return line.settings, line.seeds[0]


def identity_of(changes):
    settings, seed = settings_of(changes)
    return settings[0].identity(seed)


@pytest.mark.parametrize("name", FROZEN)
def test_identities_are_those_of_published_numbers(name, here):
    if name == "a mirror's" and VARIABLE not in os.environ:
        pytest.skip("no mirror of the real data sets")
    assert identity_of(BLOCKS[name]) == FROZEN[name], MOVED.format(name=name)


# A single fit is the trial of a sweep.


def named(choice):
    return (choice, {}) if isinstance(choice, str) else (choice["name"], {**choice})


def fitted(changes):
    """The same settings, fitted."""
    block = {**USUAL, "calibration": "certified", "seed": 0, **changes}
    dataset, overrides = named(block["dataset"])
    dataset, _, member = dataset.partition(":")
    overrides.pop("name", None)
    overrides |= {"name": member} if member else {}
    parts = {k: block[k] for k in ("loss", "penalty", "constraint") if k in block}
    algorithm, params = named(block["algorithm"])
    params.pop("name", None)
    how = {"calibration": block["calibration"], "seed": block["seed"]}
    how |= {"checkpoints": 51}
    problem = load_problem(dataset, **parts, **overrides)
    return fit(problem, algorithm, **block["budget"], **how, **params)


@pytest.mark.parametrize("name", [n for n in BLOCKS if "task" not in BLOCKS[n]])
def test_a_fit_is_the_sweeps_trial(name, here, monkeypatch):
    changes, found = BLOCKS[name], []
    if name == "a mirror's" and VARIABLE not in os.environ:
        pytest.skip("no mirror of the real data sets")
    (setting,), seed = settings_of(changes)
    solved = execute.solve_batch
    monkeypatch.setattr(
        execute,
        "solve_batch",
        lambda *given: found.append(solved(*given)) or found[-1],
    )
    (record,) = run_batch([setting.trial(seed, 51)])
    if record["status"] == "skipped":
        with pytest.raises(Unsupported) as refused:
            fitted(changes)
        asked = in_python(Unsupported(record["message"]))
        # Of a shipped dataset a fit names its default bounds, too.
        assert str(refused.value).startswith(str(asked))
        return
    result, path = fitted(changes), record["trajectory"]
    assert record["status"] == "ok"
    assert len(found) == 1
    assert result.w.tobytes() == found[0].rows.w[0].tobytes()
    measured = ("test_objective", "test_risk", "test_accuracy", "balanced_accuracy")
    for column in ("iteration", "passes", "objective", "nnz", *measured):
        if column in path:
            assert result.trajectory[column].tolist() == path[column]
    assert result.epsilon_certified == float(
        record["facts"]["epsilon_certified"] or "inf"
    )


def test_a_fit_runs_on_one_thread_as_trials_do(monkeypatch):
    """Sums of many threads may differ in their last bits."""
    threads, record = [], Run.record

    def listening(run, n_checkpoints):
        threads.extend(pool["num_threads"] for pool in threadpool_info())
        return record(run, n_checkpoints)

    monkeypatch.setattr(Run, "record", listening)
    with threadpool_limits(limits=2):
        fitted({})
        assert {pool["num_threads"] for pool in threadpool_info()} == {2}
    assert set(threads) == {1}


def test_arrays_are_named_by_their_content_and_bounds():
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-1, 1, (30, 3)), np.where(rng.uniform(size=30) > 0.5, 1.0, -1.0)
    given = {"loss": "logistic", "penalty": "l2", "strength": 0.1}
    made = {
        "same": problem_from_arrays(X.copy(), y, **given),
        "moved": problem_from_arrays(X + 1e-12, y, **given),
        "bounded": problem_from_arrays(X, y, bounds=1.0, **given),
        "wider": problem_from_arrays(X, y, bounds=2.0, **given),
        "labelled": problem_from_arrays(
            X, y, bounds={"columns": 1, "label": 1}, **given
        ),
    }
    digests = {problem.identity for problem in made.values()}
    assert len(digests) == len(made)
    assert problem_from_arrays(X, y, **given).identity in digests


def test_a_changed_copy_of_a_dataset_is_another_one():
    problem = load_problem(**{"dataset": "log1", "n": 60, "p": 5})
    data = dataclasses.replace(problem.dataset, bounds=None)
    copy = dataclasses.replace(problem, dataset=data)
    assert problem.spec["dataset"]["_target_"] and "n" in problem.spec["dataset"]
    assert copy.spec["dataset"]["content"] == problem.dataset.content_hash
    digests = {one.identity for one in (problem, copy)}
    assert len(digests) == 2


# What is added later enters off its default only.


def later(group, name, monkeypatch, **fields):
    """Have a class of a group get parameters, as a later version would."""
    made = registry.target(group, name)
    grown = dataclasses.make_dataclass(
        made.__name__,
        [(key, type(field.default), field) for key, field in fields.items()],
        bases=(made,),
        frozen=True,
    )
    grown.__module__ = made.__module__
    monkeypatch.setattr(sys.modules[made.__module__], made.__name__, grown)
    for cached in (parameters.algorithm_of, parameters._problem_of):
        cached.cache_clear()


@pytest.fixture(autouse=True)
def forget():
    """Leave no class or problem of another version behind."""
    yield
    for cached in (parameters.algorithm_of, parameters._problem_of):
        cached.cache_clear()


def momentum(later):
    return {
        "momentum": value(0.0, least=0.0, help="a number", later=later),
        "restarts": shape(1, least=0, help="a number", later=later),
    }


AXES = ({"step": [0.5, 1]}, {"step": [0.5, 1], "passes": [1, 2], "clip": [1, None]})


@pytest.mark.parametrize("axes", AXES)
@pytest.mark.parametrize("together", [False, True])
def test_a_later_parameter_of_a_solver_enters_off_its_default(
    axes, together, monkeypatch
):
    def digests(**given):
        settings, _ = settings_of({"algorithm": {**RANDOM, **axes, **given}})
        found = [one.digest for one in settings]
        assert len(set(found)) == len(found)
        return found

    before = digests()
    later("algorithm", "random_cd", monkeypatch, **momentum(later=True))
    if together:
        made = registry.target("algorithm", "random_cd")
        check = made.__post_init__
        monkeypatch.setattr(made, "__post_init__", lambda one: check(one))
    assert digests() == before
    assert digests(momentum=0, restarts=1) == before
    # Also where it is an axis, and one of its values the default.
    assert set(digests(momentum=[0, 0.5], restarts=[1, 2])) > set(before)
    for off in ({"momentum": 0.5}, {"restarts": 2}):
        assert not set(digests(**off)) & set(before)


def test_a_parameter_that_is_not_marked_moves_the_identity(monkeypatch):
    before = identity_of({})
    later("algorithm", "random_cd", monkeypatch, **momentum(later=False))
    assert identity_of({}) != before


REGRESSION = {"name": "sparse_lasso", "n": 40, "p": 10}
PARTS = {"loss": "huber", "penalty": "l1", "constraint": "l2_ball", "task": "audit"}


@pytest.mark.parametrize("group", PARTS)
def test_a_later_parameter_of_a_part_enters_off_its_default(group, monkeypatch):
    name = PARTS[group]

    def made(**given):
        return identity_of({"dataset": REGRESSION, group: {"name": name, **given}})

    if group == "task":

        def made(**given):
            return identity_of({"task": {"name": name, **given}})

    before = made()
    field = dataclasses.field(default=1.0, metadata={"later": True})
    later(group, name, monkeypatch, extra=field)
    assert made() == made(extra=1.0) == before != made(extra=2.0)


def test_a_later_key_of_a_dataset_enters_off_its_default(monkeypatch):
    before = identity_of({"dataset": SMALL})
    listed = {"dataset": {**SMALL, "drop_empty": False}}
    assert identity_of(listed) != before
    monkeypatch.setitem(dataset_specs.LATER, "drop_empty", False)
    parameters._problem_of.cache_clear()
    assert identity_of(listed) == before
    assert identity_of({"dataset": {**SMALL, "drop_empty": True}}) != before


# Layout belongs to the key.


@pytest.mark.parametrize("name", BLOCKS)
def test_no_module_path_or_file_enters_an_identity(name, here, monkeypatch):
    if name == "a mirror's" and VARIABLE not in os.environ:
        pytest.skip("no mirror of the real data sets")
    texts = []

    def listening(text):
        texts.append(text)
        return hashlib.sha256(text)

    monkeypatch.setattr(paths, "hashlib", SimpleNamespace(sha256=listening))
    for module in (lines, lines, lines):
        monkeypatch.setattr(module, "sha256", listening)
    assert identity_of(BLOCKS[name]) == FROZEN[name]
    assert FROZEN[name] in {hashlib.sha256(text).hexdigest() for text in texts}
    for text in texts:
        for layout in (b"dp_erm_bench", b"_target_", bytes(here), b".py", b".csv"):
            assert layout not in text
