"""Test that every yaml of conf/ and experiments/ composes and is complete."""

import dataclasses
import re

import pytest
import yaml
from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from omegaconf import OmegaConf

from benchmarks.cards import described_sets
from dp_erm_bench import registry
from dp_erm_bench.cli.completion import completion_words
from dp_erm_bench.cli.line import read_request
from dp_erm_bench.cli.listing import list_choices
from dp_erm_bench.cli.sweep import Composer, resolve_blocks
from dp_erm_bench.datasets.spec import card_of, default_bounds, usual_fields
from dp_erm_bench.errors import UsageError
from dp_erm_bench.experiment.schema import (
    BudgetConfig,
    Frame,
    RunnerConfig,
    write_out_blocks,
)
from dp_erm_bench.registry import CARD, CARDS, CHOSEN, OFFERED, PARTS
from dp_erm_bench.runner.options import RunOptions
from tests.loops import each

CONF = registry.conf_dir()
GROUPS = sorted(path.name for path in CONF.iterdir() if path.is_dir())
CHOICES = [(group, name) for group in GROUPS for name in registry.names(group)]
COMPOSED = [one for one in CHOICES if one[0] not in ("task", "experiment")]
"""A task is named in the blocks of an experiment, which is resolved below."""
EXPERIMENTS = registry.names("experiment")
BUILT = ("problem", "loss", "penalty", "constraint", "algorithm", "dataset", "task")


@pytest.fixture(scope="module")
def composed():
    store = ConfigStore.instance()
    store.store(name="schema", node=Frame)
    for group in ("loss", "penalty"):
        store.store(group=group, name="auto", node={})
    with initialize_config_dir(str(CONF), version_base="1.3"):
        yield lambda *overrides: compose("config", overrides=list(overrides))


def test_the_groups_are_those_the_command_line_knows():
    assert {*GROUPS} == {*CHOSEN, "runner", "experiment", "task"}
    assert CHOICES


@each(("group", "name"), COMPOSED)
def test_every_choice_composes(group, name, composed):
    config = composed(f"{group}={name}")
    if group in PARTS:
        assert set(registry.read_choice(group, name)) <= set(config[group])
    if group == "algorithm":
        assert list(config.algorithm) == [name]
    if group == "calibration":
        assert config.calibration == name


@each(("group", "name"), CHOICES)
def test_targets_exist(group, name):
    if group in BUILT:
        assert callable(registry.target(group, name))
    else:
        assert "_target_" not in registry.read_choice(group, name)


@each("name", registry.names("dataset"))
def test_datasets_are_called_as_their_file(name):
    fields = registry.read_choice("dataset", name)
    assert fields["name"] == name
    assert {"standardise", "seed", "usual", "bounds"} <= set(fields)
    for key in ("usual", "usual_standardised"):
        if fields.get(key):
            registry.check_choice("loss", fields[key]["loss"], registry.names("loss"))
            penalties = registry.names("penalty")
            registry.check_choice("penalty", fields[key]["penalty"], penalties)


def test_a_card_says_whence_records_come_and_why_bounds_are_public():
    sets = [*described_sets()]
    assert len(sets) > 20
    for name, fields in sets:
        card = {k: one for k, one in card_of(name).items() if k not in OFFERED}
        assert {*card} - {"why"} == {"family", "n", "p", "origin", "licence"}, name
        true = bool(fields.get("bounds"))
        offered = [fields[key] for key in OFFERED if fields.get(key)]
        assert true == ("why" in card) and (true or offered), name
        assert all(one["why"] for one in offered), name
        assert not {CARD, CARDS, *OFFERED} & {*usual_fields(name)}


def test_bounds_of_one_of_many_sets_are_its_own():
    assert default_bounds("libsvm:a9a", {}) == {"columns": 1, "norm": 3.7417}
    assert default_bounds("libsvm", {"set": "a9a"}) == default_bounds("libsvm:a1a", {})
    assert default_bounds("libsvm:a9a", {"standardise": True}) is None
    assert default_bounds("libsvm:rcv1", {}) == {"columns": 1, "label": 100}


