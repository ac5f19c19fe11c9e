"""Test that the notebook on own data runs unchanged in an empty folder."""

import json
import os
import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "notebooks" / "your_data.ipynb").read_text()
NOTEBOOK = nbformat.reads(TEXT, as_version=4)

PROBE = """
import json

print("PROBE", json.dumps({
    "lines": sorted(set(best["line"])), "epsilon": sorted(set(best["epsilon"])),
    "first": float(best["median"].iloc[0]), "accuracy": accuracy,
    "measured": float(model.trajectory["test_accuracy"].iloc[-1]),
    "held_out": len(held_out[1]), "records": len(table),
    "certified": model.epsilon_certified, "features": list(model.feature_names),
}))
"""


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    """What its cells leave under the profile smoke."""
    home = tmp_path_factory.mktemp("your_data")
    notebook = nbformat.reads(TEXT, as_version=4)
    for cell in notebook.cells:
        cell.source = cell.source.replace('"default"', '"smoke"')
    notebook.cells.append(nbformat.v4.new_code_cell(PROBE))
    folders = ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR")
    changes = {name: str(home / name.lower()) for name in folders}
    kept = {k: v for k, v in os.environ.items() if k != "MPLBACKEND"}
    environment = {**kept, **changes, "PYTHONPATH": str(ROOT)}
    where = {"metadata": {"path": str(home)}}
    client = NotebookClient(notebook, timeout=300, resources=where)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUPYTER_RUNTIME_DIR", changes["JUPYTER_RUNTIME_DIR"])
        client.execute(env=environment)
    return [one for cell in notebook.cells for one in cell.get("outputs", ())]


def test_ten_cells_and_nothing_of_a_run_is_committed():
    nbformat.validate(NOTEBOOK)
    assert len(NOTEBOOK.cells) == 10
    for cell in NOTEBOOK.cells:
        assert cell.metadata == {}
        if cell.cell_type == "code":
            assert cell.outputs == []
            assert cell.execution_count is None


def test_it_ends_with_a_private_model_and_a_figure(outputs):
    printed = "".join(one.text for one in outputs if one.output_type == "stream")
    found = json.loads(re.search("PROBE (.*)", printed)[1])
    assert {"gd", "random_cd"} <= {*found["lines"]}
    assert found["epsilon"] == [0.1, 1.0]
    assert found["first"] >= 0.0
    assert 0.5 < found["accuracy"] == found["measured"] <= 1.0
    assert (found["held_out"], found["records"]) == (200, 1000)
    assert 0.9 < found["certified"] <= 1.0
    assert found["features"] == ["age", "dose", "pulse"]
    figures = [one for one in outputs if "image/png" in one.get("data", {})]
    assert len(figures) == 1
    shown = "".join(str(one.get("data", {}).get("text/plain", "")) for one in outputs)
    assert "FitResult of" in shown
