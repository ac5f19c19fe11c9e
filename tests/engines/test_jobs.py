"""Test what is asked of batch systems; no job runs here."""

import dataclasses
import re
import subprocess
import sys
from types import SimpleNamespace

import dask
import pytest
from distributed import Security

from dp_erm_bench.errors import UsageError
from dp_erm_bench.experiment.schema import RunnerConfig
from dp_erm_bench.runner.engines import cluster
from dp_erm_bench.runner.engines.choice import engine_of
from dp_erm_bench.runner.engines.cluster import (
    cluster_class,
    log_end,
    private_cluster_class,
    worker_certificates,
)
from dp_erm_bench.runner.options import RunOptions, run_options

SECRETS = {"ca_file": "CA\nline", "cert": "CERT\nline", "key": "KEY'\nline"}
SECURITY = SimpleNamespace(get_tls_config_for_role=lambda role: SECRETS)

HEADS = {
    "slurm": [
        "#SBATCH -p long",
        "#SBATCH --cpus-per-task=1",
        "#SBATCH --mem=3G",
        "#SBATCH -t 26:00:30",
        "#SBATCH --open-mode=append",
        "#SBATCH --own",
    ],
    "pbs": [
        "#PBS -q long",
        "#PBS -l select=1:ncpus=1:mem=3072MB",
        "#PBS -l walltime=26:00:30",
        "#PBS --own",
    ],
}


@pytest.fixture(autouse=True)
def yaml(tmp_path):
    """Return what writes a yaml of the user's for dask-jobqueue; there is none."""

    def write(text):
        (tmp_path / "jobqueue.yaml").write_text(text)
        dask.config.refresh()

    # The list is what Dask looks into.
    before, dask.config.paths[:] = [*dask.config.paths], [str(tmp_path)]
    yield write
    dask.config.paths[:] = before
    dask.config.refresh()


def made(cluster, **changes):
    usual = {"engine": "dask", "cluster": cluster, "queue": "long", "memory": "3G"}
    usual |= {"walltime": "26:00:30", "job_extra_directives": ["--own"]}
    return RunOptions(**{**usual, **changes})


def script_of(options, logs):
    """Return the script of a job of a worker."""
    asked = cluster.job_options(options, logs, worker_certificates(SECURITY))
    kind = cluster_class(options.cluster).job_cls
    return kind("tls://1.2.3.4:5", name="w", protocol="tls://", **asked).job_script()


@pytest.mark.parametrize("name", HEADS)
def test_the_script_of_a_worker(name, tmp_path, monkeypatch):
    monkeypatch.setenv("DP_ERM_BENCH_CACHE", "/a cache")
    lines = script_of(made(name, interface="lo"), tmp_path).splitlines()
    assert {*HEADS[name]} <= {*lines}
    assert any(str(tmp_path) in line for line in lines if line.startswith("#"))
    command = lines[-1]
    assert command.startswith(f"{sys.executable} -m distributed.cli.dask_worker tls://")
    assert "--protocol tls://" in command and "--interface lo" in command
    assert "--death-timeout 60" in command and command.count("--tls") == 0
    # What a shell makes of the script is what was put in.
    exported = "\n".join(lines[lines.index("") :]).replace(command, "env -0")
    done = subprocess.run(["bash", "-c", exported], capture_output=True, text=True)
    env = dict(one.split("=", 1) for one in done.stdout.split("\0") if one)
    assert env["DASK_DISTRIBUTED__COMM__TLS__WORKER__KEY"] == SECRETS["key"]
    assert env["DP_ERM_BENCH_CACHE"] == "/a cache"


@pytest.mark.parametrize(
    "name, line",
    [
        ("SGE", "#$ -l h_rt=02:00:00"),
        ("lsf", "#BSUB -W 02:00"),
        ("oar", "#OAR -l /nodes=1/core=1,walltime=02:00:00"),
        ("Moab", "#PBS -l walltime=02:00:00"),
        ("htcondor", "RequestCpus = MY.DaskWorkerCores"),
    ],
)
def test_any_cluster_of_dask_jobqueue_is_taken_by_its_name(name, line, tmp_path, yaml):
    own = "htcondor: {disk: 1GB}, oar: {memory-per-core-property-name: memcore}"
    yaml(f"jobqueue: {{{own}}}")
    script = script_of(RunOptions(engine="dask", cluster=name), tmp_path)
    assert line in script.splitlines()
    if name == "htcondor":
        # It takes the whole command in one line.
        script = next(one for one in script.splitlines() if one.startswith("Arg"))
    assert "WORKER__KEY" in script and sys.executable in script


