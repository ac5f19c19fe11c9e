"""Test which solver files are loaded or refused, and what a trial's key depends on."""

import json
import shutil
import sys

import pytest

from dp_erm_bench import code_identity, registry
from dp_erm_bench.api import fit, load_problem
from dp_erm_bench.cli.main import main
from dp_erm_bench.code_identity import files_beside, modules_reached
from dp_erm_bench.errors import UsageError
from dp_erm_bench.experiment.expand import expand_blocks
from dp_erm_bench.experiment.lines import code_fingerprint, line_of
from dp_erm_bench.plugins import passed
from dp_erm_bench.plugins.load import load_class
from dp_erm_bench.plugins.names import content_digest
from dp_erm_bench.runner.execute import run_batch
from tests.contract.own import SOUND, broken

FIELD = 'shape(10, least=0, help="T, the number of steps")'
HEAD = "@dataclass(frozen=True)\n"
LACKING = {
    "a syntax error": ("def f(:\n", "cannot be imported, SyntaxError in line 1"),
    "an error of its own": ("x = 1\n1 / 0\n", "ZeroDivisionError in line 2"),
    "a missing module": (
        "import no_such_one\n",
        "ModuleNotFoundError in line 1",
    ),
    "an end": ("raise SystemExit(3)\n", "SystemExit in line 1"),
    "nothing": ("x = 1\n", "exactly one subclass of Solver, has none"),
    "an imported solver": (
        "from dp_erm_bench.solvers.sgd import SGD\n",
        "exactly one subclass of Solver, has none",
    ),
    "two": (
        SOUND + "\n\nclass Other(NoisyGradientDescent):\n    pass\n",
        "has NoisyGradientDescent, Other",
    ),
    "missing methods": (
        broken(("    def iterations", "    def iteration")),
        "NoisyGradientDescent lacks iterations",
    ),
    "no dataclass": (broken((HEAD, "")), "must be a dataclass"),
    "not frozen": (broken((HEAD, "@dataclass\n")), "cannot inherit non-frozen"),
    "a bare field": (
        broken((FIELD, "10")),
        "parameter n_iter of NoisyGradientDescent must be made by shape(...)",
    ),
    "no help": (
        broken((FIELD, 'shape(10, least=0, help="")')),
        "parameter n_iter of NoisyGradientDescent must be made by shape(...)",
    ),
    "no references": (broken(("    References\n", "")), "a section References"),
    "state": (
        broken(("    n_iter", "    cache = {}\n    n_iter")),
        "NoisyGradientDescent.cache is a dict",
    ),
    "no reason": (
        broken(("    n_iter:", '    exempt = {"replay_audit": ""}\n    n_iter:')),
        "must give a reason",
    ),
}


def sentence(path):
    with pytest.raises(UsageError) as error:
        registry.target("algorithm", str(path))
    assert str(error.value).startswith("algorithm=") and "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("lack", LACKING)
def test_a_file_without_a_complete_solver_is_refused(lack, tmp_path):
    text, said = LACKING[lack]
    path = tmp_path / "twin.py"
    path.write_text(text)
    modules = set(sys.modules)
    assert said in sentence(path)
    if "cannot be imported" in sentence(path):
        assert not [name for name in set(sys.modules) - modules if "twin" in name]


@pytest.mark.parametrize(
    "name, said",
    [
        ("greedy_cd.py", "the name greedy_cd is taken"),
        ("my-solver.py", "must be a word"),
        ("class.py", "must be a word"),
        ("absent.py", "no such file"),
    ],
)
def test_a_file_must_have_a_name_of_its_own(name, said, tmp_path):
    path = tmp_path / name
    if name != "absent.py":
        path.write_text(SOUND)
    assert said in sentence(path)


def write(folder, text=SOUND, helper=None, name="mine"):
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.py").write_text(text)
    if helper is not None:
        (folder / "beside_me.py").write_text(helper)
    return str(folder / f"{name}.py")


def trial(path, **given):
    block = {
        "dataset": {"name": "log1", "n": 50, "p": 4},
        "algorithm": {"name": path, "clip": 1.0, **given},
    }
    (line,), _ = expand_blocks([block])
    return line.setting().trial(0, 5)


HELPED = broken(
    ("import numpy as np\n", "import numpy as np\nfrom beside_me import FACTOR\n"),
    ("step * noisy", "FACTOR * step * noisy"),
)


def test_a_key_depends_on_the_content_and_not_on_the_path(tmp_path):
    first = trial(write(tmp_path / "a"))
    moved = trial(write(tmp_path / "b"))
    assert (first.key, first.identity) == (moved.key, moved.identity)
    assert first.spec["algorithm"]["file"] != moved.spec["algorithm"]["file"]
    reworded = trial(write(tmp_path / "c", f"# A comment.\n\n{SOUND}\n# The end.\n"))
    assert (first.key, first.identity) == (reworded.key, reworded.identity)
    edited = trial(write(tmp_path / "a", SOUND + "\nVERSION = 2\n"))
    assert edited.key != first.key and edited.identity != first.identity
    assert trial(write(tmp_path / "a", name="other")).identity != first.identity


