"""Measures of the noise that the accountant asks for: they need no runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dp_erm_bench.report.claims.lookup import Lookup
from dp_erm_bench.report.noise import FEATURES, deviations
from dp_erm_bench.report.scaling import slope
from dp_erm_bench.report.selection import selection

Claim = Mapping[str, Any]


def noise_slope(claim: Claim, lookup: Lookup) -> float:
    """Return the slope of the noise's deviation against the number of features."""
    return slope(np.array(FEATURES, float), deviations(claim["line"], FEATURES))


def selection_scale(claim: Claim, lookup: Lookup) -> float:
    """Return the scale of the noise of `n_iter` private selections."""
    return selection(claim["line"], claim["n_iter"]).scale


def selection_quotient(claim: Claim, lookup: Lookup) -> float:
    """Return the scale of `under` divided by that of `over`."""
    under = selection(claim["under"], claim["n_iter"])
    return under.scale / selection(claim["over"], claim["n_iter"]).scale


def selection_epsilon(claim: Claim, lookup: Lookup) -> float:
    """Return the epsilon that is proved for the noise of `n_iter` selections."""
    return selection(claim["line"], claim["n_iter"]).epsilon_certified
