"""What a machine lacks of data and files is sent to it once, and verified there."""

import json
import os
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
from far import HIDDEN, Far
from made_blocks import make_block

from dp_erm_bench.datasets import load
from dp_erm_bench.datasets.load import (
    forget_datasets,
    load_dataset,
    pin_datasets,
    pin_of,
)
from dp_erm_bench.datasets.spec import dataset_spec
from dp_erm_bench.errors import DataUnavailable, UsageError
from dp_erm_bench.experiment.expand import expand
from dp_erm_bench.plugins.load import load as load_file
from dp_erm_bench.plugins.load import shipped_place
from dp_erm_bench.plugins.names import pinned
from dp_erm_bench.results.store import Store
from dp_erm_bench.runner import shipping
from dp_erm_bench.runner.engines import admission
from dp_erm_bench.runner.engines.admission import Admission
from dp_erm_bench.runner.engines.base import Ending
from dp_erm_bench.runner.experiment import run_experiment
from dp_erm_bench.runner.handshake import needs_of
from dp_erm_bench.runner.options import RunOptions
from tests.contract.own import SOUND

TIMED = ("seconds", "cost", "crc")
HELPER = "ONE = 1.0\n"
NUMPY = "\nimport numpy as np\n"
SOLVER = SOUND.replace(NUMPY, f"{NUMPY}import lent_one\n")
LOSS = Path(__file__).parents[1] / "extending" / "loss" / "tilted.py"
OBJECTIVE = {"loss": "logistic", "penalty": {"name": "l2", "strength": 0.1}}


@pytest.fixture(autouse=True)
def forgotten():
    yield
    pin_datasets(())
    forget_datasets()
    load_file.cache_clear()


@pytest.fixture
def table(tmp_path, monkeypatch):
    """A user's csv in the current folder; return its name."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.chdir(home)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 4))
    rows = np.column_stack([X, np.sign(X[:, 0] + 0.1)])
    np.savetxt("table.csv", rows, delimiter=",")
    return "table.csv"


@pytest.fixture
def solver(tmp_path):
    """A user's solver that imports a module beside it; return its path."""
    folder = tmp_path / "solvers"
    folder.mkdir()
    (folder / "lent_one.py").write_text(HELPER)
    path = folder / "far_noisy_gd.py"
    path.write_text(SOLVER)
    return str(path)


def of_table(path):
    return {"name": "file", "path": path}


def block_of(dataset, **changes):
    return make_block(dataset=dataset, **OBJECTIVE, **changes)


class Other:
    """A connection to workers that are this process with another cache and folder.

    Parameters
    ----------
    places : dict of str to Path
        Cache of each worker.
    """

    def __init__(self, **places):
        self.places, self.sent = places, []

    def submit(self, address, key, call, tell):
        function, argument = call
        here, mine = os.getcwd(), os.environ["DP_ERM_BENCH_CACHE"]
        elsewhere = self.places[address].parent
        elsewhere.mkdir(exist_ok=True)
        os.environ["DP_ERM_BENCH_CACHE"] = str(self.places[address])
        os.chdir(elsewhere)
        forget_datasets()
        if function in (shipping.receive, shipping.arrived):
            self.sent.append((address, function, argument))
        try:
            ending = Ending(function(argument))
        finally:
            os.chdir(here)
            os.environ["DP_ERM_BENCH_CACHE"] = mine
        tell(ending)


def settled(asked, *addresses):
    """Return who is accepted once nobody is pending; what is ordered is sent."""
    for _ in range(4):
        accepted = asked.accepted(dict.fromkeys(addresses, 1))
        while not asked._shipper._orders.empty():
            address, tell = asked._shipper._orders.get()
            asked._shipper._serve_one(address, tell)
    assert not asked.pending
    return sorted(accepted)


@pytest.fixture
def asked(monkeypatch):
    """Return an admission for a block and some workers, without a thread."""
    monkeypatch.setattr(admission, "GRACE", 0.0)

    def make(connection, *blocks):
        lines, _ = expand(blocks)
        made = Admission(connection, needs_of(lines), False)
        made._shipper._thread = object()
        return made

    return make


def test_a_table_is_sent_once_to_each_cache_and_is_the_same_there(
    asked, table, tmp_path, monkeypatch
):
    monkeypatch.setattr(shipping, "PART", 100)
    one, two = tmp_path / "one" / "cache", tmp_path / "two" / "cache"
    other = Other(a=one, b=one, c=two)
    made = asked(other, block_of(of_table(table)))
    assert settled(made, "a", "b", "c") == ["a", "b", "c"]
    ends = [address for address, call, _ in other.sent if call is shipping.arrived]
    assert len(ends) == 2 and ends.count("c") == 1
    spec = dataset_spec("file", path=table)
    pin = pin_of(spec)
    for cache in (one, two):
        (folder,) = (cache / load.SHIPPED).iterdir()
        assert folder.name == pin.content
        assert not any(file.name.startswith(".") for file in folder.iterdir())


def test_a_dataset_that_was_sent_is_used_where_its_source_is_not(table, tmp_path):
    spec = dataset_spec("file", path=table)
    mine, pin = load_dataset(spec), pin_of(spec)
    delivered(shipping.data_freight(pin), shipping.data_parts(pin, tmp_path / "sent"))
    os.remove(table)
    forget_datasets()
    pin_datasets([pin])
    found = load_dataset(spec)
    assert found.content_hash == mine.content_hash
    assert found.loaded == mine.loaded and found.usual == mine.usual
    assert found.X.tobytes() == mine.X.tobytes() and not found.X.flags.writeable
    damaged = next(Path(os.environ["DP_ERM_BENCH_CACHE"]).glob("shipped/*/X.npy"))
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"?")
    forget_datasets()
    with pytest.raises(UsageError, match="there is no such file"):
        load_dataset(spec)


