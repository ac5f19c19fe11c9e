"""The blocks that a command line asks for: those of a sweep, or of an experiment."""

from __future__ import annotations

import copy
import itertools
from collections import Counter
from collections.abc import Iterator
from typing import Any

from dp_erm_bench import registry
from dp_erm_bench.cli.compose import Composer
from dp_erm_bench.cli.grammar import Given, expand
from dp_erm_bench.cli.request import Request
from dp_erm_bench.errors import UsageError, shown
from dp_erm_bench.experiment import schema
from dp_erm_bench.plugins.names import is_file
from dp_erm_bench.plugins.names import label as plugin_label
from dp_erm_bench.registry import PARTS

Block = dict[str, Any]
WORDS = ("panel", "line", "name", "unit", "inherit", "extend")
"""Keys whose strings are names, in which a comma is a comma."""


def sweep_blocks(composer: Composer) -> tuple[list[Block], dict[str, Any]]:
    """Return the blocks of a sweep and the configuration of the first of them.

    One block per combination of dataset, objective and algorithm; within it every
    swept scalar is a list.
    """
    request = composer.request
    blocks: list[Block] = []
    first: dict[str, Any] | None = None
    for choices in _combinations(request):
        config, chosen = composer.compose(choices)
        first = first or config
        for name in _algorithms(config):
            block = _block(config, chosen, name, request.choices)
            for given in request.axes.values():
                if given.swept:
                    place(block, given)
            blocks.append(block)
    assert first is not None
    _refuse_unchosen(request, first)
    return blocks, first


def place(block: Block, given: Given) -> None:
    """Set one key of a block; a parameter of another algorithm is left out."""
    value = given.values if given.swept else given.values[0]
    first, _, rest = given.key.partition(".")
    if given.key == "dataset.name":
        value = [member(block["dataset"]["name"], one) for one in given.values]
    if first == "algorithm":
        name, _, parameter = rest.partition(".")
        if plugin_label(block["algorithm"]["name"]) == name:
            block["algorithm"][parameter] = value
    elif not rest:
        block[first] = value
    elif "." in rest and given.swept:
        raise UsageError(f"{given.key}={shown(value)}: takes one value, no axis")
    else:
        _set(block.setdefault(first, {}), given.key, value)


def _set(part: dict[str, Any], dotted: str, value: Any) -> None:
    _, *path, last = dotted.split(".")
    for key in path:
        part = part.setdefault(key, {})
        if not isinstance(part, dict):
            raise UsageError(f"{dotted}: no such key; {key} holds no further keys")
    part[last] = value


def _combinations(request: Request) -> Iterator[list[str]]:
    """Yield the overrides of each combination; algorithms stand side by side."""
    given = request.choices
    chosen = {g: map(plugin_label, given[g].values) for g in PARTS if g in given}
    single = [[f"{g}={name}" for name in names] for g, names in chosen.items()]
    beside = []
    if "algorithm" in given:
        beside = [
            f"algorithm=[{','.join(map(plugin_label, given['algorithm'].values))}]"
        ]
    if "calibration" in given:
        beside.append(f"calibration={given['calibration'].values[0]}")
    for combination in itertools.product(*single):
        yield [*combination, *beside]


def _block(
    config: dict[str, Any],
    chosen: dict[str, str],
    algorithm: str,
    given: dict[str, Given],
) -> Block:
    block: Block = {
        group: _part(group, chosen[group], config[group]) for group in PARTS
    }
    block["algorithm"] = _part("algorithm", algorithm, config["algorithm"][algorithm])
    block["budget"] = dict(config["budget"])
    calibrations = given["calibration"].values if "calibration" in given else []
    swept = len(calibrations) > 1
    block["calibration"] = calibrations if swept else config["calibration"]
    block["seed"] = config["seed"]
    return block


def _algorithms(config: dict[str, Any]) -> list[str]:
    """Return the chosen algorithms; parameters alone do not choose one."""
    return [
        name for name, fields in config["algorithm"].items() if "_target_" in fields
    ]


def member(base: str, name: Any) -> str:
    """Return the name of a dataset of which `dataset.name` chooses one of many."""
    own = base.partition(":")[0]
    return own if name == own else f"{own}:{name}"


def _part(group: str, name: str, fields: dict[str, Any]) -> dict[str, Any]:
    """Return a choice by name with what differs from its yaml."""
    if is_file(fields.get("_target_")):
        name = fields["_target_"]
    usual = {} if name == "auto" else registry.read(group, name)
    if group == "dataset":
        name = member(name, fields["name"])
    changed = {
        key: value
        for key, value in fields.items()
        if key not in ("name", "_target_") and (key not in usual or usual[key] != value)
    }
    return {"name": name, **changed}


def _refuse_unchosen(request: Request, config: dict[str, Any]) -> None:
    chosen = _algorithms(config)
    for key in request.axes:
        first, _, rest = key.partition(".")
        name = rest.partition(".")[0]
        if first == "algorithm" and name not in chosen:
            raise UsageError(
                f"{key}: algorithm {name} is not chosen; "
                f"write algorithm={','.join([*chosen, name])}"
            )


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
    _check_distinct(schema.blocks_of(expanded))  # before their keys are replaced
    for given in (*request.choices.values(), *request.axes.values()):
        _replace(expanded, given)
    return expanded


def _check_distinct(blocks: list[schema.Block]) -> None:
    """Refuse two blocks of the same labels: a figure could not tell their lines."""
    found = Counter((b.panel, b.line) for b in blocks if b.panel and b.line)
    for panel, line in (labels for labels, number in found.items() if number > 1):
        said = "two blocks have this panel and line"
        raise UsageError(f"block {panel} / {line}: {said}")


def _expanded(key: str, value: Any) -> Any:
    """Return a part of a block with the strings of the sweep grammar as lists."""
    last = key.rpartition(".")[2]
    if last in WORDS:
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
            f"seed={shown(given.values[0])}: {schema.label(block)} is tuned, its seeds "
            "are tune.seeds and tune.report"
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
