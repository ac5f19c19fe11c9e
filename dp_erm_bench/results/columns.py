"""The columns of the tidy table: dtype, unit, meaning, and when each is empty."""

from __future__ import annotations

import math
from typing import NamedTuple

TEXT, FLAG, COUNT, NUMBER = "string", "bool", "int64", "float64"


class Column(NamedTuple):
    """A column of the tidy table.

    Attributes
    ----------
    dtype : str
        Its type in the file: `string`, `bool`, `int64` or `float64`.
    meaning : str
        What it holds.
    empty : str
        When it is missing or, of text, empty.
    unit : str
        Its unit, empty of a name or a pure number.
    higher : bool
        Whether higher is better; of every other measure smaller is.
    """

    dtype: str
    meaning: str
    empty: str = "never"
    unit: str = ""
    higher: bool = False


FAILED = "of a trial without a trajectory"
UNLIKE = "where no optimum is certified"
UNJUDGED = "without `dataset.n_fresh` (a table without any such trial lacks the column)"
NO_TEST = "without held-out records, and but in the last row of a trial"

NO_NUMBERS = "without held-out records, and of a classification"

COLUMNS = {
    "trial": Column(TEXT, "digest of all that determines the trial's numbers"),
    "experiment": Column(TEXT, "name of the experiment, or of the sweep's folder"),
    "panel": Column(
        TEXT, "label of the problem; a sweep's is its dataset and what varies of it"
    ),
    "line": Column(
        TEXT, "label of the curve; a sweep's is its algorithm and what else varies"
    ),
    "phase": Column(
        TEXT, "`tune`: helped to choose parameters; `report`: judges them; `sweep`"
    ),
    "tuned": Column(FLAG, "whether the parameters were chosen by tuning"),
    "dataset": Column(TEXT, "name of the dataset"),
    "dataset_options": Column(TEXT, "JSON of what differs from the dataset's yaml"),
    "content": Column(
        TEXT, "digest of the file of the records", "of generated and published data"
    ),
    "standardise": Column(FLAG, "whether columns were standardised"),
    "n": Column(COUNT, "records that were trained on", FAILED, "records"),
    "p": Column(COUNT, "features", FAILED, "features"),
    "loss": Column(TEXT, "name of the loss"),
    "penalty": Column(TEXT, "name of the penalty"),
    "strength": Column(NUMBER, "factor of the penalty", "without a penalty"),
    "constraint": Column(TEXT, "name of the constraint"),
    "objective_options": Column(
        TEXT,
        "JSON of the parameters of loss, penalty and constraint, but the strength; a "
        "long one by its beginning and a digest",
    ),
    "algorithm": Column(TEXT, "name of the algorithm"),
    "params": Column(TEXT, "JSON of the algorithm's parameters"),
    "solver": Column(
        TEXT, "digest of the sources of a solver from outside", "of the package's own"
    ),
    "checked": Column(
        FLAG,
        "whether the solver passed `check` by now and nothing is in doubt; the "
        "package's own count as passed",
    ),
    "doubt": Column(
        TEXT,
        "what is in doubt: `not checked`; `checked, release not recounted`, of a "
        "release from outside that names no twin; or `checked, uncharged: NAME`, of "
        "the uses that a solver declares, the package's own, too",
        "if `checked`",
    ),
    "exempt": Column(
        TEXT,
        "checks, lines and conditions that a solver from outside is exempt from, why",
        "of the package's own, and without any",
    ),
    "epsilon": Column(NUMBER, "epsilon of the budget that was asked for"),
    "delta": Column(NUMBER, "delta of the budget", "where 1/n^2 is asked of unknown n"),
    "adjacency": Column(TEXT, "which datasets are neighbours"),
    "calibration": Column(TEXT, "how the noise was set, and whether that is proved"),
    "accountant": Column(TEXT, "name of the proof", "where nothing is proved"),
    "epsilon_certified": Column(
        NUMBER, "epsilon that is proved for the noise added", "where nothing is proved"
    ),
    "uncharged": Column(
        TEXT,
        "uses of the data that no budget pays for, by commas",
        "where there are none",
    ),
    "smoothness": Column(TEXT, "where step sizes come from", FAILED),
    "seed": Column(COUNT, "seed of the noise"),
    "dataset_seed": Column(
        COUNT, "seed of generation and split", "of data without either"
    ),
    "batch_size": Column(COUNT, "trials that were computed side by side", FAILED),
    "iteration": Column(COUNT, "iterations done at the checkpoint", FAILED),
    "passes": Column(
        NUMBER, "work done at the checkpoint", FAILED, "passes over the data"
    ),
    "seconds": Column(
        NUMBER,
        "time spent up to the checkpoint; of boosting not private: it tells how many "
        "runs were made",
        FAILED,
        "s",
    ),
    "objective": Column(NUMBER, "F(w), the objective", f"{FAILED}, or if not finite"),
    "optimum": Column(NUMBER, "F*, the smallest objective", UNLIKE),
    "relative_error": Column(
        NUMBER, "F(w) / F* - 1", f"{UNLIKE}, F* is 0 or the objective is empty"
    ),
    "nnz": Column(COUNT, "coordinates of w that are not 0", FAILED, "coordinates"),
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
        "with held-out records or an intercept, and but in the last row of a trial",
    ),
    "gradient_norm": Column(
        NUMBER,
        "norm of the gradient, for a loss that is not convex",
        "where the loss is convex",
    ),
    "dual_gap": Column(
        NUMBER,
        "gap of primal and dual at the last point before noise",
        "but of `dual_frank_wolfe` with a norm, after its first step",
    ),
    "predicted_excess": Column(
        NUMBER,
        "objective - optimum as the noise of the last step predicts it: tr((H + f)^-2 "
        "H) s^2 / 2, H as published, f its floor, s the deviation of the noise on the "
        "mean gradient; of published numbers alone: it may be published, too",
        "but in the last row of `newton` with noise, noise=hessian, curvature=hessian, "
        "step=1, and no clip below the declared bound",
    ),
    "support_f1": Column(
        NUMBER,
        "F1 score of the support of w for that of the true weights",
        "where the dataset does not tell them",
        higher=True,
    ),
    "active_groups": Column(
        NUMBER,
        "groups with a coordinate of w that is not 0",
        "but of a penalty or a ball of groups",
        "groups",
    ),
    "change_points": Column(
        NUMBER,
        "neighbouring coordinates of w whose absolute values differ",
        "but of a penalty or a ball of the norm `range`",
        "coordinates",
    ),
    "references": Column(
        TEXT,
        "JSON of models: what held-out records say of the optimum and of the constant "
        "model, the number that loses least on the training part; of the latter also "
        "`train_risk` and, with an intercept, the least `objective` with all other "
        "weights 0; not private",
    ),
    "clipped": Column(
        NUMBER,
        "share of the records that clipping to declared bounds changed; not private",
        "where records are not clipped",
    ),
    "by_default": Column(
        TEXT,
        "`clip=default`: records are clipped to the default bounds of the dataset's "
        "yaml, which are taken where nobody names any and the algorithm needs some",
        "with other bounds, and without any",
    ),
    "at_bound": Column(
        TEXT,
        "JSON of the columns that clipping leaves at their bound in more than 10 % of "
        "the records; not private",
        "where there are none",
    ),
    "rule": Column(
        TEXT,
        "version of the rule of what was `auto`, and the parameters that it gave",
        "where none was",
    ),
    "status": Column(
        TEXT, "`ok`, `diverged`, `skipped`, `error`, `timeout` or `killed`"
    ),
    "message": Column(
        TEXT, "why it ended so, or why no optimum is certified", "if well"
    ),
    "run": Column(
        TEXT,
        "the run that computed it: `runs/<run>.json`",
        "of a record that names none",
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
"""Every column by name, in the order of the table; `POPULATION` only where asked for.

`solver`, `checked` and `doubt` are of the code, `run` of the command; all others of the
trial.
"""


PAGE = """\
# The table of results

`load_results` returns it, `results.parquet` holds it: one row per checkpoint of a
trial, the first being w = 0. A trial without a trajectory (refused or failed) has one
row.
`python -m dp_erm_bench.results.columns > docs/table.md` writes this page from
`dp_erm_bench.COLUMNS`. Missing numbers are NaN, missing texts None or empty:
int64 is float64 in a table where one is missing, as of a failed trial.
Every measure of w is computed from the records, without noise: none is private.

| column | meaning | dtype | unit | empty |
|---|---|---|---|---|
{rows}

Of {better} higher is better; of all other measures lower is. A run that diverged counts
as infinitely bad in every statistic, never as missing.

`predicted_excess` is of the noise alone, not of what the floor and few steps leave.
With the defaults of `newton` the mean of `objective - optimum` over that of it (20
seeds, logistic loss, l2 penalty, records and bounds of the leaderboard) is at epsilon
0.1 and 1: 0.22 and 0.59 on breast_cancer, 1.5 and 2.3 on electricity, 2.1 and 4.1 on
dense, 0.76 and 1.3 on a9a; with n_iter=10 it is from 0.15 to 1.5 in these. Where the
floor is above most of the curvature it says nothing: 1.7 and 13 on phishing (columns
bounded by 1, norms by 6, strength 0.001).

`load_results(folder, expand=True)` adds a column for each key of `params`,
`dataset_options` and `objective_options`. It is named after both, as `"params.clip"`:
no column above has a dot in its name. It holds numbers if all its values are numbers,
else texts as on the command line, and is missing where a row has no such key.

```python
from dp_erm_bench import load_results

rows = load_results("results/clips", expand=True)
ends = rows.drop_duplicates("trial", keep="last")
ends.pivot_table("relative_error", "params.clip", "epsilon", aggfunc="median")
seaborn.lineplot(ends, x="params.clip", y="relative_error", hue="algorithm")
```

A sweep's `panel` and `line` are made when the table is read; records and keys of trials
have none. `dp-erm-bench export` writes medians with their intervals, `dp-erm-bench
plot` draws them.
"""


def axis_words(name: str) -> str:
    """Return what an axis says of a quantity: its meaning up to a comma, its unit."""
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
    """Return the factor of a column that makes smaller better."""
    return -1.0 if is_better_higher(name) else 1.0


def worst_value(name: str) -> float:
    """Return what a run that was lost has of a column; shares are at least 0."""
    if not is_better_higher(name):
        return math.inf
    return -math.inf if name == "r2" else 0.0


def columns_page() -> str:
    """Return docs/table.md: every column with its unit, dtype and when it is empty."""
    rows = [
        f"| `{name}` | {one.meaning} | {one.dtype} | {one.unit} | {one.empty} |"
        for name, one in COLUMNS.items()
    ]
    better = [f"`{name}`" for name, one in COLUMNS.items() if one.higher]
    return PAGE.format(rows="\n".join(rows), better=", ".join(better))


if __name__ == "__main__":
    print(columns_page(), end="")
