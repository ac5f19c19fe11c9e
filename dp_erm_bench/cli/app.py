"""The commands that run, tune, collect and report."""

from __future__ import annotations

import argparse
import csv
import io
import json
import math
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text
from yaml import YAMLError

from dp_erm_bench.cli.line import (
    Argument,
    Composer,
    Section,
    by_path,
    check_config,
    check_experiment,
    check_hydra,
    experiment_blocks,
    experiment_files,
    parse_argument,
    read_request,
    sweep_blocks,
)
from dp_erm_bench.cli.usage import escape_controls
from dp_erm_bench.errors import UsageError, check_key, printable_text, typed_text
from dp_erm_bench.experiment.schema import OF_LINES, axis_values, block_keys
from dp_erm_bench.plugins.names import is_file
from dp_erm_bench.registry import ALGORITHM, QUANTITIES, built_in
from dp_erm_bench.results.files import as_it_was, read_text, typed_path
from dp_erm_bench.results.runs import note_ended, read_manifest
from dp_erm_bench.results.statistics import (
    ALONE,
    BASELINES,
    CONSTANTS,
    MODELS,
    NO_INTERCEPT,
    NOTHING,
    RISKS,
    TIE,
    TIES,
    WINS,
    medians_of,
    nothing_beats,
)
from dp_erm_bench.results.tuned import BESIDE, OBJECTIVE, PROBLEM, tuned_choices
from dp_erm_bench.runner.options import run_options

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = {
    **{"figure": 3, "statement": 7, "whose": 2, "measured": 5},
    **{"threshold": 2, "value": 2, "interval": 3},
}
"""Columns of the claims on the terminal and their share of its width."""

WIDTH = 140
LONGEST_NAME = 200
"""Bytes of the name of a results folder."""

COLOUR = {
    **{"holds": "green", "fails": "red", "vacuous": "yellow"},
    **{"better": "green", "worse": "red"},
}


def report_command(arguments: Sequence[str]) -> int:
    """Print the claims of folders and where their figures are; write one page of all.

    The page is `report.html` in the folder, of several in the one that holds the first,
    or the file that `--out` names.

    Raises
    ------
    UsageError
        For no such folder, damaged claims, or a page that cannot be written.
    """
    from dp_erm_bench.report.html.page import NAME, write_report

    names, out = _split_out_option(arguments)
    folders = existing_folders(names)
    for folder in folders:
        report(folder)
    first = folders[0].resolve()
    home = folders[0] if len(folders) == 1 else first.parent
    print(f"report: {typed_path(write_report(folders, out or home / NAME))}")
    return 0


def _split_out_option(arguments: Sequence[str]) -> tuple[list[str], Path | None]:
    """Return the arguments without the option `--out FILE`, and its file."""
    folders: list[str] = []
    out = None
    words = iter(arguments)
    for word in words:
        name, given, value = word.partition("=")
        if name == "--out":
            out = value if given else next(words, "")
            if not out:
                raise UsageError("--out: needs a file, as in --out results/report.html")
        elif word.startswith("-"):
            raise UsageError(f"{word}: no such option; report has --out FILE")
        else:
            folders.append(word)
    return folders, Path(out) if out else None


class Parser(argparse.ArgumentParser):
    """A parser of one command's options that raises UsageError."""

    def error(self, message: str) -> NoReturn:
        """Raise a UsageError with the message and the usage."""
        raise UsageError(f"{self.prog}: {message}; as in {self.usage}")


def existing_folders(folders: Sequence[str]) -> list[Path]:
    """Return the folders of a command line, of which there must be one at least."""
    if not folders:
        raise UsageError("name at least one results folder, as in results/sweep")
    for folder in folders:
        if not Path(folder).is_dir():
            raise UsageError(f"{folder}: no such folder")
    return [Path(folder) for folder in folders]


