"""Test the benchmarks on few trials: that they measure what they state."""

import io
import json
import math
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest
from PIL import Image, ImageDraw

from benchmarks import (
    batches,
    board,
    compute,
    constants,
    faults,
    harness,
    mutants,
    publish,
    rates,
    scale,
)
from benchmarks.measure import Other, Row, print_table, seconds, sweep, timed
from benchmarks.parent import believing, example, ledger, parent
from dp_erm_bench.cli.main import main
from dp_erm_bench.results.table import load_results

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[1]
OTHER = Other("other 1.0", job=0.0077, again=1e-5, help=0.72, first=2.0)


def test_a_row_tells_the_ratio_to_the_other():
    row = Row("a trial", 0.00011, 0.0005, "job")
    assert row.cells([OTHER]) == [
        "a trial",
        "7.7 ms (70 x)",
        "**110 us**",
        "<= 500 us",
    ]
    assert row._replace(other="again").cells([OTHER])[1] == "10 us (0.1 x)"


def test_a_row_without_its_like_is_empty_there():
    row = Row("memory", 123.4, unit="MB")
    assert row.cells([OTHER, OTHER]) == ["memory", "", "", "**123 MB**", ""]


def test_the_table_is_markdown(capsys):
    print_table([Row("`--help`", 0.1, 0.2, "help")], [OTHER])
    assert capsys.readouterr().out.splitlines() == [
        "| matter | other 1.0 | here | target |",
        "| --- | --- | --- | --- |",
        "| `--help` | 720 ms (7.2 x) | **100 ms** | <= 200 ms |",
    ]


@pytest.mark.parametrize("kind, settings", [("seeds", 1), ("settings", 200)])
def test_a_sweep_runs_its_trials_and_tells_its_memory(kind, settings, tmp_path):
    taken, said = timed(sweep(tmp_path / "run", kind, 200))
    assert taken > 0 and 50 < float(said.split()[-1]) < 600
    table = load_results(tmp_path / "run")
    assert set(table["status"]) == {"ok"}
    assert (table["trial"].nunique(), table["params"].nunique()) == (200, settings)
    assert "(0 run now)" in timed(sweep(tmp_path / "run", kind, 200))[1]


def test_the_memory_told_is_that_of_the_process_itself():
    """Whatever the process that started it had: here half a gigabyte."""
    code = "from benchmarks.sweep import peak; print(peak())"
    ballast = bytearray(500 << 20)
    ballast[:: 1 << 12] = b"x" * len(ballast[:: 1 << 12])
    command = [sys.executable, "-c", code]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    assert 20 < float(told.stdout) < 400
    del ballast


@pytest.mark.alone
def test_what_batches_took_is_summed(tmp_path):
    options = ("--execute", "holding", "--batch", 2)
    seconds(sweep(tmp_path, "seeds", 4, *options))
    assert 0.4 <= harness.computed(tmp_path) < 2


def test_the_first_batch_begins_before_it_is_recorded(tmp_path):
    start = time.time()
    begun, recorded = harness.first_batch(tmp_path, "first")
    assert 0 < begun < recorded < time.time() - start


def test_draws_and_steps_are_timed(monkeypatch):
    monkeypatch.setattr(compute, "DRAWS", 1000)
    monkeypatch.setattr(compute, "STEPS", 100)
    *drawn, step = compute.rows()
    laws = [row.matter.split()[2] for row in drawn]
    assert laws == ["uniform", "Gaussian", "Laplace"]
    assert all(0.1 < row.here < 1000 and row.unit == "ns" for row in drawn)
    assert 1e-8 < step.here < 1e-3


def test_orphans_are_seen_to_live_and_to_die():
    sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    assert faults.alive(sleeper.pid)
    sleeper.kill()
    faults.wait_for(lambda: not faults.alive(sleeper.pid))
    sleeper.wait()
    assert not faults.alive(sleeper.pid)


def test_waiting_in_vain_ends(monkeypatch):
    monkeypatch.setattr(faults, "PATIENCE", 0.01)
    start = time.monotonic()
    with pytest.raises(AssertionError, match="still not so"):
        faults.wait_for(lambda: False)
    assert time.monotonic() - start < 1