def test_a_key_covers_what_is_imported_from_beside_and_nothing_else(tmp_path):
    path = write(tmp_path / "a", HELPED, "FACTOR = 1.0\n")
    first = trial(path)
    (tmp_path / "a" / "unused.py").write_text("x = 1\n")
    write(tmp_path / "a", HELPED, "# A comment.\nFACTOR = (1.0)\n")
    assert trial(path).key == first.key
    write(tmp_path / "a", HELPED, "FACTOR = 2.0\n")  # as long, within the second
    assert trial(path).key != first.key


def test_a_loaded_class_has_the_digest_of_its_file_wherever_it_lies(tmp_path):
    """In a process that has loaded the same file from another folder, too."""
    found = []
    for folder in ("a", "b"):
        path = write(tmp_path / folder, HELPED, "FACTOR = 1.0\n")
        cls = load_class(registry.pin_choice(path))
        found.append(code_identity.digest_of(cls))
        load_class.cache_clear()
    assert found[0] == found[1]
    write(tmp_path / "b", HELPED, "FACTOR = 2.0\n")
    assert code_identity.digest_of(cls) != found[0]


def test_a_key_covers_what_a_file_imports_from_the_package(tmp_path):
    plain = registry.pin_choice(write(tmp_path / "a"))
    more = "from dp_erm_bench.norms.range import LEVEL\n\n\nOWN = LEVEL\n"
    other = registry.pin_choice(write(tmp_path / "b", SOUND.replace(HEAD, more + HEAD)))
    assert code_fingerprint(plain) != code_fingerprint(other)
    files = files_beside(other.partition("#")[0])
    assert "dp_erm_bench.norms.range" in modules_reached([*files], files)


def ends(path):
    problem = load_problem("log1", n=50, p=4)
    return fit(problem, path, epsilon=1.0, clip=1.0, seed=1).w.tolist()


def test_an_edit_is_seen_at_once_also_beside_the_file(tmp_path):
    path = write(tmp_path / "a", HELPED, "FACTOR = 1.0\n")
    first = ends(path)
    assert ends(path) == first
    write(tmp_path / "a", HELPED, "FACTOR = 2.0\n")
    assert ends(path) != first
    # Another folder's module of the same name is another module.
    again = write(tmp_path / "b", HELPED, "FACTOR = 1.0\n")
    assert ends(again) == first


def test_modules_beside_a_file_may_be_packages_and_replace_none(tmp_path):
    text = HELPED.replace("from beside_me import", "import json\nfrom pack.one import")
    path = write(tmp_path / "a", text)
    (tmp_path / "a" / "json.py").write_text("raise RuntimeError\n")
    pack = tmp_path / "a" / "pack"
    pack.mkdir()
    (pack / "__init__.py").write_text("")
    (pack / "one.py").write_text("from .two import FACTOR\n")
    (pack / "two.py").write_text("FACTOR = 1.0\n")
    pin, first = registry.pin_choice(path), ends(path)
    (pack / "two.py").write_text("FACTOR = 3.0\n")
    assert content_digest(registry.pin_choice(path)) != content_digest(pin)
    assert ends(path) != first
    assert json.dumps(1) == "1"


def test_a_file_that_changed_after_it_was_planned_is_refused(tmp_path):
    path = write(tmp_path / "a", broken(("T, the number", "the number")))
    planned = registry.pin_choice(path)
    write(tmp_path / "a", broken(("T, the number", "a number")))
    with pytest.raises(UsageError, match="was changed after the run had begun"):
        registry.target("algorithm", planned)


def test_a_trial_is_made_again_from_its_spec(tmp_path):
    made = trial(write(tmp_path / "a"), step=0.5)
    again = line_of(made.spec).setting().trial(0, 5)
    assert (again.key, again.spec) == (made.key, made.spec)


def test_two_files_of_one_name_are_refused(tmp_path):
    paths = [write(tmp_path / "a"), write(tmp_path / "b", SOUND + "\n")]
    block = {"dataset": {"name": "log1", "n": 50, "p": 4}}
    with pytest.raises(UsageError, match="is called mine, too"):
        expand_blocks([{**block, "algorithm": paths}])
    assert expand_blocks([{**block, "algorithm": [paths[0], paths[0]]}])


def test_paths_are_relative_to_the_working_directory_or_home(tmp_path, monkeypatch):
    write(tmp_path / "a")
    monkeypatch.setenv("HOME", str(tmp_path))
    home = registry.pin_choice("~/a/mine.py")
    monkeypatch.chdir(tmp_path)
    assert registry.pin_choice("a/mine.py") == home == registry.pin_choice(home)


