"""Turn a checked command line into the blocks of an experiment, and run them.

A block is a product of axes. Hydra composes the config groups, once per block. The file
of an experiment is read and checked here, since Hydra's own errors do not name the file
or the key.
"""

from __future__ import annotations

import copy
import itertools
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import yaml
from hydra import version
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.utils import create_config_search_path
from hydra.core.config_store import ConfigStore
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import Container, DictConfig, OmegaConf
from omegaconf._utils import get_yaml_loader
from omegaconf.errors import OmegaConfBaseException

from dp_erm_bench import registry
from dp_erm_bench.cli.line import (
    TUNE,
    Argument,
    Request,
    expand_values,
    experiment_files,
    set_nested,
)
from dp_erm_bench.cli.usage import AUTO
from dp_erm_bench.errors import UsageError, check_key, printable_text, typed_text
from dp_erm_bench.experiment import schema
from dp_erm_bench.experiment.schema import Frame, axis_values, check_setting
from dp_erm_bench.plugins.names import entry_points, label_of
from dp_erm_bench.registry import ALGORITHM, ERM, FROM_FILES, POSED, PROBLEM

Section = dict[str, Any]

SELF = "_self_"
MOST_NODES = 1_000_000
"""Largest number of values of a yaml file.

An alias counts at each use, since a few lines can expand to billions of values.
"""

RESOLVER = re.compile(r"\$\{((?:[^{}:]|\$\{[^{}]*\})*):")
"""Pattern of a resolver's name in an interpolation; it may itself be interpolated."""

RESOLVERS = ("oc.select", "oc.create", "oc.dict.keys", "oc.dict.values")
"""Resolvers that read nothing but the file."""

SHAPES: dict[str, tuple[type, str]] = {
    "blocks": (list, "a list of mappings"),
    "profile": (str, "the name of a profile"),
    "profiles": (dict, "a mapping from the names of profiles to mappings"),
    "figures": (list, "a list of mappings, each with its kind"),
    "claims": (list, "a list of mappings"),
    "runner": (dict, "a mapping with the runner's keys"),
    "defaults": (list, "a list of the names of experiments, and _self_"),
}
"""Keys of an experiment's file; all other keys are set on the command line."""

_NOISE = re.compile(
    r"^\s*(object_type=|reference_type=|See https?://|Config search path|"
    r"provider=|Set the environment variable|$)"
)


