"""Test that results of other code, versions or data never get into a folder."""

import os
import pickle
from types import SimpleNamespace

import numpy as np
import pytest
from far import BARE, VERSION, Far, copied
from made_blocks import make_block

from dp_erm_bench.errors import Unlike, UsageError
from dp_erm_bench.experiment.expand import expand_blocks
from dp_erm_bench.results.store import Store, encode_record, failed_record
from dp_erm_bench.runner import environment
from dp_erm_bench.runner.engines import choice, cluster, dask
from dp_erm_bench.runner.engines.dask import DaskEngine, answer_task, split_answer
from dp_erm_bench.runner.environment import (
    at_first,
    check_batch,
    first_difference,
    own_environment,
    pins_of,
)
from dp_erm_bench.runner.experiment import run_experiment
from dp_erm_bench.runner.ledger import Answer, Ledger
from dp_erm_bench.runner.options import RunOptions
from dp_erm_bench.runner.worker import Job, run_task
from tests.contract.own import SOUND

CHANGE = ("kernels/dense.py", b"0.0", b"0.1")
OBJECTIVE = {"loss": "logistic", "penalty": {"name": "l2", "strength": 0.1}}


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(dask, "GRACE", 0.0)


def test_this_process_may_run_its_own_trials():
    assert own_environment() == at_first()
    assert first_difference(own_environment(), at_first()) == ""


@pytest.mark.parametrize(
    "key, value, said",
    [
        ("dp_erm_bench", "0" * 64, "is another one (sha256 000000000000, here "),
        ("numpy", "1.0", "its numpy is 1.0, here "),
        ("python", "3.1", "its python is 3.1, here 3."),
        ("libc", "glibc 2.17", "its libc is glibc 2.17, here glibc 2."),
        ("blas", "netlib 3", "its blas is netlib 3, here "),
        ("icc-rt", "2020", "its icc-rt is 2020, here none"),
        ("NUMBA_OPT", "0", "its NUMBA_OPT is 0, here unset"),
        (".numba_config.yaml", "12", "its .numba_config.yaml is 12, here unset"),
        ("CPU", "z80", "its CPU is z80, here "),
        ("stale", "yes", "has changed since it was started"),
    ],
)
def test_each_difference_is_told_by_name(key, value, said):
    assert said in first_difference({**at_first(), key: value}, at_first())


def test_who_leaves_something_out_is_another_one():
    for key in at_first():
        theirs = {k: v for k, v in at_first().items() if k != key}
        assert first_difference(theirs, at_first(), mixed=True), key
    assert first_difference({}, at_first())


def test_only_kinds_of_cpu_may_be_mixed():
    other = {**at_first(), "CPU": "z80"}
    assert "runner.mixed_cpus=true" in first_difference(other, at_first())
    assert first_difference(other, at_first(), mixed=True) == ""
    assert "numpy" in first_difference({**other, "numpy": "1"}, at_first(), mixed=True)


@pytest.mark.parametrize("what", ["_stamps_of_files", "_installed_versions"])
def test_a_process_that_is_older_than_what_is_installed_says_so(what, monkeypatch):
    before = at_first()
    found = getattr(environment, what)()
    newer = found[1:] if what == "_stamps_of_files" else {**found, "numpy": "3.0"}
    monkeypatch.setattr(environment, what, lambda: newer)
    # What it has loaded may be what was there before.
    assert {**own_environment(), "stale": ""} == before == at_first()
    assert "start it again" in first_difference(own_environment(), before)


def test_what_is_put_in_the_place_of_a_file_is_seen(tmp_path, monkeypatch):
    file = tmp_path / "one.py"
    file.write_text("ONE = 1\n")
    monkeypatch.setattr(environment, "_package_files", lambda: [file])
    before, times = environment._stamps_of_files(), file.stat()
    file.write_text("ONE = 2\n")
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert environment._stamps_of_files() != before


def test_every_source_and_every_yaml_of_a_part_counts():
    names = {"/".join(file.parts[-2:]) for file in environment._package_files()}
    assert {"kernels/dense.py", "dp_erm_bench/run.py", "penalty/l1.yaml"} <= names
    assert not {name for name in names if "experiment/" in name and "yaml" in name}


def test_the_cpu_that_numba_compiles_for_is_told(monkeypatch):
    cpu = environment.own_cpu.__wrapped__
    assert cpu()
    monkeypatch.setenv("NUMBA_CPU_NAME", "generic")
    assert cpu() == "generic"


def test_variables_that_hide_features_of_the_cpu_are_told(monkeypatch):
    ours = environment.machine_kind()
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.cpu.hwcaps=-FMA")
    assert environment.machine_kind() == {
        **ours,
        "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-FMA",
    }


