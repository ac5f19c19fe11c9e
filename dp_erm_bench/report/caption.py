"""Captions: what was run, on what, and what the printed epsilon is worth."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dp_erm_bench.plugins.passed import UNRECOUNTED
from dp_erm_bench.report.curves import Bands, Curves, runs_in
from dp_erm_bench.report.panels import Lines, OverEpsilon, Panel
from dp_erm_bench.report.style import STYLES, literal, of
from dp_erm_bench.results.runs import read_run
from dp_erm_bench.results.settings import final_rows, text_of, unchecked_in

if TYPE_CHECKING:
    from dp_erm_bench.report.view import Shown

NAMED_RUNS = 3
"""More runs than these are named in log.txt only."""


def caption(panel: Panel, lines: Lines, profile: str) -> str:
    """Return the caption of a panel of error against passes.

    Parameters
    ----------
    panel : Panel
        Its note and the authors' curves.
    lines : mapping of str to Curves
        The lines drawn, at least one.
    profile : str
        The profile that was run.
    """
    facts = next(iter(lines.values())).facts
    proofs = [
        f"{of(line).label}: {proof(run)} ({run.facts['calibration']})"
        for line, run in lines.items()
    ]
    return paragraphs(
        f"{problem(facts)} epsilon = {float(facts['epsilon']):g}, {budget(facts)}.",
        seeds(lines.values(), profile),
        uncharged(lines),
        f"Certified epsilon (calibration). {'; '.join(proofs)}.",
        panel.note,
        "Dashed: the authors' own figure." if panel.authors else "",
    )


def paragraphs(*parts: str) -> str:
    """Return the parts of a caption that are not empty, each on a line of its own."""
    return "\n".join(part for part in parts if part)


def epsilon_caption(lines: OverEpsilon, profile: str) -> str:
    """Return the caption of a panel of final error against epsilon.

    Parameters
    ----------
    lines : mapping of str to list of (float, Curves)
        The lines drawn, at least one.
    profile : str
        The profile that was run.
    """
    flat = {line: runs[-1][1] for line, runs in lines.items()}
    facts = next(iter(flat.values())).facts
    proofs = [
        f"{of(line).label}: {', '.join(f'{proof(r)} at {e:g}' for e, r in runs)}"
        for line, runs in lines.items()
    ]
    return paragraphs(
        f"{problem(facts)} {budget(facts)}.",
        f"{seeds(flat.values(), profile)} Passes as chosen at epsilon = 1.",
        uncharged(flat),
        f"Certified epsilon. {'; '.join(proofs)}.",
    )


def overview_caption(panels: Sequence[Lines], profile: str) -> str:
    """Return the caption of all panels of a paper on one sheet.

    Parameters
    ----------
    panels : sequence of mapping of str to Curves
        The lines drawn against passes, panel by panel.
    profile : str
        The profile that was run.
    """
    first = [next(iter(lines.values())).facts for lines in panels]
    runs = [(line, run) for lines in panels for line, run in lines.items()]
    words = sorted({use for _, run in runs for use in uses(run)})
    beyond = [line for line, run in runs if exceeds(run)]
    order = [*(line for line in STYLES if line in beyond), *beyond]
    labels = ", ".join(dict.fromkeys(of(line).label for line in order))
    at, *others = dict.fromkeys(f"{float(facts['epsilon']):g}" for facts in first)
    elsewhere = f" (where a title says so, {' or '.join(others)})" if others else ""
    return paragraphs(
        " ".join(problem(facts) for facts in first),
        f"Against passes: epsilon = {at}{elsewhere}, delta = 1/n^2, "
        f"adjacency {first[0]['adjacency']}.",
        seeds([run for _, run in runs], profile),
        f"Uncharged: {', '.join(words) or 'none'}.",
        f"Certified epsilon above the nominal one or unknown: {labels or 'no line'}.",
    )


def exceeds(run: Curves) -> bool:
    """Return whether the nominal epsilon of a line is not proved."""
    return not run.certified <= float(run.facts["epsilon"]) * (1 + 1e-6)


def problem(facts: Mapping[str, Any]) -> str:
    """Return the data set with its size and the objective."""
    form = ", standardised" if facts["standardise"] else ""
    size = f"{facts['dataset']}{form}: n x p = {int(facts['n'])} x {int(facts['p'])}"
    if facts["loss"] == "none":
        return f"{size}, the mean of the records."
    penalty = "no penalty"
    if facts["penalty"] != "none":
        penalty = f"{facts['penalty']} penalty {float(facts['strength']):.3g}"
    return f"{size}, {facts['loss']} loss, {penalty}."


def budget(facts: Mapping[str, Any]) -> str:
    """Return delta, as 1/n^2 where it is that, and adjacency."""
    value, square = float(facts["delta"]), float(facts["n"]) ** 2
    name = "1/n^2 = " if abs(value * square - 1) < 1e-6 else ""
    return f"delta = {name}{value:.2g}, adjacency {facts['adjacency']}"


def origin(drawn: Iterable[Bands], folder: Path) -> str:
    """Return the runs that computed some lines with their commits, the latest first.

    Also which of their algorithms have not passed `dp-erm-bench check`, or with a
    release that is not recounted.

    Parameters
    ----------
    drawn : iterable of Curves or Scaling
        The lines.
    folder : Path
        The results folder, with the manifests of its runs.
    """
    drawn = list(drawn)
    names = runs_of(drawn)
    shown = ", ".join(f"{run} ({commit(folder, run)})" for run in names[:NAMED_RUNS])
    more = len(names) - NAMED_RUNS
    tail = f"; {more} more in log.txt" if more > 0 else ""
    names = sorted({name for one in drawn for name in one.unchecked})
    half = [name for name in names if name.endswith(f"({UNRECOUNTED})")]
    foreign = ", ".join(name for name in names if name not in half)
    return paragraphs(
        f"Computed by runs/{shown}{tail}." if shown else "",
        f"Not passed by dp-erm-bench check: {foreign}." if foreign else "",
        f"Not recounted: {', '.join(half)}." if half else "",
    )


def runs_of(drawn: Iterable[Bands]) -> list[str]:
    """Return the runs behind some lines, the latest first."""
    return sorted({run for one in drawn for run in one.runs}, reverse=True)


def commit(folder: Path, run: str) -> str:
    """Return a run's commit, and whether files were changed since."""
    environment = read_run(folder, run).get("environment")
    git = environment.get("git") if isinstance(environment, dict) else None
    git = git if isinstance(git, dict) else {}
    name = git.get("commit")
    if not isinstance(name, str) or not name:
        return "commit unknown"
    if "dirty" not in git:
        return f"commit {name[:7]}, with or without changes"
    return f"commit {name[:7]}{', with changes' if git['dirty'] else ''}"


