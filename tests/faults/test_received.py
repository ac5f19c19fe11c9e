"""Test results folders from others: their code and links are not used."""

import json
import os
import re
import signal
import subprocess
import sys

import pytest

from dp_erm_bench import paths, registry
from dp_erm_bench.cli.main import main
from dp_erm_bench.cli.usage import CONTROLS
from dp_erm_bench.errors import UsageError
from dp_erm_bench.paths import write_atomic
from dp_erm_bench.report import figure
from dp_erm_bench.report.panels import commit_in_words
from dp_erm_bench.report.studies import Audit
from dp_erm_bench.results.files import LOCK, add_checksum, checksum_of
from dp_erm_bench.results.runs import note_table, read_manifest, read_run, write_run
from dp_erm_bench.results.store import Store
from dp_erm_bench.results.table import load_results
from dp_erm_bench.runner.replay import replay

SECRET = "root:x:0:0:not-for-you"


@pytest.fixture(autouse=True)
def soon():
    """End what hangs."""

    def late(*given):
        raise AssertionError("it hangs")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def folder(inline, block, capsys):
    inline(block(seed=[0, 1]))
    capsys.readouterr()
    return inline.folder


@pytest.fixture
def secret(tmp_path):
    path = tmp_path / "outside"
    path.write_text(f"{SECRET}\n" * 3)
    return path


def put(path, kind, secret):
    """Put something into the place of a file or a folder."""
    if path.is_dir():
        path.rename(path.parent.parent / f"was_{path.name}")
    path.unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "link":
        path.symlink_to(secret)
    elif kind == "giant":
        path.touch()
        os.truncate(path, 1 << 41)
    elif kind == "deep":
        path.write_text("[" * 200_000 + "\n")
    else:
        path.mkdir()


COMMANDS = ("collect", "report", "compare")
PLACES = (
    *("plan.jsonl", "manifest.json", "results.parquet", "claims.csv", "choices.csv"),
    *("records.jsonl", "asked.jsonl", "runs", "runs/x.json", "figures", LOCK),
)


KINDS = ("pipe", "device", "link", "giant", "deep", "folder")


# Every place with half of the kinds, every kind in half of the places.
@pytest.mark.parametrize(
    "place, kind",
    [
        pytest.param(place, kind, marks=[pytest.mark.slow] if (i + k) % 2 else [])
        for i, place in enumerate(PLACES)
        for k, kind in enumerate(KINDS)
    ],
)
def test_whatever_stands_for_a_file_is_told_or_left_out(
    folder, place, kind, secret, capsys
):
    (folder / "results.parquet").unlink()
    put(folder / place, kind, secret)
    for command in COMMANDS:
        code = main([command, *[str(folder)] * (1 + (command == "compare"))])
        said = capsys.readouterr()
        assert code in (0, 2)
        assert code == 0 or said.err.count("dp-erm-bench: ") == 1
        assert SECRET not in said.out + said.err
    assert secret.read_text() == f"{SECRET}\n" * 3


def test_a_folder_of_too_many_files_is_a_sentence(folder, monkeypatch, capsys):
    monkeypatch.setattr(paths, "MOST_FILES", 50)
    for number in range(60):
        (folder / "runs" / f"{number}.json").touch()
    assert main(["collect", str(folder)]) == 2
    assert "runs: must hold at most 50 files" in capsys.readouterr().err


def test_an_enormous_line_costs_only_itself(folder, monkeypatch, capsys):
    before = load_results(folder)
    path = folder / "records.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:2], b"x" * 100_000 + b"\n", *lines[2:]]))
    monkeypatch.setattr("dp_erm_bench.paths.LARGEST_TEXT", 10_000)
    assert load_results(folder).equals(before)
    assert Store(folder).damage().startswith("records.jsonl: lines 3, 4, ")


