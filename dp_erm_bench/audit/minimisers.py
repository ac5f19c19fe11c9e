"""Exact densities of what is published without a query: perturbed minimisers.

The minimiser w of sum_i phi(x_i.w, y_i) + (m n / 2) norm2(w)^2 + b.w has b = -grad of
the rest, a smooth bijection of w, so that with A the Hessian of the rest

    log p(w) = log p_b(b(w)) + log det A(w).

phi may have a second derivative that jumps: A is needed almost everywhere only.
"""

from typing import Any

import numpy as np

from dp_erm_bench.errors import Unsupported
from dp_erm_bench.problems.base import Problem
from dp_erm_bench.problems.erm.objective import ERM
from dp_erm_bench.releases.base import Array, Mechanisms
from dp_erm_bench.trust.twins.base import required_twin


def log_density(
    solver: Any, problem: Problem, mechanisms: Mechanisms, w: Array
) -> Array:
    """Return the log-density of each minimiser up to a constant, (B, p) to (B,).

    The solver has a method ``modulus(problem)``, the m above; psi is an l2 penalty, or
    none. Noise that is added to the minimiser afterwards is left out, which costs
    power at most.

    Raises
    ------
    Unsupported
        For problems of another class than `ERMProblem`.
    """
    if not isinstance(problem, ERM):
        raise Unsupported(f"audit: no density is known of a secret on {problem.kind}")
    (mechanism,) = (m for m in mechanisms.values() if m.release.secret)
    modulus = float(solver.modulus(problem))
    terms = [_terms(problem, modulus, row) for row in w]
    b, volumes = np.array([t[0] for t in terms]), np.array([t[1] for t in terms])
    size = np.linalg.norm(b / mechanism.scale, axis=1)
    return np.asarray(required_twin(mechanism.release).log_noise(size) + volumes)


def _terms(problem: ERM, modulus: float, w: Array) -> tuple[Array, float]:
    """Return b(w) and log det A(w)."""
    n = problem.n
    hessian = problem.hessian(w) + n * modulus * np.eye(w.size)
    b = -n * (problem.gradient(w) + modulus * w)
    return b, float(np.linalg.slogdet(hessian)[1])