def collect_command(arguments: Sequence[str]) -> int:
    """Gather the records of folders into their tables, and draw and judge again.

    Nothing is imported that a manifest names and that is not part of the package: it
    may be anyone's, and the command that made the folder names its own modules.

    Raises
    ------
    UsageError
        If a folder holds no plan of a run.
    """
    from dp_erm_bench.results.table import UNREADABLE, collect_table

    for folder in existing_folders(arguments):
        if not (folder / "plan.jsonl").is_file():
            raise UsageError(f"{folder}: no results folder, it has no plan.jsonl")
        collect_table(folder)
        note_ended(folder)
        config = read_manifest(folder).get("config")
        if isinstance(config, dict) and config.get("figures"):
            try:
                draw_again(folder, config)
            except UsageError:
                raise
            except (*UNREADABLE, MemoryError) as error:
                raise UsageError(
                    f"{folder}: its manifest or its records do not fit its figures "
                    f"({type(error).__name__}): it cannot be drawn"
                ) from error
            report(folder)
        print(f"results: {folder / 'results.parquet'}", file=sys.stderr)
    return 0


def draw_again(folder: Path, config: Mapping[str, Any]) -> None:
    """Draw a folder's figures and judge its claims, if the package has their kinds."""
    from dp_erm_bench.report.make import draw_and_judge

    figures = config["figures"]
    entries = figures if isinstance(figures, list) else [{"kind": ".py"}]
    if any(isinstance(one, dict) and is_file(one.get("kind")) for one in entries):
        print(
            f"{typed_path(folder)}: the manifest names a file or module of figures "
            "that is "
            "none of the package's; it is not imported, the command of the run draws "
            "again",
            file=sys.stderr,
        )
    else:
        draw_and_judge(folder, config)


def report(folder: Path) -> None:
    """Print the claims of a folder and where the figures drawn last are."""
    from dp_erm_bench.report.claims.lookup import (
        GIVEN,
        NOT_JUDGED,
        UNJUDGED,
        by_chance,
    )
    from dp_erm_bench.report.make import CLAIMS, latest_figures

    claims, drawn = read_text(folder, CLAIMS), latest_figures(folder)
    if claims is not None and CLAIMS in drawn:
        try:
            rows = _claim_rows(claims)
            print_lines(_claims_table(folder.name, rows))
            told = UNJUDGED if any(NOT_JUDGED in row["verdict"] for row in rows) else ""
            if wrong := by_chance(rows):
                told = f"{GIVEN} {wrong}"
            if told:
                print(told)
        except (ValueError, LookupError, AttributeError, csv.Error):
            again = f"is damaged; dp-erm-bench collect {folder} makes it again"
            raise UsageError(f"{folder / CLAIMS}: {again}") from None
    for name in drawn:
        if name != CLAIMS:
            print(f"figure: {(folder / name).with_suffix('.pdf')} and .png")
    if not drawn:
        print(f"{folder}: no claims and no figures")


def results_folder(config: Mapping[str, Any], default: str) -> Path:
    """Return the folder of a run's results, named `default` unless a name is given.

    Raises
    ------
    UsageError
        If `name` is not a plain folder name, or `results_dir` can be no folder.
    """
    name, parent = config["name"], config["results_dir"]
    name = default if name is None else name
    odd = len(name.encode()) > LONGEST_NAME or not _is_written(name)
    if Path(name).name != name or name == ".." or odd:
        raise UsageError(
            f"name={name.strip() or repr(name)}: must be the name of a folder, not a "
            f"path, of at most {LONGEST_NAME} characters"
        )
    if not _is_written(parent):
        raise UsageError(f"results_dir={parent!r}: must be the name of a folder")
    above = (Path(parent), *Path(parent).absolute().parents)
    there = next(one for one in above if one.exists())
    if not there.is_dir():
        raise UsageError(f"results_dir={parent}: {there} is no folder")
    return Path(parent) / name


def _is_written(name: str) -> bool:
    return name.isprintable() and bool(name.strip())


def print_lines(table: Table) -> None:
    """Print a table, where nobody looks at a terminal a line for each row."""
    if Console(file=getattr(sys.stdout, "inside", sys.stdout)).is_terminal:
        print_table(table)
        return
    print(escape_controls(Text.from_markup(str(table.title)).plain))
    rows = zip(*([one.header, *one.cells] for one in table.columns), strict=True)
    for cells in rows:
        words = (Text.from_markup(str(cell)).plain for cell in cells)
        print(escape_controls(" | ".join(words).replace("\n", " ")))


def print_table(table: Table) -> None:
    """Print a table, of fixed width where nobody looks at a terminal."""
    for column in table.columns:
        cells = list(column.cells)
        column._cells = [escape_controls(x) if isinstance(x, str) else x for x in cells]
    table.title = (
        escape_controls(table.title) if isinstance(table.title, str) else table.title
    )
    stream = getattr(sys.stdout, "inside", sys.stdout)
    width = None if Console(file=stream).is_terminal else WIDTH
    Console(file=stream, width=width).print(table)


