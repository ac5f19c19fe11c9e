"""Hydra's part: compose the configuration of one choice of groups, or show it."""

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
from dp_erm_bench.cli.grammar import quoted
from dp_erm_bench.cli.request import Request
from dp_erm_bench.errors import UsageError
from dp_erm_bench.experiment.schema import Frame
from dp_erm_bench.plugins.names import entry_points, is_file, label
from dp_erm_bench.registry import ALGORITHM, AUTO, FROM_FILES


class Composer:
    """Compose the configurations that a command line asks for.

    Parameters
    ----------
    request : Request
        The checked command line; its plain keys are applied, its axes are not.
    config_name : str
        The primary configuration.
    folders : sequence of Path
        Config folders beside our own, and experiments' files.
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
            if folder.suffix == registry.SUFFIX:  # an experiment's own file
                _offer_file(folder)
                continue
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
        axes = self.request.axes.values()
        fixed = [] if self.request.experiment else [a for a in axes if not a.swept]
        config = self._composed([*choices, *(one.forced + one.text for one in fixed)])
        chosen = dict(config.hydra.runtime.choices)
        del config["hydra"]
        swept = [one.key for one in axes if one.swept]
        texts = str(OmegaConf.to_container(config, resolve=False)) if swept else ""
        for key in swept:
            if "${" + key + "}" in texts:
                raise UsageError(
                    f"{key}: swept, yet the configuration refers to ${{{key}}}; "
                    "write the value out there"
                )
        if config.profiles:
            registry.check_choice("profile", config.profile, sorted(config.profiles))
        elif config.profile is not None:
            raise UsageError(
                f"profile={config.profile}: the experiment has no profiles"
            )
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
        every = [*request.choices.values(), *request.axes.values()]
        config = self._composed([one.first for one in every])
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
        """Return a configuration with the arguments that hold for the whole run."""
        name = self.request.experiment
        lines = [f"experiment={quoted(name)}"] if name else []
        frame = self.request.frame.items()
        lines += [one.text for key, one in frame if key != "panel"]
        config = self.loader.load_configuration(
            self.name, [*lines, *overrides], RunMode.RUN, from_shell=False
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
    for group in FROM_FILES:
        choice = request.choices.get(group)
        files = {label(v): v for v in choice.values if is_file(v)} if choice else {}
        outside = entry_points() if group == ALGORITHM else {}
        for name, target in {**outside, **files}.items():
            package = f"{group}.{name}" if group == ALGORITHM else group
            node = {"_target_": target}
            store.store(group=group, name=name, package=package, node=node)


def _offer_file(path: Path) -> None:
    """Put an experiment's file into Hydra's store, as if it were in a config folder."""
    node = OmegaConf.load(path)
    store = ConfigStore.instance()
    store.store(group="experiment", name=path.stem, package="_global_", node=node)
