"""Captions: what was run, on what, and what the printed epsilon is worth."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dp_erm_bench.report.curves import Curves
from dp_erm_bench.report.panels import Lines, OverEpsilon, Panel
from dp_erm_bench.report.scaling import Scaling
from dp_erm_bench.report.style import STYLES, of
from dp_erm_bench.results.runs import read_run

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
    parts = [
        f"{problem(facts)} {budget(facts)}",
        seeds(lines, profile),
        uncharged(lines),
        certified(lines),
        panel.note,
    ]
    if panel.authors:
        parts.append("Dashed: the authors' own figure.")
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
    return "\n".join(
        (
            f"{problem(facts)} delta = {delta(facts)}, {adjacency(facts)}.",
            f"{seeds(flat, profile)} Passes as chosen at epsilon = 1.",
            uncharged(flat),
            f"Certified epsilon. {'; '.join(proofs)}.",
        )
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
    runs = {
        f"{place} {line}": run
        for place, lines in enumerate(panels)
        for line, run in lines.items()
    }
    words = sorted({use for run in runs.values() for use in uses(run)})
    beyond = [line for lines in panels for line, run in lines.items() if exceeds(run)]
    order = dict.fromkeys([*(line for line in STYLES if line in beyond), *beyond])
    labels = ", ".join(dict.fromkeys(of(line).label for line in order))
    parts = [
        " ".join(problem(facts) for facts in first),
        f"Against passes: epsilon = {_epsilons(first)}, delta = 1/n^2, "
        f"{adjacency(first[0])}.",
        seeds(runs, profile),
        f"Uncharged: {', '.join(words) or 'none'}.",
        f"Certified epsilon above the nominal one or unknown: {labels or 'no line'}.",
    ]
    return "\n".join(parts)


def _epsilons(facts: Sequence[Mapping[str, Any]]) -> str:
    """Return the epsilons of several panels, the first one's first."""
    values = [
        f"{value:g}" for value in dict.fromkeys(float(f["epsilon"]) for f in facts)
    ]
    if len(values) == 1:
        return values[0]
    return f"{values[0]} (where a title says so, {' or '.join(values[1:])})"


def exceeds(run: Curves) -> bool:
    """Return whether the nominal epsilon of a line is not proved."""
    value = run.facts["epsilon_certified"]
    nominal = float(run.facts["epsilon"])
    return value is None or not float(value) <= nominal * (1 + 1e-6)


def problem(facts: Mapping[str, Any]) -> str:
    """Return the data set with its size and the objective."""
    form = ", standardised" if facts["standardise"] else ""
    penalty = "no penalty"
    if facts["penalty"] != "none":
        penalty = f"{facts['penalty']} penalty {float(facts['strength']):.3g}"
    return (
        f"{facts['dataset']}{form}: n x p = {int(facts['n'])} x {int(facts['p'])}, "
        f"{facts['loss']} loss, {penalty}."
    )


def budget(facts: Mapping[str, Any]) -> str:
    """Return epsilon, delta and adjacency."""
    return (
        f"epsilon = {float(facts['epsilon']):g}, delta = {delta(facts)}, "
        f"{adjacency(facts)}."
    )


def adjacency(facts: Mapping[str, Any]) -> str:
    """Return the neighbouring relation in words."""
    return f"adjacency {facts['adjacency']}"


def delta(facts: Mapping[str, Any]) -> str:
    """Return delta, as 1/n^2 where it is that."""
    value, square = float(facts["delta"]), float(facts["n"]) ** 2
    name = "1/n^2 = " if abs(value * square - 1) < 1e-6 else ""
    return f"{name}{value:.2g}"


def origin(drawn: Iterable[Curves | Scaling], folder: Path) -> str:
    """Return the runs that computed some lines with their commits, the latest first.

    Also which of their algorithms have not passed `dp-erm-bench check`.

    Parameters
    ----------
    drawn : iterable of Curves or Scaling
        The lines.
    folder : Path
        The results folder, with the manifests of its runs.
    """
    drawn = list(drawn)
    names = runs_of(drawn)
    shown = [f"{run} ({commit(folder, run)})" for run in names[:NAMED_RUNS]]
    more = len(names) - len(shown)
    tail = f"; {more} more in log.txt" if more else ""
    computed = f"Computed by runs/{', '.join(shown)}{tail}." if shown else ""
    return "\n".join(filter(None, (computed, unchecked(drawn))))


def unchecked(drawn: Iterable[Curves | Scaling]) -> str:
    """Return which algorithms from outside have not passed `check`, if any."""
    names = ", ".join(sorted({name for one in drawn for name in one.unchecked}))
    return f"Not passed by dp-erm-bench check: {names}." if names else ""


def runs_of(drawn: Iterable[Curves | Scaling]) -> list[str]:
    """Return the runs behind some lines, the latest first."""
    return sorted({run for one in drawn for run in one.runs}, reverse=True)


def commit(folder: Path, run: str) -> str:
    """Return the commit that a run was made at, and whether files were changed."""
    git = (read_run(folder, run).get("environment") or {}).get("git")
    if not git:
        return "commit unknown"
    changed = ", with changes" if git["dirty"] else ""
    return f"commit {git['commit'][:7]}{changed}"


def seeds(lines: Lines, profile: str) -> str:
    """Return how many seeds stand behind median and band."""
    counts = sorted({run.n_seeds for run in lines.values()})
    count = " or ".join(str(number) for number in counts)
    return (
        f"Median and min..max of {count} report seeds at the setting tuned on other "
        f"seeds (profile {profile})."
    )


def uncharged(lines: Lines) -> str:
    """Return what the data gave away without being charged, by line."""
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
    given = run.facts["uncharged"]
    return given.split(",") if isinstance(given, str) and given else []


def certified(lines: Lines) -> str:
    """Return the certified epsilon of each line with its calibration."""
    proofs = [
        f"{of(line).label}: {proof(run)} ({run.facts['calibration']})"
        for line, run in lines.items()
    ]
    return f"Certified epsilon (calibration). {'; '.join(proofs)}."


def proof(run: Curves) -> str:
    """Return the certified epsilon of one line, or none."""
    value = run.facts["epsilon_certified"]
    if value is None or float(value) != float(value):
        return "none"
    return f"{float(value):.3g}"


def setting(run: Curves) -> str:
    """Return the chosen parameters of a line as `name=value` pairs."""
    params = json.loads(run.facts["params"])
    return ", ".join(
        f"{name}={value:.4g}" if isinstance(value, float) else f"{name}={value}"
        for name, value in sorted(params.items())
        if value is not None
    )
