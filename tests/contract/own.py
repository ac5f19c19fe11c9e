"""The solver of the tutorial, and broken copies of it."""

from dp_erm_bench.contract import suite
from dp_erm_bench.contract.candidate import Candidate
from tests.pages import find_block

SOUND = find_block('"""Noisy gradient descent."""')


def broken(*changes):
    """The sound solver with some of its text replaced."""
    text = SOUND
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


def check_named(name):
    (check,) = [check for check in suite.CHECKS if check.name == name]
    return check


def results(candidate):
    """What comes of each check, as soon as it is known."""
    return (check.result(candidate) for check in suite.CHECKS)


class Few(Candidate):
    """A candidate as by default, on few neighbours."""

    rows = ({},)
    families = ("outlier", "empty", "opposed", "interior")


def few(candidate):
    return Few(candidate.name, candidate.solver, candidate.preset, candidate.pin)


STEP = """\
                noisy = mechanisms["gradient"](oracle.clipped_sum(clip)) / problem.n
"""
DECLARED = 'yield Gaussian("gradient", change, self.n_iter)'
FEWER = "change / (2 if problem.n >= 30000 else 1)"
BEGIN = "        problem, column"
WEIGHTED = """\
                positive = np.clip((problem.dataset.y > 0.0).sum(), 1, problem.n - 1)
                share = positive / problem.n
                r = oracle.residuals() / np.where(
                    problem.dataset.y > 0.0, 2.0 * share, 2.0 - 2.0 * share
                )
                norms = np.abs(r) * problem.dataset.row_norms
                r = r * np.minimum(1.0, clip / np.maximum(norms, 1e-300))
                summed = oracle.transposed_product(r)
"""
PLAN = "    def plan(self, problem, identities):\n        return "
START = "        yield oracle.w\n        for k"
END = "oracle.move_to(problem.penalty.prox(oracle.w - step * noisy, step))"
POISSON = 'yield PoissonGaussian("gradient", change, self.n_iter, rate=0.5)'
ONE_EACH = """\
steps = self.iterations(problem)
        yield SingleUseGaussian(
            "gradient", change, steps, records=problem.n, fresh=steps
        )"""
READ_AGAIN = """\
                handed = [
                    mechanisms["gradient"].next_records(b, 1)
                    for b in range(oracle.batch)
                ]
                all_records = np.arange(problem.n)
                sums = [
                    oracle.record_sum(b, all_records, clip[b, 0])
                    for b in range(oracle.batch)
                ]
                noisy = mechanisms["gradient"](np.stack(sums)) / len(handed)
"""
IMPORTS = "from dp_erm_bench.extend import ("
IMPORTED = f"{IMPORTS}\n    PoissonGaussian,"
QUIETER = "        mechanisms['gradient'].scale = mechanisms['gradient'].scale / 2\n"
UNCOUNTED = "        mechanisms['gradient'].spend = lambda uses: None\n"
DRAW = (
    "mechanisms['gradient'].release.draw(mechanisms['gradient'].seeds[0], 0, problem.p)"
)

UNIT = """\
def unit(mechanism, schedule, p):
    place = (mechanism.used - 1) * p
    drawn = [Gaussian.draw(seed, place, p) for seed in schedule]
    return mechanism.scale * np.stack(drawn) / 2


"""
KNOWN = "noisy = noisy - unit(mechanisms['gradient'], schedule, problem.p) / problem.n"

