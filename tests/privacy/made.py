"""Releases of any kind, told what their class does not take for granted."""

import importlib
import inspect
from pathlib import Path

from dp_erm_bench import releases
from dp_erm_bench.releases.base import Release
from dp_erm_bench.releases.inside_noisy_max import InsideNoisyMax
from dp_erm_bench.releases.objective_gaussian import ObjectiveGaussian
from dp_erm_bench.releases.objective_norm_laplace import ObjectiveNormLaplace

REQUIRED = {
    InsideNoisyMax: {"spread": 1.0},
    ObjectiveGaussian: {"curvature": 0.0, "terms": 1},
    ObjectiveNormLaplace: {"curvature": 0.0},
}


def release_of(kind, name, sensitivity, times, **options):
    return kind(name, sensitivity, times, **{**REQUIRED.get(kind, {}), **options})


def built_in():
    """Return all kinds of releases of the package."""
    found = {}
    for path in sorted(Path(releases.__file__).parent.glob("*.py")):
        module = importlib.import_module(f"{releases.__name__}.{path.stem}")
        for _, kind in inspect.getmembers(module, inspect.isclass):
            own = kind.__module__ == module.__name__
            if own and issubclass(kind, Release) and not inspect.isabstract(kind):
                found[kind.__name__] = kind
    return tuple(found.values())
