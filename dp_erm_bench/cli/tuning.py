"""The command tune: the search of the leaderboard on problems of the user's own."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich import box
from rich.markup import escape
from rich.table import Table

from dp_erm_bench.cli.blocks import sweep_blocks
from dp_erm_bench.cli.compose import Composer
from dp_erm_bench.cli.folders import print_table, report, results_folder
from dp_erm_bench.cli.grammar import Argument, parse
from dp_erm_bench.errors import UsageError, check_key, shown
from dp_erm_bench.experiment.schema import OF_LINES, block_keys
from dp_erm_bench.results.runs import read_manifest

if TYPE_CHECKING:
    import pandas as pd

TUNE = "tune"
INSTEAD = {
    "seed": "tune.seeds are tried on to choose, tune.report to judge the choice",
    "experiment": "an experiment's blocks have their own `tune`; leave `tune` out",
}
"""Keys of other commands, and what to use in their place."""


def take(overrides: Sequence[str]) -> tuple[dict[str, Any], str | None, list[str]]:
    """Return what a command line asks of `tune`, its profile, and all other keys.

    Raises
    ------
    UsageError
        For a key that `tune` does not have, or one of other commands.
    """
    asked: dict[str, Any] = {}
    profile = None
    rest = []
    for text in overrides:
        key, _, typed = text.partition("=")
        if key in INSTEAD:
            raise UsageError(f"{text}: {INSTEAD[key]}")
        if key == "profile":
            profile = typed or None
        elif key.split(".")[0] != TUNE:
            rest.append(text)
        else:
            _set(asked, _list(parse(text), typed))
    return asked, profile, rest


def _list(argument: Argument, typed: str) -> Argument:
    """Return an argument; `a,b` is the list [a,b], in which values may repeat."""
    if argument.swept and "(" not in typed:
        return parse(f"{argument.key}=[{typed}]")
    return argument


def _set(asked: dict[str, Any], argument: Argument) -> None:
    """Put one key into what is asked; refuse one that there is not."""
    key = argument.key
    value = argument.values if argument.swept else argument.values[0]
    _, *path = key.split(".")
    if path and path[0] in OF_LINES:
        if len(path) != 3:
            raise UsageError(f"{key}: write tune.{path[0]}.ALGORITHM.PARAMETER")
        if path[0] == "axes" and not isinstance(value, list | Mapping):
            value = [value]
    else:
        own = [one for one in block_keys() if one.startswith(f"{TUNE}.")]
        lines = [f"{TUNE}.{one}.ALGORITHM.PARAMETER" for one in OF_LINES]
        whole = [f"{TUNE}.search"] if value is None else []
        kept = [one for one in own if one.split(".")[1] not in OF_LINES]
        check_key(key, [*kept, *whole, *lines])
    part = asked
    for name in path[:-1]:
        part = part.setdefault(name, {})
        if not isinstance(part, dict):
            raise UsageError(f"{key}={shown(value)}: {TUNE}.{name} is null already")
    if path[-1] in part:
        raise UsageError(f"{key}: given twice; write the values as one list")
    part[path[-1]] = value


def run_tuned(
    composer: Composer,
    command: Sequence[str],
    tune: Mapping[str, Any],
    profile: str | None,
) -> int:
    """Tune the algorithms of a command line, and return its exit code.

    Parameters
    ----------
    composer, command
        As of `run_sweep`.
    tune : mapping
        What the command line asks of `tune`.
    profile : str or None
        The leaderboard's profile that says the rest.

    Raises
    ------
    UsageError
        Before anything runs.
    """
    # Not at the top: a wrong line is refused before numpy comes.
    from dp_erm_bench.experiment.tuned import PROFILE, tuned_blocks
    from dp_erm_bench.report.make import draw_and_judge
    from dp_erm_bench.runner.experiment import run_experiment
    from dp_erm_bench.runner.options import run_options

    sections, config = sweep_blocks(composer)
    folder = results_folder(config, TUNE)
    blocks = tuned_blocks(sections, tune, profile)
    config |= {"blocks": blocks, "figures": figures_of(blocks), "claims": []}
    config["profile"] = profile or PROFILE
    options = run_options(config, tuple(command), notice=_replaced(folder, command))
    code = run_experiment(blocks, folder.name, folder, options)
    if options.mode == "plan" or options.detach:
        return code
    draw_and_judge(folder, config)
    report(folder)
    print_best(folder)
    print(f"results: {folder}", file=sys.stderr)
    return code


def _replaced(folder: Path, command: Sequence[str]) -> str:
    """Return what to say of the other command that a folder holds the results of."""
    before = read_manifest(folder).get("command")
    plain = [Path(command[0]).name, *command[1:]]
    if not before or before == plain or "mode=plan" in command:
        return ""
    return (
        f"{folder}: held the results of another command until now ({' '.join(before)})"
        "; its trials are kept, and that command makes its table again; name=NAME "
        "keeps both"
    )


def figures_of(blocks: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the figures that suit tuned blocks: curves, and the ends over epsilon."""
    from dp_erm_bench.experiment.schema import axis_values

    figures = [{"kind": "curves"}]
    if any(len(axis_values(one["budget"].get("epsilon", 1))) > 1 for one in blocks):
        figures.append({"kind": "curves", "x": "epsilon"})
    return figures


def print_best(folder: Path) -> None:
    """Print what each line of a folder chose and how that did, the best first."""
    from dp_erm_bench.results.tuned import tuned

    try:
        found = tuned(folder)
    except UsageError as error:
        print(f"dp-erm-bench: {error}", file=sys.stderr)
        return
    print_table(_table(folder.name, found))
    uses = dict.fromkeys(",".join(found["uncharged"]).split(","))
    print(
        f"not charged: {', '.join(filter(None, uses))}; the certified epsilon is of "
        "one run with the chosen parameters"
    )


def _table(name: str, found: pd.DataFrame) -> Table:
    """Return the choices as a table for the terminal, the best of a problem in bold."""
    runs = ", ".join(map(str, sorted(found["runs"].unique())))
    words = f"{name}: median of {runs} runs on fresh seeds [95 % interval], best first"
    table = Table(title=words, title_justify="left", box=box.SIMPLE_HEAD)
    several = found["panel"].nunique() > 1
    quantities = found["quantity"].unique()
    heads = ["problem"] * several + ["epsilon", "algorithm", *quantities, "chosen"]
    for head in heads:
        table.add_column(head.replace("_", " "))
    before: Any = None
    for row in found.to_dict("records"):
        problem = row["panel"], row["epsilon"]
        marked = f"{row['median']:.3g} [{row['ci_low']:.3g}, {row['ci_high']:.3g}]"
        judged = [marked if one == row["quantity"] else "" for one in quantities]
        chosen = ", ".join(f"{k}={_brief(v)}" for k, v in row["chosen"].items())
        cells = [row["panel"]] * several + [f"{row['epsilon']:g}", row["line"]]
        ended = chosen + (f" (open: {row['open']})" if row["open"] else "")
        style = "bold" if problem != before else ""
        table.add_row(*map(escape, [*cells, *judged, ended]), style=style)
        before = problem
    return table


def _brief(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3g}"
    return shown(value) if not isinstance(value, dict) else json.dumps(value)