def load_yaml(path: Path) -> Any:
    """Return the content of a yaml file.

    Raises
    ------
    UsageError
        If the file is not valid yaml, refers to itself, has keys that are not strings,
        or calls a resolver that reads more than the file. Such a resolver could bring
        environment variables into records and figures.
    """
    try:
        with path.open(encoding="utf-8") as text:
            tree = yaml.load(text, Loader=get_yaml_loader())
    except (yaml.YAMLError, OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{path}: no yaml: {' '.join(str(error).split())}") from None
    nodes = [tree]
    for node in nodes:  # the list grows in the loop
        if len(nodes) > MOST_NODES:
            what = f"more than {MOST_NODES} values; an alias may stand for itself"
            raise UsageError(f"{path}: {what}")
        for key in node if isinstance(node, dict) else ():
            if not isinstance(key, str):
                raise UsageError(f"{path}: key {typed_text(key)}: must be a word")
        for name in RESOLVER.findall(node) if isinstance(node, str) else ():
            if name.strip() not in RESOLVERS:
                raise UsageError(
                    f"{path}: {node[:60]}: must call no resolver but "
                    f"{', '.join(RESOLVERS)}; write the value out"
                )
        inner = node.values() if isinstance(node, dict) else node
        nodes += inner if isinstance(node, dict | list) else ()
    return tree


def read_experiment(
    path: Path, files: Mapping[str, Path], above: tuple[str, ...] = ()
) -> DictConfig:
    """Return the content of an experiment's file, merged with its base experiments.

    Parameters
    ----------
    path : Path
        The yaml file.
    files : mapping of str to Path
        The files of all experiments by name.
    above : tuple of str
        Names of the experiments that build upon this one.

    Raises
    ------
    UsageError
        For a wrong file; the message names the file and the line or key.
    """
    tree = load_yaml(path)
    if not isinstance(tree, dict):
        raise UsageError(f"{path}: must be a mapping with `blocks`")
    for key, value in tree.items():
        check_key(key, SHAPES, str(path))
        kind, words = SHAPES[key]
        if not isinstance(value, kind) and (value is not None or key == "blocks"):
            raise UsageError(f"{path}: {key}={typed_text(value)}: must be {words}")
    for key, value in (tree.get("runner") or {}).items():
        check_setting(f"runner.{key}", value)
    bases = tree.pop("defaults", None) or []
    parts: list[Any] = []
    for base in bases if SELF in bases else [*bases, SELF]:
        if base in (*above, path.stem):
            raise UsageError(f"{path}: defaults={base}: builds upon itself")
        if base != SELF:
            registry.check_choice(f"{path}: defaults", base, sorted(files))
            tree_of = read_experiment(files[base], files, (*above, path.stem))
        parts.append(tree if base == SELF else tree_of)
    try:
        return cast(DictConfig, OmegaConf.merge(*parts))
    except (OmegaConfBaseException, RecursionError) as error:
        raise UsageError(f"{path}: {error_sentence(error)}") from None


class Composer:
    """Composes the configurations for a command line.

    Parameters
    ----------
    request : Request
        The checked command line.
    config_name : str
        Name of the primary configuration.
    folders : sequence of Path
        Config folders in addition to the package's own.
    """

    def __init__(
        self,
        request: Request,
        config_name: str = "config",
        folders: Sequence[Path] = (),
    ) -> None:
        self.request, self.name = request, config_name.removesuffix(".yaml")
        version.setbase("1.3")
        search = create_config_search_path(str(registry.conf_dir()))
        for folder in folders:
            search.prepend("--config-dir", f"file://{folder.absolute()}", "schema")
            if (own := folder / f"{self.name}.yaml").is_file():
                load_yaml(own)  # raises UsageError if the file is wrong
        store = ConfigStore.instance()
        store.store(name="schema", node=Frame)
        for group in AUTO:
            package = f"{group}.auto" if group == ALGORITHM else group
            store.store(group=group, name="auto", package=package, node={})
        for group in FROM_FILES:
            choice = request.choices.get(group)
            files = {label_of(v): v for v in choice.values} if choice else {}
            outside = entry_points() if group == ALGORITHM else {}
            for name, target in {**outside, **files}.items():
                if name != target:
                    package = f"{group}.{name}" if group == ALGORITHM else group
                    node = {"_target_": target}
                    store.store(group=group, name=name, package=package, node=node)
        self.loader = ConfigLoaderImpl(search)
        self.experiment = (
            read_experiment(request.experiment, experiment_files(folders))
            if request.experiment
            else {}
        )

    def compose(self, choices: Mapping[str, str], every: bool = False) -> DictConfig:
        """Return the configuration for given choices, without the keys that are swept.

        Keys of an experiment's blocks are not included. With `every` all keys are
        included, and a swept key has its first value.

        Raises
        ------
        UsageError
            If Hydra refuses the configuration, or it does not extend the package's own.
        """
        request = self.request
        lines = [f"{group}={label_of(name)}" for group, name in choices.items()]
        if ALGORITHM in request.choices:
            labels = ",".join(map(label_of, request.choices[ALGORITHM].values))
            lines.append(f"{ALGORITHM}=[{labels}]")
        if "runner" in request.frame:
            lines.append(f"runner={request.frame['runner'].values[0]}")
        try:
            config = self.loader.load_configuration(
                self.name, lines, RunMode.RUN, from_shell=False
            )
            if "budget" not in config:
                raise UsageError(
                    f"--config-name {self.name}: must have `defaults: [config, _self_]`"
                )
            OmegaConf.set_struct(config, False)
            OmegaConf.set_readonly(config.hydra, None)
            for one in config[ALGORITHM].values():
                one.pop(registry.TUNE, None)  # `tune` is not a parameter
            config.merge_with(self.experiment)
            axes = request.axes if every or not self.experiment else {}
            for key, one in (request.frame | axes).items():
                if key not in ("panel", "runner") and (every or not one.swept):
                    OmegaConf.update(config, key, one.values[0], force_add=True)
        except (HydraException, OmegaConfBaseException, yaml.YAMLError) as error:
            where = f"--config-name {self.name}: " * (self.name != "config")
            raise UsageError(f"{where}{error_sentence(error)}") from None
        return config

    def resolve(
        self, choices: Mapping[str, str] = {}
    ) -> tuple[dict[str, Any], dict[str, str]]:
        """Return one configuration as plain values, and its choices.

        Raises
        ------
        UsageError
            If another part of the configuration refers to a swept key, since the
            interpolated value would be wrong for other values of the key.
        """
        config = self.compose(choices)
        chosen = dict(config.hydra.runtime.choices)
        del config["hydra"]
        text = str(OmegaConf.to_container(config, resolve=False))
        for key, one in self.request.axes.items():
            if one.swept and "${" + key + "}" in text and not self.experiment:
                raise UsageError(
                    f"{key}: swept, yet the configuration refers to ${{{key}}}; "
                    "write the value out there"
                )
        if config.profiles:
            registry.check_choice("profile", config.profile, sorted(config.profiles))
        elif config.profile is not None and self.experiment:
            raise UsageError(
                f"profile={config.profile}: the experiment has no profiles"
            )
        try:
            resolved = OmegaConf.to_container(config, resolve=True)
        except OmegaConfBaseException as error:
            where = f"{self.request.experiment}: " * bool(self.experiment)
            raise UsageError(f"{where}{error_sentence(error)}") from None
        return cast(dict[str, Any], resolved), chosen

    def show(self, kind: str, package: str | None, resolve: bool) -> str:
        """Return the configuration as yaml, for the first value of every axis.

        Parameters
        ----------
        kind : {"job", "hydra", "all"}
            The part of this package, the part of Hydra, or both.
        package : str, optional
            Dotted name of the part to show; None means the whole configuration.
        resolve : bool
            Whether to resolve interpolations.
        """
        config = self.compose(next(self.combinations()), every=True)
        for key in list(config):
            if kind != "all" and (key == "hydra") != (kind == "hydra"):
                del config[key]
        part: Any = config
        if package not in (None, "_global_"):
            part = OmegaConf.select(config, str(package))
        if part is None:
            raise UsageError(f"--package {package}: '{package}' not found in config")
        if not isinstance(part, Container):
            return str(part)
        head = f"# @package {package}\n" if package else ""
        return head + OmegaConf.to_yaml(part, resolve=resolve).rstrip()

    def combinations(self) -> Iterator[dict[str, str]]:
        """Yield each combination of choices; all algorithms share one combination."""
        given = self.request.choices
        groups = {one: given[one].values for one in POSED if one in given}
        beside = {g: given[g].values[0] for g in ("calibration",) if g in given}
        for names in itertools.product(*groups.values()):
            yield dict(zip(groups, names, strict=True)) | beside


def error_sentence(error: BaseException) -> str:
    """Return the messages of an error and of its cause as one line."""
    texts = [str(one) for one in (error, error.__cause__) if one is not None]
    lines = [line.strip() for text in texts for line in text.splitlines()]
    told = dict.fromkeys(line for line in lines if not _NOISE.match(line))
    return printable_text(" ".join(told) or type(error).__name__)


def sweep_blocks(composer: Composer) -> tuple[list[Section], dict[str, Any]]:
    """Return the blocks of a sweep, and the configuration of the first block.

    There is one block per combination of dataset, objective and algorithm. In a block,
    every swept scalar is a list.
    """
    request = composer.request
    given = {group: one.values for group, one in request.choices.items()}
    blocks: list[Section] = []
    example: dict[str, Any] = {}
    for choices in composer.combinations():
        config, chosen = composer.resolve(choices)
        example = example or config
        # Setting a parameter of an algorithm does not choose that algorithm.
        usual = [one for one, of in config[ALGORITHM].items() if "_target_" in of]
        for name in given.get(ALGORITHM, usual):
            parts = {one: (choices.get(one, chosen[one]), config[one]) for one in POSED}
            parts[ALGORITHM] = name, config[ALGORITHM][label_of(name)]
            block: Section = {one: _changed_part(one, *of) for one, of in parts.items()}
            typed = "dataset.bounds" in request.axes  # also if null was typed
            if config["dataset"].get("bounds") is None and not typed:
                # No bounds were given: those of the yaml are used if they are needed.
                block["dataset"]["bounds"] = "auto"
            if block[PROBLEM] == {"name": ERM}:
                del block[PROBLEM]
            block |= {"budget": dict(config["budget"]), "seed": config["seed"]}
            several = len(given.get("calibration", ())) > 1
            block["calibration"] = (given if several else config)["calibration"]
            for argument in request.axes.values():
                # A typed value counts even if it equals that of the yaml.
                if argument.swept or argument.key == "dataset.task":
                    place_key(block, argument)
            blocks.append(block)
    names = [*dict.fromkeys(label_of(block[ALGORITHM]["name"]) for block in blocks)]
    for key in request.axes:
        first, *of = key.split(".")
        if first == ALGORITHM and of[0] not in names:
            registry.check_choice(ALGORITHM, of[0], registry.names(ALGORITHM))
            raise UsageError(
                f"{key}: algorithm {of[0]} is not chosen; "
                f"write algorithm={','.join([*names, of[0]])}"
            )
    return blocks, example


def _changed_part(group: str, name: str, fields: dict[str, Any]) -> dict[str, Any]:
    """Return the name of a choice, with the fields that differ from its yaml."""
    usual = {} if name == "auto" else registry.read_choice(group, name)
    if group == "dataset":
        name = dataset_of_member(name, fields["name"])
    changed = {
        key: value
        for key, value in fields.items()
        if key not in ("name", "_target_") and (key not in usual or usual[key] != value)
    }
    return {"name": name, **changed}


def dataset_of_member(base: str, name: Any) -> str:
    """Return the name of one dataset of a collection, as `COLLECTION:NAME`.

    For a dataset that is not a collection, the result is its own name.
    """
    own = base.partition(":")[0]
    return own if name == own else f"{own}:{name}"


def place_key(block: Section, argument: Argument) -> None:
    """Set one key of a block; parameters of other algorithms are ignored."""
    key = argument.key
    value = argument.values if argument.swept else argument.values[0]
    first, *path = key.split(".")
    if key == "dataset.name":
        value = [
            dataset_of_member(block["dataset"]["name"], one) for one in argument.values
        ]
    if first == ALGORITHM and label_of(block[ALGORITHM]["name"]) != path[0]:
        return
    if first != ALGORITHM and len(path) > 1 and argument.swept:
        raise UsageError(f"{key}={typed_text(value)}: takes one value, no axis")
    names = [first, *path[1:]] if first == ALGORITHM else [first, *path]
    set_nested(block, names, value, key)


WORDS = ("panel", "line", "name", "unit", "aside")
"""Keys whose strings are names; a comma in such a string does not make an axis."""


def experiment_blocks(config: dict[str, Any], request: Request) -> list[Section]:
    """Return the blocks of an experiment to run, with the command line's keys applied.

    Parameters
    ----------
    config : dict
        The composed configuration; its `blocks` are not changed.
    request : Request
        The command line. Its `panels` select blocks. A key that it sets replaces the
        key in every block. A parameter is replaced only in the blocks of its algorithm.

    Raises
    ------
    UsageError
        If there are no blocks, a panel does not exist, two blocks have the same labels
        (a figure could not distinguish their lines), or a key fits no block.
    """
    blocks = copy.deepcopy(config["blocks"])
    if not blocks or not all(isinstance(block, dict) for block in blocks):
        raise UsageError(
            f"{request.experiment}: needs `blocks`, a list of at least one mapping"
        )
    panels = list(dict.fromkeys(str(block.get("panel")) for block in blocks))
    for panel in request.panels:
        registry.check_choice("panel", panel, panels)
    expanded = [
        _expand_part("", block)
        for block in blocks
        if not request.panels or block.get("panel") in request.panels
    ]
    try:
        checked = schema.blocks_of(expanded)  # before their keys are replaced
    except UsageError as error:
        raise UsageError(f"{request.experiment}: {error}") from None
    labels = Counter((b.panel, b.line) for b in checked if b.panel and b.line)
    for (panel, line), number in labels.items():
        if number > 1:
            raise UsageError(
                f"block {panel} / {line}: two blocks have this panel and line"
            )
    for argument in (*request.choices.values(), *request.axes.values()):
        _replace_key(expanded, argument)
    return expanded


def _expand_part(key: str, value: Any) -> Any:
    """Return a part of a block with sweep strings such as `range(0,10)` as lists."""
    if key.rpartition(".")[2] in WORDS:
        return value
    if isinstance(value, dict):
        return {k: _expand_part(f"{key}.{k}".lstrip("."), v) for k, v in value.items()}
    return expand_values(key, value)


def _replace_key(blocks: list[Section], argument: Argument) -> None:
    """Replace a key in the blocks; in a tuned block, replace a parameter's axis."""
    key, value = argument.key, argument.values[0]
    first, *path = key.split(".")
    if key in ("dataset", ALGORITHM):
        raise UsageError(
            f"{key}={typed_text(value)}: an experiment's blocks name their own; use "
            "panel=NAME to run some of them"
        )
    if key in POSED and argument.swept:
        raise UsageError(
            f"{key}={typed_text(argument.values)}: takes one value with an experiment"
        )
    usual = {"constraint": "none", PROBLEM: ERM}.get(first, "auto")
    for block in blocks if first in (ALGORITHM, *POSED) else ():
        part = block.get(first, usual)
        block[first] = dict(part) if isinstance(part, dict) else {"name": part}
    if first == ALGORITHM:
        label = path[0]
        blocks = [b for b in blocks if label_of(str(b[first].get("name"))) == label]
        if not blocks:
            raise UsageError(f"{key}: no block of the experiment runs {label}")
    for block in blocks:
        tune = block.get("tune") or {}
        axes = tune.get("axes", {}) if first == ALGORITHM else {}
        if key == "seed" and tune:
            raise UsageError(
                f"seed={typed_text(value)}: {schema.block_label(block)} is tuned, its "
                "seeds are tune.seeds and tune.report"
            )
        if path[-1:] and path[-1] in axes and argument.swept:
            axes[path[-1]] = argument.values
            continue
        if path[-1:] and axes.pop(path[-1], None) is not None:
            tune["aside"] = [p for p in tune.get("aside") or [] if p != path[-1]]
        if key in POSED:
            block[first] = {"name": value}
        else:
            place_key(block, argument)


def results_folder(config: Mapping[str, Any], default: str) -> Path:
    """Return the results folder of a run; it is called `default` if it has no name.

    Raises
    ------
    UsageError
        If `name` or `results_dir` cannot be the name of a folder.
    """
    name, parent = config["name"], config["results_dir"]
    name = default if name is None else name
    for key, text in (("name", name), ("results_dir", parent)):
        if not (text.isprintable() and text.strip()):
            raise UsageError(f"{key}={text!r}: must be the name of a folder")
    if Path(name).name != name or name == ".." or len(name.encode()) > 200:
        words = "the name of a folder, not a path, of at most 200 characters"
        raise UsageError(f"name={name}: must be {words}")
    above = (Path(parent), *Path(parent).absolute().parents)
    if not (there := next(one for one in above if one.exists())).is_dir():
        raise UsageError(f"results_dir={parent}: {there} is no folder")
    return Path(parent) / name


def resolve_blocks(
    composer: Composer, tunes: bool = False
) -> tuple[list[Section], dict[str, Any]]:
    """Return the blocks of a command line, and the configuration behind them.

    The key `changes` of the configuration lists the changes to an experiment.
    """
    request = composer.request
    if request.experiment:
        from dp_erm_bench.report.make import check_report  # a sweep needs no matplotlib

        config, _ = composer.resolve()
        try:
            config["blocks"] = schema.write_out_blocks(config["blocks"])
        except UsageError as error:
            raise UsageError(f"{request.experiment}: {error}") from None
        blocks = experiment_blocks(config, request)
        check_report(config)
        config["blocks"] = blocks
    else:
        blocks, config = sweep_blocks(composer)
    if tunes:
        from dp_erm_bench.experiment.tuned import PROFILE, tuned_blocks

        blocks = tuned_blocks(blocks, request.tune, config["profile"])
        config |= {"blocks": blocks, "figures": figures_of_blocks(blocks), "claims": []}
        config["profile"] = config["profile"] or PROFILE
    return blocks, {**config, "changes": request.changes}


def figures_of_blocks(blocks: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the figures for tuned blocks: curves, and final values over epsilon."""
    figures = [{"kind": "curves"}]
    if any(len(axis_values(one["budget"].get("epsilon", 1))) > 1 for one in blocks):
        figures.append({"kind": "curves", "x": "epsilon"})
    return figures


def run_blocks(composer: Composer, command: Sequence[str]) -> int:
    """Run the blocks of a command line and return its exit code.

    Parameters
    ----------
    composer : Composer
        The composer of the checked command line.
    command : sequence of str
        The command line as typed, for the manifest.

    Raises
    ------
    UsageError
        For wrong input, before any trial runs.
    """
    # Imported here, so that a wrong command line raises an error without numpy.
    from dp_erm_bench.results.runs import read_manifest
    from dp_erm_bench.runner.experiment import run_experiment
    from dp_erm_bench.runner.options import run_options

    path, tunes = composer.request.experiment, TUNE in command[1:2]
    blocks, config = resolve_blocks(composer, tunes)
    folder = results_folder(config, TUNE if tunes else composer.request.folder)
    before, changed = read_manifest(folder), config["changes"]
    notice = ""
    if changed and path and folder.name == path.stem:
        raise UsageError(
            f"{changed[0]}: changes experiment={path.stem}, whose results are in "
            f"{path.stem}/; leave name={path.stem} out, so that they stay as they are"
        )
    if changed and path:
        what = f"{folder}: the folder of experiment={path.stem}"
        notice = f"{what} with {' '.join(changed)}; its figures and claims say so"
    last = before.get("command")
    plain = [Path(command[0]).name, *command[1:]]
    if tunes and last and last != plain and "mode=plan" not in command:
        notice = (
            f"{folder}: held the results of another command until now "
            f"({' '.join(last)}); its trials are kept, and that command makes its "
            "table again; name=NAME keeps both"
        )
    options = run_options(
        config,
        tuple(command),
        append_plan=not (path or tunes),
        files={path.name: path.read_bytes()} if path else {},
        notice=notice,
    )
    code = run_experiment(blocks, folder.name, folder, options)
    if options.mode == "plan":
        return code
    if path or tunes:
        finish_run(folder, config)
    if tunes:
        from dp_erm_bench.cli.app import print_best

        print_best(folder)
    if not path:
        print(f"results: {folder}", file=sys.stderr)
    elif before.get("profile") not in (None, "", options.profile):
        print(
            f"{folder}: held profile={before['profile']} until now; its trials are "
            "kept, and that profile's command makes its table again",
            file=sys.stderr,
        )
    return code


def finish_run(folder: Path, config: dict[str, Any]) -> None:
    """Draw the figures of a finished run, judge its claims, and print them."""
    from dp_erm_bench.cli.app import report
    from dp_erm_bench.report.make import draw_and_judge

    draw_and_judge(folder, config)
    report(folder)
