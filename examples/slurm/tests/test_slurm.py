"""The Slurm launcher keeps the contract of all launchers, on a stand-in that runs the batch jobs of one node."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from paretune import pricing
from paretune.core.clock import SystemClock
from paretune.core.errors import BadInput, LaunchRefused, LostContact
from paretune.launchers.offers import worst_case_usd
from paretune.specification import catalog, launchers
from paretune.specification.container import JobInputs
from paretune.specification.ending import Cause, JobState, failed
from paretune.specification.job import JobSpec
from paretune.testing import LauncherContract, Place, RealJobsContract, planned
from tests.support.processes import wait_until
from tests.support.scripted_training import TRAINING

HERE = Path(__file__).parent
TABLE = """\
instance_type,accelerator,accelerator_count,accelerator_memory_gb,network_gbps,vcpus,memory_gb,\
price_usd_per_hour,region,as_of,source,confidence,sbatch_options
cpu-node,none,0,0,10,16,64,0.5,,2026-11-01,the accounting of the cluster,confirmed,--partition=cpu --exclusive
a100-node,NVIDIA A100,4,40,100,64,512,6.0,,2026-11-01,the accounting of the cluster,confirmed,--gres=gpu:a100:4
"""
ENTRY = "[paretune.launchers]\nslurm = paretune_slurm:TRAITS\n"


def forget() -> None:
    for read in (launchers.names, launchers.known, catalog.rows, catalog.instances, pricing._packaged):
        read.cache_clear()
    for name in [name for name in sys.modules if name.split(".")[0] == "paretune_slurm"]:
        del sys.modules[name]


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """Return the environment of a login node, with the package installed as pip installs it."""
    programs, site, home = (tmp_path / name for name in ("bin", "site", "slurm"))
    (site / "paretune_slurm-0.1.0.dist-info").mkdir(parents=True)
    (site / "paretune_slurm-0.1.0.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: paretune-slurm\nVersion: 0.1.0\n"
    )
    (site / "paretune_slurm-0.1.0.dist-info" / "entry_points.txt").write_text(ENTRY)
    programs.mkdir()
    home.mkdir()
    for name in ("sbatch", "sacct", "scancel", "srun", "daemon"):
        (programs / name).write_text(f"#!{sys.executable} -IS\n{(HERE / 'stand_in.py').read_text()}")
        (programs / name).chmod(0o755)
    table = tmp_path / "slurm.csv"
    table.write_text(TABLE)
    paths = [str(site), str(HERE.parent / "src")]
    variables = {
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "SLURM_STAND_IN": str(home),
        "PARETUNE_SLURM_TABLE": str(table),
        "PYTHONPATH": os.pathsep.join([*paths, os.environ.get("PYTHONPATH", "")]),
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    for path in reversed(paths):
        monkeypatch.syspath_prepend(path)
    forget()
    yield dict(os.environ)
    jobs = [json.loads(path.read_text()) for path in home.glob("[0-9]*.json")]
    for number, job in enumerate(sorted(jobs, key=lambda job: job["start"] or 0), 1):
        if job["state"] in ("PENDING", "RUNNING"):
            subprocess.run(["scancel", str(number)], check=False, env=dict(os.environ))
    forget()


@pytest.fixture
def training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a program that replaces the Python that trains, but runs the launcher's own programs with the real one."""
    program = tmp_path / "training"
    real = f"""#!{sys.executable}
import os, sys
if sys.argv[1:3] == ["-m", "paretune_slurm.node"]:
    os.execv({sys.executable!r}, [{sys.executable!r}, *sys.argv[1:]])
os.environ["PARETUNE_STARTER"] = str(os.getppid())
"""
    program.write_text(real + TRAINING.format(python=sys.executable).partition("\n")[2])
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    return program


def job_of(kind: str, **changes: object) -> tuple[JobSpec, JobInputs]:
    return JobSpec(**{"launcher": "slurm", "instance_type": "cpu-node", "model": kind, **changes}), JobInputs()


def launcher_of(environment: dict[str, str], home: Path) -> Any:
    from paretune_slurm.launcher import SlurmLauncher

    return SlurmLauncher(home, SystemClock(), environment, ask_every_s=0.0)


