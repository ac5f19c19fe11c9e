"""The columns of the results table: types, units, meanings, and when they are empty."""

from __future__ import annotations

import math
from typing import NamedTuple

TEXT, FLAG, COUNT, NUMBER = "string", "bool", "int64", "float64"


class Column(NamedTuple):
    """A column of the tidy table.

    Attributes
    ----------
    dtype : str
        Type in the file: `string`, `bool`, `int64` or `float64`.
    meaning : str
        Description of its values.
    empty : str
        Cases in which the value is missing, or a string is empty.
    unit : str
        Unit; empty for a name or a pure number.
    higher : bool
        Whether higher values are better. For all other measures, lower values are
        better.
    """

    dtype: str
    meaning: str
    empty: str = "never"
    unit: str = ""
    higher: bool = False


FAILED = "the trial has no trajectory"
UNLIKE = "no optimum is certified"
UNJUDGED = "no `dataset.n_fresh` (the column is missing if no trial has it)"
NO_TEST = "no held-out records; not the last row of a trial"

NO_NUMBERS = "no held-out records; a classification"

COLUMNS = {
    "trial": Column(TEXT, "digest of everything that determines the trial's numbers"),
    "experiment": Column(TEXT, "name of the experiment, or of the sweep's folder"),
    "panel": Column(
        TEXT, "label of the problem; in a sweep the dataset and its options that vary"
    ),
    "line": Column(
        TEXT, "label of the curve; in a sweep the algorithm and whatever else varies"
    ),
    "phase": Column(
        TEXT, "`tune`: a trial of a search; `report`: judges a choice; `sweep`: neither"
    ),
    "tuned": Column(FLAG, "whether the parameters were chosen by tuning"),
    "dataset": Column(TEXT, "name of the dataset"),
    "dataset_options": Column(
        TEXT, "JSON of the options that differ from the dataset's yaml"
    ),
    "content": Column(
        TEXT, "digest of the file of the records", "generated or published data"
    ),
    "standardise": Column(FLAG, "whether columns were standardised"),
    "n": Column(COUNT, "number of training records", FAILED, "records"),
    "p": Column(COUNT, "number of features", FAILED, "features"),
    "loss": Column(TEXT, "name of the loss"),
    "penalty": Column(TEXT, "name of the penalty"),
    "strength": Column(NUMBER, "factor of the penalty", "no penalty"),
    "constraint": Column(TEXT, "name of the constraint"),
    "objective_options": Column(
        TEXT,
        "JSON of the parameters of loss, penalty and constraint except the strength; a "
        "long one is cut and ends with a digest",
    ),
    "algorithm": Column(TEXT, "name of the algorithm"),
    "params": Column(TEXT, "JSON of the algorithm's parameters"),
    "solver": Column(
        TEXT,
        "digest of the sources of a solver from outside",
        "an algorithm of the package",
    ),
    "checked": Column(
        FLAG,
        "whether the solver has passed `check` and nothing is in doubt; the package's "
        "own count as passed",
    ),
    "doubt": Column(
        TEXT,
        "what is in doubt: `not checked`; `checked, release not recounted`, for a "
        "release from outside without a twin; or `checked, uncharged: NAME`, for the "
        "uses that a solver declares",
        "`checked` is true",
    ),
    "exempt": Column(
        TEXT,
        "checks, lines and conditions that a solver from outside exempts, with reasons",
        "an algorithm of the package, or no exemption",
    ),
    "epsilon": Column(NUMBER, "epsilon of the budget"),
    "delta": Column(NUMBER, "delta of the budget", "it is 1/n^2 and n is not known"),
    "adjacency": Column(TEXT, "which datasets are neighbours"),
    "calibration": Column(TEXT, "how the noise was set, and whether that is proved"),
    "accountant": Column(TEXT, "name of the proof", "nothing is proved"),
    "epsilon_certified": Column(
        NUMBER, "epsilon that is proved for the noise added", "nothing is proved"
    ),
    "uncharged": Column(
        TEXT,
        "uses of the data that no budget covers, separated by commas",
        "there are none",
    ),
    "smoothness": Column(TEXT, "where step sizes come from", FAILED),
    "seed": Column(COUNT, "seed of the noise"),
    "dataset_seed": Column(
        COUNT, "seed of generation and split", "data without either"
    ),
    "batch_size": Column(COUNT, "number of trials computed together", FAILED),
    "iteration": Column(COUNT, "number of iterations at the checkpoint", FAILED),
    "passes": Column(
        NUMBER, "work done at the checkpoint", FAILED, "passes over the data"
    ),
    "seconds": Column(
        NUMBER,
        "time until the checkpoint; not private for boosting: it reveals the number of "
        "runs",
        FAILED,
        "s",
    ),
    "objective": Column(
        NUMBER, "F(w), the objective", f"{FAILED}, or it is not finite"
    ),
    "optimum": Column(NUMBER, "F*, the smallest objective", UNLIKE),
    "relative_error": Column(
        NUMBER, "F(w) / F* - 1", f"{UNLIKE}, F* is 0 or the objective is empty"
    ),
    "nnz": Column(
        COUNT, "number of coordinates of w that are not 0", FAILED, "coordinates"
    ),
    "test_objective": Column(NUMBER, "objective on held-out records", NO_TEST),
    "test_risk": Column(NUMBER, "mean loss of held-out records", NO_TEST),
    "test_accuracy": Column(
        NUMBER, "share of right answers on held-out records", NO_TEST, higher=True
    ),
    "balanced_accuracy": Column(
        NUMBER, "mean over classes of that share", NO_TEST, higher=True
    ),
    "auc": Column(
        NUMBER, "area under the ROC curve of held-out records", NO_TEST, higher=True
    ),
    "rmse": Column(
        NUMBER, "root of the mean squared error on held-out records", NO_NUMBERS
    ),
    "r2": Column(
        NUMBER,
        "1 - mean squared error / variance of the labels of held-out records",
        NO_NUMBERS,
        higher=True,
    ),
    "train_risk": Column(
        NUMBER,
        "mean loss of the records that were trained on",
        "held-out records or an intercept; not the last row of a trial",
    ),
    "gradient_norm": Column(
        NUMBER,
        "norm of the gradient, for a loss that is not convex",
        "the loss is convex",
    ),
    "dual_gap": Column(
        NUMBER,
        "gap of primal and dual at the last point before noise",
        "not `dual_frank_wolfe` with a norm, or before its first step",
    ),
    "predicted_excess": Column(
        NUMBER,
        "objective - optimum as predicted from the noise of the last step: tr((H + "
        "f)^-2 H) s^2 / 2, with H as published, its floor f and the deviation s of the "
        "noise on the mean gradient; made of published numbers, so it may be published",
        "not the last row of `newton` with noise, noise=hessian, curvature=hessian, "
        "step=1 and no clip below the declared bound",
    ),
    "support_f1": Column(
        NUMBER,
        "F1 score of the support of w against that of the true weights",
        "the true weights are unknown",
        higher=True,
    ),
    "active_groups": Column(
        NUMBER,
        "number of groups with a coordinate of w that is not 0",
        "no penalty or ball of groups",
        "groups",
    ),
    "change_points": Column(
        NUMBER,
        "number of neighbouring coordinates of w with different absolute values",
        "no penalty or ball of the norm `range`",
        "coordinates",
    ),
    "references": Column(
        TEXT,
        "JSON with the held-out measures of two references: the optimum, and the best "
        "constant prediction on the training part. For the constant also `train_risk` "
        "and, with an intercept, the smallest `objective` if all other weights are 0. "
        "Not private",
    ),
    "clipped": Column(
        NUMBER,
        "share of the records that clipping to declared bounds changed; not private",
        "records are not clipped",
    ),
    "by_default": Column(
        TEXT,
        "`clip=default`: records are clipped to the default bounds of the dataset's "
        "yaml, because nobody named any and the algorithm needs some",
        "other bounds, or none",
    ),
    "at_bound": Column(
        TEXT,
        "JSON of the columns that clipping leaves at their bound in more than 10 % of "
        "the records; not private",
        "there are none",
    ),
    "rule": Column(
        TEXT,
        "version of the rule, and the parameters that it gave for `auto`",
        "nothing was `auto`",
    ),
    "status": Column(
        TEXT, "`ok`, `diverged`, `skipped`, `error`, `timeout` or `killed`"
    ),
    "message": Column(
        TEXT, "why the trial ended so, or why no optimum is certified", "all is well"
    ),
    "run": Column(
        TEXT,
        "the run that computed it: `runs/<run>.json`",
        "the record names none",
    ),
    "population_risk": Column(
        NUMBER,
        "expected loss, without the penalty, or its mean over n_fresh records",
        UNJUDGED,
    ),
    "population_optimum": Column(
        NUMBER, "smallest such risk over the constraint", f"{UNJUDGED}; {UNLIKE}"
    ),
    "excess_risk": Column(
        NUMBER, "population_risk - population_optimum", f"{UNJUDGED}; {UNLIKE}"
    ),
    "excess_objective": Column(
        NUMBER,
        "expected objective, with the penalty, above its least",
        f"{UNJUDGED}; {UNLIKE}",
    ),
}
"""All columns by name, in the order of the table.

Those in `POPULATION` may be missing from a table.

`solver`, `checked` and `doubt` describe the code and `run` the command; all others
describe the trial.
"""


