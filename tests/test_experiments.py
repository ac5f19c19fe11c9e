"""Test the experiments' yaml: the papers' grids, profiles, references."""

import dataclasses
import functools
import itertools
import math
import re
from pathlib import Path

import numpy as np
import pytest
import yaml
from omegaconf import OmegaConf

from dp_erm_bench import registry
from dp_erm_bench.cli.line import expand_values
from dp_erm_bench.datasets.spec import dataset_spec
from dp_erm_bench.experiment.schema import grid_size, write_out_blocks
from dp_erm_bench.report.claims.judge import KINDS, WHOSE, _rows_of, evaluate_claims
from dp_erm_bench.report.claims.lookup import NOISE, NOTHING
from dp_erm_bench.report.claims.measures import MEASURES
from dp_erm_bench.report.figure import figures_of, panels_of
from dp_erm_bench.report.lines import Noise, sources_of
from dp_erm_bench.report.make import check_report
from dp_erm_bench.report.panels import decoded_curves
from tests.loops import each
from tests.report.conftest import line_rows

ROOT = Path(__file__).resolve().parents[1]
NAMES = ("mangold2022", "mangold2023")
ALL = (
    *(*NAMES, "talwar2015", "arora2020", "ghazi2024"),
    *("ganesh2023", "wang2018", "curvature"),
)
PROFILES = ("paper", "default", "smoke")
BOTH = [(name, profile) for name in NAMES for profile in PROFILES]
LENGTHS = {
    **dict.fromkeys(("random_cd", "sgd", "svrg"), "passes"),
    "greedy_cd": "n_iter",
}
THEORY = ("theory_", "unbalanced_")
# Trials at most, those of reports too: (paper, default, smoke).
TRIALS = {
    "mangold2022": (36070, 18270, 1176),
    "mangold2023": (113760, 44440, 1463),
    "talwar2015": (72025, 35395, 880),
    "arora2020": (11280, 4840, 141),
    "ghazi2024": (11010, 9290, 1210),
    "ganesh2023": (45360, 27720, 396),
    "wang2018": (27390, 11934, 702),
    "curvature": (132300, 43200, 450),
}
# Tuning trials of the paper profiles at most.
MOST = {"mangold2022": 34_000, "mangold2023": 106_000}


@functools.cache
def load(name, profile):
    config = OmegaConf.load(registry.conf_dir() / "experiment" / f"{name}.yaml")
    config.profile = profile
    plain = OmegaConf.to_container(config, resolve=True)
    return {**plain, "blocks": write_out_blocks(plain["blocks"])}


@pytest.fixture(params=BOTH, ids=lambda pair: "-".join(pair))
def resolved(request):
    return load(*request.param)


@pytest.fixture(params=list(itertools.product(ALL, PROFILES)), ids="-".join)
def anything(request):
    return load(*request.param)


def seeds(text):
    return expand_values("seeds", text) if isinstance(text, str) else list(text)


def as_list(value):
    return value if isinstance(value, list) else [value]


def axis(block, name):
    value = block["tune"]["axes"][name]
    return value["values"] if isinstance(value, dict) else value


def tuned(config, over_epsilon=False):
    """Blocks with a full grid of their own."""
    return [
        block
        for block in config["blocks"]
        if "tune" in block
        and block["line"].endswith(" over epsilon") == over_epsilon
        and block["line"] != "DP-CD printed noise"
        and not block["panel"].startswith(THEORY)
    ]


def theory(config):
    """Blocks of the theory panels."""
    return [b for b in config["blocks"] if b["panel"].startswith(THEORY)]


def lines(block):
    """Return how many lines a block with `tune` has."""
    return sum(map(functools.partial(points, block), as_list(block["dataset"])))


def points(block, dataset):
    """Return how many lines a block with `tune` has on one of its datasets."""
    found = len(as_list(block["budget"]["epsilon"]))
    for key in ("seed", "n", "p"):
        values = dataset.get(key, 0)
        found *= len(seeds(values) if isinstance(values, str) else as_list(values))
    return found


def count(block):
    """Return the most trials of a block."""
    if "tune" not in block:
        return lines(block) * len(seeds(block.get("seed", [0])))
    return lines(block) * (most(block["tune"]) + len(seeds(block["tune"]["report"])))