def test_a_pinned_dataset_of_another_content_is_not_used(table):
    spec = dataset_spec("file", path=table)
    pin_datasets([pin_of(spec)._replace(content="0" * 64)])
    with pytest.raises(DataUnavailable, match="000000000000 where the run was started"):
        load_dataset(spec)


def delivered(freight, parts):
    for part in parts:
        assert shipping.receive(pickle.dumps((freight, *part))) == ""
    assert shipping.arrived(pickle.dumps(freight)) == ""


def cached(pattern):
    return list(Path(os.environ["DP_ERM_BENCH_CACHE"]).glob(pattern))


def test_what_arrives_with_another_content_is_removed(table, solver, tmp_path):
    pin, file = pin_of(dataset_spec("file", path=table)), pinned(solver, "algorithm")
    for freight, parts in (
        (shipping.data_freight(pin), shipping.data_parts(pin, tmp_path / "sent")),
        (
            shipping.file_freight("algorithm", file),
            shipping.file_parts("algorithm", file),
        ),
    ):
        before = cached(f"{freight.kind}/*")
        for name, data in parts:
            altered = data.replace(b"1", b"2") + b"#"
            assert shipping.receive(pickle.dumps((freight, name, altered))) == ""
        said = shipping.arrived(pickle.dumps(freight))
        assert said == "what arrived there has another content"
        assert cached(f"{freight.kind}/*") == before
        assert not cached(f"{freight.kind}/.*")


def test_a_solver_that_was_sent_runs_and_an_altered_copy_does_not(solver):
    pin = pinned(solver, "algorithm")
    delivered(
        shipping.file_freight("algorithm", pin), shipping.file_parts("algorithm", pin)
    )
    shutil.rmtree(Path(solver).parent)
    cls = load_file(pin)
    assert cls.__name__ == "NoisyGradientDescent"
    place = shipped_place(pin)
    assert (place.parent / "lent_one.py").read_text() == HELPER
    place.write_text("raise SystemExit('this must not run')\n")
    load_file.cache_clear()
    with pytest.raises(UsageError, match="was changed after the run had begun"):
        load_file(pin)


def test_a_cache_that_cannot_be_written_is_one_sentence(asked, table, tmp_path):
    taken = tmp_path / "far"
    taken.mkdir()
    (taken / "cache").write_text("a file")
    with pytest.raises(UsageError) as error:
        settled(asked(Other(a=taken / "cache"), block_of(of_table(table))), "a")
    said = f"dataset file cannot be sent there: its cache folder {taken / 'cache'}"
    assert said in str(error.value) and "DP_ERM_BENCH_CACHE" in str(error.value)


def test_a_solver_that_changed_since_is_not_sent(asked, solver, tmp_path):
    made = asked(Other(a=tmp_path / "far" / "cache"), make_block(algorithm=solver))
    Path(solver).write_text(SOLVER + "\nCHANGED = True\n")
    with pytest.raises(UsageError, match="was changed after the run had begun"):
        settled(made, "a")


def bits(folder):
    """Return the records of a folder, but for times, by key."""
    store = Store(folder)
    found = {}
    for record in store.records(list(store.index)):
        plain = {k: v for k, v in record.items() if k not in TIMED}
        path = {k: v for k, v in record["trajectory"].items() if k != "seconds"}
        found[record["key"]] = json.dumps(plain | {"trajectory": path}, sort_keys=True)
    return found


@pytest.mark.engines
def test_another_machine_computes_the_same_bits(table, solver, tmp_path, monkeypatch):
    """It has no mirror, no table, and cannot see the folder of the solver."""
    monkeypatch.setattr(admission, "GRACE", 0.0)
    tilted = shutil.copy(LOSS, Path(solver).parent)
    blocks = [
        block_of({"name": "libsvm:heart_scale"}, line="mirror"),
        block_of(of_table(table), line="table"),
        make_block(
            line="loss", **(OBJECTIVE | {"loss": {"name": str(tilted), "tau": 0.3}})
        ),
        block_of(
            {"name": "log1", "n": 60, "p": 5},
            line="own",
            algorithm={"name": solver, "clip": 1.0},
        ),
    ]

    def run(folder, **options):
        made = RunOptions(progress=False, **options)
        assert run_experiment(blocks, "study", tmp_path / folder, made) == 0
        return bits(tmp_path / folder)

    here = run("here", n_jobs=1)
    far = Far(tmp_path / "far")
    try:
        code = HIDDEN.format(folder=str(Path(solver).parent))
        home = far.scheduler().worker("a", code)
        how = {"n_jobs": None, "engine": "dask", "patience": 30.0}
        there = run("there", address=far.address, **how)
    finally:
        far.end()
    assert len(here) == 12 and there == here
    assert len(list((home / "cache" / "shipped").iterdir())) == 2
    sent = (home / "cache" / "shipped_files").glob("*/*.py")
    names = {"far_noisy_gd.py", "lent_one.py", "tilted.py"}
    assert {path.name for path in sent} == names
