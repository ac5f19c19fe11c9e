"""Fixtures: arrays in the layouts that datasets and oracles use."""

from types import SimpleNamespace

import numpy as np
import pytest

from dp_erm_bench import registry
from dp_erm_bench.losses.smooth import Huber, SmoothedHinge

LOSSES = [
    *(registry.build("loss", name) for name in registry.names("loss")),
    Huber(0.3),
    SmoothedHinge(2.0),
]

# A kernel of steps takes a derivative: smooth, with a jump, of a loss not convex. What
# every loss is, it is on the kernels of gradients.
of_three_losses = pytest.mark.parametrize(
    "loss",
    [registry.build("loss", name) for name in ("logistic", "hinge", "sigmoid")],
    ids=repr,
    indirect=True,
)


@pytest.fixture(params=LOSSES, ids=repr)
def loss(request):
    return request.param


def labels(loss, rng, size):
    real = rng.normal(size=size)
    return np.sign(real) if loss.classification else real


@pytest.fixture
def make_arrays():
    """Return features, labels, iterates and margins of a batch of trials."""

    def make(n, p, batch, loss, seed=0):
        rng = np.random.default_rng(seed)
        X, y = np.asfortranarray(rng.normal(size=(n, p))), labels(loss, rng, n)
        X.setflags(write=False)
        y.setflags(write=False)
        w = rng.normal(size=(batch, p))
        return SimpleNamespace(X=X, y=y, w=w, margins=w @ X.T, rng=rng)

    return make


@pytest.fixture
def make_psi():
    """Return an elastic net on a box, in the form that the kernels take."""
    return lambda l1=0.3, l2=0.7, lower=-1.5, upper=2.0: np.array(
        [l1, l2, lower, upper]
    )