def test_what_the_keys_do_not_say_the_yaml_of_dask_jobqueue_does(tmp_path, yaml):
    yaml(
        "jobqueue:\n  slurm:\n    queue: theirs\n    walltime: '03:00:00'\n"
        "    memory: 5 GiB\n    account: lab\n    cores: 36\n    python: mine\n"
        "    job-script-prologue: [module load python]\n"
        "    job-extra-directives: [--their]\n"
    )
    lines = script_of(RunOptions(engine="dask", cluster="slurm"), tmp_path).splitlines()
    assert {
        *("#SBATCH -p theirs", "#SBATCH -t 03:00:00", "#SBATCH --mem=5G"),
        *("#SBATCH -A lab", "#SBATCH --cpus-per-task=1", "#SBATCH --their"),
        *("#SBATCH --open-mode=append", "module load python"),
    } <= {*lines}
    assert lines[-1].startswith("mine -m distributed.cli.dask_worker tls://")
    said = script_of(made("slurm"), tmp_path).splitlines()
    assert {*HEADS["slurm"], "#SBATCH -A lab"} <= {*said}
    assert not {"#SBATCH -p theirs", "#SBATCH --their"} & {*said}
    yaml("jobqueue: {slurm: {walltime: '00:30:00'}}")
    with pytest.raises(UsageError, match="at most jobqueue.slurm.walltime=00:30:00"):
        RunOptions(engine="dask", cluster="slurm")


@pytest.mark.parametrize(
    "own, sentence",
    [
        ("walltime: 12:00:00", "slurm.walltime=43200: must be a time as 02:00:00 or "),
        ("memory: [1]", "slurm.memory=[1]: must be a size of at least 1M"),
    ],
)
def test_a_yaml_that_no_job_can_have_is_refused_by_its_key(
    own, sentence, tmp_path, yaml, monkeypatch
):
    yaml(f"jobqueue: {{slurm: {{{own}}}}}")
    monkeypatch.setattr(cluster, "_log_folder", lambda: tmp_path)
    with pytest.raises(UsageError, match=re.escape(sentence)) as refusal:
        with cluster.Jobs(RunOptions(engine="dask", cluster="slurm"), 1, SECURITY):
            """It does not come to this."""
    assert str(refusal.value).startswith("jobqueue.slurm.")


def test_a_text_of_the_yaml_is_one_line(tmp_path, yaml):
    yaml("jobqueue: {slurm: {job-script-prologue: module load python}}")
    lines = script_of(RunOptions(engine="dask", cluster="slurm"), tmp_path).splitlines()
    assert "module load python" in lines


@pytest.mark.parametrize(
    ("options", "own", "sentence"),
    [
        ({"cluster": "htcondor"}, "", "You must specify how much disk"),
        ({"cluster": "htcondor", "queue": "long"}, "", "unexpected keyword .*'queue'"),
        ({"cluster": "htcondor", "walltime": "02:00:00"}, "", "keyword .*'walltime'"),
        ({"interface": "ib77"}, "", "'ib77' is not a valid network interface"),
        ({}, "scheduler-options: 5", "'int' object is not a mapping"),
    ],
)
def test_what_dask_jobqueue_refuses_is_one_sentence(
    options, own, sentence, tmp_path, yaml, monkeypatch
):
    yaml(f"jobqueue: {{slurm: {{{own}}}}}")
    monkeypatch.setattr(cluster, "_log_folder", lambda: tmp_path)
    monkeypatch.setattr(cluster, "check_script", lambda options, script: None)
    options = RunOptions(**{"engine": "dask", "cluster": "slurm", **options})
    with pytest.raises(UsageError, match=sentence) as refusal:
        cluster.Jobs(options, 1, Security.temporary()).__enter__()
    said = f"runner.cluster={options.cluster}"
    assert str(refusal.value).startswith(said) and "\n" not in str(refusal.value)
    assert "dask-jobqueue says: " in str(refusal.value)


def test_without_dask_jobqueue_a_cluster_is_refused(monkeypatch):
    monkeypatch.setitem(sys.modules, "dask_jobqueue", None)
    with pytest.raises(UsageError, match="dask_jobqueue: not installed; pip install"):
        RunOptions(engine="dask", cluster="slurm")