def _claim_rows(text: str) -> list[dict[str, str]]:
    """Return the rows of claims.csv."""
    reader = csv.DictReader(io.StringIO(text, newline=""))
    return [{key: as_it_was(cell) for key, cell in row.items()} for row in reader]


def _claims_table(name: str, rows: Sequence[dict[str, str]]) -> Table:
    """Return the claims as a table for the terminal, with the counts as its title."""
    from dp_erm_bench.report.claims.judge import EXPECTED
    from dp_erm_bench.report.claims.lookup import without_repetitions

    parts = [row["verdict"].partition(" (") for row in rows]
    verdicts = [verdict for verdict, _, _ in parts]
    counts = ", ".join(f"{verdicts.count(v)} {v}" for v in dict.fromkeys(verdicts))
    profiles = ", ".join(sorted({row.get("profile") or "" for row in rows} - {""}))
    about = profiles if profiles.startswith("changed") else f"profile {profiles}"
    heading = f"{name} ({about})" if profiles else name
    title = f"{heading}: {counts or 'no claims'}"
    table = Table(title=escape(title), title_justify="left", box=box.SIMPLE_HEAD)
    columns = [name for name in COLUMNS if not rows or name in rows[0]]
    for column in columns:
        table.add_column(column, ratio=COLUMNS[column])
    table.add_column("verdict", no_wrap=True)
    reasons = without_repetitions(reason.removesuffix(")") for _, _, reason in parts)
    for row, (verdict, _, _), reason in zip(rows, parts, reasons, strict=True):
        if reason:
            row["measured"] = reason
        cells = [_format_cell(row.get(column, "")) for column in columns]
        expected = (row.get("expected") or "").partition(":")[0]
        decided = expected and verdict in EXPECTED
        how = "as expected" if expected == verdict else "unexpected"
        told = ", ".join(
            [verdict, *[how] * bool(decided), *["open"] * bool(row.get("open"))]
        )
        table.add_row(*cells, escape(told), style=COLOUR.get(verdict, ""))
    return table


def _format_cell(text: str) -> str:
    try:
        return f"{float(text):.4g}"
    except ValueError:
        return escape(text)


TUNE = "tune"
INSTEAD = {
    "seed": "tune.seeds are tried on to choose, tune.report to judge the choice",
    "experiment": "an experiment's blocks have their own `tune`; leave `tune` out",
}
"""Keys of other commands, and what to use in their place."""


def split_tune_options(
    overrides: Sequence[str],
) -> tuple[dict[str, Any], str | None, list[str]]:
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
            _set_key(asked, _parse_list(parse_argument(text), typed))
    return asked, profile, rest


def _parse_list(argument: Argument, typed: str) -> Argument:
    """Return an argument; `a,b` is the list [a,b], in which values may repeat."""
    if argument.swept and "(" not in typed:
        return parse_argument(f"{argument.key}=[{typed}]")
    return argument


def _set_key(asked: dict[str, Any], argument: Argument) -> None:
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
            raise UsageError(
                f"{key}={typed_text(value)}: {TUNE}.{name} is null already"
            )
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
    from dp_erm_bench.runner.experiment import run_experiment

    sections, config = sweep_blocks(composer)
    folder = results_folder(config, TUNE)
    blocks = tuned_blocks(sections, tune, profile)
    config |= {"blocks": blocks, "figures": figures_of_blocks(blocks), "claims": []}
    config["profile"] = profile or PROFILE
    options = run_options(
        config, tuple(command), notice=_replacement_notice(folder, command)
    )
    code = run_experiment(blocks, folder.name, folder, options)
    if options.mode == "plan":
        return code
    _finish_run(folder, config)
    print_best(folder)
    print(f"results: {folder}", file=sys.stderr)
    return code


def _replacement_notice(folder: Path, command: Sequence[str]) -> str:
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


