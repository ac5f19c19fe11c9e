"""Test wrong experiment files: one sentence names file, block or key; nothing runs."""

import pytest

from dp_erm_bench.cli.main import main
from tests.loops import each

DATA = "dataset: {name: log1, n: 60, p: 5}"
FIXED = "algorithm: {name: random_cd, clip: 1}"
BUDGET = "budget: {epsilon: 1, delta: 1.0e-6, adjacency: replace_one}"
BLOCK = f"{{panel: a, line: b, {DATA}, {FIXED}, {BUDGET}, seed: 0}}"
TUNE = (
    "{axes: {step: [0.5, 1], clip: {unit: gradient_rms, values: [1]}}, seeds: [0, 1], "
    "report: [10]}"
)
TUNED = f"{{panel: a, line: b, {DATA}, algorithm: random_cd, tune: {TUNE}}}"
CLAIM = (
    "{id: zero, figure: a, line: b, measure: error_at_zero, at_most: 1, statement: S, "
    "whose: ours, good: none, reason: r}"
)
HEAD = "# @package _global_\n"
VALID = f"blocks: [{BLOCK}]\nclaims: [{CLAIM}]\n"


def replaced(whole, old, new):
    assert old in whole
    return f"blocks: [{whole.replace(old, new)}]\n"


def claims(old, new):
    assert old in CLAIM
    return f"blocks: [{BLOCK}]\nclaims: [{CLAIM.replace(old, new)}]\n"