@pytest.mark.parametrize(
    "value",
    [None, "{}", b"", 5, [], {}, ({}, 1), ({"a": 1}, b""), ({"a": "1"},), ("ab", 1)],
)
def test_an_answer_that_does_not_tell_is_that_of_another_version(value):
    told, _ = split_answer(value)
    assert told == {} and first_difference(told, at_first())


@pytest.mark.parametrize("scheme, host", [("tcp", "10.0.0.1"), ("tcp", "node7")])
def test_a_plain_address_is_warned_of(scheme, host):
    assert choice.is_exposed(f"{scheme}://{host}:8786")
    assert not choice.is_exposed(f"tls://{host}:8786")
    for here in ("127.0.0.1", "localhost", "[::1]"):
        assert not choice.is_exposed(f"tcp://{here}:8786")


# Data and files.


@pytest.fixture
def table(tmp_path):
    """A user's csv; return its path."""
    X = np.random.default_rng(0).normal(size=(60, 4))
    rows = np.column_stack([X, np.sign(X[:, 0] + 0.1)])
    path = tmp_path / "table.csv"
    np.savetxt(path, rows, delimiter=",")
    return path


@pytest.fixture
def solver(tmp_path):
    path = tmp_path / "far_noisy_gd.py"
    path.write_text(SOUND)
    return path


def block_of(table, **changes):
    dataset = {"name": "file", "path": str(table)}
    return make_block(dataset=dataset, **OBJECTIVE, **changes)


def batches_of(*blocks):
    """Return the trials of some blocks, each a batch."""
    lines, _ = expand_blocks(blocks)
    return [(trial,) for line in lines for trial in line.sweep(2)]


def refused(batches, pins, folder):
    """Return why a worker that was given batches takes none; nothing is recorded."""
    elsewhere = pickle.loads(pickle.dumps(batches))
    folder.mkdir(exist_ok=True)
    job = Job(str(folder), "1", "dp_erm_bench.runner.execute.run_batch", pins=pins)
    report = run_task(elsewhere, job)
    assert report.outcomes == [] and report.batches == 0
    assert not len(Store(folder))
    with pytest.raises(Unlike, match=report.problem.partition("(")[0]):
        check_batch(elsewhere[0][0].spec, pins)
    return report.problem


def test_data_are_pinned_to_what_the_keys_stand_for(table, tmp_path):
    """Not to what the file holds when the task is sent."""
    batches = batches_of(block_of(table))
    text = table.read_text()
    table.write_text(text.replace("1", "2", 1))
    (pin,) = pins_of(batches).values()
    said = refused(batches, pins_of(batches), tmp_path / "run")
    assert said.startswith("dataset file is another one (sha256 ")
    assert said.endswith(f", here {pin[:12]})")


def test_data_that_are_not_there_are_no_error_of_a_trial(table, tmp_path):
    batches = batches_of(block_of(table))
    table.unlink()
    said = refused(batches, pins_of(batches), tmp_path / "run")
    assert said.startswith("dataset file cannot be loaded: ") and str(table) in said


def test_a_solver_s_file_is_the_same_or_refused(solver, tmp_path):
    batches = batches_of(make_block(algorithm=str(solver)))
    check_batch(batches[0][0].spec, pins_of(batches))
    solver.write_text(f"{SOUND}\nCHANGED = True\nprint(CHANGED)\n")
    said = refused(batches, pins_of(batches), tmp_path / "run")
    assert said == f"algorithm={solver} is not there, or another one"
    solver.unlink()
    assert refused(batches, pins_of(batches), tmp_path / "run") == said


@pytest.mark.parametrize("there", [{"theirs": "theirs.Solver"}, {}])
def test_an_algorithm_of_an_installed_package_is_the_same_or_refused(
    there, tmp_path, monkeypatch
):
    batches = batches_of(make_block())
    base = batches[0][0].setting.base
    spec = {**base, "algorithm": {"name": "theirs", "params": {}}}
    monkeypatch.setattr(environment, "entry_points", lambda: there)
    monkeypatch.setattr(environment, "solver_digest", lambda name: "1" * 64)
    pins = {**pins_of(batches), "theirs": "0" * 64}
    why = "is of another package" if there else "is of a package that is not installed"
    with pytest.raises(Unlike, match=f"^algorithm=theirs {why}"):
        check_batch(spec, pins)
    if there:
        check_batch(spec, {**pins, "theirs": "1" * 64})


# Who is refused.


