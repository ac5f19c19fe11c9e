"""Test solvers that harm their process: only their own rows of the table change."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import pytest
from launch import PATH, alive, children, ended, wait_for
from offenders import FAILING, HANGING, HARMLESS, SOUND, Fault
from pandas.testing import assert_frame_equal

from dp_erm_bench.results.table import load_results
from tests.pages import read_page

CLOCK = ["seconds", "run", "cost"]
BYSTANDERS = [SOUND.name, "random_cd"]
GROUPS = {
    "harmless": (HARMLESS, 0, ["runner.n_jobs=1"]),
    "failing": (FAILING, 1, ["runner.n_jobs=2"]),
    "hanging": (HANGING, 1, ["runner.n_jobs=2", "runner.time_limit=2"]),
}
FAULTS = [
    pytest.param(name, fault, id=fault.name)
    for name, (faults, *_) in GROUPS.items()
    for fault in faults
]


class Seen(NamedTuple):
    """What is seen of a command that has ended."""

    code: int
    err: str
    table: object
    strays: list


def start(home, faults, *more, out=subprocess.DEVNULL):
    """Start a sweep of solver files, in a process group and a place of its own."""
    for fault in faults:
        (home / f"{fault.name}.py").write_text(fault.source())
    files = [f"{fault.name}.py" for fault in faults]
    words = ["dataset=log1", "dataset.n=60", "dataset.p=5", "runner.progress=false"]
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "dp_erm_bench", *words, *more),
            f"algorithm={','.join([*files, 'random_cd'])}",
            "algorithm.random_cd.clip=1.0",
        ],
        cwd=home,
        env={**os.environ, "PYTHONPATH": PATH[-1], "HOME_OF_TEST": str(home)},
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def strays(home):
    """Return the processes that were started by a command and are there still."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            variables = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if f"HOME_OF_TEST={home}".encode() in variables:
            found.append(int(path.parent.name))
    return found


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    """Return what is seen of a group's command, or a clean one; each is run once."""
    known = {}

    def look(name="clean"):
        if name not in known:
            faults, _, words = GROUPS.get(name, ([], 0, []))
            home = tmp_path_factory.mktemp(name)
            process = start(home, [*faults, SOUND], *words)
            try:
                code, _, err = ended(process, 300)
            finally:
                process.kill()
            table = load_results(home / "results" / "sweep")
            known[name] = Seen(code, err, table, strays(home))
        return known[name]

    return look


@pytest.mark.slow
@pytest.mark.parametrize("name, fault", FAULTS)
def test_a_fault_is_told_in_its_own_row(seen, name, fault):
    table = seen(name).table
    rows = table[table["algorithm"] == fault.name].drop_duplicates("trial")
    assert len(rows) == 1
    assert set(rows["status"]) == {fault.status}
    assert all(fault.message in message for message in rows["message"])
    assert rows["message"].str.len().max() < 20_000


@pytest.mark.slow
@pytest.mark.parametrize("name", GROUPS)
def test_the_others_keep_their_numbers_whatever_one_does(seen, name):
    found, clean = seen(name), seen()
    assert (found.code, clean.code) == (GROUPS[name][1], 0)
    for one in BYSTANDERS:
        rows, same = (
            seen.table[seen.table["algorithm"] == one]
            .drop(columns=CLOCK, errors="ignore")
            .sort_values(["trial", "iteration"], ignore_index=True)
            for seen in (found, clean)
        )
        assert len(rows) > 2
        assert_frame_equal(rows, same, check_dtype=False, check_exact=True)
        assert set(rows["status"]) == {"ok"}


@pytest.mark.slow
@pytest.mark.parametrize("name", GROUPS)
def test_no_trial_is_twice_in_the_table_and_no_process_is_left(seen, name):
    found = seen(name)
    assert not found.table.duplicated(["trial", "iteration"]).any()
    assert found.strays == []
    unchecked, *others = found.err.splitlines()
    assert "not passed `dp-erm-bench check" in unchecked
    assert not any("dp_erm_bench" in x or "dp-erm-bench:" in x for x in others)


def test_every_fault_is_a_line_of_the_documentation():
    said = re.findall(
        r"^\| a solver (.+) \| `(\w+)` \| (\d) \|", read_page("faults"), re.M
    )
    assert said == [
        (fault.told, fault.status, str(code))
        for faults, code, _ in GROUPS.values()
        for fault in faults
    ]


@pytest.fixture
def begun(tmp_path):
    """Start a slow sweep of 40 trials; return it as soon as some have begun."""
    started = []

    def start_slow(code="time.sleep(0.2)", least=4):
        slow = Fault("slow", "", "", code)
        words = ["seed=range(0,40)", "runner.batch_trials=1", "runner.n_jobs=2"]
        started.append(start(tmp_path, [slow], *words))

        def marks():
            records = (tmp_path / "results").rglob("*.jsonl")
            return sum(path.read_bytes().count(b'"begin"') for path in records)

        wait_for(lambda: marks() >= least, 60)
        return started[-1]

    yield start_slow
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(
    "replaced", [False, pytest.param(True, marks=pytest.mark.slow)]
)
def test_a_folder_that_is_removed_ends_the_run_with_one_sentence(
    begun, tmp_path, replaced
):
    process = begun(least=42)
    workers = children(process.pid)
    folder = tmp_path / "results" / "sweep"
    while folder.exists():  # what is written meanwhile keeps it
        shutil.rmtree(folder, ignore_errors=True)
    if replaced:
        folder.mkdir()
    found = ended(process)
    unchecked, *others = found.err.splitlines()
    assert "algorithm=slow has not passed" in unchecked
    assert (found.code, others) == (
        2,
        [
            "dp-erm-bench: results/sweep: was removed or replaced while the run went "
            "on, and what was recorded with it; run the same command again"
        ],
    )
    assert not any(map(alive, workers))


@pytest.mark.slow
def test_ctrl_c_ends_workers_that_forked_and_stopped(begun, tmp_path):
    process = begun("os.fork(); os.kill(os.getpid(), signal.SIGSTOP)", least=42)
    os.killpg(process.pid, signal.SIGINT)
    assert ended(process).code == 130
    assert strays(tmp_path) == []


@pytest.mark.alone
def test_ctrl_c_twice_ends_it_as_well(begun, tmp_path):
    process = begun()
    os.killpg(process.pid, signal.SIGINT)
    time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)
    found = ended(process)
    assert found.code in (130, -signal.SIGINT) and "Traceback" not in found.err
    assert wait_for(lambda: strays(tmp_path) == []) < 1


@pytest.mark.slow
def test_a_worker_that_holds_too_much_memory_is_replaced(tmp_path):
    """The third of four trials keeps 120 MB: the fourth is another worker's."""
    leak = """
with open("pids", "a+") as file:
    file.write(f"{os.getpid()} ")
    file.seek(0)
    np.kept = np.ones(15_000_000 if len(file.read().split()) == 3 else 1)
"""
    words = ["seed=range(0,4)", "runner.batch_trials=1", "runner.n_jobs=1"]
    leaking = Fault("leaking", "", "", leak)
    process = start(tmp_path, [leaking], *words, "runner.worker_memory=150M")
    assert ended(process).code == 0
    *early, last = (tmp_path / "pids").read_text().split()
    assert len(early) == 3 and len(set(early)) == 1 and last not in early
    assert set(load_results(tmp_path / "results" / "sweep")["status"]) == {"ok"}