TOP = [
    ("blocks: {a: 1}", "blocks={a:1}: must be a list"),
    ("blocks: 3", "blocks=3: must be a list"),
    ("blocks: []", "needs `blocks`"),
    ("blocks: null", "blocks=null: must be a list"),
    ("blocks: log1", "blocks=log1: must be a list"),
    ("blocks: [log1]", "needs `blocks`"),
    ("blocks: [[]]", "needs `blocks`"),
    ("blocks: ???", "must be a list"),
    ("blocks: ['${blocks.0}']", "interpolation"),
    ("blocks: [{dataset: '${nope}'}]", "'nope'"),
    ("blocks: [{dataset: '${blocks.0}'}]", "nterpolation"),
    ("blocks: [{dataset: '${'}]", "${"),
    ("", "must be a mapping with `blocks`"),
    ("- a", "must be a mapping"),
    ("words", "must be a mapping"),
    ("blokcs: []", "did you mean blocks?"),
    ("mode: plan\n" + VALID, "mode: no such key"),
    ("budget: {epsilon: 2}\n" + VALID, "budget: no such key"),
    ("hydra: {mode: RUN}\n" + VALID, "hydra: no such key"),
    ("3: 4\n" + VALID, "key 3: must be a word"),
    ("profiles: 3\n" + VALID, "profiles=3: must be a mapping"),
    ("profiles: [a]\n" + VALID, "profiles=[a]"),
    ("profiles: {a: 3}\n" + VALID, "profile=None: must be one of a"),
    ("profiles: {a: {}}\n" + VALID, "profile=None: must be one of a"),
    ("profiles: {first: {}}\nprofile: frist\n" + VALID, "did you mean first?"),
    ("profile: a\n" + VALID, "has no profiles"),
    ("profile: [a]\n" + VALID, "profile=[a]: must be the name"),
    ("runner: 3\n" + VALID, "runner=3: must be a mapping"),
    ("runner: {jobs: 3}\n" + VALID, "did you mean runner.n_jobs?"),
    ("runner: {n_checkpoints: abc}\n" + VALID, "n_checkpoints=abc"),
    ("runner: {n_checkpoints: 1}\n" + VALID, "at least 2"),
    ("defaults: 3\n" + VALID, "defaults=3: must be a list"),
    ("defaults: [nope]\n" + VALID, "defaults=nope"),
    ("defaults: [{dataset: log2}]\n" + VALID, "defaults={'dataset': 'log2'}"),
    ("defaults: [null]\n" + VALID, "defaults=None"),
    ("defaults: [tiny]\n" + VALID, "builds upon itself"),
    ("figures: no.such\n" + VALID, "figures=no.such: must be a list of mappings"),
    ("figures: [a]\n" + VALID, "figure 1=a: must be a mapping"),
    ("figures: [{}]\n" + VALID, "figure 1: kind=None: must be one of"),
    ("figures: [{kind: panel}]\n" + VALID, "kind=panel (did you mean panels?)"),
    ("figures: [{kind: no.py}]\n" + VALID, "no.py: no such file"),
]
PANEL = "{kind: panels, panels: [{name: a, title: t, lines: [b]}]}"
CELL = "{panel: a, x: p, title: t, lines: [b], shapes: {x: -1/2}}"
RATES = f"{{kind: lines, name: r, about: words, cells: [{CELL}]}}"
SELECT = "x: {algorithm: greedy_cd, release: select}"
NOISE = (
    "{kind: lines, name: s, about: words, cells: [{title: t, source: {kind: noise, "
    "axis: p, values: [1, 2], releases: {" + SELECT + "}}}]}"
)
FIGURES = [
    (PANEL, "panels: [{", "panel: [{", "key=panel (did you mean panels?)"),
    (PANEL, "title: t, ", "", "figure 1 (panels): panels 1: title: must be given"),
    (PANEL, "title: t", "titel: t", "panels 1: key=titel (did you mean title?)"),
    (PANEL, "title: t", "title: 3", "panels 1: title=3: must be a word"),
    (PANEL, "[b]", "b", "lines=b: must be a list of at least one value"),
    (PANEL, "[b]", "[]", "lines=[]: must be a list of at least one value"),
    (PANEL, "[b]", "[c]", "figure 1: panel a: line=c: must be one of b"),
    (PANEL, "name: a", "name: c", "figure 1: panel=c: must be one of a"),
    (PANEL, "name: a", "name: ../a", "must be a plain name for a file"),
    (PANEL, "[b]", "[b], authors: {b: x}", "authors=x: there is none"),
    (PANEL, "[b]", "[b], authors: [b]", "authors=['b']: must be a mapping"),
    (PANEL, "[b]", "[b], log_passes: 1", "log_passes=1: must be true or false"),
    (PANEL, "[b]", "[b], epsilon: one", "epsilon=one: must be a number"),
    (RATES, "x: p", "x: q", "cells 1: x=q: must be one of p, n"),
    (RATES, "-1/2", "square", "shapes=square: must be log, or a power"),
    (RATES, "panel: a", "panel: c", "figure 1: panel=c: must be one of a"),
    (RATES, "[b]", "[c]", "figure 1: panel a: lines=c: must be one of b"),
    (RATES, "name: r", "name: /r", "must be a plain name for a file"),
    (NOISE, "axis: p", "axis: n", "axis=n: must be one of p"),
    (NOISE, "greedy_cd", "greedy", "x: algorithm=greedy (did you mean"),
    (NOISE, "[1, 2]", "[1, x]", "values 2=x: must be an integer"),
    (NOISE, "select", "choose", "figure 1: line x: release=choose: must be one of"),
    (NOISE, "select", "select, parameters: {stp: 1}", "parameter of greedy_cd=stp"),
]
FIGURES = [
    (f"figures: [{whole.replace(old, new)}]\n{VALID}", said)
    for whole, old, new, said in FIGURES
]
LABELS = [
    (replaced(BLOCK, "panel: a", "panel: [a]"), "panel=[a]: must be a word"),
    (replaced(BLOCK, "line: b", "line: {x: y}"), "line={x:y}: must be a word"),
    (replaced(BLOCK, "panel", "pannel"), "pannel: no such key; did you mean panel?"),
    (replaced(BLOCK, "seed: 0", "seed: 0, 3: 4"), "key 3: must be a word"),
    (f"blocks: [{BLOCK}, {BLOCK}]\n", "two blocks have this panel and line"),
]
PARTS = [
    (replaced(BLOCK, DATA, "dataset: 3"), "dataset=3: must be a name"),
    (replaced(BLOCK, DATA, "dataset: null"), "dataset=null: must be a name"),
    (replaced(BLOCK, DATA, "dataset: []"), "dataset=[]: must be at least one"),
    (replaced(BLOCK, DATA, "dataset: {n: 3}"), "a mapping with `name`"),
    (replaced(BLOCK, DATA, "dataset: log3"), "did you mean log"),
    (replaced(BLOCK, DATA, "dataset: {name: [log1, 3]}"), "a mapping with `name`"),
    (replaced(BLOCK, "n: 60", "n: []"), "dataset.n=[]"),
    (replaced(BLOCK, "n: 60", "n: [60, abc]"), "dataset.n=abc"),
    (replaced(BLOCK, "n: 60", "n: {a: 1}"), "dataset.n={'a': 1}"),
    (replaced(BLOCK, "n: 60", "n: 1"), "an integer >= 2"),
    (replaced(BLOCK, "n: 60", "n: 100000000000"), "more than this machine's memory"),
    (replaced(BLOCK, "n: 60", "sed: 1"), "did you mean seed?"),
    (replaced(BLOCK, "n: 60", "_target_: os.system"), "dataset._target_: no such key"),
    (replaced(BLOCK, "n: 60", "bounds: 3"), "bounds=3"),
    (replaced(BLOCK, "n: 60", "bounds: {rows: 1}"), "rows"),
    (replaced(BLOCK, "n: 60", "usual: {loss: nope}"), "usual"),
    (replaced(BLOCK, "n: 60", "task: guess"), "task"),
    (replaced(BLOCK, FIXED, "algorithm: greedy"), "did you mean greedy_cd?"),
    (replaced(BLOCK, FIXED, "algorithm: {clip: 1}"), "a mapping with `name`"),
    (replaced(BLOCK, "clip: 1", "clop: 1"), "did you mean clip?"),
    (replaced(BLOCK, "clip: 1", "clip: []"), "clip=[]"),
    (replaced(BLOCK, "clip: 1", "clip: [1, abc]"), "clip=abc: must be a number"),
    (replaced(BLOCK, "clip: 1", "clip: -1"), "clip=-1"),
    (replaced(BLOCK, "clip: 1", "clip: {unit: x}"), "clip.unit=x"),
    (replaced(BLOCK, "clip: 1", "clip: {unit: gradient_rms}"), "clip.values=None"),
    (replaced(BLOCK, "clip: 1", "order: zigzag"), "cyclic"),
    (replaced(BLOCK, "clip: 1", "step: 2020-01-01"), "step=2020-01-01"),
    (replaced(BLOCK, "seed: 0", "seed: 0, loss: smooth_hinge"), "smoothed_hinge"),
    (replaced(BLOCK, "seed: 0", "seed: 0, loss: hing"), "did you mean hinge?"),
    (replaced(BLOCK, "seed: 0", "seed: 0, loss: 3"), "loss=3: must be a name"),
    (
        replaced(BLOCK, "seed: 0", "seed: 0, loss: {name: huber, kappa: 0}"),
        "kappa=0",
    ),
    (
        replaced(BLOCK, "seed: 0", "seed: 0, penalty: {name: l1, strength: true}"),
        "strength=True",
    ),
    (
        replaced(BLOCK, "seed: 0", "seed: 0, constraint: {name: l2_ball, radius: -1}"),
        "radius=-1",
    ),
]
PRIVACY = [
    (replaced(BLOCK, BUDGET, "budget: 1"), "budget=1: must be a mapping"),
    (replaced(BLOCK, BUDGET, "budget: []"), "budget=[]: must be a mapping"),
    (replaced(BLOCK, "epsilon: 1", "epsiln: 1"), "did you mean budget.epsilon?"),
    (replaced(BLOCK, "epsilon: 1", "epsilon: 0"), "epsilon=0"),
    (replaced(BLOCK, "epsilon: 1", "epsilon: [1, .nan]"), "epsilon=nan"),
    (replaced(BLOCK, "epsilon: 1", "epsilon: []"), "budget.epsilon=[]"),
    (replaced(BLOCK, "epsilon: 1", "epsilon: {a: 1}"), "epsilon={'a': 1}"),
    (replaced(BLOCK, "epsilon: 1", "epsilon: true"), "epsilon=True"),
    (replaced(BLOCK, "1.0e-6", "2"), "delta=2"),
    (replaced(BLOCK, "1.0e-6", "1/n^0"), "delta=1/n^0"),
    (replaced(BLOCK, "replace_one", "swap"), "replace_one"),
    (replaced(BLOCK, "seed: 0", "calibration: {}"), "calibration={}"),
    (replaced(BLOCK, "seed: 0", "calibration: []"), "calibration=[]"),
    (replaced(BLOCK, "seed: 0", "calibration: exact"), "certified"),
]
SEEDS = [
    (replaced(BLOCK, "seed: 0", "seed: abc"), "seed=abc"),
    (replaced(BLOCK, "seed: 0", "seed: -1"), "seed=-1"),
    (replaced(BLOCK, "seed: 0", "seed: [1, a]"), "seed=a"),
    (replaced(BLOCK, "seed: 0", "seed: {a: 1}"), "seed={'a': 1}"),
    (replaced(BLOCK, "seed: 0", "seed: 'range(3,3)'"), "empty"),
    (replaced(BLOCK, "seed: 0", "seed: 'range(0,1000000000)'"), "more than 1000000"),
    (replaced(BLOCK, "seed: 0", "seed: 'interval(0,1)'"), "interval"),
    (replaced(BLOCK, "seed: 0", f"seed: 0, tune: {TUNE}"), "seeds there"),
    (
        replaced(
            BLOCK.replace("epsilon: 1", "epsilon: 'range(1,2001)'"),
            "seed: 0",
            "seed: 'range(0,2000)'",
        ),
        "ask for 4000000 trials",
    ),
]
TUNING = [
    (replaced(TUNED, TUNE, "3"), "tune=3: must be a mapping"),
    (replaced(TUNED, TUNE, "{}"), "tune.axes=null: must be a mapping"),
    (replaced(TUNED, "seeds: [0, 1]", "seed: [0, 1]"), "did you mean tune.seeds?"),
    (replaced(TUNED, "seeds: [0, 1]", "seeds: []"), "tune.seeds=[]"),
    (replaced(TUNED, ", seeds: [0, 1]", ""), "tune.seeds: must be given"),
    (replaced(TUNED, "report: [10]", "report: [1]"), "must be disjoint"),
    (replaced(TUNED, "step: [0.5, 1]", "step: []"), "step=[]"),
    (replaced(TUNED, "step: [0.5, 1]", "stp: [1]"), "did you mean step?"),
    (replaced(TUNED, "step: [0.5, 1]", "step: [1, a]"), "step=a"),
    (replaced(TUNED, "values: [1]", "values: [0]"), "must be positive"),
    (replaced(TUNED, "{axes: {", "{axes: [step], other: {"), "tune.other"),
    (
        f"blocks: [{{{DATA}, {FIXED}, tune: {{axes: [step], seeds: 0, report: 1}}}}]",
        "tune.axes=[step]: must be a mapping",
    ),
    (
        f"blocks: [{{{DATA}, {FIXED}, tune: {{axes: {{}}, seeds: 0, report: 1}}}}]",
        "at least one parameter",
    ),
    (
        f"blocks: [{{{DATA}, {FIXED}, tune: {{axes: {{clip: [1]}}, seeds: 0, "
        "report: 1}}]",
        "given twice",
    ),
]
TUNING += [
    (replaced(TUNED, "report: [10]", f"report: [10], {more}"), said)
    for more, said in [
        ("aside: passes", "tune.aside=passes: must be an axis (step, clip)"),
        ("aside: {clp: 1}", "must be an axis (step, clip)"),
        ("aside: [[clip]]", "tune.aside=[clip]"),
        ("refine: {best: 1}", "tune.refine: no such key"),
        ("inherit: {line: b}", "tune.inherit: no such key"),
    ]
]
CLAIMS = [
    (f"blocks: [{BLOCK}]\nclaims: 3", "claims=3: must be a list"),
    (f"blocks: [{BLOCK}]\nclaims: {{a: 1}}", "claims={a:1}: must be a list"),
    (f"blocks: [{BLOCK}]\nclaims: [3]", "claim 1=3: must be a mapping"),
    (f"blocks: [{BLOCK}]\nclaims: [{{}}]", "measure=None"),
    (claims("error_at_zero", "eror_at_zero"), "did you mean error_at_zero?"),
    (claims("error_at_zero", "[ratio]"), "measure=['ratio']"),
    (claims("error_at_zero", "ratio"), "key=line"),
    (claims("error_at_zero", "loss_of_error"), "passes: must be given"),
    (claims("figure: a", "figure: c"), "claim zero: figure=c: must be one of a"),
    (claims("figure: a", "figure: []"), "figure=[]"),
    (claims("line: b", "line: c"), "figure a: line=c: must be one of b"),
    (claims("line: b", "line: {}"), "line={}: must be a word"),
    (claims("line: b, ", ""), "line: must be given"),
    (claims("id: zero, ", ""), "claim 1: id: must be given"),
    (claims(", statement: S", ""), "statement: must be given"),
    (claims("statement: S", "statement: 'S {nope}'"), "braces"),
    (claims("statement: S", "statement: 'S {'"), "braces"),
    (claims("statement: S", "statement: S, wat: 1"), "key=wat"),
    (claims("whose: ours", "whose: our"), "whose=our (did you mean ours?)"),
    (claims("good: none", "good: c"), "good=c: must be one of none, b"),
    (claims(", reason: r", ""), "reason: must be given for good=none"),
    (claims("statement: S", "statement: S, epsilon: x"), "epsilon=x: must be a number"),
    (claims("at_most: 1, ", ""), "threshold=None"),
    (claims("at_most: 1", "at_most: x"), "at_most=x: must be a number"),
    (claims("at_most: 1", "at_most: [1]"), "at_most=[1]: must be a number"),
    (claims("at_most: 1", "at_most: .nan"), "at_most=nan: must be finite"),
    (claims("at_most: 1", "equals: 1"), "threshold=equals"),
    (claims("at_most: 1", "at_most: 1, at_least: 0"), "threshold=at_least and at_most"),
    (
        claims("error_at_zero", "ratio_to_authors, at: at the end, curve: DP-CD"),
        "figure a: curve=DP-CD",
    ),
]
BYTES = [
    (b"", "must be a mapping with `blocks`"),
    (bytes(range(256)), "utf-8"),
    (HEAD.encode() + b"figures: \xe9\n", "utf-8"),
    ((HEAD + VALID).encode("utf-16"), "utf-8"),
    (HEAD.encode() + b"a: \x00\n", "no yaml"),
    (HEAD.encode() + b"blocks: [\n", 'tiny.yaml", line 3'),
    (HEAD.encode() + b"blocks:\n\t- a\n", "line 3, column 1"),
    (HEAD.encode() + b"blocks: *nowhere\n", "undefined alias"),
    (HEAD.encode() + b"blocks: &a [*a]\n", "an alias may stand for itself"),
    (HEAD.encode() + b"blocks: [&a {dataset: *a}]\n", "an alias may stand for itself"),
    (HEAD.encode() + b"blocks: " + b"[" * 400 + b"]" * 400, "recursion depth"),
    (HEAD.encode() + b"blocks: !!python/object:os.system x\n", "no yaml"),
    (HEAD.encode() + b"blocks: []\n---\nblocks: []\n", "another document"),
    (HEAD.encode() + b"blocks: " + b"9" * 5000, "4300 digits"),
    (
        HEAD.encode()
        + b"profiles: &a {x: [1,1,1,1,1,1,1,1]}\n"
        + b"".join(
            b"k%d: &k%d [%s]\n" % (i, i, b",".join([b"*k%d" % (i - 1)] * 9))
            for i in range(1, 9)
        ).replace(b"*k0", b"*a"),
        "more than 1000000 values",
    ),
]
ALL = [*TOP, *FIGURES, *LABELS, *PARTS, *PRIVACY, *SEEDS, *TUNING, *CLAIMS]