PAGE = """\
# The table of results

`load_results` returns this table, and `results.parquet` holds it: one row per
checkpoint of a trial, the first at w = 0. A trial without a trajectory (refused or
failed) has one row. `python -m dp_erm_bench.results.columns > docs/table.md` writes
this page from `dp_erm_bench.COLUMNS`. Missing numbers are NaN, missing texts None or
empty. An int64 column is float64 in a table where a value is missing.

Every measure of w is computed from the records without noise. None of them is private.

| column | meaning | dtype | unit | empty if |
|---|---|---|---|---|
{rows}

For {better}, higher is better; for all other measures, lower is. In every statistic, a
run that diverged counts as infinitely bad, never as missing.

`predicted_excess` accounts for the noise only, not for what the floor and few steps
leave. With the defaults of `newton`, the mean of `objective - optimum` over the mean of
`predicted_excess` is at epsilon 0.1 and 1: 0.22 and 0.59 on breast_cancer, 1.5 and 2.3
on electricity, 2.1 and 4.1 on dense, 0.76 and 1.3 on a9a (20 seeds, logistic loss, l2
penalty). With n_iter=10 it lies between 0.15 and 1.5. It says nothing if the floor
exceeds most of the curvature: 1.7 and 13 on phishing.

`load_results(folder, expand=True)` adds a column for each key of `params`,
`dataset_options` and `objective_options`, named after both, such as `"params.clip"`. It
holds numbers if all values are numbers, otherwise texts as on the command line. It is
missing in rows without the key.

```python
from dp_erm_bench import load_results

rows = load_results("results/clips", expand=True)
ends = rows.drop_duplicates("trial", keep="last")
ends.pivot_table("relative_error", "params.clip", "epsilon", aggfunc="median")
seaborn.lineplot(ends, x="params.clip", y="relative_error", hue="algorithm")
```

In a sweep, `panel` and `line` are made when the table is read. `dp-erm-bench export`
writes medians with their intervals, and `dp-erm-bench plot` draws them.
"""


