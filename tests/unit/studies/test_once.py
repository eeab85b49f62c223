"""A study with `once`: each call is a new driver that knows only what the storages contain."""

import re
from collections import Counter
from pathlib import Path

import pytest

from paretune.cli import main
from paretune.studies.trial_status import TrialStatus
from tests.support.study_tables import records_of, write_study


@pytest.mark.slow
def test_the_command_plays_rounds_until_the_study_has_ended(
    workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_study(workplace, sampler="split", n_parallel=2, n_trials=4, budget_usd=20.0)
    path.write_text(path.read_text().replace("sampler: none\n", ""))
    codes: list[int] = []
    while not codes or (codes[-1] == 75 and len(codes) < 60):
        codes.append(main(["study", "--study", "study.yaml", "--once"]))
    output = capsys.readouterr()
    assert codes[-1] == 0
    assert len(codes) > 3
    assert "has not ended (0 trials done, 1 running): run the same command again later" in output.err
    assert re.search(r"has not ended \(1 trial\b.* done, 2 running\)", output.err)
    storage = f"sqlite:///{workplace / '.paretune' / 'studies.db'}"
    running, ended, balance = records_of(path, storage)
    assert 0 < sum(trial.counts for trial in ended) <= 4
    assert (running, balance.committed_usd) == ([], 0)
    completed = Counter(trial.computation for trial in ended if trial.status is TrialStatus.COMPLETED)
    assert set(completed.values()) == {1}
    repeats = sum(trial.repeats is not None and not trial.status.is_retryable for trial in ended)
    # All rounds together are counted.
    assert f"configurations on the front were trained again in {repeats} more jobs" in output.out


def test_rounds_are_refused_where_jobs_end_with_their_process_and_where_each_machine_has_budgets_of_its_own(
    workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["study", "--study", "study.yaml", "--once"]
    write_study(workplace, job={"launcher": "local"}, search={"learning_rate": {"choices": [1e-5, 1e-4]}}, n_trials=2)
    assert main(words) == 2
    assert "once=true needs jobs that keep running after the command ends" in capsys.readouterr().err
    assert not (workplace / ".paretune" / "studies.db").exists()

    (workplace / "team.yaml").write_text("budgets: [{name: all, usd_per_month: 10}]\n")
    write_study(workplace, storage="postgresql://nobody@localhost:1/studies", n_trials=4)
    assert main([*words, "--budget", "team.yaml"]) == 2
    assert f"needs the ledger of {workplace / 'team.yaml'} on a server, too" in capsys.readouterr().err