@each("name", registry.names("algorithm"))
def test_an_algorithm_has_its_package_and_only_its_class(name):
    text = (CONF / "algorithm" / f"{name}.yaml").read_text()
    assert text.startswith(f"# @package algorithm.{name}\n")
    fields = registry.read_choice("algorithm", name)
    known = {f.name for f in dataclasses.fields(registry.target("algorithm", name))}
    assert set(fields) - {"_target_"} <= known


def test_where_tune_starts_is_no_parameter():
    """The key `tune` is in no shown configuration, list, completion or solver."""
    names = [one for one in registry.built_in("algorithm") if registry.read_tune(one)]
    assert len(names) == 14
    assert not re.search(r"^ *tune ", list_choices("algorithm", names), re.M)
    for name in names:
        request = read_request([f"algorithm={name}"])
        shown = yaml.safe_load(Composer(request).show("job", "algorithm", True))
        assert "_target_" in shown[name] and "tune" not in shown[name]
        typed = f"dp-erm-bench algorithm={name} algorithm.{name}."
        assert not any(".tune" in word for word in completion_words(typed))
        registry.build("algorithm", name)
    for key, said in (
        ("algorithm.gd.tune=1", "is no parameter; `tune` has tune.axes.gd"),
        ("algorithm.gd.tune.axes.step=1", "write algorithm.NAME.PARAMETER"),
    ):
        with pytest.raises(UsageError, match=said):
            read_request(["algorithm=gd", key])


def test_algorithms_stand_side_by_side(composed):
    names = registry.names("algorithm")
    config = composed(f"algorithm=[{','.join(names)}]")
    assert sorted(config.algorithm) == names


def test_the_schema_has_the_values_of_the_file(composed):
    config = OmegaConf.to_object(composed())
    assert isinstance(config, Frame)
    assert config.budget == BudgetConfig()
    assert config.runner == RunnerConfig()
    plain = {f.name: f.default for f in dataclasses.fields(Frame)}
    written = yaml.safe_load((CONF / "config.yaml").read_text())
    for key, value in written.items():
        if plain.get(key, dataclasses.MISSING) is not dataclasses.MISSING:
            assert plain[key] == value


def test_the_runners_defaults_are_the_options():
    options = {f.name: f.default for f in dataclasses.fields(RunOptions)}
    for field in dataclasses.fields(RunnerConfig):
        assert field.name in options
        if field.name not in ("n_jobs", "retry", "worker_memory"):
            assert field.default == options[field.name]


@pytest.mark.parametrize("key", ["sed", "budget.epsiln", "runner.jobs", "dataset.x"])
def test_the_schema_refuses_unknown_keys(key, composed):
    with pytest.raises(Exception, match="Could not override"):
        composed(f"{key}=1")


# Each in one profile, each profile by three of them; the others are slow.
@pytest.mark.parametrize(
    "experiment, profile",
    [
        pytest.param(name, profile, marks=[pytest.mark.slow] if (k + turn) % 3 else [])
        for k, name in enumerate(EXPERIMENTS)
        for turn, profile in enumerate(["smoke", "default", "paper"])
    ],
)
def test_every_experiment_resolves_in_every_profile(experiment, profile, composed):
    request = read_request([f"experiment={experiment}", f"profile={profile}"])
    blocks, config = resolve_blocks(Composer(request))
    assert config["figures"]
    assert config["claims"]
    for block in blocks:
        assert block["panel"] and block["line"]
        seeds = (block.get("tune") or {}).get("seeds", block.get("seed"))
        assert isinstance(seeds, list | int) or "task" in block
        assert "${" not in str(block) and "range(" not in str(block)


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_an_experiment_is_global_and_its_lines_are_distinct(experiment):
    text = (CONF / "experiment" / f"{experiment}.yaml").read_text()
    assert text.startswith("# @package _global_\n")
    blocks = write_out_blocks(registry.read_choice("experiment", experiment)["blocks"])
    labels = [(block["panel"], block["line"]) for block in blocks]
    assert len(labels) == len(set(labels))