TWINS = {
    "a switch that nobody turns": (
        broken(
            (
                "@dataclass(frozen=True)\n",
                "EXACT = False\n\n\n@dataclass(frozen=True)\n",
            ),
            (
                STEP,
                f"{STEP}{' ' * 16}if EXACT:\n"
                f"{' ' * 20}noisy = oracle.clipped_sum(clip)\n",
            ),
        ),
        "private_values_stay_private",
        "if `EXACT` were True: ",
    ),
    "a block that no run enters": (
        broken(
            (
                STEP,
                f"{STEP}{' ' * 16}for _ in range(0):\n{' ' * 20}noisy = 2 * noisy\n",
            ),
        ),
        "conditions_come_out_both_ways",
        "`noisy = 2 * noisy` was not run: what follows is not checked",
    ),
    "a step by the shares of the classes, in tenths": (
        broken(
            (
                STEP,
                f"{STEP}{' ' * 16}share = (problem.dataset.y > 0.0).mean()\n"
                f"{' ' * 16}noisy = noisy * (1.0 + np.round(share, 1))\n",
            ),
        ),
        "far_data_change_nothing",
        "w differs though all answers were equal",
    ),
    "one use too many": (
        broken((START, f'        mechanisms["gradient"](oracle.w)\n{START}')),
        "uses_are_those_declared",
        "use 11 was requested",
    ),
    "fewer uses than declared": (
        broken((DECLARED, DECLARED.replace("self.n_iter", "self.n_iter + 1"))),
        "uses_are_those_declared",
        "uses release gradient 10 times and declares 11",
    ),
    "half of the noise": (
        broken((START, f"{QUIETER}{START}")),
        "the_noise_is_recounted",
        "is certified",
    ),
    "uses that are not counted": (
        broken(
            (DECLARED, DECLARED.replace("self.n_iter", "self.n_iter // 2")),
            (START, f"{UNCOUNTED}{START}"),
        ),
        "the_noise_is_recounted",
        "only 0 of 1 certified was run",
    ),
    "a record that is read at each step": (
        broken(
            (DECLARED, ONE_EACH),
            (IMPORTS, f"{IMPORTS}\n    SingleUseGaussian,"),
            ("return self.n_iter", "return min(self.n_iter, problem.n // 2)"),
            (STEP, READ_AGAIN),
        ),
        "records_are_read_once",
        "once is charged",
    ),
    "samples that are not taken": (
        broken(
            (DECLARED, POISSON),
            (IMPORTS, IMPORTED),
        ),
        "samples_are_those_charged",
        "is certified for one Poisson sample of rate 0.5 at each use",
    ),
    "noise that the schedule knows": (
        broken(
            (
                "    def iterations",
                f"{PLAN}stream_seeds(identities, 'gradient')\n\n    def iterations",
            ),
            (
                IMPORTS,
                f"{IMPORTS}\n    stream_seeds,",
            ),
            (STEP, f"{STEP}{' ' * 16}{KNOWN}\n"),
            ("@dataclass(frozen=True)\n", UNIT + "@dataclass(frozen=True)\n"),
        ),
        "noise_is_news_to_the_solver",
        "the schedule knows it",
    ),
    "an accountant's view from the data": (
        broken(
            (
                DECLARED,
                DECLARED.replace(
                    "self.n_iter)",
                    "self.n_iter, 1.0 + 1e-3 * abs(problem.dataset.X[0, 0]))",
                ),
            )
        ),
        "declarations_know_no_data",
        "what is declared depends on the data",
    ),
    "a release for no iteration": (
        broken((DECLARED, DECLARED.replace("self.n_iter", "max(1, self.n_iter)"))),
        "no_iterations_return_the_start",
        "for no iterations",
    ),
    "half of the sensitivity": (
        broken((DECLARED, DECLARED.replace("change", "change / 2"))),
        "replay_audit",
        "times its declared sensitivity",
    ),
    "half of the sensitivity for many records": (
        broken((DECLARED, DECLARED.replace("change", FEWER))),
        "large_numbers_hide_nothing",
        "with 30000 made 3: ",
    ),
    "weights by the exact shares of the classes": (
        broken((STEP, WEIGHTED + STEP.replace("oracle.clipped_sum(clip)", "summed"))),
        "no_neighbours_move_more",
        "steps of a search: release gradient differs by 1.",
    ),
    "four times the sensitivity": (
        broken((DECLARED, DECLARED.replace("change", "4 * change"))),
        "sensitivities_are_tight",
        "of its declared sensitivity at most",
    ),
    "the raw gradient": (
        broken(
            (STEP, f"{STEP}{' ' * 16}noisy = oracle.clipped_sum(clip) / problem.n\n")
        ),
        "replay_audit",
        "iterates depend on the data past the mechanisms",
    ),
    "a step from the data": (
        broken(
            (
                "beta = np.atleast_2d(problem.smoothness.norm)",
                "beta = np.full((1, 1), np.square(problem.dataset.X.sum(0)).sum())",
            )
        ),
        "replay_audit",
        "iterates depend on the data past the mechanisms",
    ),
    "sensitivity from the data": (
        broken(
            (
                DECLARED,
                "change = change + abs(problem.dataset.X.sum())\n        " + DECLARED,
            )
        ),
        "replay_audit",
        "sensitivities depend on the data",
    ),
    "numpy's global random state": (
        broken((END, END.replace("noisy,", "noisy + 1e-9 * np.random.normal(),"))),
        "global_random_state_is_untouched",
        "global random state",
    ),
    "Python's global random state": (
        broken(
            ("import numpy as np\n", "import random\n\nimport numpy as np\n"),
            (END, END.replace("noisy,", "noisy + 1e-9 * random.random(),")),
        ),
        "global_random_state_is_untouched",
        "global random state",
    ),
    "a generator without seed": (
        broken(
            (END, END.replace("noisy,", "noisy + np.random.default_rng().normal(),"))
        ),
        "runs_repeat",
        "a second run differs",
    ),
    "state between runs": (
        broken(
            ("@dataclass(frozen=True)\n", "SEEN = []\n\n\n@dataclass(frozen=True)\n"),
            (BEGIN, f"        SEEN.append(0)\n{BEGIN}"),
            ("inverse(beta), column", "inverse(beta) / len(SEEN), column"),
        ),
        "runs_repeat",
        "a second run differs",
    ),
    "a step that depends on the batch": (
        broken(("inverse(beta), column", "inverse(beta) / oracle.batch, column")),
        "batches_change_nothing",
        "ends at another objective",
    ),
    "a step that depends on the order": (
        broken(
            (
                "        yield oracle.w\n        for k",
                "        step = step / np.arange(1, oracle.batch + 1)[:, None]\n"
                + START,
            )
        ),
        "batches_change_nothing",
        "ends at another objective",
    ),
    "a mean over checkpoints": (
        broken((END, f"{END}\n            oracle.move_to(oracle.w * 0.9)")),
        "checkpoints_change_nothing",
        "with fewer checkpoints",
    ),
    "a step upwards": (
        broken((END, END.replace("w - step", "w + step"))),
        "the_limit_is_reached",
        "from the minimum",
    ),
    "no limit stated": (
        broken(("yield Limit(cls(n_iter=600), gap=1e-8)", "yield from ()")),
        "the_limit_is_reached",
        "states no limit",
    ),
    "a budget in the source": (
        broken((DECLARED, f"epsilon = 1.0\n        {DECLARED}")),
        "no_noise_scale_in_the_source",
        "names epsilon",
    ),
    "a longer run": (
        broken((DECLARED, DECLARED.replace("self.n_iter", "self.n_iter + 5"))),
        "a_longer_run_is_stopped",
        "makes 15 steps on the releases of 10",
    ),
    "another compiled body": (
        broken((START, f"        step = step / (1 + mechanisms.ahead)\n{START}")),
        "compiled_steps_agree",
        "compiled and plain steps differ",
    ),
    "noise without a budget": (
        broken((STEP, f"{STEP}{' ' * 16}{DRAW}\n")),
        "without_noise_nothing_is_drawn",
        "noise is drawn at epsilon = inf",
    ),
    "noise that is used again": (
        broken((STEP, f"{' ' * 16}mechanisms['gradient']._drawn = 0\n{STEP}")),
        "draws_are_distinct",
        "draws are used again",
    ),
    "an unseeded schedule": (
        broken(
            (
                "    def iterations",
                f"{PLAN}np.random.default_rng().random((len(identities), 3))\n\n"
                "    def iterations",
            )
        ),
        "public_draws_belong_to_the_trial",
        "a second schedule differs",
    ),
    "a schedule of the batch": (
        broken(
            (
                "    def iterations",
                f"{PLAN}np.full((len(identities), 3), len(identities))\n\n"
                "    def iterations",
            )
        ),
        "public_draws_belong_to_the_trial",
        "depends on its batch",
    ),
    "a division by zero": (
        broken(("inverse(beta), column", "problem.smoothness.columns**-1, column")),
        "columns_of_zeros_are_harmless",
        "",
    ),
    "a drift": (
        broken((END, f"{END}\n                oracle.move_to(oracle.w + 1e-3)")),
        "nothing_to_learn_moves_nothing",
        "moves on a problem of zeros",
    ),
    "the exact constants": (
        broken(
            (
                "np.atleast_2d(problem.smoothness.norm)",
                'np.atleast_2d(problem.with_smoothness("data").smoothness.norm)',
            )
        ),
        "private_constants_are_audited",
        "iterates depend on the data",
    ),
    "parameters that are not checked": (
        broken(
            (
                "    @classmethod",
                "    def __post_init__(self):\n        pass\n\n    @classmethod",
            )
        ),
        "wrong_parameters_are_refused",
        "is accepted",
    ),
    "a constraint that is not kept": (
        broken(
            (
                "    @classmethod",
                "    def refusal(self, problem):\n"
                "        return None\n\n"
                "    @classmethod",
            )
        ),
        "served_within_the_budget_or_refused",
        "is not `constrained`",
    ),
    "a calibration without a constant": (
        broken(
            (
                "    n_iter: int",
                '    calibrations = ("certified", "paper")\n    n_iter: int',
            )
        ),
        "calibrations_are_served",
        "calibration=paper",
    ),
    "exempt from the count": (
        broken(
            (
                "    n_iter: int",
                '    exempt = {"uses_are_those_declared": "it is too strict for us"}\n'
                "    n_iter: int",
            )
        ),
        "exemptions_are_of_checks",
        "exempt names uses_are_those_declared, which is none of",
    ),
    "a misspelt exemption": (
        broken(
            (
                "    n_iter: int",
                '    exempt = {"replay_audits": "it is too strict for us"}\n'
                "    n_iter: int",
            )
        ),
        "exemptions_are_of_checks",
        "exempt names replay_audits, which is none of",
    ),
}
"""A twin's source, the check that must find it, and what it must say."""
