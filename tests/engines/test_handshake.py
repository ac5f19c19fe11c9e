"""No worker gets a trial before it has proved to compute what this process would."""

import json
import os
import pickle
from types import SimpleNamespace

import pytest
from far import BARE, CONF, SOURCES, VERSION, Far, copied
from made_blocks import make_block

from dp_erm_bench.datasets.spec import dataset_spec
from dp_erm_bench.errors import UsageError
from dp_erm_bench.experiment.expand import expand
from dp_erm_bench.results.store import Store, encoded, failed
from dp_erm_bench.runner import handshake
from dp_erm_bench.runner.engines import admission, choice, remote
from dp_erm_bench.runner.engines.admission import difference, lacking, parsed
from dp_erm_bench.runner.engines.base import Ending
from dp_erm_bench.runner.experiment import run_experiment
from dp_erm_bench.runner.handshake import Needs, expected, introduce, needs_of
from dp_erm_bench.runner.ledger import Answer, Ledger, packed
from dp_erm_bench.runner.options import RunOptions
from dp_erm_bench.runner.worker import Job

CHANGE = ("kernels/dense.py", b"0.0", b"0.1")


def introduced(needs=()):
    return parsed(introduce(json.dumps(needs or Needs()).encode()))


@pytest.fixture
def needs():
    lines, _ = expand([make_block()])
    return needs_of(lines)


@pytest.fixture
def far(tmp_path, monkeypatch):
    monkeypatch.setattr(admission, "GRACE", 0.0)
    made = Far(tmp_path / "far")
    yield made
    made.end()


@pytest.fixture
def run(tmp_path, far):
    """Run three trials on the workers of `far`; return the exit code."""

    def start(*blocks, **options):
        how = {"engine": "dask", "address": far.address, "patience": 20.0, **options}
        made = RunOptions(progress=False, n_jobs=None, **how)
        folder = tmp_path / "run"
        return run_experiment(blocks or [make_block()], "study", folder, made)

    start.store = lambda: Store(tmp_path / "run")
    return start


def records(store):
    return list(store.records(list(store.index)))


def refusal(run, **options):
    with pytest.raises(UsageError) as error:
        run(**options)
    assert not records(run.store())
    said = str(error.value)
    assert "\n" not in said and "gets no trial: " in said
    return said


def test_this_process_may_run_its_own_trials(needs):
    theirs, ours = introduced(needs), expected(needs)
    assert theirs == ours
    assert difference(theirs, ours) == "" and lacking(theirs, ours) == []
    (pin,) = needs.datasets
    assert json.loads(pin.text) == dataset_spec("log1", n=60, p=5)


@pytest.mark.parametrize(
    "key, value, said",
    [
        ("package kernels/dense.py", "0" * 64, "differs in kernels/dense.py (sha256 0"),
        ("package conf/algorithm/gd.yaml", "", "conf/algorithm/gd.yaml (sha256 none"),
        ("package kernels/mine.py", "1" * 64, "differs in kernels/mine.py (sha256 1"),
        ("version numpy", "1.0", "it has numpy 1.0, here is "),
        ("version python", "3.1", "it has python 3.1, here is "),
        ("version scipy", "", "it has no scipy, here is "),
        ("setting NUMBA_OPT", "0", "NUMBA_OPT=0 there, unset here"),
        ("cpu", "z80", "its CPU is z80, here is "),
        ("features", "+no-such", "its CPU differs in features ("),
        ("stale", "yes", "has changed since it was started"),
    ],
)
def test_each_difference_is_told_by_name(key, value, said):
    ours = expected(Needs())
    assert said in difference({**ours, key: value}, ours)


def test_only_kinds_of_cpu_may_be_mixed():
    ours = expected(Needs())
    other = {**ours, "cpu": "z80", "features": ""}
    assert "runner.mixed_cpus=true" in difference(other, ours)
    assert difference(other, ours, mixed=True) == ""
    assert "numpy" in difference({**other, "version numpy": "1"}, ours, mixed=True)


def test_data_of_another_content_are_lacking(needs):
    (pin,) = needs.datasets
    other = needs._replace(datasets=[pin._replace(content="0" * 64)])
    assert lacking(introduced(other), expected(other)) == [f"dataset {pin.text}"]


def test_an_algorithm_of_an_installed_package_is_compared():
    ours = {**expected(Needs()), "solver theirs": "0" * 64}
    said = difference({**ours, "solver theirs": ""}, ours)
    assert said.startswith("algorithm=theirs comes from an installed package")