def test_parameters_are_checked_as_those_of_any_other(tmp_path):
    path = write(tmp_path / "a")
    with pytest.raises(UsageError, match="parameter of mine=stp .did you mean step"):
        trial(path, stp=1.0)
    with pytest.raises(UsageError, match=r"algorithm.mine.step=fast: must be a number"):
        trial(path, step="fast")
    with pytest.raises(UsageError, match="step=-1.0: must be a number > 0"):
        trial(path, step=-1)


@pytest.mark.parametrize("command", ["check", "sweep"])
def test_a_broken_file_ends_the_command_with_one_sentence(command, tmp_path, capsys):
    path = write(tmp_path / "a", broken((HEAD, "")))
    line = {"check": ["check", path], "sweep": [f"algorithm={path}", "dataset=log1"]}
    assert main(line[command]) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("\n") == 1
    assert "NoisyGradientDescent must be a dataclass" in said.err


@pytest.fixture
def package(tmp_path, monkeypatch):
    """An installed package that offers algorithms."""
    from dp_erm_bench.plugins.names import entry_points

    def install(value="outside_pkg.solver:NoisyGradientDescent", text=SOUND):
        folder = tmp_path / "site"
        info = folder / "outside_pkg-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: outside_pkg\n")
        group = "[dp_erm_bench.algorithms]"
        (info / "entry_points.txt").write_text(f"{group}\noffered = {value}\n")
        write(folder / "outside_pkg", text, name="solver")
        (folder / "outside_pkg" / "__init__.py").write_text("")
        monkeypatch.syspath_prepend(folder)
        entry_points.cache_clear()
        return folder

    yield install
    entry_points.cache_clear()
    for name in [n for n in sys.modules if n.startswith("outside_pkg")]:
        del sys.modules[name]


def test_an_entry_point_is_an_algorithm(package, capsys):
    folder = package()
    assert "offered" in registry.names("algorithm")
    assert "offered" not in registry.built_in("algorithm")
    assert main(["list", "algorithm"]) == 0
    listed = capsys.readouterr().out
    assert "  Proximal gradient descent along noisy gradients." in listed
    assert trial("offered").spec["algorithm"] == {
        "name": "offered",
        "params": {"clip": 1.0},
    }
    assert ends("offered")
    shutil.rmtree(folder)


def test_the_class_of_an_entry_point_is_looked_at_too(package):
    package(text=broken((HEAD, "")))
    said = sentence("offered")
    assert said.startswith("algorithm=offered: ") and "must be a dataclass" in said


def test_an_entry_point_that_points_nowhere_is_a_sentence(package):
    package("outside_pkg.nowhere:Nothing")
    assert "the entry point outside_pkg.nowhere.Nothing" in sentence("offered")


def test_a_worker_records_no_number_of_a_file_that_changed(tmp_path):
    made = trial(write(tmp_path / "a", broken(("T, the number", "T, a number"))))
    (record,) = run_batch([made])
    assert record["status"] == "ok"
    write(tmp_path / "a")
    (again,) = run_batch([made])  # from the class that was planned
    assert again["trajectory"]["objective"] == record["trajectory"]["objective"]
    load_class.cache_clear()  # as in a process of its own
    (refused,) = run_batch([made])
    assert refused["status"] == "error"
    assert "was changed after the run had begun" in refused["message"]


def test_workers_load_a_file_and_what_lies_beside_it(tmp_path, monkeypatch, capsys):
    write(tmp_path / "a", HELPED, "FACTOR = 1.0\n")
    monkeypatch.chdir(tmp_path)
    line = ["algorithm=a/mine.py", "algorithm.mine.clip=1", "dataset=log1", "seed=0,1"]
    line += ["runner.n_jobs=2", "runner.progress=false", "runner.batch_trials=1"]
    assert main(line) == 0
    assert "2 trials (2 run now): 2 ok" in capsys.readouterr().out
    shutil.move(tmp_path / "a", tmp_path / "b")
    line[0] = "algorithm=b/mine.py"
    assert main(line) == 0
    assert "2 trials (0 run now): 2 ok" in capsys.readouterr().out
    write(tmp_path / "b", HELPED, "FACTOR = 3.0\n")
    assert main(line) == 0
    assert "2 trials (2 run now): 2 ok" in capsys.readouterr().out


def test_a_record_tells_the_sources_of_an_entry_point(package):
    folder = package()
    for cached in (code_identity._source_texts, code_identity.package_state):
        cached.cache_clear()
    (record,) = run_batch([trial("offered")])
    solver = record["facts"]["solver"]
    assert solver == passed.solver_digest("offered") and len(solver) == 64
    assert "has not passed `dp-erm-bench check offered`" in passed.unchecked_sentence(
        ["offered", "random_cd", ""]
    )
    assert passed.record_pass(solver, True)
    assert passed.unchecked_sentence(["offered", "random_cd"]) == ""
    (folder / "outside_pkg" / "more.py").write_text("x = 1\n")
    for cached in (code_identity._source_texts, code_identity.package_state):
        cached.cache_clear()
    assert passed.unchecked_sentence(["offered"])
    (record,) = run_batch([trial("sgd")])
    assert "solver" not in record["facts"]
