"""Hydra's part: compose the configuration of one choice of groups, or show it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from hydra import version
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.utils import create_config_search_path
from hydra.core.config_store import ConfigStore
from hydra.types import RunMode
from omegaconf import Container, DictConfig, OmegaConf

from dp_erm_bench import registry
from dp_erm_bench.cli.grammar import Given
from dp_erm_bench.cli.request import Request
from dp_erm_bench.errors import UsageError, shown
from dp_erm_bench.experiment.frame import Frame
from dp_erm_bench.plugins.names import entry_points, is_file, label
from dp_erm_bench.registry import ALGORITHM, AUTO, PARTS


class Composer:
    """Compose the configurations that a command line asks for.

    Parameters
    ----------
    request : Request
        The checked command line; its plain keys are applied, its axes are not.
    config_name : str
        The primary configuration.
    folders : sequence of Path
        Config folders beside our own.
    """

    def __init__(
        self,
        request: Request,
        config_name: str = "config",
        folders: Sequence[Path] = (),
    ) -> None:
        self.request, self.folders = request, folders
        self.name = config_name.removesuffix(".yaml")
        version.setbase("1.3")
        search = create_config_search_path(str(registry.conf_dir()))
        for folder in folders:
            search.prepend("--config-dir", f"file://{folder.absolute()}", "schema")
        _offer(request)
        self.loader = ConfigLoaderImpl(search)

    def compose(
        self, choices: Sequence[str] = ()
    ) -> tuple[dict[str, Any], dict[str, str]]:
        """Return one configuration as plain values, and the choices made.

        Parameters
        ----------
        choices : sequence of str
            Overrides of the config groups.

        Raises
        ------
        UsageError
            If a key that is swept is interpolated elsewhere: it would go stale.
        """
        config = self._composed([*choices, *_plain(self.request)])
        chosen = dict(config.hydra.runtime.choices)
        del config["hydra"]
        swept = [g.key for g in self.request.axes.values() if g.swept]
        _refuse_stale(config, swept)
        _check_profile(config)
        resolved = OmegaConf.to_container(config, resolve=True)
        return cast(dict[str, Any], resolved), chosen

    def show(self, kind: str, package: str | None, resolve: bool) -> str:
        """Return the configuration of the first value of every axis as yaml.

        Parameters
        ----------
        kind : {"job", "hydra", "all"}
            Our part, Hydra's own, or both.
        package : str, optional
            Dotted name of the part to show.
        resolve : bool
            Whether to resolve interpolations.
        """
        request = self.request
        given = [*request.choices.values(), *request.axes.values()]
        config = self._composed([*_frame(request), *map(_first, given)])
        for key in list(config):
            if kind != "all" and (key == "hydra") != (kind == "hydra"):
                del config[key]
        part = config
        if package not in (None, "_global_"):
            part = OmegaConf.select(config, str(package))
        if part is None:
            raise UsageError(f"--package {package}: '{package}' not found in config")
        if not isinstance(part, Container):
            return str(part)
        head = f"# @package {package}\n" if package else ""
        return head + OmegaConf.to_yaml(part, resolve=resolve).rstrip()

    def _composed(self, overrides: Sequence[str]) -> DictConfig:
        config = self.loader.load_configuration(
            self.name, list(overrides), RunMode.RUN, from_shell=False
        )
        OmegaConf.set_struct(config, False)
        OmegaConf.set_readonly(config.hydra, None)
        return config


def _offer(request: Request) -> None:
    """Put into Hydra's store what it composes beside the yaml files.

    That is the schema, and each file of a user's and each entry point as if it had a
    yaml.
    """
    store = ConfigStore.instance()
    store.store(name="schema", node=Frame)
    for group in AUTO:
        store.store(group=group, name="auto", node={})
    for group in registry.FROM_FILES:
        given = request.choices.get(group)
        files = {label(v): v for v in given.values if is_file(v)} if given else {}
        outside = entry_points() if group == ALGORITHM else {}
        for name, target in {**outside, **files}.items():
            package = f"{group}.{name}" if group == ALGORITHM else group
            node = {"_target_": target}
            store.store(group=group, name=name, package=package, node=node)


def _plain(request: Request) -> list[str]:
    """Return the arguments that hold for the whole run, as Hydra takes them."""
    axes = [] if request.experiment else request.axes.values()
    return [*_frame(request), *(_forced(g) + g.text for g in axes if not g.swept)]


def _frame(request: Request) -> list[str]:
    lines = [f"experiment={request.experiment}"] if request.experiment else []
    return lines + [g.text for key, g in request.frame.items() if key != "panel"]


def _forced(given: Given) -> str:
    """Return what adds a key by force: those of algorithms and datasets are in no yaml.

    The expansion checks them.
    """
    first, dot, _ = given.key.partition(".")
    return "++" if dot and first in (*PARTS, ALGORITHM) else ""


def _first(given: Given) -> str:
    """Return an argument with its first value only."""
    if given.key == ALGORITHM:
        chosen = given.values[:1] if given.swept else given.values
        return f"{ALGORITHM}=[{','.join(map(label, chosen))}]"
    if "." not in given.key or given.swept:
        value = given.values[0]
        value = label(value) if given.key in registry.FROM_FILES else value
        text = _quoted(value) if isinstance(value, str) else shown(value)
        return f"{_forced(given)}{given.key}={text}"
    return _forced(given) + given.text


def _quoted(text: str) -> str:
    """Return a word as Hydra's grammar takes any."""
    plain = re.fullmatch(r"[\w.\-]+", text)
    return text if plain else "'" + text.replace("'", "\\'") + "'"


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