class Here:
    """A connection to workers that answer at once: each trial is an error `there`.

    Parameters
    ----------
    **changed : dict
        By worker, what it computes with that is another thing, or what its calls
        return, be it an exception.
    """

    def __init__(self, each=1, **changed):
        self.each, self.changed, self.calls = each, changed, []
        self.workers = cluster.Elsewhere()

    def threads(self):
        return dict.fromkeys(self.changed, self.each)

    def submit(self, address, key, function, sent, tell):
        assert function is answer_task
        self.calls.append(address)
        _, _, task = pickle.loads(sent)
        number, batches, job = pickle.loads(task)
        assert job.pins is not None and not job.secret
        keys = [trial.key for batch in batches for trial in batch]
        records = [failed_record(key, "error", f"of {address}") for key in keys]
        answer = Answer(number, [], lines=b"".join(map(encode_record, records)))
        how = self.changed[address]
        if not isinstance(how, dict):
            tell(how)
        elif how.get("stale") and self.calls.count(address) > 1:
            """It never answers."""
        else:
            if full := how.get("problem"):
                answer = Answer(number, [], problem=full)
            told = {
                **own_environment(),
                **{k: v for k, v in how.items() if k != "problem"},
            }
            tell((told, answer))
        return SimpleNamespace(release=lambda: None)


def carried(connection, folder, trials=30, mixed=False):
    """Return what the records say of trials that a remote engine has carried."""
    engine = DaskEngine(connection, 1.0, mixed)
    ledger = Ledger(Job(str(folder), "1", "nothing"))
    setting = SimpleNamespace(line=None, base={})
    keys = [f"{number:064x}" for number in range(trials)]
    ledger.add((SimpleNamespace(key=k, owner="", setting=setting),) for k in keys)
    found = []
    for number, answer in engine.answers(ledger):
        assert isinstance(answer, Answer), "it was lost with its host"
        found += ledger.settle(number, answer)
    assert sorted(one.key for one in found) == keys
    return {one["message"] for one in records(Store(folder))}