@pytest.fixture
def place(cluster: dict[str, str], training: Path, tmp_path: Path) -> Place:
    home = tmp_path / "home"
    return Place(
        launcher=launcher_of(cluster, home),
        another=lambda: launcher_of(cluster, home),
        job=job_of,
        let_time_pass=lambda: time.sleep(0.25),
        within_s=90.0,
        shortest_runtime_minutes=5 / 60,
    )


class TestSlurmLauncherKeepsTheContract(LauncherContract):
    """Runs the contract with the fixture `place`."""


class TestSlurmLauncherRunsRealJobs(RealJobsContract):
    @pytest.fixture
    def parameters(self, cluster: dict[str, str]) -> dict[str, str]:
        return {"launcher": "slurm", "instance_type": "cpu-node"}


def test_the_job_whose_order_was_not_answered_is_found_by_its_name(place: Place, tmp_path: Path) -> None:
    order = place.order("quick")
    (tmp_path / "slurm" / "lose").touch()
    with pytest.raises(LostContact, match="Socket timed out"):
        place.launcher.submit(order)
    (tmp_path / "slurm" / "lose").unlink()

    job = place.another().submit(order)

    assert place.end(job) is JobState.COMPLETED
    assert [path.name for path in (tmp_path / "slurm").glob("[0-9]*.json")] == ["1.json"]


def test_a_job_of_another_home_is_not_said_to_be_missing(place: Place, cluster: dict[str, str], tmp_path: Path) -> None:
    job, other_home = place.submit("long"), launcher_of(cluster, tmp_path / "other")

    with pytest.raises(LostContact, match=f"{job.name} is batch job 1 of Slurm.*set PARETUNE_HOME"):
        other_home.attach(job.name)
    assert other_home.location_tags() != place.launcher.location_tags()  # its jobs have other names
    job.stop()
    assert place.end(job) is JobState.STOPPED


def test_a_job_whose_files_were_removed_is_missing_once_its_folder_is_created(
    place: Place, cluster: dict[str, str], tmp_path: Path
) -> None:
    job, other_home = place.submit("quick"), launcher_of(cluster, tmp_path / "other")
    with pytest.raises(LostContact, match="create this folder, and `paretune sync` closes the run"):
        other_home.attach(job.name)

    (tmp_path / "other" / "slurm" / job.name).mkdir(parents=True)

    assert other_home.attach(job.name) is None


def test_a_job_that_was_ordered_twice_trains_once(place: Place, tmp_path: Path) -> None:
    job = place.submit("quick")
    script = next((tmp_path / "home" / "launched").glob("*/batch.sh"))
    options = [f"--job-name={job.name}", "--nodes=1", "--time=2:00", "--signal=TERM@60", f"--output={tmp_path}/log"]
    subprocess.run(["sbatch", "--parsable", *options, script], check=True, capture_output=True)

    assert place.end(job) is JobState.COMPLETED
    assert sum(event.message == "started" for event in place.events(job)) == 1


def test_of_a_job_that_was_ordered_twice_the_batch_job_that_trains_is_followed(place: Place, tmp_path: Path) -> None:
    job, second = place.submit("long"), tmp_path / "slurm" / "2.json"
    place.first_event(job)
    script = next((tmp_path / "home" / "launched").glob("*/batch.sh"))
    options = [f"--job-name={job.name}", "--nodes=1", "--time=2:00", "--signal=TERM@60", f"--output={tmp_path}/log"]
    subprocess.run(["sbatch", "--parsable", *options, script], check=True, capture_output=True)
    wait_until(lambda: json.loads(second.read_text())["state"] == "COMPLETED", within_s=60, what="the second has ended")

    job.number = "2"  # the order that was answered

    assert job.state() is JobState.RUNNING
    job.stop()
    assert place.end(job) is JobState.STOPPED


