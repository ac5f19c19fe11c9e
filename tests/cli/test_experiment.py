import re

import pytest

TINY = """
profile: default
profiles:
  default: {steps: [1, 2], seeds: "range(0,3)"}
  smoke: {steps: [1], seeds: "range(0,1)"}
blocks:
  - &main
    panel: first
    line: DP-CD, cyclic
    dataset: {name: log1, n: 200}
    algorithm: {name: random_cd, order: "uniform,cyclic"}
    budget: {epsilon: 1, delta: 1/n^2, adjacency: replace_one}
    calibration: certified
    tune:
      axes:
        step: ${profiles.${profile}.steps}
        clip: {unit: gradient_rms, values: [0.1, 1]}
      seeds: ${profiles.${profile}.seeds}
      aside: [clip]
      report: "range(100,103)"
  - <<: *main
    panel: second
    tune: null
    algorithm: {name: sgd, step: 1}
    seed: range(0,2)
figures: [{kind: leaderboard}]
claims: []
"""


@pytest.fixture
def tiny(line, experiments):
    flag = experiments(TINY)
    return lambda *arguments, code=0: line(
        flag, "experiment=tiny", *arguments, code=code
    )


@pytest.fixture
def mine(tiny):
    """The experiment with changes, in a folder of its own."""
    return lambda *arguments: tiny(*arguments, "name=mine")


def test_the_grammar_in_blocks_is_expanded(tiny):
    run = tiny()
    first, second = run.blocks
    assert first["line"] == second["line"] == "DP-CD, cyclic"
    assert first["algorithm"] == {"name": "random_cd", "order": ["uniform", "cyclic"]}
    assert first["tune"] == {
        "axes": {"step": [1, 2], "clip": {"unit": "gradient_rms", "values": [0.1, 1]}},
        "seeds": [0, 1, 2],
        "aside": ["clip"],
        "report": [100, 101, 102],
    }
    assert second["tune"] is None
    assert second["seed"] == [0, 1]
    assert first["budget"]["delta"] == "1/n^2"


def test_an_experiments_file_is_handed_to_its_run(tiny, line, tmp_path):
    file = tmp_path / "mine" / "experiment" / "tiny.yaml"
    assert tiny().options.files == {"tiny.yaml": file.read_bytes()}
    assert line("dataset=log1").options.files == {}


def test_an_experiment_has_its_own_folder_and_replaces_its_plan(tiny):
    run = tiny("profile=smoke")
    assert (run.name, str(run.folder)) == ("tiny", "results/tiny")
    assert run.options.profile == "smoke"
    assert not run.options.append_plan
    assert run.options.config["figures"] == [{"kind": "leaderboard"}]
    assert run.options.config["blocks"] == run.blocks


def test_a_profile_changes_what_is_interpolated(tiny):
    tune = tiny("profile=smoke").blocks[0]["tune"]
    assert tune["axes"]["step"] == [1]
    assert tune["seeds"] == [0]


@pytest.mark.parametrize("text", ["panel=second", "panel=[second]"])
def test_panels_are_chosen(mine, text):
    assert [block["panel"] for block in mine(text).blocks] == ["second"]


@pytest.mark.parametrize("text", ["panel=second,first", "panel=[first,second]"])
def test_the_order_of_the_panels_is_the_experiments(mine, text):
    assert [block["panel"] for block in mine(text).blocks] == ["first", "second"]


def test_keys_of_the_command_line_replace_those_of_every_block(mine):
    blocks = mine(
        "budget.epsilon=0.1,10", "budget.adjacency=zero_out", "calibration=paper"
    ).blocks
    for block in blocks:
        assert block["budget"] == {
            "epsilon": [0.1, 10.0],
            "delta": "1/n^2",
            "adjacency": "zero_out",
        }
        assert block["calibration"] == "paper"


def test_objectives_and_data_of_every_block(mine):
    for block in mine(
        "dataset.n=100", "loss=squared", "penalty=l1", "penalty.strength=0.1"
    ).blocks:
        assert block["dataset"] == {"name": "log1", "n": 100}
        assert block["loss"] == {"name": "squared"}
        assert block["penalty"] == {"name": "l1", "strength": 0.1}