def figures_of_blocks(blocks: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the figures that suit tuned blocks: curves, and the ends over epsilon."""
    figures = [{"kind": "curves"}]
    if any(len(axis_values(one["budget"].get("epsilon", 1))) > 1 for one in blocks):
        figures.append({"kind": "curves", "x": "epsilon"})
    return figures


def print_best(folder: Path) -> None:
    """Print what each line of a folder chose and how that did, the best first."""
    try:
        found = tuned_choices(folder)
    except UsageError as error:
        print(f"dp-erm-bench: {error}", file=sys.stderr)
        return
    print_table(_choices_table(folder.name, found))
    for (panel, epsilon), rows in found.groupby(PROBLEM, sort=False):
        several = found["panel"].nunique() > 1
        where = f"{panel}, epsilon {epsilon:g}" if several else f"epsilon {epsilon:g}"
        print(f"{where}: {_verdict_words(rows)}")
    uses = dict.fromkeys(",".join(found["uncharged"]).split(","))
    print(
        f"not paid for by any budget: {', '.join(filter(None, uses))}; the certified "
        "epsilon is of one run with the chosen parameters"
    )


def _verdict_words(rows: pd.DataFrame) -> str:
    """Return in words which line is best on a problem, how sure, and beside what."""
    first = rows.iloc[0]
    beside = ", ".join(
        f"{name} {value:.3g}"
        for name in BASELINES
        if not math.isnan(value := float(first[name]))
    )
    winner = rows[rows["place"] == WINS]
    taken = rows[rows["taken"]]["line"]
    aside = ""
    if [*taken] != [*winner["line"]]:
        aside = f"; from_results takes {taken.iloc[0]}: {BLIND}"
    if winner.empty and rows["ci_low"].isna().all():
        return f"{ALONE} ({beside})" if beside else ALONE
    if winner.empty and not (nothing := nothing_beats(rows["unbeaten"])):
        return f"no line ended with a finite {str(first['quantity']).replace('_', ' ')}"
    risks = _risk_words(rows if winner.empty else winner)
    if winner.empty:
        beside = "; ".join(filter(None, (beside, risks)))
        verdict = "beats_zero" if nothing == NOTHING else "beats_constant"
        near = rows[rows[verdict] == TIE]["line"]
        told = f"; {', '.join(near)} may be as good as it" * (len(near) > 0)
        return f"{nothing} ({beside}){told}{aside}"
    best, ties = winner.iloc[0], rows[rows["place"] == TIES]["line"]
    y = str(best["quantity"]).replace("_", " ")
    interval = f"[{best['ci_low']:.3g}, {best['ci_high']:.3g}]"
    told = f"{best['line']} is best, {y} {best['median']:.3g} {interval}"
    told += f", against {beside}" * bool(beside)
    told += f"; {NO_INTERCEPT}: {risks}" * bool(risks)
    told += f"; not told apart from it: {', '.join(ties)}" * (len(ties) > 0)
    told += f"; {best['line']} is in doubt: {best['doubt']}" * bool(best["doubt"])
    return told + aside


BLIND = "it does not look at the constant model, which is computed from the records"
"""Why `from_results` may take another line than the one that a verdict calls best."""


def _risk_words(rows: pd.DataFrame) -> str:
    """Return what the first line and the constant model lose, without an intercept."""
    row = rows.iloc[0]
    y = next((one for one in RISKS if one in row and not math.isnan(row[one])), "")
    if not (y and row["constant"].endswith(NO_INTERCEPT)):
        return ""
    level = next(
        value
        for name in CONSTANTS
        if not math.isnan(value := row["baselines"][y].get(MODELS[name], math.nan))
    )
    name = row["constant"].partition(" by ")[0]
    return (
        f"{row['line']} has a {y.replace('_', ' ')} of {row[y]:.3g}, {name} {level:.3g}"
    )


def _choices_table(name: str, found: pd.DataFrame) -> Table:
    """Return the choices as a table for the terminal, who wins a problem in bold.

    Below each problem what needs no private training.
    """
    import pandas as pd

    runs = ", ".join(map(str, sorted(found["runs"].unique())))
    words, splits = f"median of {runs} runs on fresh seeds", found["splits"].max()
    over = "noise on one split"
    if splits > 1:
        words = f"mean over {splits} splits of the {words}" if runs != "1" else words
        over = "splits"
    words = f"{name}: {words} [95 % interval, over {over}], best first"
    table = Table(title=escape(words), title_justify="left", box=box.SIMPLE_HEAD)
    several = found["panel"].nunique() > 1
    quantities = list(found["quantity"].unique())
    others = [one for one in BESIDE if one in found and one not in quantities]
    heads = ["problem"] * several + ["epsilon", "algorithm", *quantities, *others]
    for head in [*heads, "chosen" + " (first split)" * bool(splits > 1)]:
        told = head.replace("_", " ")
        chose = head in quantities and head in QUANTITIES and head != OBJECTIVE
        table.add_column(escape(told + " (chosen on the held-out part)" * chose))
    for (panel, epsilon), rows in found.groupby(PROBLEM, sort=False):
        same = [panel] * several + [f"{epsilon:g}"]
        for row in rows.to_dict("records"):
            marked = f"{row['median']:.3g}"
            if not math.isnan(row["ci_low"]):
                marked += f" [{row['ci_low']:.3g}, {row['ci_high']:.3g}]"
            judged = [marked if one == row["quantity"] else "" for one in quantities]
            judged += [f"{row[one]:.3g}" for one in others]
            chosen = ", ".join(
                f"{k}={_brief_value(v)}" for k, v in row["chosen"].items()
            )
            ended = chosen + (f" (open: {row['open']})" if row["open"] else "")
            if row["doubt"]:
                ended += f" (in doubt: {row['doubt']})"
            if row["constant"].endswith(NO_INTERCEPT):
                ended += f" ({NO_INTERCEPT})"
            if row["algorithm"] not in built_in(ALGORITHM) and row["searched"]:
                ended += f" (searched: {row['searched'].replace(' ', ', ')}"
                left = ", ".join(
                    f"{k}={_brief_value(v)}" for k, v in row["default"].items()
                )
                ended += f"; at their default: {left})" if left else ")"
            cells = [*same, row["line"], *judged, ended]
            style = "bold" if row["place"] == WINS else ""
            table.add_row(*map(escape, cells), style=style)
        for name in BASELINES:
            levels = pd.DataFrame(
                [
                    {row["quantity"]: row[name]}
                    | {one: row["baselines"].get(one, {}).get(name) for one in others}
                    for row in rows.to_dict("records")
                ],
                columns=[*quantities, *others],
                dtype=float,
            )
            cells = [
                "" if math.isnan(one) else f"{one:.3g}"
                for one in medians_of(levels).values()
            ]
            if any(cells):
                table.add_row(*map(escape, [*same, name, *cells, ""]), style="dim")
    return table


def _brief_value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3g}"
    return typed_text(value) if not isinstance(value, dict) else json.dumps(value)


_NOISE = re.compile(
    r"^\s*(full_key:|object_type=|reference_type=|See https?://|Config search path|"
    r"provider=|Set the environment variable|$)"
)
MULTIRUN = ("-m", "--multirun")


def run(arguments: Sequence[str]) -> int:
    """Run a sweep, or show its configuration, and return the exit code.

    Parameters
    ----------
    arguments : sequence of str
        The command line without the program's name; `tune` first if it tunes.
    """
    try:
        searched = [*arguments[:1]] == [TUNE]
        flags, overrides = _split_arguments(arguments[searched:])
        folders = [Path(flags.config_dir)] if flags.config_dir else []
        tune, profile = None, None
        if searched:
            tune, profile, overrides = split_tune_options(overrides)
        overrides, files = by_path(overrides)
        folders += files
        request = read_request(overrides, folders)
        if flags.config_name:
            check_config(flags.config_name, folders)
        if request.experiment is not None:
            check_experiment(request.experiment, folders)
        composer = Composer(request, flags.config_name or "config", folders)
        if flags.cfg:
            print(composer.show(flags.cfg, flags.package, flags.resolve))
            return 0
        command = ["dp-erm-bench", *(a for a in arguments if a not in MULTIRUN)]
        if tune is not None:
            return run_tuned(composer, command, tune, profile)
        return run_sweep(composer, command)
    except (UsageError, HydraException, OmegaConfBaseException, YAMLError) as error:
        print(f"dp-erm-bench: {error_sentence(error)}", file=sys.stderr)
        return 2
    except MemoryError as error:
        print(f"dp-erm-bench: not enough memory ({error})", file=sys.stderr)
        return 2


def error_sentence(error: BaseException) -> str:
    """Return the message of an error and of its causes as one line."""
    parts: list[str] = []
    cause: BaseException | None = error
    while cause is not None:
        lines = [line for line in str(cause).splitlines() if not _NOISE.match(line)]
        text = " ".join(" ".join(lines).split())
        if text and not any(text in part for part in parts):
            parts.append(text)
        cause = cause.__cause__
    return printable_text(": ".join(parts) or type(error).__name__)


def tune_command(arguments: Sequence[str]) -> int:
    """Tune algorithms on problems, and return the exit code of the run."""
    return run([TUNE, *arguments])


def run_sweep(composer: Composer, command: Sequence[str]) -> int:
    """Run a command line and return its exit code.

    Parameters
    ----------
    composer : Composer
        With the checked command line.
    command : sequence of str
        The command line as typed, for the manifest.

    Raises
    ------
    UsageError
        Before anything runs.
    """
    from dp_erm_bench.runner.experiment import run_experiment

    name = composer.request.experiment
    blocks, config = resolve_blocks(composer)
    folder = results_folder(config, composer.request.folder)
    changed = config["changes"]
    if changed and folder.name == name:
        raise UsageError(
            f"{changed[0]}: changes experiment={name}, whose results are in "
            f"{folder.name}/; leave name={name} out, so that they stay as they are"
        )
    what = f"{folder}: the folder of experiment={name} with {' '.join(changed)}"
    notice = f"{what}; its figures and claims say so" if changed else ""
    options = run_options(
        config,
        tuple(command),
        append_plan=name is None,
        files=experiment_file(composer),
        notice=notice,
    )
    before = read_manifest(folder).get("profile")
    code = run_experiment(blocks, folder.name, folder, options)
    if name is None and options.mode != "plan":
        print(f"results: {folder}", file=sys.stderr)
    if name is None or options.mode == "plan":
        return code
    _finish_run(folder, config)
    if before and before != options.profile:
        print(
            f"{folder}: held profile={before} until now; its trials are kept, and "
            "that profile's command makes its table again",
            file=sys.stderr,
        )
    return code


def experiment_file(composer: Composer) -> dict[str, bytes]:
    """Return the text of the experiment's file by its name, empty for a sweep."""
    name = composer.request.experiment
    path = experiment_files(composer.folders).get(name) if name else None
    return {path.name: path.read_bytes()} if path else {}


def resolve_blocks(composer: Composer) -> tuple[list[Section], dict[str, Any]]:
    """Return the blocks and the configuration that they come from.

    `changes` holds the command line's changes of an experiment.
    """
    request = composer.request
    if request.experiment is None:
        blocks, config = sweep_blocks(composer)
        return blocks, {**config, "changes": []}
    from dp_erm_bench.report.make import check_report  # a sweep needs no matplotlib

    config, _ = composer.compose()
    blocks = experiment_blocks(config, request)
    check_report(config)
    return blocks, {**config, "blocks": blocks, "changes": request.changes}


def _finish_run(folder: Path, config: dict[str, Any]) -> None:
    from dp_erm_bench.report.make import draw_and_judge

    draw_and_judge(folder, config)
    report(folder)


def _split_arguments(arguments: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """Return the flags and the `key=value` arguments.

    Raises
    ------
    UsageError
        For a flag that does not exist, lacks its value or has no effect.
    """
    parser = argparse.ArgumentParser(
        add_help=False, allow_abbrev=False, exit_on_error=False
    )
    parser.add_argument("--multirun", "-m", action="store_true")
    parser.add_argument("--cfg", "-c", choices=["job", "hydra", "all"])
    parser.add_argument("--package", "-p")
    parser.add_argument("--resolve", action="store_true")
    parser.add_argument("--config-name", "-cn")
    parser.add_argument("--config-dir", "-cd")
    try:
        flags, rest = parser.parse_known_args(list(arguments))
    except argparse.ArgumentError as error:
        raise UsageError(str(error)) from None
    for argument in rest:
        if argument.startswith("-"):
            check_hydra(argument)
            raise UsageError(f"{argument}: no such option; see dp-erm-bench --help")
    for name in ("config_dir", "config_name", "package"):
        if getattr(flags, name) == "":
            raise UsageError(f"--{name.replace('_', '-')}=: needs a value")
    for name in ("package", "resolve"):
        if getattr(flags, name) and not flags.cfg:
            raise UsageError(f"--{name}: belongs to --cfg job|hydra|all, which shows")
    if flags.config_dir and not os.path.isdir(flags.config_dir):
        raise UsageError(f"--config-dir {flags.config_dir}: no such folder")
    return flags, rest