@pytest.mark.parametrize(
    "package, options", [("dask_jobqueue", {"cluster": "slurm"}), ("distributed", {})]
)
def test_a_package_that_cannot_be_imported_is_refused(
    package, options, tmp_path, monkeypatch
):
    """It is of another version, or has met with a yaml of Dask's that is none."""
    (tmp_path / f"{package}.py").write_text("raise ValueError('a\\n  is malformed')\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, package, raising=False)
    monkeypatch.delitem(sys.modules, "dp_erm_bench.runner.engines.dask", raising=False)
    with pytest.raises(UsageError, match="cannot be imported: a;? *is malformed$"):
        engine_of(RunOptions(engine="dask", **options), 1)


def test_known_jobs_are_cancelled_though_the_cluster_can_say_nothing(monkeypatch):
    asked = []
    monkeypatch.setattr(
        cluster, "ask_batch_system", lambda *command: asked.append(command)
    )
    ours = cluster.Jobs(made("slurm"), 1, SECURITY)
    ours.cluster, ours.logs = SimpleNamespace(), "nowhere"
    ours._ids = {"12"}
    ours.__exit__(None, None, None)
    assert asked == [("scancel", "12")]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"walltime": "soon"}, "runner.walltime=soon: must be a time as 02:00:00"),
        ({"walltime": "90"}, "runner.walltime=90: must be a time"),
        ({"walltime": "00:00:00"}, "runner.walltime=00:00:00: must be a time"),
        ({"memory": "lots"}, "runner.memory=lots: must be a size"),
        ({"memory": "1K"}, "runner.memory=1K: must be a size"),
        (
            {"walltime": "01:00:00"},
            "runner.time_limit=3600: must be at most runner.walltime=01:00:00 less 60",
        ),
        ({"time_limit": None}, "runner.time_limit=null: must be at most"),
        ({"cluster": "slrm"}, "runner.cluster=slrm (did you mean slurm?): must be"),
        ({"cluster": "jobqueue"}, "runner.cluster=jobqueue: must be one of local, "),
        ({"n_jobs": None}, "runner.n_jobs=auto: runner.cluster=slurm needs a number"),
        ({"cluster": "lsf"}, "runner.walltime=26:00:30: must be a time as 02:00 "),
    ],
)
def test_what_no_job_can_have_is_refused(changes, sentence):
    with pytest.raises(UsageError, match=re.escape(sentence)):
        made(**{"cluster": "slurm", **changes})


def test_a_job_may_be_as_long_as_it_needs():
    assert made("slurm", walltime="01:01:00").walltime == "01:01:00"
    assert made("slurm", walltime="00:02:00", time_limit=60.0).time_limit == 60


@pytest.mark.parametrize("name, command", [("slurm", "sbatch"), ("pbs", "qsub")])
def test_a_system_that_is_not_here_is_named(name, command, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    sentence = f"runner.cluster={name}: there is no command {command}"
    with pytest.raises(UsageError, match=sentence):
        cluster.check_script(made(name), "")


def test_keys_are_written_where_nobody_else_reads(tmp_path):
    kind = private_cluster_class(cluster_class("slurm")).job_cls
    asked = cluster.job_options(made("slurm"), tmp_path, worker_certificates(SECURITY))
    job = kind("tls://10.0.0.1:5", name="w", **asked)
    with job.job_file() as name:
        path = type(tmp_path)(name)
        assert path.read_text() == job.job_script()
        assert path.stat().st_mode & 0o077 == 0
    assert not path.exists()


def test_the_log_of_a_job_is_its_last_lines(tmp_path):
    (tmp_path / "dp-erm-bench-17.err").write_text("\n".join(map(str, range(50))))
    (tmp_path / "dp-erm-bench-171.err").write_text("another's")
    assert log_end(tmp_path, "17").split() == [str(n) for n in range(30, 50)]
    assert log_end(tmp_path, "17.server") == log_end(tmp_path, "17")
    assert log_end(tmp_path / "nowhere", "17") == ""


def test_a_worker_may_hold_half_of_its_job():
    keys = (field.name for field in dataclasses.fields(RunnerConfig))
    options = vars(made("slurm", n_jobs=3))
    runner = {key: options[key] for key in keys} | {"worker_memory": "auto"}
    config = {"runner": runner, "mode": "run", "profile": None}
    assert run_options(config, []).worker_memory == 1.5 * 2**30


@pytest.mark.parametrize(
    ("address", "exposed"),
    [
        ("tcp://192.0.2.1:8786", True),
        ("tcp://head:8786", True),
        ("tcp://[2001:db8::1]:8786", True),
        ("tls://192.0.2.1:8786", False),
        ("tcp://127.0.0.1:8786", False),
        ("tcp://[::1]:8786", False),
        ("tcp://localhost:8786", False),
    ],
)
def test_an_address_without_tls_is_warned_of_once(address, exposed, capsys):
    options = RunOptions(engine="dask", address=address)
    engine_of(options, 1)
    warned = capsys.readouterr().err
    assert warned.count("without TLS") == exposed == warned.count("\n")