def most(tune):
    """Return the most tuning trials of a line."""
    if tune.get("search"):
        return tune["search"]["trials"]
    return math.prod(map(len, tune["axes"].values())) * len(seeds(tune["seeds"]))


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL)
def test_number_of_trials(name):
    counts = tuple(
        sum(map(count, load(name, profile)["blocks"])) for profile in PROFILES
    )
    assert counts == TRIALS[name]


@pytest.mark.parametrize("name", ALL)
def test_default_profile(name):
    config = load(name, "default")
    assert config["profile"] == yaml_of(name)["profile"] == "default"


def yaml_of(name):
    path = registry.conf_dir() / "experiment" / f"{name}.yaml"
    return yaml.safe_load(path.read_text())


@pytest.mark.parametrize("name", ALL)
def test_profiles_have_the_same_keys(name):
    profiles = yaml_of(name)["profiles"]
    assert tuple(profiles) == PROFILES
    assert len({frozenset(profile) for profile in profiles.values()}) == 1


def tuned_all(config):
    return [block for block in config["blocks"] if "tune" in block]


@pytest.mark.parametrize("name", MOST)
def test_paper_profiles_ask_for_so_many_tuning_trials(name):
    blocks = tuned_all(load(name, "paper"))
    assert sum(lines(block) * most(block["tune"]) for block in blocks) <= MOST[name]


@each(("name", "profile"), list(itertools.product(ALL, PROFILES)))
def test_every_line_with_something_to_choose_is_searched(name, profile):
    for block in tuned_all(load(name, profile)):
        tune = block["tune"]
        chosen = any(len(axis(block, key)) > 1 for key in tune["axes"])
        assert bool(tune.get("search")) >= chosen
        assert not set(seeds(tune["seeds"])) & set(seeds(tune["report"]))
        if tune.get("search"):
            race = tune["search"].get("race", [2, 4, 8, 16])
            grid = grid_size(tune["axes"], tune.get("aside", ()))
            if profile != "smoke":
                # A third of the trials at least are left for what the grid lacks.
                assert grid * race[0] <= 2 / 3 * tune["search"]["trials"]
            # Beside the authors' curves, which are means, there are more runs.
            usual = 60 if re.search(r"\d passes", block["line"]) else 20
            assert len(seeds(tune["report"])) == (2 if profile == "smoke" else usual)


@pytest.mark.parametrize(("name", "profile"), BOTH)
def test_runs_are_no_longer_than_figures_show(name, profile):
    """A pass of DP-SGD is n vectors of p; the papers' figures have 50."""
    for block in tuned(load(name, profile)):
        given = "passes" in block["algorithm"]
        if block["algorithm"]["name"] in ("sgd", "svrg") and not given:
            assert block["tune"]["limits"]["passes"][1] <= 50


@pytest.mark.parametrize(("name", "profile"), BOTH)
def test_theory_tunes_the_threshold_only_where_it_says_so(name, profile):
    blocks = theory(load(name, profile))
    assert blocks
    for block in blocks:
        fixed = block["panel"].startswith("theory_")
        assert ("clip" in block["algorithm"]) == fixed
        assert ("clip" in block["tune"]["axes"]) != fixed


def test_theory_fixes_all_but_one_axis():
    for profile in PROFILES:
        for block in theory(load("mangold2023", profile)):
            varied = block["panel"].removeprefix("theory_")
            at = {**block["dataset"], "epsilon": block["budget"]["epsilon"]}
            for key in ("n", "p", "epsilon"):
                assert isinstance(at[key], list) == (key == varied)
            assert at["tau"] == 5
            assert len(at.get(varied)) >= (3 if profile == "smoke" else 5)


@pytest.mark.parametrize(
    ("profile", "others"),
    [("paper", [0.1, 0.3, 3, 10]), ("default", [0.1, 10]), ("smoke", [0.1, 10])],
)
@pytest.mark.parametrize("name", NAMES)
def test_other_epsilons_are_tuned_as_the_first_one(name, profile, others):
    config = load(name, profile)
    blocks = tuned(config, over_epsilon=True)
    assert blocks
    every = {(block["panel"], block["line"]): block for block in config["blocks"]}
    for block in blocks:
        assert block["budget"]["epsilon"] == others
        main = every[block["panel"], block["line"].removesuffix(" over epsilon")]
        assert LENGTHS[block["algorithm"]["name"]] in block["tune"]["axes"]
        for key in ("dataset", "algorithm", "calibration", "tune"):
            assert block[key] == main[key]
        assert main["budget"]["epsilon"] == 1