@pytest.mark.parametrize(
    ("ended_as", "state", "cause"),
    [
        ("CANCELLED by 0", JobState.STOPPED, Cause.ERROR),
        ("PREEMPTED", JobState.FAILED, Cause.INTERNAL),
    ],
)
def test_a_job_that_slurm_ends_early_is_not_said_to_have_reached_its_limit(
    place: Place, tmp_path: Path, ended_as: str, state: JobState, cause: Cause
) -> None:
    job, record = place.submit("long"), tmp_path / "slurm" / "1.json"
    place.first_event(job)
    record.write_text(json.dumps(json.loads(record.read_text()) | {"ended_as": ended_as}))
    subprocess.run(["scancel", "--signal=TERM", "1"], check=True)  # the training writes a checkpoint and ends

    assert place.end(job) is state
    ending = job.status().ending
    assert ending is not None
    assert ending.cause is cause
    assert ended_as.lower() in ending.sentence.lower()


def test_what_a_job_writes_into_its_folder_sets_neither_its_state_nor_its_run_nor_its_seconds(place: Place) -> None:
    job = place.submit("long")
    place.first_event(job)
    end = {**failed(Cause.ERROR, "forged").as_json(), "seconds": 1e7, "time": 1.0}
    for name, content in {"end.json": end, "order.json": {"run_id": "another", "max_seconds": 1.0}, "stop": {}}.items():
        (job.folder.root / name).write_text(json.dumps(content))
    (job.folder.root / "owner").mkdir()
    (job.folder.root / "owner" / "batch-job").write_text("99")

    seen = place.another().attach(job.name)

    assert (seen.state(), seen.run_id, seen.number) == (JobState.RUNNING, job.run_id, "1")
    assert seen.status().seconds < 90
    job.stop()
    assert place.end(job) is JobState.STOPPED


def test_a_job_that_ran_out_of_memory_keeps_the_reason_of_its_training(place: Place, tmp_path: Path) -> None:
    job, record = place.submit("deaf"), tmp_path / "slurm" / "1.json"
    place.first_event(job)
    content = json.loads(record.read_text())
    record.write_text(json.dumps(content | {"ended_as": "OUT_OF_MEMORY"}))  # Slurm has killed one of its processes
    job.folder.write_failure(Cause.DISK_FULL, "no space left")
    os.killpg(content["pid"], signal.SIGKILL)

    assert place.end(job) is JobState.FAILED
    assert job.status().ending == failed(Cause.DISK_FULL, "no space left")


def test_slurm_s_own_reason_is_shown_if_it_takes_no_job(place: Place, tmp_path: Path) -> None:
    (tmp_path / "slurm" / "refuse").touch()

    with pytest.raises(LaunchRefused, match="Invalid account"):
        place.submit("quick")


def test_a_node_hour_is_priced_by_the_table_and_the_limit_is_in_the_request(place: Place) -> None:
    spec, _ = job_of("quick", instance_type="a100-node", instance_count=2, max_runtime_minutes=30.0)
    order = planned(place.launcher, spec)

    assert order.offer.price is not None
    assert order.offer.price.usd_per_hour == 6.0
    assert worst_case_usd(spec, place.launcher, {}) == pytest.approx(2 * 6.0 * 33 / 60)  # three minutes to stop
    assert order.batch.devices == 8
    request = place.launcher.preview(order)["sbatch"]
    for part in ("--nodes=2", "--time=32:00", "--signal=TERM@120", "--gres=gpu:a100:4"):
        assert part in request


def test_the_worst_case_covers_the_minutes_to_which_slurm_rounds_the_limit(place: Place) -> None:
    spec, _ = job_of("quick", instance_type="a100-node", max_runtime_minutes=7.3)

    assert "--time=9:18" in place.launcher.preview(planned(place.launcher, spec))["sbatch"]  # 10 minutes for Slurm
    assert worst_case_usd(spec, place.launcher, {}) >= 6.0 * 10 / 60


def test_without_the_commands_of_slurm_nothing_is_launched(place: Place, cluster: dict[str, str]) -> None:
    spec, _ = job_of("quick")

    with pytest.raises(BadInput, match="sbatch, sacct, scancel must be on the PATH"):
        launcher_of({**cluster, "PATH": ""}, Path()).place(spec)


def test_the_entry_point_is_the_one_of_the_package() -> None:
    project = (HERE.parent / "pyproject.toml").read_text()

    assert (
        ENTRY.replace("[paretune.launchers]", '[project.entry-points."paretune.launchers"]').replace(
            "= paretune_slurm:TRAITS", '= "paretune_slurm:TRAITS"'
        )
        in project
    )