@pytest.fixture
def evil(tmp_path, monkeypatch):
    """A module that leaves a trace if it is imported."""
    trace = tmp_path / "trace"
    path = tmp_path / "evil_module.py"
    text = f"import pathlib\npathlib.Path({str(trace)!r}).touch()\n"
    path.write_text(f"{text}def draw(*given): pass\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield path
    assert not trace.exists()
    sys.modules.pop("evil_module", None)


@pytest.mark.parametrize("command", COMMANDS)
def test_no_module_that_a_manifest_names_is_imported(folder, evil, command, capsys):
    config = {"figures": "evil_module", "claims": [], "profile": "smoke"}
    write_run(folder, {**read_manifest(folder), "config": config})
    (folder / "results.parquet").unlink()
    assert main([command, *[str(folder)] * (1 + (command == "compare"))]) == 0
    said = capsys.readouterr().err
    assert ("they are not imported" in said) == (command == "collect")


@pytest.mark.parametrize(
    "name", ["os", "dp_erm_bench.cli.main", "..", 3, [{"kind": "evil.py"}]]
)
def test_only_modules_of_figures_are_taken_from_a_manifest(folder, name, capsys):
    write_run(folder, {**read_manifest(folder), "config": {"figures": name}})
    assert main(["collect", str(folder)]) == 0
    assert "outside of the package; they are not imported" in capsys.readouterr().err


@pytest.mark.parametrize(
    "config",
    [
        {"claims": 3},
        {"claims": [{"statement": "{figure.x}", "measure": "ratio", "figure": "a"}]},
        {"claims": [{}], "profile": {}},
        {"blocks": 3, "claims": [[]]},
        {"figures": ["x"]},
        {"figures": [{"kind": "panels", "panels": [{"name": "../../a"}]}]},
        {"figures": [{"kind": "dp_erm_bench.report.panels.Panels"}]},
    ],
)
def test_a_manifest_that_fits_nothing_is_a_sentence(folder, config, capsys):
    config = {"figures": [{"kind": "curves"}], **config}
    write_run(folder, {**read_manifest(folder), "config": config})
    assert main(["collect", str(folder)]) == 2
    said = capsys.readouterr().err
    assert said.count("dp-erm-bench: ") == 1 and "Traceback" not in said


def forged(folder, change):
    """Change every line of a plan, and put good checksums onto them."""
    plan = folder / "plan.jsonl"
    lines = []
    for raw in plan.read_text().splitlines():
        row = json.loads(raw)
        for key in ("lines", "sum", "crc"):
            row.pop(key, None)
        change(row["spec"])
        lines.append(json.dumps(row, separators=(",", ":")).encode() + b"\n")
    plan.write_bytes(b"".join(map(add_checksum, lines)))


def test_no_solver_that_a_plan_names_is_imported(folder, evil, inline, block):
    def solver(spec):
        spec["algorithm"] = {"name": "random_cd", "params": {}}
        spec["algorithm"] |= {"file": str(evil), "content": "0" * 64}

    def target(spec):
        spec["dataset"]["_target_"] = "evil_module.draw"

    for change in (solver, target):
        forged(folder, change)
        for command in COMMANDS:
            main([command, *[str(folder)] * (1 + (command == "compare"))])
        inline(block(seed=[7, 8]), mode="plan")


def test_no_solver_that_a_study_names_is_imported(folder, evil, monkeypatch):
    spec = {
        "algorithm": {"name": str(evil), "params": {}},
        "budget": {"epsilon": 1.0, "delta": 1e-6, "adjacency": "replace_one"},
    }
    both = [({**spec, "dataset": {"side": s}, "seed": 0}, {}) for s in (0, 1)]
    for _, facts in both:
        facts["statistics"] = [0.0, 1.0]
    monkeypatch.setattr(figure, "facts_in", lambda folder: iter(both))
    with pytest.raises(ValueError, match="must name no file"):
        Audit().table(folder)


def test_a_figure_is_not_written_through_a_link(folder, secret, capsys):
    (folder / "figures").mkdir()
    (folder / "figures" / "mangold2022.pdf").symlink_to(secret)
    figures = registry.read_choice("experiment", "mangold2022")["figures"]
    config = {"figures": figures, "profile": "smoke"}
    write_run(folder, {**read_manifest(folder), "config": config})
    assert main(["collect", str(folder)]) == 2
    assert "must be a plain file or folder; remove it" in capsys.readouterr().err
    assert secret.read_text() == f"{SECRET}\n" * 3


def forge_table(folder, table):
    """Write a table that the manifest vouches for."""
    import pyarrow.parquet as pq

    path = folder / "results.parquet"
    pq.write_table(table.replace_schema_metadata(), path)
    with path.open("rb") as file:
        noted = {"size": file.seek(0, 2), "crc": checksum_of(file)}
    note_table(folder, {**read_manifest(folder)["table"], **noted})


@pytest.mark.filterwarnings("ignore:.*PyExtensionType")
def test_a_table_with_objects_of_its_own_is_read_as_a_table(folder):
    import pyarrow as pa

    before = load_results(folder)
    for path in [folder / "records.jsonl"]:
        path.unlink()
    made = pa.Table.from_pandas(before)
    field = made.schema.field("run").with_metadata(
        {"ARROW:extension:name": "arrow.py_extension_type"}
    )
    schema = made.schema.set(made.schema.get_field_index("run"), field)
    forge_table(folder, made.cast(schema))
    if hasattr(pa, "PyExtensionType"):  # before pyarrow 21 such columns are not read
        with pytest.raises(UsageError, match="is damaged, and there is no record"):
            load_results(folder)
    else:
        assert load_results(folder).equals(before)


def test_the_manifest_of_another_run_or_folder_is_left_aside(
    folder, inline, block, capsys
):
    (path,) = (folder / "runs").iterdir()
    other = paths.sealed_json({**read_manifest(folder), "run": "0-other-1"})
    own = path.read_bytes()
    path.write_bytes(other)
    assert read_run(folder, path.stem) == {}
    said = "is that of another run or folder: it is left aside"
    assert said in capsys.readouterr().err
    path.write_bytes(own)
    (folder / "manifest.json").write_bytes(other)
    assert read_manifest(folder)["run"] == path.stem
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    "git", [{"commit": "abcdef0123"}, {"dirty": True}, [], "x", {}]
)
def test_a_manifest_without_a_key_is_a_sentence(folder, git, capsys):
    (path,) = (folder / "runs").iterdir()
    write_run(folder, {**read_manifest(folder), "environment": {"git": git}})
    known = isinstance(git, dict) and "commit" in git
    said = "commit abcdef0, with or without changes" if known else "commit unknown"
    assert commit_in_words(folder, path.stem) == said
    for command in ("report", "plot", "collect"):
        assert main([command, str(folder)]) == 0


