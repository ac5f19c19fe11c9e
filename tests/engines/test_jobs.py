"""What batch systems are asked for, and what they are not: nothing runs here."""

import dataclasses
import json
import re
import subprocess
import sys
from types import SimpleNamespace

import pytest

from dp_erm_bench.errors import UsageError
from dp_erm_bench.experiment.schema import RunnerConfig
from dp_erm_bench.runner.engines import cluster, detach, jobs
from dp_erm_bench.runner.engines.choice import engine_of
from dp_erm_bench.runner.engines.cluster import certificates, log_of, private
from dp_erm_bench.runner.engines.dask import jobqueue
from dp_erm_bench.runner.engines.detach import command_of, script_of
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
    "sge": ["#$ -q long", "#$ -l h_rt=26:00:30", "#$ --own"],
    "lsf": ["#BSUB -q long", "#BSUB -n 1", "#BSUB -W 26:01", "#BSUB --own"],
}


def made(cluster, **changes):
    usual = {"engine": "dask", "cluster": cluster, "queue": "long", "memory": "3G"}
    usual |= {"walltime": "1-02:00:30", "job_extra_directives": ["--own"]}
    return RunOptions(**{**usual, **changes})


@pytest.mark.parametrize("cluster", HEADS)
def test_the_script_of_a_worker(cluster, tmp_path, monkeypatch):
    monkeypatch.setenv("DP_ERM_BENCH_CACHE", "/a cache")
    asked = jobs.worker(made(cluster, interface="lo"), tmp_path, certificates(SECURITY))
    kind = getattr(jobqueue(), jobs.SYSTEMS[cluster].cluster).job_cls
    job = kind("tls://10.0.0.1:5", name="w", protocol="tls://", **asked)
    lines = job.job_script().splitlines()
    assert {*HEADS[cluster]} <= {*lines}
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


@pytest.mark.parametrize("cluster", HEADS)
def test_the_script_of_a_whole_sweep(cluster, tmp_path):
    command = ("dp-erm-bench", "seed=range(0,9)", "runner=dask", "name=a b")
    command += (f"runner.cluster={cluster}", "runner.detach=true", "runner.n_jobs=4")
    options = made(cluster, n_jobs=4, command=command, worker_memory=1e9)
    script = script_of(tmp_path, options, "token")
    assert subprocess.run(["bash", "-n"], input=script, text=True).returncode == 0
    head = {*HEADS[cluster]} - {
        *("#SBATCH --cpus-per-task=1", "#SBATCH --mem=3G", "#BSUB -n 1"),
        "#PBS -l select=1:ncpus=1:mem=3072MB",
    }
    wide = {
        "slurm": {"#SBATCH --cpus-per-task=4", "#SBATCH --mem=12G"},
        "pbs": {"#PBS -l select=1:ncpus=4:mem=12GB"},
        "sge": set(),
        "lsf": {"#BSUB -n 4", '#BSUB -R "span[hosts=1]"'},
    }
    assert head | wide[cluster] <= {*script.splitlines()}
    last = script.splitlines()[-1]
    assert last == (
        f"exec {sys.executable} -m dp_erm_bench 'seed=range(0,9)' 'name=a b' "
        "runner=local runner.n_jobs=4 runner.worker_memory=1000000000"
    )


def test_a_job_ends_where_the_folder_is_not_shared(tmp_path, monkeypatch):
    options = made("slurm", command=("dp-erm-bench",))
    monkeypatch.setattr(detach, "command_of", lambda options: ["echo", "ran"])
    script = script_of(tmp_path, options, "token")
    run = {"input": script, "capture_output": True, "text": True}
    done = subprocess.run(["bash"], **run)
    assert (done.returncode, done.stdout) == (2, "")
    assert "not shared" in done.stderr
    (tmp_path / "job.json").write_text(json.dumps({"token": "token"}))
    assert subprocess.run(["bash"], **run).stdout == "ran\n"
    assert (tmp_path / "jobs" / "token.heard").read_text().startswith("token ")


def test_only_a_command_line_is_detached(tmp_path):
    options = made("slurm", command=("script.py",))
    with pytest.raises(UsageError, match="runner.detach=true: a job runs a command"):
        detach.submit(tmp_path, options)