def test_labels_are_unique(anything):
    labels = [(block["panel"], block["line"]) for block in anything["blocks"]]
    assert len(set(labels)) == len(labels)


def test_blocks_name_what_exists(anything):
    for block in anything["blocks"]:
        algorithm = dict(block["algorithm"])
        target = registry.read_choice("algorithm", algorithm.pop("name"))["_target_"]
        fields = {field.name for field in dataclasses.fields(registry.locate(target))}
        assert set(algorithm) <= fields
        assert set(block.get("tune", {}).get("axes", {})) <= fields
        datasets = as_list(block["dataset"])
        assert all(dataset_spec(**one) for one in datasets)
        # Rates are at a fixed one: the logarithm of 1/n^2 would bend their slopes.
        rates = {
            "hard_mean": (1e-8, 0.0),
            "linear_hard": (1e-8, 0.0),
            "median_regression": (1e-8,),
            "sparse_classification": (1e-6,),
            "one_hot_fields": (1e-6, 0.0),
        }
        fixed = rates.get(datasets[0]["name"], ("1/n^2",))
        assert block["budget"]["delta"] in fixed
        assert block["budget"]["adjacency"] == "replace_one"


def test_each_noise_has_its_calibration(resolved):
    for block in resolved["blocks"]:
        line, algorithm = block["line"], block["algorithm"]
        if line.startswith("DP-SGD authors"):
            assert (block["calibration"], algorithm["batch_size"]) == ("authors", 1)
        elif line.startswith(("DP-GCD poster", "DP-CD printed noise")):
            assert block["calibration"] == "paper"
        else:
            assert block["calibration"] == "certified"
        if algorithm["name"] == "greedy_cd":
            poster = block["calibration"] == "paper"
            assert algorithm["noise"] == ("poster" if poster else "gumbel")
        kinds = [kind for kind in ("public", "private") if f"{kind} M" in line]
        assert algorithm["smoothness"] == (kinds[0] if kinds else "data")
        if kinds == ["private"]:
            assert algorithm["smoothness_bounds"] == "data"


def test_an_l1_penalty_has_the_rule_of_the_proved_poster_noise(resolved):
    for block in resolved["blocks"]:
        if block["algorithm"].get("noise") == "poster":
            usual = registry.read_choice("dataset", block["dataset"]["name"])["usual"]
            expected = "GS-s" if usual["penalty"] == "l1" else "GS-r"
            assert block["algorithm"]["rule"] == expected


def test_orders_of_coordinates(resolved):
    for block in resolved["blocks"]:
        order = block["algorithm"].get("order")
        if order is None:
            continue
        # Theirs is what their curve looks like: docs/papers.md.
        where = block["panel"], block["line"]
        theirs = where == ("california_raw", "DP-CD their setting")
        if theirs or "uniform" in block["line"] or "averaged" in block["line"]:
            assert order == "uniform"
        elif "california_" in block["panel"] and "public" not in block["line"]:
            assert order == "cyclic_reversed"
        else:
            assert order == "cyclic"


def test_repeats_use_other_data_seeds():
    log1, log2 = {"paper": 8, "default": 2, "smoke": 1}, {"paper": 8, "default": 8}
    for profile, number in log1.items():
        for block in load("mangold2023", profile)["blocks"]:
            if not block["panel"].endswith("_repeats"):
                again = block["panel"].startswith(THEORY)
                assert ("seed" in block["dataset"]) == again
                continue
            own = registry.read_choice("dataset", block["dataset"]["name"])["seed"]
            if block["dataset"]["name"] == "log2":
                number = log2.get(profile, 1)
            assert len(set(block["dataset"]["seed"])) == number
            assert own not in block["dataset"]["seed"]


