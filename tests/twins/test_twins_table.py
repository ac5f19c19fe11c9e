"""Test that broken copies are detected as the page broken_twins says."""

import numpy as np
import pytest

from dp_erm_bench.contract import suite
from dp_erm_bench.contract.candidate import run_at
from dp_erm_bench.releases.allocation_gaussian import AllocationGaussian
from dp_erm_bench.releases.fixed_size_gaussian import FixedSizeGaussian
from dp_erm_bench.releases.renyi_filter import RenyiFilter
from dp_erm_bench.releases.repeat_and_select import RepeatAndSelect
from dp_erm_bench.releases.sketched_gaussian import SketchedGaussian
from tests.contract.own import check_named
from tests.pages import ROOT
from tests.privacy.made import LAWS as EVENTS
from tests.privacy.made import built_in
from tests.solvers.cases import few_replays
from tests.twins import laws, table
from tests.twins.breaks import BREAKS, TWINS, Break, Twin, within
from tests.twins.checks import (
    CONTRACT,
    QUICK,
    SLOW,
    Narrow,
    asked,
    complaints,
    few_problems,
)
from tests.twins.kinds import KINDS, OUTPUTS, VECTOR

WRITTEN = table.written()
ELSEWHERE = {
    AllocationGaussian: "tests/privacy/test_allocation.py",
    FixedSizeGaussian: "tests/solvers/test_bias_reduced_sgd.py",
    SketchedGaussian: "tests/solvers/test_mean.py",
    RepeatAndSelect: "tests/solvers/test_boosting.py",
    RenyiFilter: "tests/solvers/test_boosting.py",
}
"""Releases of solvers that do not fit into the table, and where their twins are."""


def label(value):
    return str(value).replace(" ", "_")


@pytest.mark.parametrize("kind", KINDS, ids=label)
def test_no_check_complains_of_what_is_sound(kind):
    """Those of the contract are not set aside either, see below."""
    others = {k: check for k, check in (QUICK | SLOW).items() if k not in CONTRACT}
    assert len(others) == 3
    assert complaints(kind, Twin(KINDS[kind]), others) == {}


# The slow test below meets all of them.
@pytest.mark.parametrize("key", [*TWINS][::6], ids=label)
def test_the_checks_of_the_table_find_the_twin(key):
    """The statistical audit only where no other one does."""
    named = [name for name in WRITTEN[key] if name in QUICK] or WRITTEN[key]
    with few_replays(), np.errstate(all="ignore"):
        checks = {name: (QUICK | SLOW)[name] for name in named}
        assert named and list(complaints(key[0], TWINS[key], checks)) == named


@pytest.mark.slow
@pytest.mark.parametrize("key", TWINS, ids=label)
def test_no_other_check_finds_the_twin(key):
    """The audit is run where the table says that it finds it."""
    slow = {name: run for name, run in SLOW.items() if name in WRITTEN[key]}
    with np.errstate(all="ignore"):
        found = complaints(key[0], TWINS[key], QUICK | slow)
    assert list(found) == WRITTEN[key], found


def test_the_table_is_the_one_that_is_written():
    assert set(WRITTEN) == set(TWINS)
    assert table.text(WRITTEN) == table.DOC.read_text()


def test_every_check_finds_a_twin_and_is_explained():
    assert {name for names in WRITTEN.values() for name in names} == {*QUICK, *SLOW}
    assert set(table.WORDS) == set(table.MEANINGS) == {*QUICK, *SLOW}
    assert len(set(table.WORDS.values())) == len(table.WORDS)
    assert set(CONTRACT) <= {check.name for check in suite.CHECKS}


def test_every_break_has_a_meaning_somewhere():
    assert {name for _, name in TWINS} == set(BREAKS)


def released():
    """The releases of all kinds."""
    for kind in KINDS.values():
        solver = Narrow("sound", kind.solver, kind.params).build({})
        run = run_at(laws.problem(), [solver]).declare()
        (found,) = (r for r in (*run.shares, *run.releases) if r.name == kind.release)
        yield found


def test_every_kind_of_release_has_twins():
    found = list(released())
    kinds = {type(release) for release in found}
    assert kinds | set(ELSEWHERE) == set(built_in()) and not kinds & set(ELSEWHERE)
    # Gaussian noise is on three things.
    assert len(found) == len(kinds) + 2
    laws = {release.law().name for release in found}
    assert laws < set(EVENTS) and len(EVENTS) == len(laws) + len(ELSEWHERE)
    for place in ELSEWHERE.values():
        assert place in table.HEAD and (ROOT / place).is_file()


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS, ids=label)
def test_checks_are_run_and_not_set_aside(kind):
    """And complain of nothing that is sound."""
    aside = set()
    made = Narrow("sound", KINDS[kind].solver, KINDS[kind].params)
    for name in CONTRACT:
        if asked(kind, name):
            with few_problems():
                result = check_named(name).result(made)
            aside |= {name} if result.verdict != "ok" else set()
    assert aside == set()


@pytest.mark.parametrize("kind", OUTPUTS, ids=label)
def test_a_tolerance_that_is_used_and_charged_is_sound(kind):
    honest = Break(minimise=within, given=BREAKS["tolerance not charged"].given)
    found = complaints(kind, Twin(KINDS[kind], honest), QUICK)
    assert found == {}


def test_released_constants_are_whole_again_after_a_twin():
    twin = TWINS[VECTOR, "half of the noise"]
    assert complaints(VECTOR, twin, {"goodness of fit": QUICK["goodness of fit"]})
    assert complaints(VECTOR, Twin(KINDS[VECTOR]), QUICK) == {}