@pytest.mark.parametrize(
    "answer", [None, b"{}", "[]", "{}", '{"a": 1}', "not JSON", '{"machine": "m"}']
)
def test_an_answer_of_another_kind_is_refused(answer):
    with pytest.raises(ValueError):
        parsed(answer)


def test_a_large_answer_is_refused_unread(monkeypatch):
    monkeypatch.setattr(admission, "LARGEST", 10)
    with pytest.raises(ValueError, match="must be a text"):
        parsed(introduce(b"[]"))


def test_a_process_that_is_older_than_its_files_says_so(monkeypatch):
    monkeypatch.setattr(handshake, "_loaded", lambda: {"kernels/dense.py": "0"})
    assert "start it again" in difference(introduced(), expected(Needs()))


def test_the_settings_of_numba_and_the_cpu_it_compiles_for_are_told(monkeypatch):
    monkeypatch.delenv("OPENBLAS_CORETYPE", raising=False)
    ours = expected(Needs())
    monkeypatch.setenv("NUMBA_CPU_NAME", "generic")
    theirs = introduced()
    assert (theirs["cpu"], theirs["features"]) == ("generic", "")
    monkeypatch.setenv("NUMBA_SLP_VECTORIZE", "1")
    monkeypatch.delenv("NUMBA_CPU_NAME")
    assert "NUMBA_SLP_VECTORIZE=1 there" in difference(introduced(), ours)


def test_the_libraries_below_numpy_and_numba_are_told(monkeypatch):
    ours = introduced()
    assert ours["version libc"].startswith("glibc 2.")
    assert ours["version blas"].split()[0]
    assert ours["version intel-cmplr-lib-rt"] == ""
    said = difference({**ours, "version libc": "glibc 2.17"}, ours)
    assert said.startswith("it has libc glibc 2.17, here is glibc 2.")
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.cpu.hwcaps=-FMA")
    assert "GLIBC_TUNABLES" in introduced()["features"]


def test_every_source_and_every_yaml_of_a_part_counts():
    told = {key.partition(" ")[2] for key in introduced() if key[:8] == "package "}
    assert {str(p.relative_to(SOURCES)) for p in SOURCES.rglob("*.py")} <= told
    assert "conf/penalty/l1.yaml" in told and (CONF / "penalty" / "l1.yaml").is_file()


@pytest.mark.parametrize("scheme, host", [("tcp", "10.0.0.1"), ("tcp", "node7")])
def test_a_plain_address_is_warned_of(scheme, host):
    assert choice.is_exposed(f"{scheme}://{host}:8786")
    assert not choice.is_exposed(f"tls://{host}:8786")
    for here in ("127.0.0.1", "localhost", "[::1]"):
        assert not choice.is_exposed(f"tcp://{here}:8786")


def test_one_byte_of_a_kernel_is_enough(run, far, tmp_path):
    far.scheduler().worker("altered", PYTHONPATH=copied(tmp_path / "copy", CHANGE))
    said = refusal(run)
    machine = os.uname().nodename
    assert said.startswith("runner=dask: no worker is left: worker tcp://127.0.0.1:")
    assert f" on {machine} gets no trial: its dp_erm_bench differs in" in said
    assert "kernels/dense.py (sha256 " in said
    assert said.endswith("install the same sources there and start it again")


class Here:
    """A connection to workers that are all this process, some of them changed."""

    def __init__(self, **changed):
        self.changed, self.calls = changed, []

    def submit(self, address, key, call, tell):
        function, argument = call
        self.calls.append((address, function))
        value = function(argument)
        if function is introduce:
            value = json.dumps(json.loads(value) | self.changed.get(address, {}))
        tell(Ending(value))


def settled(asked, *addresses):
    """Return who is accepted after a few looks."""
    for _ in range(3):
        accepted = asked.accepted(dict.fromkeys(addresses, 1))
    return list(accepted)


def test_who_comes_later_is_asked_too_and_refused_in_one_line(needs, capsys):
    here = Here(b={"package kernels/dense.py": "0" * 64})
    asked = admission.Admission(here, needs, False)
    assert settled(asked, "a") == ["a"]
    assert settled(asked, "a", "b") == ["a"]
    assert settled(asked, "a", "b", "c") == ["a", "c"]
    assert capsys.readouterr().err.count("worker b on ") == 1
    assert [call for call in here.calls if call[0] == "a"].count(("a", introduce)) == 1
    assert list(asked.cpus) == [os.uname().nodename]
    # One that comes back at its address may be another one.
    settled(asked, "b")
    assert settled(asked, "a") == ["a"]
    assert here.calls.count(("a", introduce)) == 2