def test_one_value_fixes_a_tuned_parameter(mine):
    first, second = mine("algorithm.random_cd.clip=2.5").blocks
    assert first["algorithm"]["clip"] == 2.5
    assert list(first["tune"]["axes"]) == ["step"]
    assert first["tune"]["aside"] == []
    assert "clip" not in second["algorithm"]


def test_several_values_replace_a_tuned_axis(mine):
    first, _ = mine("algorithm.random_cd.step=3,4").blocks
    assert first["tune"]["axes"]["step"] == [3, 4]
    assert "step" not in first["algorithm"]


def test_seeds_are_replaced_where_nothing_is_tuned(tiny, mine):
    (block,) = mine("panel=second", "seed=5,6").blocks
    assert block["seed"] == [5, 6]
    assert "is tuned" in tiny("seed=5,6", code=2).err


def test_seeds_that_lie_apart_are_a_list(tiny, line, experiments):
    far = [42, 43, 2**63 - 1]
    typed = ",".join(map(str, far))
    run = tiny(f"seed={typed}", "panel=second")
    assert run.blocks[0]["seed"] == far and typed in run.folder.name
    written = TINY.replace("seed: range(0,2)", f"seed: [{typed}]")
    run = line(experiments(written, "apart"), "experiment=apart", "panel=second")
    assert run.blocks[0]["seed"] == far
    run = tiny(f"dataset.seed={typed}", "panel=second")
    assert run.blocks[0]["dataset"]["seed"] == far


@pytest.mark.parametrize(
    "change",
    [
        "panel=second",
        "budget.epsilon=2",
        "budget.epsilon=2,3",
        "budget.adjacency=zero_out",
        "calibration=paper",
        "loss=squared",
        "penalty.strength=0.1",
        "dataset.n=100",
        "dataset.seed=1",
        "algorithm.random_cd.step=3",
    ],
)
def test_a_changed_experiment_has_a_folder_of_its_own(tiny, change):
    run = tiny(change, "profile=smoke")
    assert run.name == f"tiny+{change}"
    assert str(run.folder) == f"results/tiny+{change}"
    assert run.options.config["changes"] == [change]
    said = f"tiny+{change}: the folder of experiment=tiny with {change}"
    assert said in run.options.notice
    assert tiny(change, "runner.n_jobs=1").folder == run.folder
    named = tiny(change, "name=other")
    assert (named.name, str(named.folder)) == ("other", "results/other")
    assert named.options.config["changes"] == [change]
    refused = tiny(change, "profile=smoke", "name=tiny", code=2)
    assert not refused.calls and len(refused.err.splitlines()) == 1
    assert f"dp-erm-bench: {change}: changes experiment=tiny" in refused.err


def test_the_folder_does_not_depend_on_the_order_or_the_spelling(tiny):
    one = tiny("panel=second", "budget.epsilon=2,0.5", "seed=range(0,5)")
    assert one.name == "tiny+budget.epsilon=2,0.5+panel=second+seed=0..4"
    other = tiny("seed=0,1,2,3,4", "panel=[second]", "budget.epsilon=2.0,0.5")
    assert (other.name, other.folder) == (one.name, one.folder)


def test_a_long_or_odd_folder_is_cut_and_told_apart_by_a_digest(tiny):
    many = ",".join(str(n / 7) for n in range(1, 30))
    names = [tiny(f"budget.epsilon={many}{more}").name for more in (",9", ",10")]
    odd = tiny("budget.delta=1/n^2").name
    assert len(set(names)) == 2 and all(len(name) < 100 for name in names)
    assert re.fullmatch(r"tiny\+budget\.delta=1-n-2-[0-9a-f]{8}", odd)
    assert all(re.fullmatch(r"[\w.,=+-]+", name) for name in (*names, odd))


