"""The authors' own curves, decoded from their published figures."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from dp_erm_bench.report.curves import Array


@cache
def _read() -> dict[str, Any]:
    path = Path(__file__).with_name("authors_curves.json")
    return dict(json.loads(path.read_text(encoding="utf-8")))


def decoded(panel: str) -> dict[str, tuple[Array, Array]]:
    """Return the authors' curves of a panel.

    Parameters
    ----------
    panel : str
        Label of the panel.

    Returns
    -------
    dict of str to (ndarray, ndarray)
        Line `[(passes, error)]` of shape (k, 2) and band `[(passes, low, high)]` of
        shape (k, 3) by the authors' name of the algorithm; empty where no figure of
        theirs was decoded.
    """
    panels = _read()["panels"]
    return {
        name: (np.asarray(curve["line"]), np.asarray(curve["band"]))
        for name, curve in panels.get(panel, {}).items()
    }


def source() -> str:
    """Return where the decoded numbers come from."""
    return str(_read()["source"])