@pytest.mark.parametrize("name", ALL)
def test_every_line_that_a_figure_draws_is_run(name):
    config = load(name, "default")
    run = {(block["panel"], block["line"]) for block in config["blocks"]}
    check_report(config)
    figures = figures_of(config)
    cells = [cell for figure in figures for cell in getattr(figure, "cells", ())]
    for cell in (one for one in cells if not one.source):
        own = panels_of({panel for panel, _ in run}, cell.panel, cell.x)
        assert own
        for panel, line in itertools.product(own, cell.lines):
            assert (panel, line) in run
    panels = [panel for figure in figures for panel in getattr(figure, "panels", ())]
    # These have rates only.
    assert cells and (panels or name not in (*NAMES, "talwar2015"))
    for panel in panels:
        for line in panel.lines:
            assert (panel.name, line) in run
        for line in panel.over_epsilon:
            assert (panel.name, f"{line} over epsilon") in run
        for curve in panel.authors.values():
            assert curve in decoded_curves(panel.name)


@pytest.mark.parametrize("name", ALL)
def test_claims_name_panels_lines_and_curves_that_exist(name):
    config = load(name, "default")
    run = {(block["panel"], block["line"]) for block in config["blocks"]}
    panels = {panel for panel, _ in run}
    noise = sources_of(figures_of(config), Noise)
    for claim in config["claims"]:
        assert claim["measure"] in MEASURES
        assert ("reason" in claim) == (claim["good"] == "none")
        for figure in as_list(claim["figure"]):
            own = set(panels_of(panels, figure, claim.get("axis", "")))
            names = [
                line
                for key in ("line", "other", "over", "under")
                for line in as_list(claim.get(key, []))
            ]
            if MEASURES[claim["measure"]].lines == NOISE:
                assert set(names) <= set(noise[figure].releases)
                continue
            if MEASURES[claim["measure"]].lines == NOTHING and not names:
                assert figure in {
                    getattr(one, "name", "") for one in figures_of(config)
                }
                continue
            assert own and own <= panels
            for member, line in itertools.product(own, names):
                assert (member, line) in run
            if "curve" in claim:
                assert claim["curve"] in decoded_curves(figure)


@pytest.mark.parametrize("name", ALL)
def test_claims_without_any_run_are_rows_that_say_so(name, empty_table):
    found = evaluate_claims(empty_table, {**load(name, "default"), "paper": name})
    assert set(found["paper"]) == {name}
    assert set(found["profile"]) == {"default"}
    computed = found["figure"].isin(["noise", "selection", "steps", "bias"])
    assert found["verdict"][~computed].str.match(r"not run \(.+\)$").all()
    expected = found["expected"].str.startswith("fails")
    assert not found["statement"].str.contains("expected|may fail").any()
    assert (found["verdict"][computed & ~expected] == "holds").all()
    assert (found["verdict"][computed & expected] == "fails").all()
    texts = found["statement"] + found["measured"]
    assert not texts.str.contains("[{}]").any()
    assert not found.duplicated(["figure", "statement", "measured"]).any()


@pytest.fixture
def empty_table():
    import pandas as pd

    names = "panel line phase epsilon dataset_seed status message relative_error"
    return pd.DataFrame(columns=names.split())


