"""Benchmarks: figures of README and docs are those of the stored results; searches run on the tables that they name."""

import itertools
import math
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from paretune.estimating.phases import usual
from tests.support.processes import wait_until

REPOSITORY = Path(__file__).parents[2]
RESULTS = REPOSITORY / "benchmarks" / "results"


@pytest.fixture(autouse=True)
def _benchmarks_on_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(REPOSITORY / "benchmarks")


def test_every_block_of_a_page_is_what_its_stored_result_holds() -> None:
    import published

    output = published.shown()
    texts = [path.read_text() for path in sorted(RESULTS.glob("*.txt"))]
    stored = {name: body for text in texts for name, body in published.blocks(text).items()}

    assert output.items() <= stored.items(), (
        "run `python benchmarks/published.py`, which copies stored results into the pages"
    )
    assert "estimate_error" in output


def test_the_page_of_published_claims_shows_what_its_commands_say_now(
    workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import published
    import published_claims

    monkeypatch.delenv("PARETUNE_PRICES", raising=False)
    now = "\n".join(published_claims.lines(published_claims.CLAIMS)) + "\n"

    assert published.shown()["published_claims"] == now, "run `python benchmarks/published_claims.py --write`"


def test_the_sentences_about_published_jobs_have_the_stored_figures() -> None:
    import published

    evidence, readme = (" ".join((REPOSITORY / name).read_text().split()) for name in ("docs/evidence.md", "README.md"))
    errors = published.blocks((RESULTS / "estimate_error.txt").read_text())["estimate_error"]
    (alone,) = re.findall(r"^\| published: nothing known \| ([\d.]+)%", errors, re.MULTILINE)
    memory = (RESULTS / "estimate_error_cold.txt").read_text()
    ((too_large, jobs),) = re.findall(r"(\d+) of (\d+) jobs, all of which have run, are said not to fit", memory)
    simulated = (RESULTS / "public_jobs.txt").read_text()
    (admitted, over) = re.findall(r"^  jobs (?:admitted|beyond their worst case) +([\d,]+)$", simulated, re.MULTILINE)

    assert f"{too_large} of the {jobs} published jobs do not fit in memory" in evidence
    assert f"`estimate` is {alone} % off in the mean" in readme
    assert f"simulated {admitted} jobs in" in evidence
    assert f" {over} jobs cost more than their [worst case]" in evidence
    assert f"Of {admitted} simulated jobs, {over} cost more than their worst case" in readme


def test_intervals_have_the_factors_that_the_first_half_of_the_published_rates_gives() -> None:
    from paretune.estimating.timing import CALIBRATION

    text = (RESULTS / "estimate_error.txt").read_text().partition("Factors of the intervals")[2]
    stored = dict(re.findall(r"^\| ([\w ,]+) \| \d+ \| \d+ \| ([\d.]+) \|$", text, re.MULTILINE))

    assert {kind: float(factor) for kind, factor in stored.items()} == CALIBRATION


def test_readme_shows_the_stored_studies_of_every_family_that_was_left_out() -> None:
    import published

    block = published.blocks((RESULTS / "search_budgets_left_out.txt").read_text())["search_budgets_left_out"]
    stored = dict[tuple[str, str, str], str]()
    for line in block.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line[:1] == "|" and ", " in cells[0]:
            family, _, budget = cells[0].rpartition(", ")
            stored[family, budget, cells[1]] = cells[2]
    names = {
        "worlds": "own training",
        "worlds, best rate unusual": "own training, rates far off",
        "scripts": "scripts",
        "Trainer script": "Trainer script",
    }
    columns = [*(("paretune", budget) for budget in ("0", "3", "5", "10"))]
    columns += [*(("plain", budget) for budget in ("3", "5", "10")), ("random", "10")]
    shown = dict(
        re.findall(r"^\| ([\w, ]+) \(\d\) \|((?: [\d.]+ \|)+)$", (REPOSITORY / "README.md").read_text(), re.MULTILINE)
    )

    assert shown.keys() == names.keys()
    for name, cells in shown.items():
        assert re.findall(r"[\d.]+", cells) == [stored[names[name], budget, method] for method, budget in columns]


def test_the_sentences_about_searches_with_forty_jobs_have_the_stored_figures() -> None:
    import published

    evidence = " ".join((REPOSITORY / "docs" / "evidence.md").read_text().split())
    lines = published.blocks((RESULTS / "search_fronts_left_out.txt").read_text())[
        "search_fronts_left_out"
    ].splitlines()
    cells = {line.split(" | ")[0].strip("| "): line.strip("| ").split(" | ") for line in lines if line[:1] == "|"}
    stops, never = ([each.strip() for each in cells[name]] for name in ("stops", "never"))
    ratio, low, high = re.findall(r"[\d.]+", next(line for line in reversed(lines) if line.startswith("| plain")))[:3]

    assert float(low) < 1.0 < float(high), "README says that a plain Gaussian process is as good"
    assert f"to those of `plain` is {ratio} (95 % interval {low} to {high})" in evidence
    assert f"{never[1]} median jobs to 90 % of the front with the whole budget" in evidence
    assert f"{never[6]} ends below 94 %" in evidence
    assert f"and {never[3].split(' of ')[0]} searches that never have 90 %" in evidence
    assert f"{stops[6]} ends are below 94 %, and {stops[3].split(' of ')[0]} never have 90 % of the front" in evidence


def test_every_picture_shows_the_stored_figures_and_stands_in_a_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(REPOSITORY / "docs")
    import plots

    text = "\n".join(path.read_text() for path in (REPOSITORY / "docs").rglob("*.md"))
    stale = [name for name in plots.PLOTS if plots.digest(name) not in (plots.FOLDER / f"{name}.svg").read_text()]

    assert not stale, "run `python docs/plots.py`, which draws the pictures again"
    assert {path.stem for path in plots.FOLDER.iterdir()} == set(plots.PLOTS)
    assert not [name for name in plots.PLOTS if f"pictures/evidence/{name}.svg" not in text]


def test_worlds_that_are_reported_are_not_those_that_may_be_looked_at() -> None:
    from search import worlds

    assert not set(worlds.DEVELOPMENT) & set(worlds.HELD_OUT)


def test_what_is_left_out_may_not_be_looked_at() -> None:
    import search_fronts

    assert not set(search_fronts.DEVELOPMENT) & set(search_fronts.LEFT_OUT)
    assert len(search_fronts.LEFT_OUT) >= 20


def test_the_plain_rival_learns_nothing_from_jobs_that_failed(tmp_path: Path) -> None:
    from search import plain, worlds
    from search.peers import drive
    from search.tables import Outcome, Table

    worlds.World.draw("tiny", 0).write(tmp_path / "tiny.csv")
    table = Table(tmp_path / "tiny.csv")
    alone, with_failures = plain.Plain(table), plain.Plain(table)
    handle, point = alone.ask() or pytest.fail("no first job")
    outcome = table.outcome(point, 0)
    for rival in (alone, with_failures):
        rival.tell(handle, outcome, (outcome.usd, -(outcome.f1 or 0.0)))
    second, _ = alone.ask() or pytest.fail("no second job")
    failed = next(index for index in range(len(table.points)) if index not in (handle, second))
    with_failures.tell(failed, Outcome(status="OutOfMemory", usd=outcome.usd), None)

    assert with_failures.ask() == alone.ask()
    ended = drive(plain.Plain(table), table, draw=0, most_usd=math.inf, most=100)
    assert len({str(job.point) for job in ended}) == len(ended) == len(table.points)


def test_a_table_and_its_parts_count_as_one_and_a_search_that_never_gets_there_with_its_budget() -> None:
    import search_fronts
    from search.scoring import Course

    soon, late, never = (
        [Course(usd=(usd, 40.0), run=(share, share), statuses=("Completed",) * 2)]
        for usd, share in ((10.0, 0.95), (20.0, 0.95), (20.0, 0.5))
    )
    names = ["lynceus-cnn//clusters", "lynceus-cnn/2/clusters", "plain/0", "plain/1"]
    ours, theirs = [soon, soon, soon, late], [late, never, soon, late]
    courses = {(name, "a"): each for name, each in zip(names, ours, strict=True)}
    courses |= {(name, "b"): each for name, each in zip(names, theirs, strict=True)}

    # 10 : 20 and 10 : 40 are one table with log(8) / 2; the worlds are two with 0
    mean, low, high = map(float, re.findall(r"[\d.]+", search_fronts.ratio(names, "a", "b", courses, 40.0)))
    assert mean == pytest.approx(8 ** (-1 / 6), abs=0.005)
    assert low < mean < high


def test_a_part_of_measured_trainings_is_a_table_whose_cheapest_good_jobs_are_known(tmp_path: Path) -> None:
    from search import grids, plain
    from search.peers import drive
    from search.scoring import Score

    seeds = range(4)
    names = [*(f"runtime_s_{seed}" for seed in seeds), *(f"valid_mse_{seed}" for seed in seeds)]
    lines = [",".join([*grids.FCNET_AXES, *names])]
    for batch, rate, first, second in itertools.product((8, 16, 32), (0.001, 0.01), (16, 32, 64), (16, 32, 64)):
        seconds, error = 100 * first / batch, 0.1 + rate / first + 0.001 * batch / second
        lines.append(",".join(map(str, [batch, rate, first, second, *[seconds] * 4, *[error] * 4])))
    (tmp_path / grids.FCNET["fcnet-slice"]).write_text("\n".join(lines))

    part, whole = (grids.grid(name, tmp_path, tmp_path) for name in ("fcnet-slice/1", "fcnet-slice"))
    assert (len(whole.points), len(part.points)) == (54, 2 * 2**3)
    score = Score(part)
    truths = {str(point): part.truth(point) for point in part.points}
    good = [
        sum(truths[str(point)][0] for point in some)
        for count in (1, 2, 3)
        for some in itertools.combinations(part.points, count)
        if score.share(some) >= 0.9
    ]
    assert score.cheapest(0.9) == pytest.approx(min(good))
    ended = drive(plain.Plain(part), part, draw=0, most_usd=math.inf, most=100)
    assert score.course(ended, 0.0).share_at(math.inf) == pytest.approx(1.0)
    assert len(ended) == len(part.points)

    part.record(tmp_path)
    for point in part.points:
        outcome, replayed = part.outcome(point, draw=0), part.runs.answer(part.spec(point))
        assert replayed.billable_seconds == pytest.approx(outcome.seconds)
        assert replayed.measured[part.metric] == pytest.approx(outcome.f1)


def test_runs_that_are_drawn_of_measured_trainings_have_the_truth_as_their_mean(tmp_path: Path) -> None:
    import search_statements
    from search import drawn, grids

    names = [f"{column}_{seed}" for column in ("runtime_s", "valid_mse") for seed in range(4)]
    lines = [",".join([*grids.FCNET_AXES, *names])]
    for rate, first in itertools.product((0.001, 0.01, 0.1), (16, 32, 64, 128, 256, 512, 1024, 2048)):
        errors = [0.01 + rate / first + 0.001 * seed for seed in range(4)]
        lines.append(",".join(map(str, [8, rate, first, 16, *[first] * 4, *errors])))
    (tmp_path / grids.FCNET["fcnet-slice"]).write_text("\n".join(lines))

    jobs = drawn.of_grid("fcnet-slice", grids.grid("fcnet-slice", tmp_path, tmp_path)).jobs
    assert len(jobs) == 24
    assert all(job.truth == pytest.approx(sum(job.runs) / 4) for job in jobs)
    (row,) = search_statements.of_measured(["fcnet-slice"], range(1), tmp_path, tmp_path)
    assert len(row) == len(search_statements.HEAD)


def test_no_budget_is_exceeded_by_jobs_like_the_public_ones(capsys: pytest.CaptureFixture[str]) -> None:
    import public_job_bounds
    import public_jobs

    table = {("uploading", kind): usual("uploading", kind) for kind in public_jobs.KINDS}
    public_job_bounds.print_bounds(public_job_bounds.played(public_job_bounds.read()), lambda repository: table, 400)

    printed = capsys.readouterr().out
    assert re.search(r"budgets exceeded +0 +of \d+\n", printed)


def test_the_study_of_the_demo_finds_its_front_with_few_probes() -> None:
    import search_demo

    truth = search_demo.Truth(search_demo.TABLE)
    bought = search_demo.replay(seed=1)

    assert truth.share(truth.front) == pytest.approx(1.0)
    assert truth.share([truth.fastest]) < 0.5
    assert truth.share(bought.stated) > 0.97
    assert truth.fastest[:2] in {key[:2] for key in bought.stated}
    assert len(bought.jobs) <= len(truth.costs) / 3
    assert bought.probe_usd < 0.05 * bought.job_usd


def test_the_parts_of_what_a_gpu_shows_fit_into_nine_minutes_and_stand_in_its_page() -> None:
    text, page = (REPOSITORY / ".ci" / "gpu").read_text(), (REPOSITORY / "docs" / "evidence.md").read_text()
    limits = dict(re.findall(r"^(?:part|measure|try) (\w+) (\d+)", text, re.MULTILINE))
    shown = dict(re.findall(r"^\| `(\w+)` \| (\d+) \|", page, re.MULTILINE))

    assert sum(map(int, limits.values())) <= 540
    assert {name: limit for name, limit in limits.items() if name != "device"} == shown


def test_a_part_of_what_a_gpu_shows_ends_with_all_that_it_has_started(tmp_path: Path) -> None:
    script = (REPOSITORY / ".ci" / "gpu").read_text()
    function = script[script.index("part() {") : script.index("\n}\n") + 3]
    training = f"trap '' TERM; echo $$ > {tmp_path}/pid; while :; do sleep 1; done"
    words = f"sh -c {shlex.quote(training)} & wait"
    lines = [f"rehearse= folder={tmp_path} failed=()", function, f"part slow 2 sh -c {shlex.quote(words)}"]

    printed = subprocess.run(
        ["bash", "-c", "\n".join([*lines, "echo ${failed[*]}"])], capture_output=True, text=True, timeout=60, check=True
    ).stdout

    assert printed.splitlines()[-1] == "slow"
    assert re.search(r"^ended with 137 after \d+ s$", (tmp_path / "slow.txt").read_text(), re.MULTILINE)
    process = Path("/proc", (tmp_path / "pid").read_text().strip())
    wait_until(lambda: not process.exists(), within_s=20, what="the end of what the part has started")
