"""The leaderboard: standings, figures, its page of Markdown and its small table."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pandas as pd

from dp_erm_bench.errors import real_number
from dp_erm_bench.report import plot, style
from dp_erm_bench.report.families import Contrast, compare_pairs, family_of
from dp_erm_bench.report.figure import Drawing, Figure
from dp_erm_bench.report.layout import Sheet, save_sheet, write_caption
from dp_erm_bench.report.panels import in_doubt, join_paragraphs
from dp_erm_bench.report.paper import open_choices
from dp_erm_bench.report.style import Style
from dp_erm_bench.results.files import csv_of
from dp_erm_bench.results.runs import read_manifest
from dp_erm_bench.results.settings import final_rows, unchecked_in, worst_if_lost
from dp_erm_bench.results.statistics import (
    FLOOR,
    LOSES,
    TIES,
    WINS,
    ZERO,
    Array,
    Beyond,
    estimate_log_ratio,
    loss_beyond,
    models_of,
    nothing_beats,
    places_of_lines,
    quantile,
    with_beyond,
)

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

BASES = {"base_rate": "base rate", "mean": "mean of the labels"}
NOT_PRIVATE = {**BASES, "optimum": "optimum"}
"""The models that a table has beside them, and their names here: a problem has one of
`BASES`, a classification the first, a regression the second."""

MEDIANS = {
    **{"objective": ("objective", math.inf), "test_risk": ("test_risk", math.inf)},
    "accuracy": ("test_accuracy", 0.0),
    **{"balanced_accuracy": ("balanced_accuracy", 0.0), "auc": ("auc", 0.0)},
    **{"rmse": ("rmse", math.inf), "r2": ("r2", -math.inf)},
}
"""Columns that are medians of a table's, and what a run that was lost is worth."""

HELD_OUT = {
    "test risk / accuracy / balanced accuracy / AUC": (
        *("test_risk", "accuracy", "balanced_accuracy", "auc"),
    ),
    "test risk / RMSE / R²": ("test_risk", "rmse", "r2"),
}
"""What a page says of held-out records, of a classification and of a regression."""
COLUMNS = (
    *("panel", "epsilon", "line", "status", "reason"),
    *("median", "low", "high", *MEDIANS, "seconds", "runs", "batch"),
    *("zero", "majority", "factor", "beats_zero", "unbeaten", "place"),
)
UNTUNED = "untuned"
"""The line of a problem's rules without tuning, which is not ranked."""

BOARDS = {
    **{"l2": "l2 penalty", "l1": "L1 ball"},
    **{"squared": "squared loss", "huber": "Huber loss"},
}
"""Endings of the panels: problems whose objectives may be compared in kind."""


def standings_of(table: pd.DataFrame) -> pd.DataFrame:
    """Return one row per problem, epsilon and algorithm.

    Parameters
    ----------
    table : DataFrame
        The tidy table of a leaderboard: its panels are the problems, its lines the
        algorithms, each tuned and reported at every epsilon, or skipped.

    Returns
    -------
    DataFrame
        `COLUMNS`. `status` is ok or skipped (with the `reason`); `median`, `low` and
        `high` (10 and 90 % quantiles) of the relative error, runs that were lost
        counting as infinite; `MEDIANS` of the last checkpoint, of which `test_risk` is
        the mean loss of held-out records; `factor`, the median over the best one of the
        problem, w = 0 included; `beats_zero`, whether the 95 % interval of the median
        lies below the error of w = 0 (yes), above (no) or around it (tie); `unbeaten`
        and `place` as `places_of_lines` says: of those that beat w = 0 and the constant
        model wins is the best, ties is one that cannot be told from it.
    """
    reports, finals = _judged_rows(table)
    ranking: list[dict[str, Any]] = []
    for panel, epsilon, rows in problems_of(finals):
        starts = reports[(reports["panel"] == panel) & (reports["iteration"] == 0)]
        # At w = 0 all margins are 0: the accuracy is the share of one class.
        zero, share = (
            _median_of_present(starts[of]) for of in ("relative_error", "test_accuracy")
        )
        same = {"panel": panel, "epsilon": epsilon, "zero": zero}
        same["majority"] = max(share, 1.0 - share)
        own = {str(line): runs for line, runs in rows.groupby("line", sort=False)}
        ranked = [
            {**same, "line": line, **_columns_of_line(runs)}
            for line, runs in own.items()
        ]
        errors = {line: runs["error"].to_numpy(float) for line, runs in own.items()}
        _add_comparisons(
            ranked, errors, {line: loss_beyond(runs) for line, runs in own.items()}
        )
        ranking += ranked
    return pd.DataFrame(ranking, columns=list(COLUMNS))


