"""The yaml files of ``conf/`` are the registry; here they are read by name."""

import copy
import dataclasses
import difflib
import functools
import importlib
from pathlib import Path
from typing import Any

import yaml

from dp_erm_bench.errors import UsageError


def conf_dir() -> Path:
    """Return the folder of the config groups: the checkout's, else the wheel's."""
    package = Path(__file__).resolve().parent
    checkout = package.parent / "conf"
    return checkout if (checkout / "config.yaml").is_file() else package / "conf"


def names(group: str) -> list[str]:
    """Return the choices of a config group, sorted."""
    return sorted(path.stem for path in (conf_dir() / group).glob("*.yaml"))


def check_choice(key: str, value: Any, allowed: list[str]) -> None:
    """Refuse a value that is not among the allowed ones, suggesting the nearest."""
    if value in allowed:
        return
    if not allowed:
        raise UsageError(f"{key}={value}: there is none")
    near = difflib.get_close_matches(str(value), allowed, 1)
    hint = f" (did you mean {near[0]}?)" if near else ""
    raise UsageError(f"{key}={value}{hint}: must be one of {', '.join(allowed)}")


@functools.cache
def _parsed(path: Path) -> dict[str, Any]:
    return yaml.load(path.read_text(), Loader=yaml.CSafeLoader) or {}


def read(group: str, name: str) -> dict[str, Any]:
    """Return one choice of a config group as a plain dict.

    Raises
    ------
    UsageError
        If there is no such choice; the sentence lists those there are.
    """
    check_choice(group, name, names(group))
    return copy.deepcopy(_parsed(conf_dir() / group / f"{name}.yaml"))


def locate(target: str) -> Any:
    """Import the object that a dotted name points to."""
    module, _, name = target.rpartition(".")
    return getattr(importlib.import_module(module), name)


def target(group: str, name: str) -> Any:
    """Return the class or function that a choice of a group names."""
    return locate(read(group, name)["_target_"])


def build(group: str, name: str, **overrides: Any) -> Any:
    """Build the object of a choice: its yaml, then the overrides.

    Raises
    ------
    UsageError
        If the choice or one of the parameters does not exist.
    """
    fields = read(group, name)
    made = locate(fields.pop("_target_"))
    if dataclasses.is_dataclass(made):
        known = sorted(field.name for field in dataclasses.fields(made))
        for key in overrides:
            check_choice(f"parameter of {name}", key, known)
    return made(**{**fields, **overrides})
