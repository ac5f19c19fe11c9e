"""Releases of any kind, told what their class does not take for granted."""

from dp_erm_bench.privacy.perturbation import ObjectiveGaussian, ObjectiveNormLaplace
from dp_erm_bench.privacy.releases import InsideNoisyMax

REQUIRED = {
    InsideNoisyMax: {"spread": 1.0},
    ObjectiveGaussian: {"curvature": 0.0, "terms": 1},
    ObjectiveNormLaplace: {"curvature": 0.0},
}


def release_of(kind, name, sensitivity, times, **options):
    return kind(name, sensitivity, times, **{**REQUIRED.get(kind, {}), **options})
