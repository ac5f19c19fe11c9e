"""Identities are frozen: they seed the draws that published numbers are made of."""

import os
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from dp_erm_bench import registry
from dp_erm_bench.constraints.polytope import Polytope
from dp_erm_bench.datasets.mirror import VARIABLE
from dp_erm_bench.runner.expand import expand

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
RANDOM = {"name": "random_cd", "clip": 1.0, "passes": 2}
GREEDY = {"name": "greedy_cd", "n_iter": 7, "rule": "GS-r"}
BLOCKS = {
    "as it stands": {},
    "another seed": {"seed": 2**40},
    "defaults": {"algorithm": "gd"},
    "null words": {
        "algorithm": {**RANDOM, "order": "cyclic", "clip": None, "n_iter": 9}
    },
    "private M": {"algorithm": {**RANDOM, "smoothness": "private"}},
    "no noise": {"budget": {"epsilon": "inf", "delta": 1e-6}},
    "a budget": {"budget": {"epsilon": 0.5, "delta": "1/n", "adjacency": "zero_out"}},
    "paper": {"calibration": "paper"},
    "authors": {"algorithm": {"name": "sgd", "clip": 1}, "calibration": "authors"},
    "overrides": {
        "dataset": {**SMALL, "sigma": 2, "standardise": True, "test_fraction": 0.2}
    },
    "scaled": {"dataset": {**SMALL, "seed": 3, "standardise": "scale"}},
    "bounds": {
        "dataset": {**SMALL, "bounds": CLIPPED, "clip_to_bounds": True},
        "algorithm": GREEDY,
    },
    "bundled": {"dataset": "breast_cancer", "algorithm": "svrg"},
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
        "algorithm": "mirror_descent",
    },
    "vertices.npy": {
        "constraint": {"name": "polytope", "vertices": "vertices.npy"},
        "algorithm": {"name": "frank_wolfe", "n_iter": 5},
    },
    "records.csv": {
        "dataset": {"name": "file", "path": "records.csv", "positive": [1]},
        "penalty": {"name": "l1", "strength": 0.25},
        "algorithm": {"name": "permutation_sgd", "passes": 2},
    },
    "own.py": {"algorithm": {"name": "own.py", "step": 0.5}},
    "entry point": {"algorithm": {"name": "outside", "step": 0.5}},
    "an audit": {"task": {"name": "audit", "runs": 3}, "seed": 1},
    "an accounting": {"task": {"name": "accounting", "lengths": [7]}},
}
FROZEN = {
    "as it stands": "8b162769c5cacaca92f2aee3b894afbbbfc413bcca365219c354181ba1b0f6be",
    "another seed": "80c2d389c1e00aacc3ed6ba8a65a7e3859fa873bafacc1f8bddc1f294a900445",
    "defaults": "de658d85f6d27ca1cda92aba966e9c5c711674ba73406ac5f89187e62437a709",
    "null words": "0084d57a66b1144dfe83f89c738bcafc0a19a0167ab495c5c8f576ea8e00028a",
    "private M": "0a8aa1f8ea3e0816235ab845f2fa69c994fb3e2ad37be55ca752ccf78ef11558",
    "no noise": "719cd381594f62a0896ee265dd5e4c4e8848299ea9efb9dca4074d20a03c6620",
    "a budget": "af695988acbc90caf91520f374c0caed264b3fe86ce6eeb8ce14327d609a85eb",
    "paper": "a1668689ca851431adbba1d844b2b10cdd7633cd1136b590fad55d666047506a",
    "authors": "6ebb8981a261a324afade0efae4d8de2f0fbd5ce5f8245412005ffb2cbbff9e0",
    "overrides": "12dc5c0772b34778ee0bf6d09f804faf91b18eb529755933735415dc67490618",
    "scaled": "7589a482ff792c595cebb5c0947d75a21d8c5f3691d8c495e2e8edd6ef8151d7",
    "bounds": "edf217990dedcca3356a042a682e87e33a7f6be312c27030d371e403054ff5b1",
    "bundled": "f45e77d2e633220c381aed566b2f448d7c6b3dd33d7a7228955354e89de3aa9e",
    "a mirror's": "cbe34e255d27be9249e721b56b7a667410b974918ccc7effbc5f9beecd1b9726",
    "a regression": "3b1086d7bb2da6dcc49eb1cadf21ea299f135a042c6a0b0ecfabb9608de7c1fc",
    "own bounds": "4796bd5e0e78de9b55283f565f4c88312946443d99f6334bf367bc25f6255070",
    "a ball": "051e4da2a9d5feccdc0bde0be927b25b94093ca90462b6f3de0e79bf2cbf9d77",
    "vertices.npy": "770eb9a116d886d84d8ba53817234a1ee7b0149171e615faa8f3b22b3351c3bc",
    "records.csv": "a1bd8f089808796008cc41be06291ae5919c3973f4d82a015d8c13a6e4b00293",
    "own.py": "dc12b60ab2cc946502af18916e51ba6e24b8b72eab990f51168ea731a3ccb81c",
    "entry point": "45946ad90b316f6e9590aeac1d6d8b4436802b62ce079820c508dee1383f372a",
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
    base = registry.target("algorithm", "gd")
    monkeypatch.setitem(sys.modules, "identity_base", SimpleNamespace(Base=base))
    offered = f"{base.__module__}.{base.__name__}"
    monkeypatch.setattr(registry, "entry_points", lambda: {"outside": offered})
    return tmp_path


def settings_of(changes):
    """The settings of a block that differs from the usual one, and its first seed."""
    usual = {"algorithm": "gd"}
    if "task" not in changes:
        usual |= {"dataset": SMALL, "algorithm": RANDOM, "budget": {"epsilon": 1.0}}
    found, missing = expand([{**usual, **changes}])
    assert missing == []
    (case,) = found
    return case.settings, case.seeds[0]


def identity_of(changes):
    settings, seed = settings_of(changes)
    return settings[0].identity(seed)


@pytest.mark.parametrize("name", FROZEN)
def test_identities_are_those_of_published_numbers(name, here):
    if name == "a mirror's" and VARIABLE not in os.environ:
        pytest.skip("no mirror of the real data sets")
    assert identity_of(BLOCKS[name]) == FROZEN[name], MOVED.format(name=name)