@pytest.fixture
def refused(experiments, tmp_path, monkeypatch, capsys):
    """Plan a wrong experiment; return its sentence."""
    monkeypatch.chdir(tmp_path)
    flag = experiments("")
    file = tmp_path / "mine" / "experiment" / "tiny.yaml"

    def refuse(content, *arguments):
        file.write_bytes(content)
        assert main([flag, "experiment=tiny", "mode=plan", *arguments]) == 2
        out, err = capsys.readouterr()
        assert not out and err.startswith("dp-erm-bench: ")
        assert len(err.splitlines()) == 1 and "Traceback" not in err
        assert [path.name for path in tmp_path.iterdir()] == ["mine"]
        return err

    return refuse


@each(("text", "said"), ALL[::5])
def test_one_sentence_and_nothing_run(text, said, refused):
    assert said in refused((HEAD + text).encode())


@pytest.mark.slow
@each(("text", "said"), ALL)
def test_one_sentence_and_nothing_run_of_all(text, said, refused):
    assert said in refused((HEAD + text).encode())


@each(("content", "said"), BYTES)
def test_a_file_that_is_no_yaml(content, said, refused):
    assert said in refused(content)


@each(
    ("argument", "said"),
    [
        ("profile=smoke", "has no profiles"),
        ("panel=b", "panel=b: must be one of a"),
        ("panel=[]", "panel=[]"),
        ("seed=range(0,2000000)", "more than 1000000 values"),
        ("dataset=log2", "panel=NAME"),
        ("dataset.n=abc", "dataset.n=abc"),
        ("dataset.n.x=3", "n holds no further keys"),
        ("algorithm.sgd.step=1", "no block of the experiment runs sgd"),
        ("algorithm.random_cd.stp=1", "did you mean step?"),
        ("budget.epsilon=0", "epsilon=0"),
        ("loss.kappa=3", "kappa"),
        ("name=''", "must be the name of a folder"),
    ],
)
def test_a_valid_file_with_a_wrong_key(argument, said, refused):
    assert said in refused((HEAD + VALID).encode(), argument)


@pytest.mark.parametrize("text", [VALID, f"blocks: [{TUNED}]\n"])
def test_what_the_tables_change_is_valid_itself(text, experiments, capsys):
    assert main([experiments(text), "experiment=tiny", "mode=plan"]) == 0
    assert "total" in capsys.readouterr().out


def test_experiments_may_build_upon_others(experiments, refused, capsys):
    flag = experiments(VALID, name="base")
    more = HEAD + "defaults: [base, _self_]\nrunner: {n_checkpoints: 7}\n"
    assert "needs `blocks`" in refused((HEAD + "claims: []\n").encode())
    experiments(more.removeprefix(HEAD))
    assert main([flag, "experiment=tiny", "mode=plan"]) == 0
    assert main([flag, "experiment=tiny", "panel=c", "mode=plan"]) == 2
    assert "panel=c" in capsys.readouterr().err


def test_a_base_that_builds_upon_its_heir_is_refused(experiments, refused):
    experiments("defaults: [tiny]\n" + VALID, name="base")
    assert "builds upon itself" in refused((HEAD + "defaults: [base]\n").encode())


def test_there_are_enough_wrong_files():
    assert len(ALL) + len(BYTES) >= 150
