"""The blocks that a command line asks for: those of a sweep, or of an experiment."""

import copy
import itertools
from collections import Counter
from collections.abc import Iterator
from typing import Any

from dp_erm_bench import registry
from dp_erm_bench.cli.compose import Composer
from dp_erm_bench.cli.grammar import Argument, expand
from dp_erm_bench.cli.request import Request
from dp_erm_bench.errors import UsageError, shown
from dp_erm_bench.experiment import schema
from dp_erm_bench.plugins.names import is_file, label
from dp_erm_bench.registry import ALGORITHM, ERM, POSED, PROBLEM

Block = dict[str, Any]
WORDS = ("panel", "line", "name", "unit", "inherit", "extend")
"""Keys whose strings are names, in which a comma is a comma."""


def sweep_blocks(composer: Composer) -> tuple[list[Block], dict[str, Any]]:
    """Return the blocks of a sweep and the configuration of the first of them.

    One block per combination of dataset, objective and algorithm; within it every
    swept scalar is a list.
    """
    request = composer.request
    calibration = request.choices.get("calibration")
    blocks: list[Block] = []
    example: dict[str, Any] = {}
    for choices in _combinations(request):
        config, chosen = composer.compose(choices)
        example = example or config
        for name in _algorithms(config):
            groups = {group: (chosen[group], config[group]) for group in POSED}
            groups[ALGORITHM] = name, config[ALGORITHM][name]
            block: Block = {group: _part(group, *of) for group, of in groups.items()}
            if block[PROBLEM] == {"name": ERM}:
                del block[PROBLEM]
            block["budget"] = dict(config["budget"])
            block["calibration"] = config["calibration"]
            if calibration and len(calibration.values) > 1:
                block["calibration"] = calibration.values
            block["seed"] = config["seed"]
            for argument in request.axes.values():
                # What is typed is meant, where it is as in the yaml, too.
                if argument.swept or argument.key == "dataset.task":
                    place(block, argument)
            blocks.append(block)
    names = _algorithms(example)
    for key in request.axes:
        first, *of = key.split(".")
        if first == ALGORITHM and of[0] not in names:
            raise UsageError(
                f"{key}: algorithm {of[0]} is not chosen; "
                f"write algorithm={','.join([*names, of[0]])}"
            )
    return blocks, example


def _combinations(request: Request) -> Iterator[list[str]]:
    """Yield the overrides of each combination; algorithms stand side by side."""
    names = {g: [*map(label, one.values)] for g, one in request.choices.items()}
    beside = []
    if ALGORITHM in names:
        beside = [f"{ALGORITHM}=[{','.join(names[ALGORITHM])}]"]
    if "calibration" in names:
        beside.append(f"calibration={names['calibration'][0]}")
    single = [[f"{g}={name}" for name in names[g]] for g in POSED if g in names]
    for combination in itertools.product(*single):
        yield [*combination, *beside]


def _algorithms(config: dict[str, Any]) -> list[str]:
    """Return the chosen algorithms; parameters alone do not choose one."""
    return [name for name, fields in config[ALGORITHM].items() if "_target_" in fields]


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


def member(base: str, name: Any) -> str:
    """Return the name of a dataset of which `dataset.name` chooses one of many."""
    own = base.partition(":")[0]
    return own if name == own else f"{own}:{name}"


def place(block: Block, argument: Argument) -> None:
    """Set one key of a block; a parameter of another algorithm is left out."""
    value = argument.values if argument.swept else argument.values[0]
    first, *path = argument.key.split(".")
    if argument.key == "dataset.name":
        value = [member(block["dataset"]["name"], one) for one in argument.values]
    if not path:
        block[first] = value
    elif first == ALGORITHM:
        if label(block[ALGORITHM]["name"]) == path[0]:
            block[ALGORITHM][path[1]] = value
    elif len(path) > 1 and argument.swept:
        raise UsageError(f"{argument.key}={shown(value)}: takes one value, no axis")
    else:
        part = block.setdefault(first, {})
        for key in path[:-1]:
            part = part.setdefault(key, {})
            if not isinstance(part, dict):
                raise UsageError(
                    f"{argument.key}: no such key; {key} holds no further keys"
                )
        part[path[-1]] = value


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
        If there are no blocks, a panel does not exist, two blocks have the same labels
        (a figure could not tell their lines) or a key has no place.
    """
    blocks = copy.deepcopy(config["blocks"])
    if not blocks or not all(isinstance(block, dict) for block in blocks):
        raise UsageError(
            f"experiment={request.experiment}: needs `blocks`, a list of mappings"
        )
    panels = list(dict.fromkeys(str(block.get("panel")) for block in blocks))
    for panel in request.panels:
        registry.check_choice("panel", panel, panels)
    expanded = [
        _expanded("", block)
        for block in blocks
        if not request.panels or block.get("panel") in request.panels
    ]
    checked = schema.blocks_of(expanded)  # before their keys are replaced
    labels = Counter((b.panel, b.line) for b in checked if b.panel and b.line)
    for (panel, line), number in labels.items():
        if number > 1:
            raise UsageError(
                f"block {panel} / {line}: two blocks have this panel and line"
            )
    for argument in (*request.choices.values(), *request.axes.values()):
        _replace(expanded, argument)
    return expanded


def _expanded(key: str, value: Any) -> Any:
    """Return a part of a block with the strings of the sweep grammar as lists."""
    if key.rpartition(".")[2] in WORDS:
        return value
    if isinstance(value, dict):
        return {k: _expanded(f"{key}.{k}".lstrip("."), v) for k, v in value.items()}
    return expand(key, value)


def _replace(blocks: list[Block], argument: Argument) -> None:
    """Replace a key of the blocks that have it; in a tuned one, a parameter's axis."""
    key, value = argument.key, argument.values[0]
    first, *path = key.split(".")
    if key in ("dataset", ALGORITHM):
        raise UsageError(
            f"{key}={shown(value)}: an experiment's blocks name their own; use "
            "panel=NAME to run some of them"
        )
    if key in POSED and len(argument.values) > 1:
        raise UsageError(
            f"{key}={shown(argument.values)}: takes one value with an experiment"
        )
    if first == ALGORITHM:
        names = [str(_mapping(b.get(ALGORITHM)).get("name")) for b in blocks]
        pairs = zip(blocks, names, strict=True)
        blocks = [block for block, name in pairs if label(name) == path[0]]
        if not blocks:
            raise UsageError(f"{key}: no block of the experiment runs {path[0]}")
    for block in blocks:
        tune = block.get("tune") or {}
        if key == "seed" and tune:
            raise UsageError(
                f"seed={shown(value)}: {schema.label(block)} is tuned, its seeds are "
                "tune.seeds and tune.report"
            )
        if first in (*POSED, ALGORITHM):
            usual = {"constraint": "none", PROBLEM: ERM}.get(first, "auto")
            block[first] = _mapping(block.get(first, usual))
        axes = tune.get("axes", {})
        if first == ALGORITHM and path[-1] in axes:
            if argument.swept:
                axes[path[-1]] = argument.values
                continue
            del axes[path[-1]]
            tune["extend"] = [p for p in tune.get("extend") or [] if p != path[-1]]
        if key in POSED:
            block[first] = {"name": value}
        else:
            place(block, argument)


def _mapping(part: Any) -> dict[str, Any]:
    return dict(part) if isinstance(part, dict) else {"name": part}