def test_a_command_that_fails_ends_the_benchmark():
    with pytest.raises(SystemExit, match="exit code 3"):
        seconds([sys.executable, "-c", "raise SystemExit(3)"])


def test_make_bench_passes_its_choices_on():
    said = subprocess.run(
        ["make", "-n", "-C", str(ROOT), "bench", "BENCH=harness", "BENCHOPT=install"],
        capture_output=True,
        text=True,
    )
    assert "-m benchmarks harness --benchopt=install" in said.stdout


def test_the_parent_of_a_large_run_is_measured_on_real_records(tmp_path):
    trial, line = example()
    assert line.startswith(b'{"key":"' + trial.key.encode()) and len(line) > 2000
    assert 0 < believing(tmp_path, trial, line) < 0.01
    # The dispatch to so many workers needs Dask's client, an extra.
    pytest.importorskip("distributed")
    assert 0 < parent(tmp_path, trial, line, 10, 200) < 0.1


def test_a_task_costs_the_ledger_the_same_whatever_waits(tmp_path):
    few, many = (min(ledger(tmp_path, n) for _ in range(3)) for n in (12_000, 300_000))
    assert many < 3 * few


def test_what_is_extrapolated_is_bounded_by_the_slowest_part():
    names = "parent dask memory base records plan table collect rerun".split()
    costs = dict.fromkeys(names, 1e-9)
    assert scale.at(10**6, costs)["so the run takes"] == "0.28 h"
    slow = scale.at(10**6, costs | {"dask": 0.002})
    assert slow["so the run takes"] == "0.56 h"
    assert slow["workers that are kept busy"] == "500"
    assert scale.at(10**7, costs | {"memory": 1.0})["memory of the parent"] == "10 GB"


@pytest.mark.parametrize("kept", [False, True])
def test_constants_are_counted_in_every_batch_or_once(kept, monkeypatch):
    monkeypatch.setattr(constants, "SIZE", {"n": 80 + kept, "p": 6})
    calls, timing = [], constants.timing

    def counting(compute, spent):
        timed = timing(compute, spent)

        def listening(*given):
            calls.append(compute.__name__)
            return timed(*given)

        return listening

    monkeypatch.setattr(constants, "timing", counting)
    share, cost = constants.solved("gd", 12, 3, kept)
    assert 0.0 < share < 1.0 and cost > 0.0
    # Once before it is measured, then in one of the four batches, or in all.
    assert calls.count("_largest_eigenvalue") == calls.count("certified_optimum")
    assert calls.count("certified_optimum") == 1 + (1 if kept else 4)


def test_a_batch_of_32_costs_less_than_its_like_of_2():
    size, before, now = batches.costs("gd", {"n": 200, "p": 10}, {}, {}, times=3)
    assert size == 32
    assert 0.0 < now < before


@pytest.mark.parametrize("shape", [(400, 30, 0), (400, 300, 20)])
def test_the_model_tells_what_steps_take(shape):
    """Of every solver, for batches of one and many; rates fit what they are made of.

    What a machine is slower or faster by, a plan takes from trials that were run.
    """
    found = list(rates.measured([shape], seconds=0.02))
    assert {one.size for one in found} == set(rates.BATCHES)
    told = {one[:5]: one.told / one.taken for one in found}
    machine = statistics.median(told.values())
    assert 1 / 10 < machine < 10
    assert {k: v for k, v in told.items() if not 1 / 5 < v / machine < 5} == {}
    fitted = {name: (shared, own) for name, shared, own, _ in rates.fitted(found)}
    assert sum(sum(pair) for pair in fitted.values()) > 0.0


SENSITIVITY = """
class Sum:
    def of(self, bound: float = 1.0, n: "int | 2" = 1) -> float:
        'Return 2 * bound + 1.'
        if bound < 0:
            raise ValueError(f"{bound * 2}: less than " + "0")
        return (bound) * max(n, 3)
"""


