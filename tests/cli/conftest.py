import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from dp_erm_bench.cli.main import main
from dp_erm_bench.runner import experiment


@pytest.fixture
def line(monkeypatch, tmp_path, capsys):
    """Run a command line without its trials; return what the runner would get."""

    def run(*arguments, code=0):
        calls = []
        with monkeypatch.context() as patch:
            patch.chdir(tmp_path)
            patch.setattr(
                experiment, "run_experiment", lambda *given: calls.append(given) or 0
            )
            patch.setattr(
                "dp_erm_bench.cli.sweep.finish_run", lambda folder, config: None
            )
            assert main(list(arguments)) == code
        captured = capsys.readouterr()
        result = SimpleNamespace(out=captured.out, err=captured.err, calls=calls)
        if calls:
            ((result.blocks, result.name, result.folder, result.options),) = calls
        return result

    return run


@pytest.fixture
def experiments(tmp_path):
    """A config folder of a user's own, with one experiment."""
    folder = tmp_path / "mine"
    (folder / "experiment").mkdir(parents=True)

    def write(text, name="tiny"):
        (folder / "experiment" / f"{name}.yaml").write_text(
            "# @package _global_\n" + text
        )
        return f"--config-dir={folder}"

    return write


@pytest.fixture
def environment():
    """The environment of a subprocess that runs this checkout."""
    root = str(Path(__file__).resolve().parents[2])
    return {**os.environ, "PYTHONPATH": root}


@pytest.fixture
def start(environment):
    """Start a command in a process group of its own."""

    def start(folder, *line):
        return subprocess.Popen(
            [sys.executable, "-m", "dp_erm_bench", *line],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            # A shell's background jobs, and so their children, ignore interrupts.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )

    return start


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty folder with a small csv of raw columns and labels 0 and 1."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (120, 3))
    raw = X * [50.0, 20.0, 80.0] + [50.0, 0.0, 120.0]
    table = pd.DataFrame(raw.round(4), columns=["age", "dose", "pulse"])
    table["ill"] = (X @ [2.0, -1.0, 0.5] + 0.3 * rng.normal(size=120) > 0).astype(int)
    table.to_csv(tmp_path / "my.csv", index=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path