ODD = "\x1b]0;owned\x07\x1b[31m\u202egnp\u2066\x9b1m\r"


def test_nothing_that_a_terminal_obeys_is_printed(folder, tmp_path, capsys):
    head = "figure,statement,measured,threshold,value,verdict"
    claims = f'{head}\n[bold],"{ODD}",1,2,3,"{ODD}"\n'
    (folder / "claims.csv").write_text(claims, newline="")
    manifest = {**read_manifest(folder), "command": [ODD], "outcome": ODD}
    write_run(folder, manifest | {"drawn": ["claims.csv"]})
    odd = folder.rename(tmp_path / f"x{ODD}[red]")
    assert main(["report", str(odd)]) == 0
    assert "[bold]" in capsys.readouterr().out
    for line in (
        ["report", str(odd)],
        ["list", "results", str(tmp_path)],
        ["plot", str(odd), f"--x={ODD}"],
        [f"dataset={ODD}"],
        [ODD],
        ["compare", str(odd), f"{odd}{ODD}"],
    ):
        main(line)
        said = "".join(capsys.readouterr())
        assert said and not CONTROLS.search(said), line
        assert "\\x1b" in said or "\\u202e" in said, line


def test_no_path_of_a_plan_leads_out_of_the_working_folder(
    inline, tmp_path, monkeypatch, capsys
):
    """A file's name is looked for here and in the folder of `--data`, no path."""
    away, here = tmp_path / "away", tmp_path / "here"
    for place in (away, here):
        place.mkdir()
    rows = "".join(f"{i % 7},{i % 5},{i % 2}\n" for i in range(40))
    (away / "my.csv").write_text(f"a,b,label\n{rows}")
    monkeypatch.chdir(here)
    mine = {"name": "file", "path": str(away / "my.csv"), "header": True}
    block = {"dataset": mine, "seed": [0], "budget": {"epsilon": 1.0}}
    block["algorithm"] = {"name": "gd", "clip": 1.0, "n_iter": 2}
    execute = "dp_erm_bench.runner.execute.run_batch"
    assert inline(block, execute=execute) == 0
    folder = inline.folder

    def replayed(*more):
        capsys.readouterr()
        code = main(["replay", str(folder), "--sample=all", *more])
        return code, capsys.readouterr().out

    whole = replayed(f"--data={away}")
    assert whole[0] == 0 and "answer: all are the same" in whole[1]
    (key,) = load_results(folder)["trial"].unique()
    opened = []
    real = paths.open_inside
    monkeypatch.setattr(
        paths, "open_inside", lambda *a: opened.append(a[0]) or real(*a)
    )
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "my.csv").write_bytes((away / "my.csv").read_bytes())
    outside = (away / "my.csv", "../copy/my.csv", "a/../../copy/my.csv", "~/my.csv")
    monkeypatch.setenv("HOME", str(tmp_path / "copy"))
    for path in outside:

        def elsewhere(spec, path=path):
            spec["dataset"]["path"] = str(path)

        forged(folder, elsewhere)
        assert main(["collect", str(folder)]) == 0
        opened.clear()
        code, said = replayed()
        assert code == 1 and "1 row: 0 same, 1 not replayed" in said, said
        assert not [one for one in opened if one.name == "my.csv"]
        with pytest.raises(UsageError, match="my.csv: there is no such file"):
            replay(key, folder)
        assert replayed(f"--data={away}")[0] == 0
        assert replay(key, folder, data=away).algorithm == "gd"
    (here / "my.csv").write_bytes((away / "my.csv").read_bytes())
    assert replayed()[0] == 0


