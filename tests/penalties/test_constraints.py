"""Properties of every constraint in the registry."""

import numpy as np
import pytest

from dp_erm_bench import registry

NAMES = registry.names("constraint")


@pytest.fixture(params=NAMES)
def constraint(request):
    return registry.build("constraint", request.param)


def test_constraints_are_named_like_their_yaml(constraint, request):
    assert constraint.name in NAMES
    assert registry.build("constraint", constraint.name) == constraint


def test_projection_is_idempotent_and_contracts(constraint):
    a, b = np.random.default_rng(0).normal(scale=4.0, size=(2, 50, 3))
    once = constraint.project(a)
    np.testing.assert_allclose(constraint.project(once), once, atol=1e-14)
    moved = np.linalg.norm(once - constraint.project(b), axis=1)
    assert (moved <= np.linalg.norm(a - b, axis=1) + 1e-14).all()


def test_whole_space_moves_nothing():
    w = np.random.default_rng(1).normal(scale=1e6, size=(5, 3))
    assert registry.build("constraint", "none").project(w).tolist() == w.tolist()