def test_known_jobs_are_cancelled_though_the_cluster_can_say_nothing(monkeypatch):
    asked = []
    monkeypatch.setattr(cluster, "ask", lambda *command: asked.append(command))
    ours = cluster.Jobs(made("slurm"), 1, jobqueue(), SECURITY)
    ours.cluster, ours.logs = SimpleNamespace(), "nowhere"
    ours._ids = {"12"}
    ours.__exit__(None, None, None)
    assert asked == [("scancel", "12")]


def test_a_job_of_another_system_that_may_wait_is_left_alone(
    tmp_path, monkeypatch, capsys
):
    """PBS is not asked whether a job waits: it is not cancelled for having to."""
    asked = []

    def ask(*command, script=None):
        asked.append(command[0])
        return subprocess.CompletedProcess(command, 0, "12.server\n", "")

    monkeypatch.setattr(detach, "check_script", lambda options, script: None)
    monkeypatch.setattr(detach, "listed", lambda cluster, ids: {*ids})
    monkeypatch.setattr(detach, "ask", ask)
    detach.submit(tmp_path, made("pbs", command=("dp-erm-bench",), patience=0.1))
    assert asked == ["qsub"]
    assert capsys.readouterr().out.startswith("job 12 has not begun yet, or ")


@pytest.mark.parametrize("job", ["-f", "1; ls", [1], None])
def test_a_job_without_a_number_is_asked_of_nobody(job, tmp_path, monkeypatch):
    (tmp_path / "job.json").write_text(json.dumps({"cluster": "pbs", "job": job}))
    monkeypatch.setattr(detach, "listed", lambda cluster, ids: {*ids})
    detach._check_alone(tmp_path)
    (tmp_path / "job.json").write_text(json.dumps({"cluster": "pbs", "job": "12"}))
    with pytest.raises(UsageError, match="job 12 of pbs runs this sweep already"):
        detach._check_alone(tmp_path)


def test_the_keys_of_engines_are_not_the_job_s():
    command = ("dp-erm-bench", "-cd", "conf", "runner.queue=a", "runner.retry=error")
    options = made("slurm", command=command, n_jobs=2)
    assert command_of(options)[3:] == [
        *("-cd", "conf", "runner.retry=error", "runner=local"),
        *("runner.n_jobs=2", "runner.worker_memory=null"),
    ]


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
        ({"interface": "ib77"}, "runner.interface=ib77: must be a network interface"),
    ],
)
def test_what_no_job_can_have_is_refused(changes, sentence):
    with pytest.raises(UsageError, match=re.escape(sentence)):
        made("slurm", **changes)


def test_a_job_may_be_as_long_as_it_needs():
    assert made("slurm", walltime="01:01:00").walltime == "01:01:00"
    assert made("slurm", walltime="00:02:00", time_limit=60.0).time_limit == 60


@pytest.mark.parametrize("cluster", HEADS)
def test_a_system_that_is_not_here_is_named(cluster, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    command = jobs.SYSTEMS[cluster].submit
    sentence = f"runner.cluster={cluster}: there is no command {command}"
    with pytest.raises(UsageError, match=sentence):
        jobs.check_script(made(cluster), "")


def test_keys_are_written_where_nobody_else_reads(tmp_path):
    kind = private(jobqueue().SLURMCluster).job_cls
    asked = jobs.worker(made("slurm"), tmp_path, certificates(SECURITY))
    job = kind("tls://10.0.0.1:5", name="w", **asked)
    with job.job_file() as name:
        path = type(tmp_path)(name)
        assert path.read_text() == job.job_script()
        assert path.stat().st_mode & 0o077 == 0
    assert not path.exists()


def test_the_log_of_a_job_is_its_last_lines(tmp_path):
    (tmp_path / "dp-erm-bench-17.err").write_text("\n".join(map(str, range(50))))
    (tmp_path / "dp-erm-bench-171.err").write_text("another's")
    assert log_of(tmp_path, "17").split() == [str(n) for n in range(30, 50)]
    assert log_of(tmp_path, "17.server") == log_of(tmp_path, "17")
    assert log_of(tmp_path / "nowhere", "17") == ""


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