def _judged_rows(table: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the rows of report runs, and the last of each with its `error`."""
    reports = table[table["phase"] != "tune"]
    finals = with_beyond(final_rows(reports))
    return reports, finals.assign(error=worst_if_lost(finals, "relative_error"))


Beside = Mapping[str, Mapping[tuple[str, str], Contrast]]


def pairs_by_board(table: pd.DataFrame) -> Beside:
    """Return how each line did beside each other one, by board."""
    errors: dict[str, dict[tuple[str, float], dict[str, Array]]] = {}
    for panel, epsilon, rows in problems_of(_judged_rows(table)[1]):
        dataset, _, board = panel.rpartition("_")
        ran = {
            str(line): runs["error"].to_numpy(float)
            for line, runs in rows.groupby("line")
            if not runs["status"].eq("skipped").any() and runs["error"].notna().any()
        }
        errors.setdefault(board, {})[dataset, epsilon] = ran
    return {board: compare_pairs(own) for board, own in errors.items()}


def pairs_table(found: Beside) -> pd.DataFrame:
    """Return a row a pair, to four digits: board, line, other, what `Contrast` says."""
    import pandas as pd

    rows = [
        {"board": board, "line": line, "other": other, **pair._asdict()}
        for board, own in found.items()
        for (line, other), pair in own.items()
    ]
    columns = ["board", "line", "other", *Contrast._fields]
    frame = pd.DataFrame(rows, columns=columns)
    names = ["ratio", "better", "within"]
    return frame.assign(**frame[names].map(lambda value: float(f"{value:.4g}")))


def sentences_on_searches(table: pd.DataFrame) -> list[str]:
    """Return a sentence for each cell in which the search was of no use.

    There an algorithm's untuned rule is better than what was chosen: the 95 % interval
    of log(error of the choice) - log(error of the rule) lies above 0.

    Parameters
    ----------
    table : DataFrame
        The tidy table of a leaderboard, with lines of `UNTUNED`.
    """
    finals = _judged_rows(table)[1]
    ran = finals[~finals["status"].eq("skipped")].set_index("seed")
    tuned, found = ran[ran["phase"].eq("report")], []
    cells = ["panel", "epsilon", "algorithm"]
    choices = dict(iter(tuned.groupby(cells, sort=False)["error"]))
    rules = ran[ran["line"].eq(UNTUNED)].groupby(cells, sort=False)["error"]
    for cell, rule in rules:
        if (own := choices.get(cell)) is None:
            continue
        if estimate_log_ratio(own.to_dict(), rule.to_dict()).low > 0.0:
            panel, epsilon, algorithm = cell
            here, there = (
                _three_digits(float(quantile(one, 0.5))) for one in (own, rule)
            )
            where = f"{panel} / {algorithm}, epsilon = {epsilon:g}"
            found.append(f"{where}: {there} by its rule, {here} tuned")
    return found


def problems_of(rows: pd.DataFrame) -> Iterator[tuple[str, float, pd.DataFrame]]:
    """Yield panel, epsilon and rows of every problem, in the order of the rows."""
    for key, own in rows.groupby(["panel", "epsilon"], sort=False):
        panel, epsilon = cast("tuple[str, float]", key)
        yield str(panel), float(epsilon), own


def standings_by_board(ranking: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return the standings by board, without boards on which nothing ran."""
    parts = {b: ranking[ranking["panel"].str.endswith(f"_{b}")] for b in BOARDS}
    return {b: rows for b, rows in parts.items() if (rows["status"] == "ok").any()}


def _median_of_present(column: pd.Series[float]) -> float:
    """Return the median of the values that are not missing, nan if all are."""
    values = column.dropna().to_numpy(float)
    return float(quantile(values, 0.5)) if len(values) else math.nan


def _median_with_lost(column: pd.Series[float], lost: float) -> float:
    """Return the median of runs of which some are lost, nan if it was not measured."""
    return _median_of_present(column.fillna(lost) if column.notna().any() else column)


def reference_rows(table: pd.DataFrame) -> pd.DataFrame:
    """Return what to compare standings with, in their columns: three rows a problem.

    Parameters
    ----------
    table : DataFrame
        The tidy table of a leaderboard.

    Returns
    -------
    DataFrame
        ``w = 0`` at epsilon 0, of status ``no data``; ``base rate``, which answers the
        share of each class in the training part, of a regression ``mean of the
        labels``, which answers that of the training part, and ``optimum``, both at
        epsilon infinite and of status ``not private``. Numbers that the table has not
        are nan.
    """
    found: list[dict[str, Any]] = []
    for panel, rows in table.groupby("panel", sort=False):
        starts = rows[rows["iteration"] == 0]
        zero = {
            name: _median_of_present(starts[of]) for name, (of, _) in MEDIANS.items()
        }
        share, zero["median"] = (
            zero["accuracy"],
            _median_of_present(starts["relative_error"]),
        )
        texts = rows["references"].dropna().unique()
        models = next(filter(None, map(models_of, texts)), {})
        base = "mean" if "mean" in models else "base_rate"
        if base == "base_rate":
            # All its scores are equal, and it answers one class.
            zero |= {"accuracy": max(share, 1.0 - share), "balanced_accuracy": 0.5}
            zero["auc"] = 0.5
        first = {"panel": str(panel), "epsilon": 0.0, "line": ZERO, "status": "no data"}
        found.append(first | zero)
        for name in (base, "optimum"):
            line = NOT_PRIVATE[name]
            own = models.get(name, {})
            row = {key: real_number(own.get(of)) for key, (of, _) in MEDIANS.items()}
            if name == "optimum":
                row |= {"objective": _median_of_present(rows["optimum"]), "median": 0.0}
            named = {"epsilon": math.inf, "line": line, "status": "not private"}
            found.append({"panel": str(panel), **named, **row})
    return pd.DataFrame(found, columns=list(COLUMNS))


def _columns_of_line(runs: pd.DataFrame) -> dict[str, Any]:
    """Return the columns that one line has by itself on one problem at one epsilon."""
    skipped = runs[runs["status"] == "skipped"]
    if len(skipped):
        reason = str(skipped["message"].iloc[0])
        return {"status": "skipped", "reason": reason, "place": LOSES}
    errors = runs["error"].to_numpy(float)
    spread = {"median": 0.5, "low": 0.1, "high": 0.9}
    return {
        **{name: float(quantile(errors, q)) for name, q in spread.items()},
        "status": "ok",
        "reason": "",
        **{
            name: _median_with_lost(runs[of], lost)
            for name, (of, lost) in MEDIANS.items()
        },
        "seconds": float(quantile(runs["seconds"].to_numpy(float), 0.5)),
        "runs": float(len(runs)),
        "batch": float(runs["batch_size"].max()),
        "place": LOSES,
    }


def _add_comparisons(
    ranked: Sequence[dict[str, Any]],
    errors: Mapping[str, Array],
    others: Mapping[str, Beyond],
) -> None:
    """Add what depends on other lines, w = 0 and the constant model."""
    ran = [row for row in ranked if row["status"] == "ok"]
    least = min((row[of] for row in ran for of in ("zero", "median")), default=0.0)
    own = {
        row["line"]: errors[row["line"]] if row["status"] == "ok" else None
        for row in ranked
    }
    found = places_of_lines(own, ranked[0]["zero"], others)
    for row in ran:
        row["factor"] = max(row["median"], FLOOR) / max(least, FLOOR)
        how = found[row["line"]]._asdict()
        row |= {key: how[key] for key in ("beats_zero", "unbeaten", "place")}


def winners_by_problem(ranking: pd.DataFrame) -> Iterator[tuple[str, float, list[str]]]:
    """Yield problem, epsilon and the algorithms that win or tie, the best one first.

    Parameters
    ----------
    ranking : DataFrame
        What `standings_of` returns.
    """
    for panel, epsilon, rows in problems_of(ranking):
        first = rows[rows["place"] != LOSES].sort_values(["median"], kind="stable")
        yield panel, epsilon, [str(line) for line in first["line"]]


def performance_profiles(ranking: pd.DataFrame, factors: Array) -> dict[str, Array]:
    """Return the performance profiles of the algorithms and of w = 0.

    Parameters
    ----------
    ranking : DataFrame
        What `standings_of` returns, or some of its problems.
    factors : array
        Factors over the best of a problem, at least 1.

    Returns
    -------
    dict of str to array
        Share of the problems (dataset and epsilon) within each factor; what is
        skipped is within none. Lines that were skipped everywhere are left out.
    """
    grouped = ranking.groupby(["panel", "epsilon"], sort=False)
    ran = ranking[ranking["status"] == "ok"]
    least = grouped[["median", "zero"]].min().min(axis=1).clip(lower=FLOOR)
    by_line = {str(line): rows["factor"] for line, rows in ran.groupby("line")}
    zero = grouped["zero"].first().clip(lower=FLOOR) / least
    ratios = {line: own.to_numpy(float) for line, own in by_line.items()}
    ratios[ZERO] = zero.to_numpy(float)
    return plot.shares_within(ratios, len(grouped), factors)


def published_standings(ranking: pd.DataFrame, models: pd.DataFrame) -> pd.DataFrame:
    """Return standings and references without reasons, to four digits: below 150 kB."""
    import pandas as pd

    rows = pd.concat([part.astype(ranking.dtypes) for part in (ranking, models)])
    columns = rows.drop(columns=["reason", "runs", "batch", "unbeaten"])
    numbers = columns.select_dtypes(float)
    return columns.assign(**numbers.map(lambda value: float(f"{value:.4g}")))


def pages_of_boards(
    ranking: pd.DataFrame,
    models: pd.DataFrame,
    found: Beside,
    table: pd.DataFrame,
    profile: str,
    open_choices: Sequence[str],
    manifest: Mapping[str, Any],
    wrong: Sequence[str] = (),
) -> str:
    """Return the page: leaderboard.md, and board.md for each of its boards, filled in.

    Parameters
    ----------
    ranking, models : DataFrame
        The results of `standings_of` and `reference_rows`.
    found : mapping
        The result of `pairs_by_board`.
    table : DataFrame
        The tidy table behind the ranking.
    profile : str
        The profile that was run.
    open_choices : sequence of str
        A line of text for each choice beyond which a better one may lie.
    manifest : mapping
        Of the latest run: machine, commit, what could not run.
    wrong : sequence of str
        What `sentences_on_searches` returns.
    """
    environment = manifest.get("environment") or {}
    git = environment.get("git") or {}
    origin = [environment.get("cpu"), git.get("commit", "")[:7]]
    batch = ranking["batch"].max()
    uses = {u for text in table["uncharged"].dropna() for u in text.split(",")} - {""}
    missing = {(m["dataset"], m["reason"]) for m in manifest.get("not_run") or ()}
    doubts = in_doubt(unchecked_in(table)).replace("\n", " ")
    parts = standings_by_board(ranking)
    lines = [f"- {name}: {reason}" for name, reason in sorted(missing)]
    # Why, of lines such as `list_open_choices` gives.
    beyond = [one.partition(" in {")[0] for one in open_choices if "/" in one]
    return _page_template("leaderboard").substitute(
        profile=profile,
        made="".join(f", {word}" for word in origin if word),
        runs="?" if ranking["runs"].isna().all() else int(ranking["runs"].max()),
        beyond=len(beyond),
        short=sum("trials" in one.rpartition(": ")[2] for one in beyond),
        tuned=int(ranking["status"].eq("ok").sum()),
        batch="batch size 1" if batch == 1 else f"in batches of up to {batch:g}",
        uncharged=", ".join(sorted(uses)) or "none",
        doubts=f"\n- {doubts}" if doubts else "",
        boards="".join(
            _board_part(*one, models, found.get(one[0], {}), table)
            for one in parts.items()
        ),
        predicted=_prediction_errors(table),
        faults="\n- **Faults of the search**, where the untuned rule is better: "
        f"{'; '.join(wrong)}."
        if wrong
        else "",
        missing="\n## Not run\n\n" + "\n".join(lines) + "\n" if lines else "",
    )


def _prediction_errors(table: pd.DataFrame) -> str:
    """Return how far predictions of the excess are off, empty where there are none."""
    if "predicted_excess" not in table:
        return ""
    finals = final_rows(table[table["phase"] != "tune"])
    ends = worst_if_lost(finals, "objective")
    actual = (ends - finals["optimum"]).mask(ends == math.inf, math.inf)
    cells = finals.assign(actual=actual).groupby(["panel", "epsilon", "line"])
    means = cells[["actual", "predicted_excess"]].mean()
    ratios = (means["actual"] / means["predicted_excess"]).dropna().to_numpy(float)
    if not len(ratios):
        return ""
    middle, low, high = (
        _three_digits(float(quantile(ratios, q))) for q in (0.5, 0.0, 1.0)
    )
    where = f"the median of {len(ratios)} lines at one epsilon, from {low} to {high}"
    return (
        f"\n- Excess that noise alone predicts (`predicted_excess`, made of what was "
        f"published): actual over predicted is {middle} in "
        f"{where if len(ratios) > 1 else 'the one line at one epsilon that has it'}."
    )


def _page_template(name: str) -> Template:
    path = Path(__file__).with_name(f"{name}.md")
    return Template(path.read_text(encoding="utf-8").removesuffix("\n"))


def _board_part(
    board: str,
    rows: pd.DataFrame,
    models: pd.DataFrame,
    found: Mapping[tuple[str, str], Contrast],
    table: pd.DataFrame,
) -> str:
    """Return the part of one board."""
    problems = [ran for _, ran in rows.groupby("panel", sort=False)]
    return _page_template("board").substitute(
        title=BOARDS[board],
        total=rows.groupby(["panel", "epsilon"]).ngroups,
        summary=_summary_of_algorithms(rows),
        places=_table_of_winners(rows),
        families=_table_of_pairs(rows, found),
        nothing=_problems_unbeaten(rows, models),
        problems="".join(_problem_section(ran, models, table) for ran in problems),
    )


def _summary_of_algorithms(rows: pd.DataFrame) -> str:
    """Return wins, ties and medians of each algorithm over the problems of a board."""
    lines = []
    for line, ran in rows[rows["status"] == "ok"].groupby("line"):
        won, tied = (int((ran["place"] == place).sum()) for place in (WINS, TIES))
        beats = int((ran["beats_zero"] == "yes").sum())
        factor, seconds = (float(quantile(ran[c], 0.5)) for c in ("factor", "seconds"))
        cells = (line, len(ran), won, tied, beats, _three_digits(factor))
        lines.append((-won, -tied, *cells, f"{1e3 * seconds:.1f}"))
    head = ("algorithm", "ran", "wins", "ties", "beats w = 0", "factor", "ms")
    return _markdown_table(head, [row[2:] for row in sorted(lines)])


def _table_of_winners(rows: pd.DataFrame) -> str:
    """Return the winners of each problem as a table."""
    epsilons = sorted(set(rows["epsilon"]))
    cells: dict[str, dict[float, str]] = {}
    for (_, _, own), (panel, epsilon, lines) in zip(
        problems_of(rows), winners_by_problem(rows), strict=True
    ):
        nothing = nothing_beats(own["unbeaten"].dropna()).removeprefix("nothing beats ")
        first = f"**{lines[0]}**" if lines else f"*{nothing or ZERO}*"
        rest = f" ({', '.join(lines[1:])})" if lines[1:] else ""
        cells.setdefault(panel, {})[epsilon] = first + rest
    head = ("problem", *(f"epsilon = {e:g}" for e in epsilons))
    body = [(p, *(by.get(e, "") for e in epsilons)) for p, by in cells.items()]
    return _markdown_table(head, body)


def _table_of_pairs(
    rows: pd.DataFrame, found: Mapping[tuple[str, str], Contrast]
) -> str:
    """Return the probabilities of being better as a table, who is ahead first."""
    ran = rows[rows["status"] == "ok"]
    names = {family_of(panel.rpartition("_")[0]) for panel in ran["panel"]}
    if len(names) < 2:
        return f"Nothing is told of other data: {', '.join(names)} is one family.\n"

    def times_ahead(line: str) -> tuple[float, str]:
        own = [pair.better for (first, _), pair in found.items() if first == line]
        told = [one for one in own if not math.isnan(one)]
        return -sum(told) / max(len(told), 1), line

    lines = sorted({line for pair in found for line in pair}, key=times_ahead)
    body = []
    for line in lines:
        cells = [
            "" if line == o else _chances_in_percent(found.get((line, o)))
            for o in lines
        ]
        body.append((line, *cells))
    short = [(STYLES[o].family or o) if o in STYLES else o for o in lines]
    few = {pair.families for pair in found.values()} - {len(names)}
    some = f" (for some pairs {min(few)})" if few else ""
    told = _page_template("families").substitute(
        count=len(names), some=some, names=", ".join(sorted(names))
    )
    return f"{told}\n\n{_markdown_table(('', *short), body)}"


def _chances_in_percent(pair: Contrast | None) -> str:
    """Return the two probabilities of a pair in percent; - where there are none."""
    if pair is None or math.isnan(pair.better):
        return "-"
    return f"{100.0 * pair.better:.0f} / {100.0 * pair.within:.0f}"


def _problems_unbeaten(rows: pd.DataFrame, models: pd.DataFrame) -> str:
    """Return the problems on which no algorithm beats w = 0, or the classes alone."""
    base = models[models["panel"].isin(rows["panel"])]
    base = base[base["line"].isin([*BASES.values()])].set_index("panel")
    risks = rows["panel"].map(base["test_risk"])
    verdicts = {"objective": rows["beats_zero"] == "yes"}
    if not rows["unbeaten"].dropna().isin(["", ZERO]).all():
        verdicts["objective (the constant model is as good)"] = rows["unbeaten"] == ""
    if risks.notna().any():
        word = f"test risk (the {base['line'].iloc[0]} is as good)"
        verdicts[word] = rows["test_risk"] < risks
    if rows["majority"].notna().any():
        accurate = rows["accuracy"] > rows["majority"]
        verdicts["test accuracy (the larger class is as good)"] = accurate
    lines = []
    for word, better in verdicts.items():
        where: dict[str, list[str]] = {}
        for panel, epsilon, ran in problems_of(rows):
            if not better[ran.index].any():
                where.setdefault(panel, []).append(f"{epsilon:g}")
        named = [f"{panel} at epsilon {', '.join(e)}" for panel, e in where.items()]
        lines.append(f"- By {word}: {'; '.join(named) or '-'}")
    return "\n".join(lines)


def _problem_section(
    rows: pd.DataFrame, models: pd.DataFrame, table: pd.DataFrame
) -> str:
    """Return the section of one problem: errors, then what held-out records say."""
    panel = rows["panel"].iloc[0]
    epsilons = sorted(set(rows["epsilon"]))
    ran = rows[rows["status"] == "ok"]
    middle = epsilons[len(epsilons) // 2]
    errors, held_out = [], []
    told, *others = HELD_OUT
    told = next((t for t in others if rows[HELD_OUT[t][-1]].notna().any()), told)
    seen = HELD_OUT[told]
    for line, own in ran.groupby("line"):
        by = {row["epsilon"]: row for row in own.to_dict("records")}
        at = [by.get(epsilon) for epsilon in epsilons]
        time = f"{1e3 * by[middle]['seconds']:.1f}" if middle in by else "-"
        errors.append((str(line), *map(_error_cell, at), time))
        held_out.append((str(line), *(_held_out_medians(row, seen) for row in at)))
    if len(ran):
        zero = _three_digits(ran["zero"].iloc[0])
        errors.append(("*w = 0*", *[zero] * len(epsilons), "0"))
    for row in models[models["panel"] == panel].to_dict("records"):
        name = row["line"] + f", {row['status']}" * (row["line"] != ZERO)
        held_out.append((f"*{name}*", *[_held_out_medians(row, seen)] * len(epsilons)))
    head = ("algorithm", *(f"epsilon = {e:g}" for e in epsilons))
    parts = (
        _facts_of_problem(table[table["panel"] == panel]),
        "",
        _markdown_table((*head, f"ms at {middle:g}"), errors),
        f"Held-out records: {told}.\n",
        _markdown_table(head, held_out),
        *_skipped_algorithms(rows),
        "",
    )
    return f"\n### {panel}\n\n" + "\n".join(parts)


def _error_cell(row: Mapping[Hashable, Any] | None) -> str:
    """Return median and quantiles of the error, bold for a winner."""
    if row is None:
        return "-"
    low, high = _three_digits(row["low"]), _three_digits(row["high"])
    text = f"{_three_digits(row['median'])} [{low}, {high}]"
    return f"**{text}**" if row["place"] != LOSES else text


def _held_out_medians(row: Mapping[Hashable, Any] | None, names: Sequence[str]) -> str:
    """Return the medians of what held-out records say, in the order of the names."""
    values = [math.nan if row is None else float(row[name]) for name in names]
    if all(map(math.isnan, values)):
        return "-"
    risk, *shares = values
    words = [_three_digits(risk), *(f"{share:.3f}" for share in shares)]
    return " / ".join(words).replace("nan", "-")


def _facts_of_problem(runs: pd.DataFrame) -> str:
    """Return data, size and objective of a problem."""
    ok = runs[runs["n"].notna()]
    if ok.empty:
        return "No run."
    one = ok.iloc[0]
    form = ", standardised" if one["standardise"] else ""
    penalty = "" if one["penalty"] == "none" else f", l2 penalty {one['strength']:g}"
    ball = "" if one["constraint"] == "none" else f", constraint {one['constraint']}"
    return (
        f"{one['dataset']}{form}: n x p = {one['n']:.0f} x {one['p']:.0f}, "
        f"{one['loss']} loss{penalty}{ball}; options `{one['dataset_options']}`."
    )


def _skipped_algorithms(rows: pd.DataFrame) -> Iterator[str]:
    """Yield a line per algorithm that was skipped, with the reason."""
    skipped = rows[rows["status"] == "skipped"]
    for line, own in skipped.groupby("line", sort=False):
        where = ", ".join(f"{e:g}" for e in own["epsilon"])
        yield f"- skipped: {line} at epsilon {where}: {own['reason'].iloc[0]}"


def _three_digits(value: float) -> str:
    """Return a number to three digits."""
    if not math.isfinite(value):
        return f"{value}"
    return f"{value:.3g}" if value < 1e4 else f"{value:.0e}"


def _markdown_table(head: Sequence[str], body: Sequence[Sequence[object]]) -> str:
    """Return a table of Markdown."""
    rows = [head, ["---"] * len(head), *body]
    return "\n".join("| " + " | ".join(map(str, row)) + " |" for row in rows) + "\n"


LOOKS: dict[str, tuple[Any, ...]] = {
    "greedy_cd": (style.GREEN, "P", 5.5),
    "random_cd": (style.BLUE, "o"),
    "sgd": (style.VERMILLION, "^"),
    "svrg": (style.GREY, "*", 6.0),
    "gd": (style.ORANGE, "v"),
    "frank_wolfe": ("#332288", "h"),
    "mirror_descent": (style.SKY, "s", 4.5, 1.6, "mirror"),
    "output_perturbation": (style.PURPLE, "D", 4.0, 1.6, "output"),
    "objective_perturbation": ("#882255", "d", 4.5, 1.6, "objective"),
    "approximate_minima_perturbation": ("#DDAA88", "p", 4.5, 1.6, "AMP"),
    "permutation_sgd": (style.BROWN, "X", 4.5, 1.6, "permutation"),
    "newton": ("#999933", ">"),
    "feature_covariance": ("#AA4499", "<", 4.5, 1.6, "covariance"),
    "ssp": ("#44AA99", "H", 5.0),
    ZERO: (style.BLACK, "", 0.0, 1.6, "", "dashed"),
}
STYLES = {line: Style(line, *look) for line, look in LOOKS.items()}
"""The style of each algorithm; `family_of` is a name that fits into a margin."""

PROFILE, SMALL, WIDTH, ROW = (3.6, 2.6), (2.0, 1.6), 8.6, 0.21
CAPTIONS = {
    "profiles": "Performance profiles: a problem is a dataset at one epsilon; its best "
    "is the smallest median of all algorithms and of w = 0. What an algorithm refuses "
    "counts as never reached.",
    "heat": "Colour: the error over the best one of the problem, w = 0 included, from "
    f"1 (dark) to {plot.WORST:g} and more (light). Filled circle: wins; ring: "
    "within noise of the winner; both only where w = 0 is beaten. White: refused; who "
    "is on all problems of a board has no row. AMP, output, objective: perturbation; "
    "permutation: permutation_sgd.",
    "error": "Dashed: w = 0. Errors above 10 times that are left out.",
    "risk": "Mean loss of held-out records, without penalty. Dashed: the base rate, or "
    "the mean of the labels; dotted: the optimum; none is private. Risks above twice "
    "log 2, of numbers twice that of the mean, are left out.",
    "accuracy": "Dashed: share of the larger class in the test set; dotted: the "
    "optimum, not private.",
    "auc": "Area under the ROC curve of held-out records. Dashed: without data; "
    "dotted: the optimum, not private.",
    "rmse": "Root of the mean squared error on held-out records, in the labels' unit. "
    "Dashed: the mean of the labels; dotted: the optimum; neither is private. Above "
    "twice that of the mean it is left out.",
    "r2": "1 less the mean squared error over the variance of the held-out labels. "
    "Dashed: the mean of the labels; dotted: the optimum; neither is private. Below -1 "
    "it is left out.",
}
PROBLEMS = {
    "error": ("median", "relative error"),
    "risk": ("test_risk", "test risk"),
    "accuracy": ("accuracy", "test accuracy"),
    "auc": ("auc", "test AUC"),
    "rmse": ("rmse", "test RMSE"),
    "r2": ("r2", r"test $R^2$"),
}
"""Figures with axes for each problem: the column of the standings, and its words."""


@dataclass(frozen=True)
class Leaderboard(Figure):
    """The leaderboard; a panel of the experiment is a dataset with a board's name."""

    def draw(self, drawing: Drawing) -> list[Path]:
        """Draw the leaderboard; return the files written, no figures if nothing ran.

        leaderboard.md, leaderboard.csv and leaderboard_pairs.csv go beside the folder
        of the figures.
        """
        whole, folder, name = drawing.table, drawing.folder, drawing.profile
        table, wrong = whole[whole["line"] != UNTUNED], sentences_on_searches(whole)
        ranking, outer = standings_of(table), folder.parent
        models, found = reference_rows(table), pairs_by_board(table)
        beyond, manifest = open_choices(outer), read_manifest(outer)
        log = ["Choices beyond which a better setting may lie", *beyond]
        log += ["Cells in which an untuned rule is better", *(wrong or ["  none"]), ""]
        texts = {
            outer / "leaderboard.md": pages_of_boards(
                ranking, models, found, table, name, beyond, manifest, wrong
            ),
            outer / "leaderboard.csv": csv_of(published_standings(ranking, models)),
            outer / "leaderboard_pairs.csv": csv_of(pairs_table(found)),
            folder / "log.txt": "\n".join(log),
        }
        written = [write_caption(path, text) for path, text in texts.items()]
        with style.house_style():
            doubts = in_doubt(unchecked_in(table))
            for stem, sheet in _sheets_of_profile(
                ranking, models, name, doubts
            ).items():
                written += save_sheet(sheet, folder / f"leaderboard_{stem}")
        return written


def _sheets_of_profile(
    ranking: pd.DataFrame, models: pd.DataFrame, profile: str, doubts: str
) -> dict[str, Sheet]:
    """Return the sheets of a profile's standings by name, none where nothing ran."""
    parts = standings_by_board(ranking)
    if not parts:
        return {}
    panels = ranking[ranking["status"] == "ok"].groupby("panel", sort=False)
    columns, first = min(4, len(panels)), next(iter(parts.values()))
    size = WIDTH, ROW * max(len(_algorithms_that_ran(rows)) for rows in parts.values())
    # Of classes there is no rmse, of numbers no accuracy.
    seen = [of for of in PROBLEMS.items() if ranking[of[1][0]].notna().any()]
    kinds: tuple[tuple[Any, ...], ...] = (
        ("profiles", _draw_profile, first, len(parts), PROFILE, "share of problems"),
        ("heat", _draw_factors, first, 1, size, ""),
        *(
            (
                stem,
                partial(_draw_problem, column, models),
                ranking,
                columns,
                SMALL,
                words,
            )
            for stem, (column, words) in seen
        ),
    )
    sheets = {}
    for stem, draw, about, *shape in kinds:
        column = PROBLEMS.get(stem, ("line",))[0]
        own = (one for one in panels if one[1][column].notna().any())
        groups = [*(parts.items() if about is first else own)]
        if stem != "heat":
            groups = [part for group in groups for part in _facets_of_panel(*group)]
        cells = [partial(draw, name=name, rows=rows) for name, rows in groups]
        text = join_paragraphs(
            _about_leaderboard(about, profile), CAPTIONS[stem], doubts
        )
        across, size, quantity = shape
        wide: dict[str, Any] = {"width": "page"}
        wide |= {"exact": True, **plot.MARGINS} if stem == "heat" else {}
        sheets[stem] = Sheet(cells, across, text, size, quantity, **wide)
    return sheets


def _facets_of_panel(name: str, rows: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """Return a panel once, or several times with some of the lines marked as drawn.

    Its ``facet`` is what its title ends with, empty if it is there once.
    """
    ran = set(rows.loc[rows["status"] == "ok", "line"])
    parts = plot.spread_lines([line for line in STYLES if line in ran])
    told = [
        f" ({k}/{len(parts)})" if len(parts) > 1 else "" for k, _ in enumerate(parts, 1)
    ]
    return [
        (name, rows.assign(drawn=rows["line"].isin(part), facet=facet))
        for part, facet in zip(parts, told, strict=True)
    ]


def _about_leaderboard(ranking: pd.DataFrame, profile: str) -> str:
    """Return the first paragraph of every caption of the leaderboard."""
    runs = int(ranking["runs"].max())
    return (
        f"Medians of {runs} report runs at settings tuned on other seeds, uncharged "
        f"(profile {profile}), of the last iterate. Errors are F(w)/F* - 1."
    )


def _draw_profile(ax: Axes, name: str, rows: pd.DataFrame) -> None:
    """Draw the share of problems within each factor of the best."""
    shares = performance_profiles(rows, plot.FACTORS)
    own = {ZERO, *rows.loc[rows["drawn"], "line"]}
    lines = [line for line in STYLES if line in shares and line in own]
    plot.draw_profiles(ax, {line: shares[line] for line in lines}, STYLES)
    ax.set_xlabel("factor over the best error")
    count = rows.groupby(["panel", "epsilon"]).ngroups
    ax.set_title(f"{BOARDS[name]}: {count} problems{rows['facet'].iloc[0]}")


def _algorithms_that_ran(rows: pd.DataFrame) -> list[str]:
    """Return what ran on any problem, and w = 0."""
    ran = {ZERO, *rows.loc[rows["status"] == "ok", "line"]}
    return [line for line in STYLES if line in ran]


def _draw_factors(ax: Axes, name: str, rows: pd.DataFrame) -> None:
    """Draw every algorithm's factor over the best on every problem of a board."""
    problems = list(dict.fromkeys(zip(rows["panel"], rows["epsilon"], strict=True)))
    lines = _algorithms_that_ran(rows)
    grid = np.full((len(lines), len(problems)), math.nan)
    marks: dict[str, list[tuple[int, int]]] = {"wins": [], "ties": []}
    for row in rows[rows["status"] == "ok"].to_dict("records"):
        at = lines.index(row["line"]), problems.index((row["panel"], row["epsilon"]))
        grid[at] = row["factor"]
        grid[-1, at[1]] = row["factor"] * row["zero"] / row["median"]
        if row["place"] in marks:
            marks[row["place"]].append(at)
    names = [STYLES[line].family or line for line in lines]
    data = [(panel.rpartition("_")[0], epsilon) for panel, epsilon in problems]
    plot.draw_winners(ax, names, data, grid, marks)
    ax.set_title(f"{BOARDS[name]}\n")


def _draw_problem(
    column: str, models: pd.DataFrame, ax: Axes, name: str, rows: pd.DataFrame
) -> None:
    """Draw a column of the standings of one problem against epsilon."""
    epsilons = sorted(set(rows["epsilon"]))
    own = models[models["panel"] == name].set_index("line")
    # In a regression the mean is what the base rate is in a classification.
    (known,) = {*BASES.values()} & {*own.index}
    base = {
        "median": float(rows["zero"].iloc[0]),
        "accuracy": float(rows["majority"].iloc[0]),
        "auc": 0.5,
    }.get(column, float(own[column][known]))
    classes = known == BASES["base_rate"]
    most = {"median": 10.0 * base, "rmse": 2.0 * base}
    most["test_risk"] = 2.0 * (math.log(2.0) if classes else base)
    far = rows[column] > most.get(column, math.inf)
    far |= (rows[column] < -1.0) & (column == "r2")
    shown = rows[rows["drawn"] & ~far]
    for line in (line for line in STYLES if line in set(shown["line"])):
        points = shown[shown["line"] == line].sort_values("epsilon")
        look = STYLES[line].curve() | {"linewidth": 1.1, "markersize": 3.5}
        ax.plot(points["epsilon"], points[column], **look)
    ax.axhline(base, color=style.BLACK, linewidth=1.0, linestyle="dashed")
    if column != "median":
        end = float(own[column][NOT_PRIVATE["optimum"]])
        ax.axhline(end, color=style.BLACK, linewidth=1.0, linestyle="dotted")
    ax.set_title(title_of_panel(name) + rows["facet"].iloc[0])
    ax.set_xlabel(r"$\varepsilon$")
    style.scale_epsilon(ax, epsilons)
    if column == "median":
        errors = [base, *shown[column].clip(lower=1e-6)]
        style.scale_errors(ax, (min(errors), max(errors)))


def title_of_panel(panel: str) -> str:
    """Return dataset and kind of a panel."""
    dataset, _, board = panel.rpartition("_")
    return f"{dataset}, {BOARDS[board]}"
