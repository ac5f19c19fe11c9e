"""An experiment's blocks: panels chosen, grammar expanded, the command line's keys."""

from __future__ import annotations

import copy
from typing import Any

from dp_erm_bench import registry
from dp_erm_bench.cli.compose import Block, place
from dp_erm_bench.cli.grammar import Given, expand
from dp_erm_bench.cli.request import Request
from dp_erm_bench.errors import UsageError, shown
from dp_erm_bench.experiment.schema import blocks_of, label
from dp_erm_bench.plugins.names import label as plugin_label
from dp_erm_bench.registry import PARTS

LABELS = ("panel", "line", "name", "unit", "inherit", "extend")
"""Keys whose strings are names, in which a comma is a comma."""


def experiment_blocks(config: dict[str, Any], request: Request) -> list[Block]:
    """Return the blocks to run, with the command line's keys in each of them.

    Parameters
    ----------
    config : dict
        The composed configuration; its `blocks` are not changed.
    request : Request
        Its `panels` keep some of the blocks; a key of a block that it sets replaces
        that key in every block, a parameter in the blocks of its algorithm.

    Raises
    ------
    UsageError
        If there are no blocks, a panel does not exist or a key has no place.
    """
    blocks = copy.deepcopy(config["blocks"])
    if not blocks or not all(isinstance(block, dict) for block in blocks):
        raise UsageError(
            f"experiment={request.experiment}: needs `blocks`, a list of mappings"
        )
    known = list(dict.fromkeys(str(block.get("panel")) for block in blocks))
    for panel in request.panels:
        registry.check_choice("panel", panel, known)
    kept = [b for b in blocks if not request.panels or b.get("panel") in request.panels]
    expanded = [_expanded("", block) for block in kept]
    blocks_of(expanded)  # before their keys are replaced
    for given in (*request.choices.values(), *request.axes.values()):
        _replace(expanded, given)
    return expanded


def _expanded(key: str, value: Any) -> Any:
    """Return a part of a block with the strings of the sweep grammar as lists."""
    last = key.rpartition(".")[2]
    if last in LABELS:
        return value
    if isinstance(value, dict):
        return {k: _expanded(f"{key}.{k}".lstrip("."), v) for k, v in value.items()}
    return expand(key, value)


def _replace(blocks: list[Block], given: Given) -> None:
    first, _, rest = given.key.partition(".")
    if given.key in ("dataset", "algorithm"):
        raise UsageError(
            f"{given.key}={shown(given.values[0])}: an experiment's blocks name their "
            "own; use panel=NAME to run some of them"
        )
    if given.key in PARTS and len(given.values) > 1:
        raise UsageError(
            f"{given.key}={shown(given.values)}: takes one value with an experiment"
        )
    name = rest.partition(".")[0] if first == "algorithm" else None
    touched = [b for b in blocks if name is None or _name(b, "algorithm") == name]
    if not touched:
        raise UsageError(f"{given.key}: no block of the experiment runs {name}")
    for block in touched:
        _replace_in(block, given, rest.rpartition(".")[2])


def _replace_in(block: Block, given: Given, parameter: str) -> None:
    """Replace a key of one block; in a tuned one, a parameter's axis."""
    tune = block.get("tune") or {}
    first = given.key.partition(".")[0]
    if given.key == "seed" and tune:
        raise UsageError(
            f"seed={shown(given.values[0])}: {label(block)} is tuned, its seeds are "
            "tune.seeds and tune.report"
        )
    for group in (*PARTS, "algorithm"):
        if group == first:
            usual = "none" if group == "constraint" else "auto"
            block[group] = _mapping(block.get(group, usual))
    axes = tune.get("axes", {})
    if first == "algorithm" and parameter in axes:
        if given.swept:
            axes[parameter] = given.values
            return
        del axes[parameter]
        tune["extend"] = [p for p in tune.get("extend") or [] if p != parameter]
    if given.key in PARTS:
        block[first] = {"name": given.values[0]}
    else:
        place(block, given)


def _mapping(part: Any) -> dict[str, Any]:
    return dict(part) if isinstance(part, dict) else {"name": part}


def _name(block: Block, group: str) -> Any:
    return plugin_label(str(_mapping(block.get(group)).get("name")))