def seeds(runs: Iterable[Curves], profile: str) -> str:
    """Return a sentence with the number of seeds behind median and band."""
    counts = sorted({run.n_seeds for run in runs})
    return (
        f"Median and min..max of {' or '.join(map(str, counts))} report seeds at the "
        f"setting tuned on other seeds (profile {profile})."
    )


def uncharged(lines: Lines) -> str:
    """Return the uses of the data that no budget pays for, by line."""
    by_list: dict[str, list[str]] = {}
    for line, run in lines.items():
        text = ", ".join(uses(run)) or "none"
        by_list.setdefault(text, []).append(of(line).label)
    if len(by_list) == 1:
        return f"Uncharged: {next(iter(by_list))}."
    groups = [f"{text} ({'; '.join(names)})" for text, names in by_list.items()]
    return f"Uncharged: {'; '.join(groups)}."


def uses(run: Curves) -> list[str]:
    """Return the uncharged uses of the data by one line."""
    names = run.facts["uncharged"]
    return names.split(",") if isinstance(names, str) and names else []


def proof(run: Curves) -> str:
    """Return the certified epsilon of one line, or none."""
    return "none" if math.isnan(run.certified) else f"{run.certified:.3g}"


def setting(run: Curves) -> str:
    """Return the chosen parameters of a line as `name=value` pairs."""
    params = json.loads(run.facts["params"])
    return ", ".join(
        f"{name}={value:.4g}" if isinstance(value, float) else f"{name}={value}"
        for name, value in sorted(params.items())
        if value is not None
    )


def told(drawn: Shown) -> str:
    """Return what every caption says: statistics, budget, what was not charged."""
    rows, folder = drawn.rows, drawn.view.folder
    budget = [
        f"{name} = {', '.join(sorted({*text_of(rows[name])})[:6])}"
        for name in ("epsilon", "adjacency", "calibration")
    ]
    uses = sorted(
        {use for text in rows["uncharged"].dropna() for use in text.split(",")}
    )
    proved = rows["epsilon_certified"] <= rows["epsilon"] * (1 + 1e-6)
    beyond = sorted({*rows.loc[~proved & np.isfinite(rows["epsilon"]), "line"]})
    lost = final_rows(rows[rows["status"] == "diverged"])
    return paragraphs(
        f"{drawn.how[0].upper()}{drawn.how[1:]}.",
        f"{'; '.join(budget)}.",
        f"Uncharged: {', '.join(filter(None, uses)) or 'none'}.",
        f"Certified epsilon above the nominal one or unknown: {_few(beyond)}.",
        f"Diverged, counted as infinite: {len(lost)} runs." if len(lost) else "",
        *map(literal, drawn.left_out),
        origin([Bands(runs=runs_in(rows), unchecked=unchecked_in(rows))], folder),
    )


def _few(names: Sequence[str]) -> str:
    shown = [literal(name) for name in names[:8]]
    more = [f"{len(names) - 8} more"] if len(names) > 8 else []
    return "; ".join([*shown, *more]) or "no line"