@pytest.mark.parametrize(
    "how", ["profile=smoke", "runner.n_jobs=1", "runner.retry=error", "panel=null"]
)
def test_how_an_experiment_is_run_is_no_change_of_it(tiny, how):
    assert tiny(how).name == "tiny"


def test_a_seed_of_an_experiment_is_a_change(line, experiments):
    flag = experiments("blocks: [{dataset: log1, algorithm: sgd, seed: 0}]\n")
    run = line(flag, "experiment=tiny", "seed=5")
    assert (run.name, run.blocks[0]["seed"]) == ("tiny+seed=5", 5)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["panel=frist"], "did you mean first?"),
        (["profile=smok"], "did you mean smoke?"),
        (["dataset=log2"], "panel=NAME"),
        (["algorithm=sgd"], "panel=NAME"),
        (["loss=logistic,squared"], "one value"),
        (["algorithm.greedy_cd.step=1"], "no block of the experiment runs greedy_cd"),
        (["algorithm.random_cd=1"], "algorithm.NAME.PARAMETER"),
        (["budget.epsilon=abc"], "must be a number"),
    ],
)
def test_wrong_keys_are_refused(tiny, arguments, said):
    run = tiny(*arguments, code=2)
    assert said in run.err
    assert not run.calls
    assert len(run.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("blocks: []\n", "needs `blocks`"),
        ("blocks: [1, 2]\n", "needs `blocks`"),
        ("blcks: []\n", "blcks"),
        ("blocks: [{dataset: log1, seed: 'range(3,3)'}]\n", "empty"),
        ("blocks: [{dataset: log1, seed: 'range(3,('}]\n", "block 1: algorithm=null"),
        ("blocks: [{dataset: log1, seed: 'interval(0,1)'}]\n", "interval"),
        ("blocks: [{dataset: '${nowhere}'}]\n", "nowhere"),
        ("blocks: [\n", "tiny.yaml"),
        ("seed: 3\nblocks: [{dataset: log1}]\n", "seed: no such key"),
        ("blocks: [{dataset: log1}]\n", "block 1: algorithm=null"),
    ],
)
def test_wrong_files_are_refused_in_one_line(line, experiments, text, said):
    run = line(experiments(text), "experiment=tiny", code=2)
    assert said in run.err
    assert len(run.err.splitlines()) == 1
    assert not run.calls


def test_a_file_needs_no_line_for_hydra(line, experiments, tmp_path):
    flag = experiments("")
    text = "blocks: [{dataset: log1, algorithm: sgd}]\n"
    (tmp_path / "mine/experiment/tiny.yaml").write_text(text)
    assert len(line(flag, "experiment=tiny").blocks) == 1


def test_without_profiles_there_is_no_profile(line, experiments):
    flag = experiments("blocks: [{dataset: log1, algorithm: sgd}]\n")
    assert line(flag, "experiment=tiny").blocks
    run = line(flag, "experiment=tiny", "profile=smoke", code=2)
    assert "has no profiles" in run.err


@pytest.mark.parametrize(
    "name", ["2025", "ü", "a(1)", "a b", "true", "null", "1e3", "a,b", "it's"]
)
def test_an_experiment_may_be_called_anything(line, experiments, tmp_path, name):
    experiments(TINY, name)
    path = tmp_path / "mine" / "experiment" / f"{name}.yaml"
    run = line(f"experiment={path}", "panel=second")
    assert [block["panel"] for block in run.blocks] == ["second"]


@pytest.mark.parametrize(
    "text",
    ["${oc.env:HOME}", "a ${oc.env:USER,x}", "${oc.decode:${oc.env:HOME}}", "${now:%Y}"]
    + ["${ oc.env :HOME}", "${${profile}:HOME}", "${hydra:runtime.cwd}"],
)
def test_an_experiment_reads_no_environment(line, experiments, text):
    written = TINY.replace("line: DP-CD, cyclic", f'line: "{text}"')
    run = line(experiments(written, "env"), "experiment=env", code=2)
    assert "must call no resolver but" in run.err and run.err.count("\n") == 1
