"""Make releases and laws of any kind, with all fields that their classes need."""

import importlib
import inspect
from pathlib import Path

from dp_erm_bench import releases
from dp_erm_bench.releases.allocation_gaussian import (
    AllocationGaussian,
    AllocationGaussianLaw,
)
from dp_erm_bench.releases.base import Release
from dp_erm_bench.releases.fixed_size_gaussian import (
    FixedSizeGaussian,
    FixedSizeGaussianLaw,
)
from dp_erm_bench.releases.gaussian import Gaussian, GaussianLaw
from dp_erm_bench.releases.inside_noisy_max import InsideNoisyMax
from dp_erm_bench.releases.laplace import LaplaceLaw
from dp_erm_bench.releases.laplace_noisy_max import NoisyMaxLaw
from dp_erm_bench.releases.law import Law, PureLaw
from dp_erm_bench.releases.noisy_max import BoundedRangeLaw
from dp_erm_bench.releases.norm_laplace import NormLaplaceLaw
from dp_erm_bench.releases.objective_gaussian import (
    ObjectiveGaussian,
    ObjectiveGaussianLaw,
)
from dp_erm_bench.releases.objective_norm_laplace import (
    ObjectiveNormLaplace,
    ObjectiveNormLaplaceLaw,
)
from dp_erm_bench.releases.poisson_gaussian import PoissonGaussian, PoissonGaussianLaw
from dp_erm_bench.releases.printed import printed_multiplier as printed
from dp_erm_bench.releases.renyi_filter import RenyiFilter, RenyiFilterLaw
from dp_erm_bench.releases.repeat_and_select import (
    RepeatAndSelect,
    RepeatAndSelectLaw,
)
from dp_erm_bench.releases.single_use_gaussian import SingleUseGaussian, SingleUseLaw
from dp_erm_bench.releases.sketched_gaussian import (
    SketchedGaussian,
    SketchedGaussianLaw,
)
from dp_erm_bench.trust.twins.allocation_gaussian import AllocationGaussianTwin
from dp_erm_bench.trust.twins.fixed_size_gaussian import FixedSizeGaussianTwin
from dp_erm_bench.trust.twins.gaussian import GaussianTwin
from dp_erm_bench.trust.twins.l1_laplace import L1LaplaceTwin
from dp_erm_bench.trust.twins.laplace import LaplaceTwin
from dp_erm_bench.trust.twins.laplace_noisy_max import LaplaceNoisyMaxTwin
from dp_erm_bench.trust.twins.noisy_max import NoisyMaxTwin
from dp_erm_bench.trust.twins.norm_laplace import NormLaplaceTwin
from dp_erm_bench.trust.twins.objective_gaussian import ObjectiveGaussianTwin
from dp_erm_bench.trust.twins.objective_norm_laplace import ObjectiveNormLaplaceTwin
from dp_erm_bench.trust.twins.poisson_gaussian import PoissonGaussianTwin
from dp_erm_bench.trust.twins.renyi_filter import RenyiFilterTwin
from dp_erm_bench.trust.twins.repeat_and_select import RepeatAndSelectTwin
from dp_erm_bench.trust.twins.single_use_gaussian import SingleUseGaussianTwin
from dp_erm_bench.trust.twins.sketched_gaussian import SketchedGaussianTwin


class Magic(Law):
    """A law that answers no accountant."""

    name = "magic"


LAWS = {
    law.name: law
    for law in (
        GaussianLaw,
        LaplaceLaw,
        NormLaplaceLaw,
        BoundedRangeLaw,
        NoisyMaxLaw,
        ObjectiveNormLaplaceLaw,
        PoissonGaussianLaw,
        FixedSizeGaussianLaw,
        AllocationGaussianLaw,
        ObjectiveGaussianLaw,
        SingleUseLaw,
        SketchedGaussianLaw,
        RepeatAndSelectLaw,
        RenyiFilterLaw,
    )
}
PURE_KINDS = tuple(name for name, law in LAWS.items() if issubclass(law, PureLaw))
TWINS = {
    "gaussian": GaussianTwin,
    "poisson_gaussian": PoissonGaussianTwin,
    "fixed_size_gaussian": FixedSizeGaussianTwin,
    "allocation_gaussian": AllocationGaussianTwin,
    "laplace": LaplaceTwin,
    "bounded_range": NoisyMaxTwin,
    "pure": LaplaceNoisyMaxTwin,
    "vector": L1LaplaceTwin,
    "norm_laplace": NormLaplaceTwin,
    "objective": ObjectiveGaussianTwin,
    "objective_pure": ObjectiveNormLaplaceTwin,
    "single_use": SingleUseGaussianTwin,
    "sketched_gaussian": SketchedGaussianTwin,
    "repeat_and_select": RepeatAndSelectTwin,
    "renyi_filter": RenyiFilterTwin,
}
REQUIRED = {
    InsideNoisyMax: {"spread": 1.0},
    ObjectiveGaussian: {"curvature": 0.0, "terms": 1},
    ObjectiveNormLaplace: {"curvature": 0.0},
    SingleUseGaussian: {"records": 2, "fresh": 1},
    SketchedGaussian: {"rows": 20},
    RepeatAndSelect: {"gamma": 0.5, "run": (Gaussian("one", 1.0, 1),)},
    RenyiFilter: {
        "multiplier": 2.0,
        "chances": (1.0,),
        "steps": ((Gaussian("one", 1.0, 1),),),
        "most": 5,
    },
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


def law_of(kind, times, weight=1.0, rate=None, **facts):
    """Return the law of a name; a Poisson sample's is the one of its release."""
    if kind == PoissonGaussianLaw.name and rate is not None:
        return PoissonGaussian("any", 1.0, times, weight, rate=rate).law()
    if kind == FixedSizeGaussianLaw.name and rate is not None:
        return FixedSizeGaussian("any", 1.0, times, weight, rate=rate).law()
    if kind == AllocationGaussianLaw.name and rate is not None:
        return AllocationGaussian("any", 1.0, times, weight, rate=rate).law()
    assert rate in (None, 1.0)
    if kind == RepeatAndSelectLaw.name:
        facts.setdefault("run", (("one", GaussianLaw(1)),))
    return LAWS.get(kind, Magic)(times, weight, **facts)


def printed_multiplier(name, budget, laws):
    """Return the z that a paper prints for a budget."""
    return printed(name, laws, budget.epsilon, budget.number, budget.adjacency)


def use_of(kind, ratio, times, **facts):
    """Return the twin of a law of a name, as a run shows it."""
    if facts.get("rate") == 1.0:
        kind, facts = "gaussian", {}
    return TWINS[kind](ratio, times, **facts)


def laplace_rdp(orders, z):
    return LaplaceLaw(1).rdp(z, orders)


def bounded_range_rdp(orders, level):
    return BoundedRangeLaw(1).rdp(2 / level, orders)


def objective_rdp(orders, z, curvature):
    return ObjectiveGaussianLaw(1, curvature=curvature).rdp(z, orders)


def laplace_losses(level, step):
    return LaplaceLaw(1).losses(level, step)


def bounded_range_losses(level, step):
    return BoundedRangeLaw(1).losses(level, step)


def pure_rdp(orders, level):
    return PureLaw(1).rdp(1 / level, orders)


def pure_losses(level):
    return PureLaw(1).losses(level, 0.0)