def test_where_all_are_refused_the_first_reasons_are_told(needs, monkeypatch):
    monkeypatch.setattr(admission, "GRACE", 0.0)
    changed = {"version numpy": "1.0"}
    asked = admission.Admission(Here(**dict.fromkeys("abcde", changed)), needs, False)
    with pytest.raises(UsageError) as error:
        settled(asked, *"abcde")
    assert str(error.value).count("it has numpy 1.0") == admission.REASONS
    assert str(error.value).endswith("; and 2 more")


def test_workers_that_end_when_they_are_asked_do_not_make_it_wait_for_ever(needs):
    class Ending:
        def submit(self, address, key, call, tell):
            """Never tell."""

    asked = admission.Admission(Ending(), needs, False)
    for number in range(admission.MOST_ENDED):
        assert asked.accepted({f"worker {number}": 1}) == {} and asked.pending
    with pytest.raises(UsageError, match="5 workers ended in the handshake"):
        asked.accepted({})


class Recorded(Here):
    """Workers `a`, whose disk is full, and `b`; both answer at once."""

    names = "ab"

    def threads(self):
        return dict.fromkeys(self.names, 1)

    def submit(self, address, key, call, tell):
        function, argument = call
        if function is not remote.received:
            return super().submit(address, key, call, tell)
        number, batches, _ = pickle.loads(argument)
        keys = [trial.key for batch in batches for trial in batch]
        lines = b"".join(encoded(failed(key, "error", "")) for key in keys)
        full = Answer(number, [], problem="no space left on device")
        done = Answer(number, [], lines=lines)
        tell(Ending(packed(full if address == "a" else done)))
        return SimpleNamespace(release=lambda: None)


def carried(needs, tmp_path, connection, trials):
    """Return the outcomes of trials that a remote engine has carried."""
    asked = admission.Admission(connection, needs, False)
    engine = remote.RemoteEngine(connection, 1.0, asked)
    ledger = Ledger(Job(str(tmp_path), "1", "nothing"))
    setting = SimpleNamespace(base={})
    keys = (f"{number:064x}" for number in range(trials))
    ledger.add((SimpleNamespace(key=k, owner="", setting=setting),) for k in keys)
    found = []
    for number, answer in engine.answers(ledger):
        found += ledger.settle(number, answer)
    return found


def test_a_worker_with_a_full_disk_gets_no_other_trial(needs, tmp_path, capsys):
    found = carried(needs, tmp_path, Recorded(), 30)
    assert sorted(one.key for one in found) == [f"{n:064x}" for n in range(30)]
    assert {one.message for one in found} == {""}
    said = capsys.readouterr().err
    assert said.count("worker a gets no trial: there, no space left on device") == 1


def test_where_every_disk_is_full_the_run_ends(needs, tmp_path, monkeypatch):
    monkeypatch.setattr(admission, "GRACE", 0.0)
    monkeypatch.setattr(Recorded, "names", "a")
    with pytest.raises(UsageError, match="no worker is left: worker a .* no space"):
        carried(needs, tmp_path, Recorded(), 30)


@pytest.mark.engines
def test_a_copy_of_the_package_as_it_is_may_run(run, far, tmp_path):
    far.scheduler().worker("copy", PYTHONPATH=copied(tmp_path / "copy"))
    assert run() == 0 and len(records(run.store())) == 3


@pytest.mark.engines
def test_workers_without_the_package_or_with_other_versions_are_refused(run, far):
    far.scheduler().worker("bare", BARE)
    assert "it has no dp_erm_bench: install the same there" in refusal(run)
    far.worker("older", VERSION.format(name="scipy"))
    far.started[1].kill()
    assert "it has scipy 0.0.1, here is " in refusal(run)


@pytest.mark.engines
def test_a_package_without_a_handshake_is_another_version(run, far, tmp_path):
    change = ("runner/handshake.py", b"def introduce(", b"def introduced(")
    far.scheduler().worker("old", PYTHONPATH=copied(tmp_path / "copy", change))
    assert "its dp_erm_bench is another version (" in refusal(run)


@pytest.mark.engines
def test_a_scheduler_without_the_package_is_one_sentence(run, far):
    far.scheduler(BARE).worker("good")
    with pytest.raises(UsageError, match="the scheduler cannot import dp_erm_bench"):
        run()


@pytest.mark.engines
def test_kinds_of_cpu_are_mixed_on_request_and_recorded(run, far):
    far.scheduler().worker("generic", NUMBA_CPU_NAME="generic")
    assert "its CPU is generic, here is " in refusal(run)
    assert run(mixed_cpus=True) == 0
    kinds = {record["facts"]["cpu"] for record in records(run.store())}
    assert [kind.split()[0] for kind in kinds] == ["generic"]