def axis_words(name: str) -> str:
    """Return the label of a quantity on the axis of a figure."""
    known = {
        "relative_error": r"relative error $F(w)/F^* - 1$",
        **{"objective": "objective $F(w)$", "epsilon": r"$\varepsilon$"},
        **{"support_f1": "F1 score of the support", "auc": "AUC"},
        **{"rmse": "RMSE", "r2": "$R^2$"},
        **{"passes": "passes over the data", "seconds": "time (s)"},
    }
    return known.get(name, name.replace("_", " "))


def is_better_higher(name: str) -> bool:
    """Return whether higher values of a column are better."""
    return name in COLUMNS and COLUMNS[name].higher


def sign_of(name: str) -> float:
    """Return -1 if higher values of a column are better, else 1."""
    return -1.0 if is_better_higher(name) else 1.0


def worst_value(name: str) -> float:
    """Return the worst value of a column, for runs without a result."""
    if not is_better_higher(name):
        return math.inf
    return -math.inf if name == "r2" else 0.0


def columns_page() -> str:
    """Return the text of docs/table.md, which describes every column."""
    rows = [
        f"| `{name}` | {one.meaning} | {one.dtype} | {one.unit} | {one.empty} |"
        for name, one in COLUMNS.items()
    ]
    better = [f"`{name}`" for name, one in COLUMNS.items() if one.higher]
    return PAGE.format(rows="\n".join(rows), better=", ".join(better))


if __name__ == "__main__":
    print(columns_page(), end="")
