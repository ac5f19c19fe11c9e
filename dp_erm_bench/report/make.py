"""Judge the claims and draw the figures of an experiment's results folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dp_erm_bench import registry
from dp_erm_bench.errors import UsageError
from dp_erm_bench.paths import list_files
from dp_erm_bench.report.claims import judge
from dp_erm_bench.report.figure import Drawing, figures_of
from dp_erm_bench.report.style import forget_styles, reserve_styles
from dp_erm_bench.results.files import csv_of, translate_os_errors, write_text
from dp_erm_bench.results.runs import read_manifest, write_run
from dp_erm_bench.results.tuned import Row, read_choices

CLAIMS = "claims.csv"


def draw_and_judge(folder: Path, config: Mapping[str, Any]) -> None:
    """Evaluate the claims and draw the figures of an experiment.

    Parameters
    ----------
    folder : Path
        The results folder of the experiment, with the table.
    config : mapping
        The resolved configuration, with `figures` and `claims`.
    """
    from dp_erm_bench.results.table import load_results

    manifest, drawn = read_manifest(folder), list[Path]()
    config = _config_of_drawing(folder, manifest, config)
    figures = figures_of(config)
    # A line has the same look in all figures of an experiment.
    forget_styles()
    reserve_styles(lines for one in figures for lines in one.panel_lines())
    tables = [table for one in figures if (table := one.table(folder)) is not None]
    table = tables[0] if tables else load_results(folder)
    if config.get("claims"):
        not_run = manifest.get("not_run", [])
        known = {"not_run": not_run, "choices": _choices_of_folder(folder)}
        claims = judge.evaluate_claims(table, {**config, **known})
        write_text(folder, CLAIMS, csv_of(claims))
        drawn.append(folder / CLAIMS)
    if figures:
        target = folder / "figures"
        with translate_os_errors(folder):
            target.mkdir(exist_ok=True)
            _check_plain(target)
            for one in figures:
                drawn += one.draw(Drawing(table, target, config["paper"], config))
    manifest = read_manifest(folder)
    if manifest.get("run"):
        shown = {one for one in drawn if one.suffix == ".png" or one.name == CLAIMS}
        names = sorted(one.relative_to(folder).as_posix() for one in shown)
        write_run(folder, {**manifest, "drawn": names})


def check_report(config: Mapping[str, Any]) -> None:
    """Raise UsageError for figures or claims that would fail after the run.

    Parameters
    ----------
    config : mapping
        The resolved configuration of an experiment, with all its blocks.

    Raises
    ------
    UsageError
        With a message that names the figure or the claim, the key, its value and what
        is allowed.
    """
    lines: dict[str, list[str]] = {}
    for block in config["blocks"]:
        label = str(block.get("line"))
        lines.setdefault(str(block.get("panel")), []).append(label)
    figures = figures_of(config)
    for number, figure in enumerate(figures, 1):
        try:
            figure.check(lines)
        except UsageError as error:
            raise UsageError(f"figure {number}: {error}") from None
    judge.check_claims(config.get("claims") or (), lines, figures)


def _config_of_drawing(
    folder: Path, manifest: Mapping[str, Any], written: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Return the configuration from which a folder's figures are drawn.

    The key `paper` is added, and changes of the experiment are named in `profile`. An
    unchanged experiment of the package gets the figures of the installed version.
    """
    name = experiment_of_folder(folder, manifest)
    config = {"paper": name, **_label_changes(written)}
    ours = manifest.get("experiment_file") and name in registry.built_in("experiment")
    if ours and not written.get("changes"):
        config["figures"] = registry.read_choice("experiment", name)["figures"]
    return config


def experiment_of_folder(folder: Path, manifest: Mapping[str, Any]) -> str:
    """Return the name of the experiment that a results folder belongs to."""
    file = manifest.get("experiment_file")
    names = [*file] if isinstance(file, dict) else []
    return Path(names[0]).stem if names else folder.name


def _choices_of_folder(folder: Path) -> Sequence[Row] | None:
    """Return the rows of a folder's chosen settings, or None if they cannot be read."""
    try:
        return read_choices(folder) or ()
    except UsageError:
        return None


def _label_changes(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a configuration whose profile names the changes of the experiment.

    Captions and claims show the profile. Results of a changed experiment are thus not
    mistaken for those of the paper.
    """
    changes = config.get("changes")
    if not changes:
        return config
    words = f"changed: {' '.join(changes) if isinstance(changes, list) else changes}"
    profile = config.get("profile")
    return {**config, "profile": f"{profile}, {words}" if profile else words}


def latest_figures(folder: Path) -> list[str]:
    """Return the files with the claims and figures of the latest run.

    If the manifest does not list these files, all files are returned. Files that it
    does not list are from earlier runs, perhaps with other settings.
    """
    paths = [folder / CLAIMS, *list_files(folder / "figures", ".png")]
    files = [one.relative_to(folder).as_posix() for one in paths if one.is_file()]
    drawn = read_manifest(folder).get("drawn")
    return [name for name in files if not isinstance(drawn, list) or name in drawn]


def _check_plain(figures: Path) -> None:
    """Raise UsageError for links and other special files where figures are written."""
    for path in (figures, *list_files(figures, "")):
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            raise UsageError(f"{path}: must be a plain file or folder; remove it")