LATEX = (
    r"$\input{/etc/passwd}$ $^^5cinput{x}$ }\input{x}{ $}\write18{ls}{$",
    "$\\frac{$ $x^{$ <script>alert(1)</script>|a\nb",
)


def test_no_string_of_a_folder_is_latex_or_html(folder, tmp_path, capsys):
    """Whatever column holds it, and whatever draws or writes it."""
    path = folder / "records.jsonl"
    before = path.read_bytes().splitlines(keepends=True)
    for text in LATEX:
        lines = []
        for line in before:
            row = json.loads(line)
            if "facts" in row:
                row.pop("crc")
                row["facts"] |= {"calibration": text, "uncharged": [text]}
                row["facts"] |= {"accountant": text, "penalty": text, "loss": text}
                line = add_checksum(
                    json.dumps(row, separators=(",", ":")).encode() + b"\n"
                )
            lines.append(line)
        path.write_bytes(b"".join(lines))

        def named(spec, text=text):
            spec["dataset"]["name"] = spec["algorithm"]["name"] = text

        forged(folder, named)
        manifest = {**read_manifest(folder), "experiment_file": {f"{text}.yaml": ""}}
        curves = {"kind": "curves", "y": "objective", "about": text, "name": "one"}
        write_run(folder, {**manifest, "config": {"figures": [curves], "claims": []}})
        out = tmp_path / "plots"
        (folder / "results.parquet").unlink()
        for line in (
            ["collect", str(folder)],
            ["plot", str(folder), f"--out={out}", "--y=objective", "--format=png"],
            ["export", str(folder), "--y=objective", "--format=latex"],
            ["report", str(folder), "--out", str(out / "page.html")],
        ):
            capsys.readouterr()
            assert main(line) in (0, 2), line
            said = capsys.readouterr()
            assert "Traceback" not in said.err
            if "--format=latex" in line:
                assert r"\input" not in said.out and r"\write" not in said.out
        assert "<script>alert" not in (out / "page.html").read_text()
        texts = [*out.rglob("*.tex"), *folder.rglob("*.tex")]
        assert any("passwd" in one.read_text() for one in texts)
        for one in texts:
            written = one.read_text()
            assert not re.search(r"(?<!textbackslash\{\})\\(input|write|frac)", written)
            assert "^^" not in written


WRITER = """
import sys, time
from pathlib import Path
from dp_erm_bench.paths import write_atomic
def write(file):
    file.write(b"half")
    file.flush()
    print("begun", flush=True)
    time.sleep(60)
write_atomic(Path(sys.argv[1]), write)
"""


@pytest.mark.parametrize("again", ["run", "collect"])
def test_files_of_dead_writers_are_removed_and_others_kept(
    folder, inline, block, again
):
    target = folder / "results.parquet"
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(target)], stdout=subprocess.PIPE
        )
        for _ in range(2)
    ]
    try:
        for writer in writers:
            writer.stdout.readline()
        parts = {path.name for path in folder.glob(".results.parquet.*")}
        assert len(parts) == 2
        writers[0].kill()
        writers[0].wait()
        if again == "run":
            assert inline(block(seed=[0, 1])) == 0
        else:
            assert main(["collect", str(folder)]) == 0
        assert len({path.name for path in folder.glob(".results.parquet.*")}) == 1
    finally:
        for writer in writers:
            writer.kill()
            writer.communicate()
    assert main(["collect", str(folder)]) == 0
    assert {path.name for path in folder.glob(".*")} == {LOCK}


def test_a_writer_may_read_what_it_wrote(tmp_path):
    def write(file):
        file.write(b"ab")
        file.seek(0)
        assert file.read() == b"ab"

    write_atomic(tmp_path / "x", write)
    assert (tmp_path / "x").read_bytes() == b"ab"