@each(
    ("name", "figure", "identity", "threshold"),
    [
        ("mangold2022", "electricity_raw", "cd_beats_sgd", ">= 10"),
        ("mangold2022", "california_raw", "cd_beats_sgd", ">= 5"),
        ("mangold2022", "california_raw", "cd_beats_sgd", ">= 3"),
        ("mangold2022", "electricity_standardised", "cd_beats_sgd", ">= 1.5"),
        ("mangold2022", "california_standardised", "cd_is_faster", "<= 1.5"),
        ("mangold2022", "electricity_raw", "public_smoothness", ">= 10"),
        ("mangold2022", "electricity_raw", "cd_like_authors", "<= 2"),
        (
            *("mangold2022", "california_raw", "sgd_like_authors"),
            "<= 2, and at most 0.9 of w = 0's error",
        ),
        ("mangold2023", "log2_repeats", "gcd_beats_sgd", "<= 0.6"),
        ("mangold2023", "log2_repeats", "disjoint_bands", ">= 1.01"),
        ("mangold2023", "madelon", "disjoint_bands", ">= 1.01"),
        ("mangold2023", "madelon", "first_iterations", ">= 0.7"),
        ("mangold2023", "log1", "tie", "<= 1"),
        ("mangold2023", "madelon", "sgd_stuck", "<= 0.2"),
        ("mangold2022", "electricity_raw", "private_smoothness", "<= 2"),
        ("mangold2022", "california_raw", "private_smoothness", "<= 2"),
        ("mangold2022", "sparse_lasso", "sgd_stuck", ">= 0.99"),
        ("mangold2022", "sparse_lasso", "cd_moves", "<= 0.6"),
        ("mangold2022", "sparse_lasso", "error_at_zero", "0.8733 +- 5e-05"),
        ("mangold2023", "california", "gcd_like_cd", "<= 1"),
        (
            *("mangold2023", "dorothea", "sparse_iterates"),
            "<= 0, and at most 0.9 of w = 0's error",
        ),
        ("mangold2023", "dorothea", "error_at_zero", "0.783 +- 0.0005"),
        ("mangold2023", "theory_n", "records", "<= -0.667"),
        (
            *("mangold2023", "log1", "gcd_like_authors"),
            "<= 2, and at most 1 of w = 0's error",
        ),
        ("arora2020", "steps", "steps", f"<= {2 * math.exp(-1):.4g}"),
        ("arora2020", "steps", "steps", f"<= {2 * math.exp(-2):.4g}"),
        ("arora2020", "steps", "steps", f"<= {2 * math.exp(-4):.3g}"),
        ("ghazi2024", "pure_n", "high_n_pure", "<= -0.42"),
    ],
)
def test_thresholds_of_the_papers(name, figure, identity, threshold, empty_table):
    config = load(name, "default")
    claims = [
        claim
        for claim in config["claims"]
        if claim["id"] == identity and figure in as_list(claim["figure"])
    ]
    found = evaluate_claims(empty_table, {**config, "claims": claims})
    assert threshold in set(found["threshold"])


WITH_GOOD = (*ALL, "kumar2019", "leaderboard")


def places_of(block, dataset):
    """Keywords of the rows of a block's runs on one dataset, one per point."""
    axes = {key: as_list(dataset.get(key, 1000)) for key in ("n", "p")}
    axes["epsilon"] = as_list(block["budget"]["epsilon"])
    points = itertools.product(*axes.values())
    return [dict(zip(axes, at, strict=True)) for at in points]


def table_of(config, claims):
    """A table in which every run of some claims' panels ends far below w = 0."""
    import pandas as pd

    names = {figure for claim in claims for figure in as_list(claim["figure"])}
    rows = []
    for block in config["blocks"]:
        if not block["panel"].startswith(tuple(names)):
            continue
        of = {"panel": block["panel"], "line": block["line"], "n_seeds": 2}
        of |= {"calibration": as_list(block.get("calibration", "certified"))[0]}
        for k, dataset in enumerate(as_list(block["dataset"])):
            for at in places_of(block, dataset):
                for row in line_rows(**of, **at, end=1e-4, spread=0.0):
                    row["trial"] += f"/{k}/{at['n']}/{at['p']}"
                    row["nonzeros"] = dataset.get("nonzeros", 8)
                    row["excess_risk"] = row["objective"] - row["optimum"]
                    row["excess_objective"] = row["excess_risk"]
                    row["support_f1"] = 0.99
                    row["rmse"] = row["relative_error"]
                    delta = block["budget"].get("delta")
                    row["delta"] = delta if isinstance(delta, float) else row["delta"]
                    rows.append(row)
    return pd.DataFrame(rows)


QUICK = ("arora2020", "ghazi2024")


@each("name", QUICK)
def test_no_claim_on_a_good_line_holds_for_w_0(name):
    assert_w_0_is_vacuous(name)


@pytest.mark.slow
@each("name", [one for one in WITH_GOOD if one not in QUICK])
def test_no_other_claim_on_a_good_line_holds_for_w_0(name):
    assert_w_0_is_vacuous(name)


