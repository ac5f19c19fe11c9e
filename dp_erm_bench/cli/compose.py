"""Compose the configuration with Hydra, once per combination of single choices."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

from hydra.core.config_loader import ConfigLoader
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from dp_erm_bench import registry
from dp_erm_bench.cli.grammar import Given
from dp_erm_bench.cli.request import Request
from dp_erm_bench.errors import UsageError, shown
from dp_erm_bench.plugins.names import is_file, label
from dp_erm_bench.registry import PARTS

Block = dict[str, Any]


@dataclass(frozen=True)
class Composer:
    """Hydra's loader with what every composition shares.

    Parameters
    ----------
    loader : ConfigLoader
    config_name : str
        The primary configuration.
    hydra : sequence of str
        Overrides of Hydra's own node.
    """

    loader: ConfigLoader
    config_name: str | None
    hydra: Sequence[str]

    def compose(
        self, request: Request, choices: Sequence[str] = ()
    ) -> tuple[dict[str, Any], dict[str, str]]:
        """Return one configuration as plain values, and the choices made.

        Parameters
        ----------
        request : Request
            Its plain keys are applied, its axes are not.
        choices : sequence of str
            Overrides of the config groups.

        Raises
        ------
        UsageError
            If a key that is swept is interpolated elsewhere: it would go stale.
        """
        overrides = [*self.hydra, *choices, *plain(request)]
        config = self.loader.load_configuration(
            self.config_name, overrides=overrides, run_mode=RunMode.RUN
        )
        chosen = dict(config.hydra.runtime.choices)
        OmegaConf.set_struct(config, False)
        del config["hydra"]
        _refuse_stale(config, [g.key for g in request.axes.values() if g.swept])
        _check_profile(config)
        resolved = OmegaConf.to_container(config, resolve=True)
        return cast(dict[str, Any], resolved), chosen


def plain(request: Request) -> list[str]:
    """Return the arguments that hold for the whole run, as Hydra takes them.

    Parameters of algorithms and overrides of datasets are not in their yaml: they are
    added by force, which `check` makes safe.
    """
    lines = [] if request.experiment is None else [f"experiment={request.experiment}"]
    lines += [g.text for key, g in request.frame.items() if key != "panel"]
    for given in request.axes.values():
        if not given.swept and request.experiment is None:
            forced = given.key.partition(".")[0] in (*PARTS, "algorithm")
            lines.append(f"++{given.text}" if forced else given.text)
    return lines


def sweep_blocks(
    composer: Composer, request: Request
) -> tuple[list[Block], dict[str, Any]]:
    """Return the blocks of a sweep and the configuration of the first of them.

    One block per combination of dataset, objective and algorithm; within it every
    swept scalar is a list.
    """
    blocks: list[Block] = []
    first: dict[str, Any] | None = None
    for choices in _combinations(request):
        config, chosen = composer.compose(request, choices)
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
        if label(block["algorithm"]["name"]) == name:
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
    single = [[f"{g}={v}" for v in given[g].values] for g in PARTS if g in given]
    beside = []
    if "algorithm" in given:
        beside = [f"algorithm=[{','.join(map(label, given['algorithm'].values))}]"]
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
    if group == "algorithm" and is_file(fields["_target_"]):
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


def _refuse_stale(config: DictConfig, swept: Sequence[str]) -> None:
    """Refuse interpolations of swept keys: they are resolved once, for one value."""
    texts = str(OmegaConf.to_container(config, resolve=False)) if swept else ""
    for key in swept:
        if "${" + key + "}" in texts:
            raise UsageError(
                f"{key}: swept, yet the configuration refers to ${{{key}}}; "
                "write the value out there"
            )


def _check_profile(config: DictConfig) -> None:
    if config.profiles:
        registry.check_choice("profile", config.profile, sorted(config.profiles))
    elif config.profile is not None:
        raise UsageError(f"profile={config.profile}: the experiment has no profiles")