def test_mutants_change_an_operator_or_number_of_what_is_computed():
    source = mutants.Source(SENSITIVITY)
    made = {source.apply(edit).strip() for edit in source.edits()}
    assert made == {
        'def of(self, bound: float = 2.0, n: "int | 2" = 1) -> float:',
        'def of(self, bound: float = 1.0, n: "int | 2" = 2) -> float:',
        "if bound <= 0:",
        "if bound < 1:",
        "return (bound) / max(n, 3)",
        "return (bound) * min(n, 3)",
        "return (bound) * max(n, 4)",
    }


def test_a_mutant_is_found_where_its_definition_has_moved_to():
    line = "return (bound) * max(n, 3)"
    row = {"path": "dp_erm_bench/sums/a.py", "definition": "Sum.of", "line": line}
    row["mutant"] = line.replace("3", "4")
    other = mutants.Source(f"def of(bound, n):\n    {line}\n")
    moved = mutants.Source("import math\n\n" + SENSITIVITY)
    sources = {"dp_erm_bench/sums/b.py": other, "dp_erm_bench/sums/c.py": moved}
    assert mutants.locate(row, sources) == ("dp_erm_bench/sums/c.py", 9)
    assert mutants.mutated(row, moved, 9) == "\n".join(moved.lines).replace("3)", "4)")
    assert mutants.locate(row | {"line": "return bound"}, sources) is None


def test_a_picture_is_new_where_a_marker_has_moved_not_where_a_letter_has(tmp_path):
    def drawn(name, marker, size=(200, 100)):
        picture = Image.new("RGB", size, "white")
        ImageDraw.Draw(picture).rectangle(marker, fill="blue")
        picture.save(tmp_path / name)
        return tmp_path / name

    kept = drawn("kept.png", (40, 40, 48, 48))
    assert publish.alike(drawn("same.png", (40, 40, 48, 48)), kept)
    assert publish.alike(drawn("pixel.png", (40, 40, 48, 47)), kept)
    assert not publish.alike(drawn("moved.png", (60, 40, 68, 48)), kept)
    assert not publish.alike(drawn("wider.png", (40, 40, 48, 48), (201, 100)), kept)


def test_a_run_of_some_panels_replaces_these_alone(tmp_path, monkeypatch):
    """One panel of the board in the smoke profile, merged into what is published."""
    monkeypatch.chdir(tmp_path)
    words = ["experiment=leaderboard", "profile=smoke", "panel=breast_cancer_l2"]
    assert main([*words, "name=board"]) == 0
    merged = board.merge_tables(tmp_path / "results" / "board", publish.PUBLISHED)
    for name in board.TABLES:
        rows = pd.read_csv(io.StringIO(merged[name]))
        own = rows[rows["panel"] == "breast_cancer_l2"]
        # The smoke profile has one epsilon; two references have epsilons of their own.
        assert {*own["epsilon"]} <= {0.0, 1.0, math.inf} and len(own)
        if (publish.PUBLISHED / name).is_file():
            before = pd.read_csv(publish.PUBLISHED / name)
            kept = before[before["panel"] != "breast_cancer_l2"]
            assert len(rows) == len(own) + len(kept)
            assert {*rows["panel"]} == {*before["panel"]}
    about = json.loads(merged[board.ABOUT])["panels"]
    old = json.loads((publish.PUBLISHED / board.ABOUT).read_text())["panels"]
    assert about.keys() == old.keys()
    assert about["a9a_l2"] == old["a9a_l2"]
    assert about["breast_cancer_l2"] != old["breast_cancer_l2"]
    # Again, into what it gave: the same.
    folder = tmp_path / "published"
    folder.mkdir()
    for name, text in merged.items():
        (folder / name).write_text(text)
    again = board.merge_tables(tmp_path / "results" / "board", folder)
    assert again == merged
    with pytest.raises(SystemExit, match="is of the profile smoke, changed"):
        board.check_run(tmp_path / "results" / "board", publish.PUBLISHED)


def test_what_is_published_of_a_study_has_pages_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setattr(publish, "RESULTS", tmp_path)
    audit = {path.name: kept.name for path, kept in publish.files("audit").items()}
    assert audit == {name: name for name in ("audits.csv", "audit.png")}
    with pytest.raises(
        SystemExit, match="audits.csv: is missing, run experiment=audit"
    ):
        publish.check("audit")