OTHERS = {
    "code": {"dp_erm_bench": "0" * 64},
    "versions": {"numpy": "1.0"},
    "a CPU": {"CPU": "z80"},
    "an age": {"stale": "yes"},
    "no package": ModuleNotFoundError("No module named 'dp_erm_bench'"),
    "an older package": AttributeError("answer_task"),
    "another answer": Answer(1, [], problem="it is as it was"),
    "a broken home": RuntimeError("no threads"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_who_differs_gets_one_task_whose_records_are_not_taken(name, tmp_path, capsys):
    here = Here(b=OTHERS[name], a={})
    messages = carried(here, tmp_path)
    assert messages == {"of a"} and here.calls.count("b") == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert said.startswith("dp-erm-bench: runner=dask: worker b gets no trial: ")


def test_what_else_a_refused_worker_is_at_runs_elsewhere(tmp_path):
    here = Here(2, b=OTHERS["an age"], a={})
    messages = carried(here, tmp_path)
    assert messages == {"of a"} and here.calls.count("b") == 2


def test_another_cpu_may_work_where_kinds_are_mixed(tmp_path):
    messages = carried(Here(b={"CPU": "z80"}, a={}), tmp_path, mixed=True)
    assert messages == {"of a", "of b"}


def test_who_comes_back_is_waited_for_beside_a_refused_one(tmp_path):
    here, looks = Here(b=OTHERS["versions"], a={}), iter(range(99))
    threads = here.threads
    here.threads = lambda: {"b": 1} if 1 <= next(looks) < 4 else threads()
    messages = carried(here, tmp_path)
    assert messages == {"of a"}


def test_what_a_worker_tells_is_printed_on_one_line_without_controls(tmp_path):
    here = Here(b={"dp_erm_bench": "\x1b[2J\n\x9b"}, c={"numpy": "1\n2" * 10_000})
    with pytest.raises(UsageError) as error:
        carried(here, tmp_path)
    said = str(error.value)
    assert said.isprintable() and "another one (sha256 \\x1b[2J\\n" in said
    assert len(said) < 1000


def test_where_all_are_refused_the_first_reasons_are_told(tmp_path):
    here = Here(**dict.fromkeys("abcde", OTHERS["versions"]))
    with pytest.raises(UsageError) as error:
        carried(here, tmp_path)
    said = str(error.value)
    assert said.startswith("runner=dask: no worker is left: worker ")
    assert said.count("its numpy is 1.0") == dask.REASONS
    assert not len(Store(tmp_path))


def test_a_worker_with_a_full_disk_gets_no_other_trial(tmp_path, capsys):
    here = Here(b={"problem": "no space left on device"}, a={})
    messages = carried(here, tmp_path)
    assert messages == {"of a"} and here.calls.count("b") == 1
    said = capsys.readouterr().err
    assert said.count("worker b gets no trial: there, no space left on device") == 1


def test_where_every_disk_is_full_the_run_ends(tmp_path):
    here = Here(a={"problem": "no space left on device"})
    with pytest.raises(UsageError, match="no worker is left: worker a .* no space"):
        carried(here, tmp_path)


def test_a_worker_that_differs_runs_nothing(monkeypatch):
    sent = {**at_first(), "numpy": "1.0"}
    answer = answer_task(pickle.dumps((sent, False, b"no task")))
    assert split_answer(answer) == (own_environment(), None)


# Processes with another package, home, or current folder.


@pytest.fixture
def far(tmp_path):
    made = Far(tmp_path / "far")
    yield made
    made.end()


@pytest.fixture
def run(tmp_path, far):
    """Run three trials on the workers of `far`; return the exit code."""

    def start(*blocks, **options):
        how = {"engine": "dask", "address": far.address, "patience": 60.0, **options}
        made = RunOptions(progress=False, n_jobs=None, **how)
        folder = tmp_path / "run"
        return run_experiment(blocks or [make_block()], "study", folder, made)

    start.store = lambda: Store(tmp_path / "run")
    return start


def records(store):
    return list(store.records(list(store)))


def refusal(run, *blocks, **options):
    with pytest.raises(UsageError) as error:
        run(*blocks, **options)
    assert not records(run.store())
    said = str(error.value)
    assert "\n" not in said and "gets no trial: " in said
    return said


@pytest.mark.slow
def test_one_constant_of_a_kernel_is_enough(run, far, tmp_path):
    far.scheduler().worker("altered", PYTHONPATH=copied(tmp_path / "copy", CHANGE))
    said = refusal(run)
    assert said.startswith("runner=dask: no worker is left: worker tcp://127.0.0.1:")
    assert "gets no trial: its dp_erm_bench is another one (sha256 " in said
    assert said.endswith("install the same there and start it again")


@pytest.mark.slow
def test_a_csv_of_the_same_name_is_not_enough(run, far, table, tmp_path, monkeypatch):
    """The worker's current folder holds another one, and later the same."""
    monkeypatch.chdir(tmp_path)
    home = far.scheduler().worker("there")
    (home / table.name).write_text(table.read_text().replace("1", "2", 1))
    said = refusal(run, block_of(table.name))
    assert "gets no trial: there, dataset file is another one (sha256 " in said
    (home / table.name).write_text(table.read_text())
    assert run(block_of(table.name)) == 0
    assert [one["status"] for one in records(run.store())] == ["ok"] * 3


@pytest.mark.engines
def test_a_copy_of_the_package_as_it_is_may_run(run, far, tmp_path):
    """The scheduler needs none."""
    far.scheduler(BARE).worker("copy", PYTHONPATH=copied(tmp_path / "copy"))
    assert run() == 0 and len(records(run.store())) == 3


@pytest.mark.engines
def test_a_package_that_changes_under_its_worker_is_refused(run, far, tmp_path):
    """And so it is when the change is taken back: the worker may have loaded it."""
    path = tmp_path / "copy"
    far.scheduler().worker("copy", PYTHONPATH=copied(path))
    assert run() == 0
    file = path / "dp_erm_bench" / CHANGE[0]
    text = file.read_bytes()
    file.write_bytes(text.replace(*CHANGE[1:], 1))
    file.write_bytes(text)
    with pytest.raises(UsageError, match="has changed since it was started"):
        run(make_block(seed=[7]))
    assert len(records(run.store())) == 3


@pytest.mark.slow
def test_workers_without_the_package_or_with_other_versions_are_refused(run, far):
    far.scheduler().worker("bare", BARE)
    assert "it has no dp_erm_bench, or another version (Module" in refusal(run)
    far.worker("older", VERSION.format(name="numpy"))
    far.started[1].kill()
    # Dask itself would warn of it, in a table.
    assert "its numpy is 0.0.1, here " in refusal(run)
    assert far.started[2].poll() is None, "it has ended, and would be a host lost"


@pytest.mark.engines
def test_a_package_without_answers_of_this_kind_is_another_version(run, far, tmp_path):
    change = ("runner/engines/dask.py", b"def answer_task(", b"def answers_task(")
    far.scheduler().worker("old", PYTHONPATH=copied(tmp_path / "copy", change))
    assert "or another version (AttributeError: " in refusal(run)


@pytest.mark.engines
def test_kinds_of_cpu_are_mixed_on_request_and_recorded(run, far):
    far.scheduler().worker("generic", NUMBA_CPU_NAME="generic")
    assert "its CPU is generic, here " in refusal(run)
    assert run(mixed_cpus=True) == 0
    kinds = {record["facts"]["cpu"] for record in records(run.store())}
    assert [kind.split()[0] for kind in kinds] == ["generic"]