def assert_w_0_is_vacuous(name):
    """Put w = 0, on its own problem, in the place of each line that is called good."""
    config = load(name, "smoke")
    claims = [one for one in config["claims"] if one["good"] != "none"]
    assert len(claims) > 2
    given = {**config, "claims": claims, "profile": "default", "paper": name}
    good = {
        (figure, str(one["good"]).format(**one))
        for claim in claims
        for one in _rows_of(claim)
        for figure in as_list(one["figure"])
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.report.conftest.CHECKPOINTS", 3)
        patch.setattr("dp_erm_bench.report.scaling.quotients_of", by_ratio)
        table = table_of(config, claims)
        before = evaluate_claims(table, given)
        for figure, line in good:
            own = table["panel"].str.startswith(figure) & (table["line"] == line)
            starts = table["trial"].map(
                table[table["iteration"] == 0].set_index("trial")["relative_error"]
            )
            table.loc[own, "relative_error"] = starts[own]
            for excess in ("excess_risk", "excess_objective"):
                table.loc[own, excess] = starts[own] / 2
            table.loc[own, "objective"] = 0.5 * (1.0 + starts[own])
            table.loc[own, "rmse"] = starts[own]
        after = evaluate_claims(table, given)
    # A bound may lie above the error of w = 0 of these tables: that is vacuous, too.
    bounds = [
        "bound" in MEASURES[one["measure"]].words or "one_pass" in one["measure"]
        for claim in claims
        for one in _rows_of(claim)
    ]
    decided = before["verdict"].str.startswith(("holds", "fails", "undecided"))
    decided |= before["verdict"].str.contains("w = 0 in place of", regex=False)
    assert (decided | np.array(bounds)).all(), before[~decided]["verdict"].tolist()
    over_sets = after["measured"].str.startswith("share of figures")
    assert not after["verdict"][over_sets].eq("holds").any()
    after = after[~over_sets]
    assert after["verdict"].str.startswith("vacuous (error of ").all()
    assert after["of_zero"].str.startswith("1 [1, 1]").all()


def by_ratio(config, family):
    """The quotients of the unbalanced panels up to a factor, without their data."""
    panels = {block["panel"] for block in config["blocks"]}
    own = [one for one in panels if one.startswith(f"{family}_")]
    return {one: float(one.rpartition("_")[2]) ** -0.5 for one in own}


@each("name", [*WITH_GOOD, "accounting", "audit"])
def test_every_claim_says_whose_it_is_and_why_no_line_is_good(name):
    for claim in load(name, "default")["claims"]:
        assert claim["whose"] in WHOSE
        assert claim["whose"] == "ours" or claim["source"].strip()
        assert claim.get("kind", "claim") in KINDS
        if claim["measure"] in ("error_at_zero", "certified_epsilon", "noise_slope"):
            assert claim["kind"] == "fact"
        assert claim["good"] != "none" or claim["reason"]
        assert "expected" not in claim["statement"]
        assert "may fail" not in claim["statement"]


@each("name", [*WITH_GOOD])
def test_settings_that_are_chosen_are_judged_on_20_seeds(name):
    profiles = yaml_of(name)["profiles"]
    for profile in set(profiles) - {"smoke"}:
        for block in load(name, profile)["blocks"]:
            tune = block.get("tune") or {}
            if sum(len(axis(block, key)) > 1 for key in tune.get("axes", ())):
                assert len(seeds(tune["report"])) >= 20


def test_a_claim_that_w_0_gets_from_the_data_alone_is_vacuous():
    """The slope -1/2 of projection is that of the mean's length, hence of w = 0."""
    import pandas as pd

    claims = load("ghazi2024", "default")["claims"]
    claims = [one for one in claims if one["id"] in ("high_n", "sparsity")]
    rows = []
    for line, s in (("projection", 1.0), ("projection, 4 s", 4.0)):
        for n in (1000, 4000, 16000, 32000):
            zero = s**0.25 * n**-0.5
            own = {"panel": "approximate_n", "line": line, "n": n, "start": zero}
            for row in line_rows(**own, end=1.6 * zero, spread=0.02, n_seeds=20):
                rows.append({**row, "trial": f"{row['trial']}/{n}", "optimum": 0.0})
    table = pd.DataFrame(rows)
    table["objective"] = table["relative_error"]
    found = evaluate_claims(table, {"claims": claims, "profile": "default"})
    assert found["value"].tolist() == pytest.approx([-0.5, 2**0.5], rel=1e-6)
    assert found["verdict"].str.startswith("vacuous (error of projection").all()
    assert found["of_zero"].str.startswith("1.6 [1.5").all()
    # Where the line beats w = 0 its slope is still that of w = 0; the quotient holds.
    starts = table["iteration"] == 0
    table.loc[starts, "objective"] *= 4.0
    again = evaluate_claims(table, {"claims": claims, "profile": "default"})
    assert again["verdict"].tolist() == [
        "vacuous (w = 0 in place of projection would meet it, too)",
        "holds",
    ]
