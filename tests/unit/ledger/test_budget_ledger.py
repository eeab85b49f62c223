"""Reservations and recorded costs in budgets that many jobs share."""

import threading
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paretune.core.errors import BudgetRefused
from paretune.ledger.budget_file import Budget, BudgetFile
from paretune.ledger.budget_ledger import BudgetLedger, BudgetRequest
from tests.support.stand_ins import postgresql

NOVEMBER = datetime(2026, 11, 22, 12, tzinfo=UTC).timestamp()
DECEMBER = datetime(2026, 12, 1, 0, 0, 1, tzinfo=UTC).timestamp()
BUDGETS = (
    Budget(name="everything", usd_per_month=20.0),
    Budget(name="nlp", usd_per_month=5.0, tags={"team": "nlp"}),
)


def accounts_in(folder: Path, *budgets: Budget, storage: str = "") -> BudgetLedger:
    file = BudgetFile(path="team.yaml", budgets=budgets or BUDGETS)
    return BudgetLedger(file, storage or f"sqlite:///{folder / 'studies.db'}")


def claim(job: str, worst_usd: float | None = 1.0, **changes: Any) -> BudgetRequest:
    request: dict[str, Any] = {
        "tags": {"team": "nlp"},
        "origin": "measured",
        "now": NOVEMBER,
        "instance_type": "ml.g5.xlarge",
        "region": "eu-west-1",
    }
    return BudgetRequest(**{**request, "run_id": job, "worst_usd": worst_usd, **changes})


def left(accounts: BudgetLedger, origin: str = "measured", now: float = NOVEMBER) -> dict[str, float]:
    return {status.budget.name: status.left_usd for status in accounts.statuses(now, origin)}


def test_a_job_counts_against_every_budget_whose_tags_it_has(tmp_path: Path) -> None:
    accounts = accounts_in(tmp_path)
    accounts.reserve(claim("a", 2.0))
    accounts.reserve(claim("b", 4.0, tags={"team": "vision"}))

    assert left(accounts) == {"everything": 14.0, "nlp": 3.0}
    (only,) = accounts.check(claim("c", 1.0, tags={"team": "vision"}))
    assert only.budget.name == "everything"


def test_a_refusal_names_budget_limit_spent_promised_worst_case_and_the_way_out_and_writes_nothing(
    tmp_path: Path,
) -> None:
    accounts = accounts_in(tmp_path)
    accounts.reserve(claim("a", 1.5))
    accounts.record_cost("a", 1.25)
    accounts.reserve(claim("b", 3.0))

    with pytest.raises(BudgetRefused) as caught:
        accounts.reserve(claim("c", 1.0))

    assert caught.value.exit_code == 4
    assert str(caught.value).startswith(
        "budget nlp (5.00 USD a month, team.yaml): worst case 1.00 USD does not fit: in 2026-11 1.25 USD are spent and "
        "3.00 USD reserved for running jobs and kept instances, so 0.750 USD are left: lower max_runtime_minutes"
    )
    assert "everything" not in str(caught.value)
    assert left(accounts) == {"everything": 15.75, "nlp": 0.75}
    accounts.reserve(claim("d", 0.75))  # to the cent


def test_an_unknown_price_fits_no_budget_and_passes_where_none_counts(tmp_path: Path) -> None:
    accounts = accounts_in(tmp_path, BUDGETS[1])
    unknown = "ml.g5.xlarge in eu-west-1 is not known, so it cannot be charged to a budget"
    unknown += ".*nlp.*--refresh true --region eu-west-1`"
    with pytest.raises(BudgetRefused, match=unknown):
        accounts.reserve(claim("a", None))
    accounts.reserve(claim("b", None, tags={}))

    assert left(accounts) == {"nlp": 5.0}


def test_a_recorded_cost_replaces_the_worst_case_and_kept_instances_stay_promised_until_they_are_recorded(
    tmp_path: Path,
) -> None:
    accounts = accounts_in(tmp_path)
    accounts.reserve(claim("a", 4.0))
    assert left(accounts)["nlp"] == 1.0
    for _ in range(2):
        accounts.record_cost("a", 1.0, 0.5)
        assert left(accounts)["nlp"] == 3.5
    for usd in (1.25, 0.5):  # a second record never lowers the first
        accounts.record_cost("a", usd)
        assert left(accounts)["nlp"] == 3.75
    accounts.reserve(claim("b", 2.0))
    accounts.record_cost("b", None)  # a cost that is not known is the worst case
    assert left(accounts)["nlp"] == 1.75
    accounts.reserve(claim("c", 5.0, origin="simulated"))  # this uses up no real dollars
    assert (left(accounts)["nlp"], left(accounts, "simulated")["nlp"]) == (1.75, 0.0)


def test_a_job_that_is_adopted_is_not_reserved_a_second_time_and_one_that_begins_again_is(tmp_path: Path) -> None:
    accounts = accounts_in(tmp_path)
    accounts.reserve(claim("run", 2.0))
    accounts.reserve(claim("run", 2.0))  # whoever takes over the run
    assert left(accounts)["nlp"] == 3.0

    accounts.record_cost("run", 0.5)
    accounts.reserve(claim("run", 2.0))
    assert left(accounts)["nlp"] == 2.5
    accounts.record_cost("run", 1.0)  # both together
    assert left(accounts)["nlp"] == 4.0


def test_a_month_ends_with_its_last_second_in_utc_and_the_next_one_has_all_its_dollars(tmp_path: Path) -> None:
    accounts = accounts_in(tmp_path)
    accounts.reserve(claim("a", 5.0, now=DECEMBER - 2))
    with pytest.raises(BudgetRefused):
        accounts.reserve(claim("b", 5.0, now=DECEMBER - 2))
    accounts.reserve(claim("b", 5.0, now=DECEMBER))
    accounts.record_cost("a", 4.0)  # it ends in December, but counts in November

    assert (left(accounts)["nlp"], left(accounts, now=DECEMBER)["nlp"]) == (1.0, 0.0)


@settings(max_examples=12, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("ab"), st.floats(0.01, 3.0), st.floats(0.0, 1.0)), min_size=1, max_size=12))
def test_spent_and_promised_never_exceed_any_budget_whatever_comes(
    tmp_path_factory: pytest.TempPathFactory, jobs: list[tuple[str, float, float]]
) -> None:
    accounts = accounts_in(
        tmp_path_factory.mktemp("accounts"),
        Budget(name="all", usd_per_month=6.0),
        Budget(name="a", usd_per_month=4.0, tags={"team": "a"}),
    )
    for number, (team, worst_usd, share) in enumerate(jobs):
        before = left(accounts)
        fits = worst_usd <= before["all"] + 1e-9 and (team == "b" or worst_usd <= before["a"] + 1e-9)
        try:
            accounts.reserve(claim(str(number), worst_usd, tags={"team": team}))
        except BudgetRefused:
            assert not fits
            assert left(accounts) == before
        else:
            assert fits
            if number % 3:
                accounts.record_cost(str(number), share * worst_usd)
        assert min(left(accounts).values()) >= -1e-9


def admit_at_once(storage: str, folder: Path, threads: int, each: int) -> tuple[int, dict[str, float]]:
    """Admit jobs of 0.1 USD at once, as several processes would; return how many were admitted, and what is left."""
    admitted: list[str] = []
    begin = threading.Barrier(threads)

    def work(number: int) -> None:
        accounts = accounts_in(folder, storage=storage)
        begin.wait()
        for job in range(each):
            name = f"{number}/{job}"
            try:
                accounts.reserve(claim(name, 0.1, tags={"team": "nlp"} if number % 2 else {"team": "vision"}))
            except BudgetRefused:
                continue
            admitted.append(name)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return len(admitted), left(accounts_in(folder, storage=storage))


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def test_eight_that_admit_at_once_never_promise_more_than_there_is(tmp_path: Path, kind: str) -> None:
    if kind == "postgresql" and (missing := postgresql.what_is_missing()):
        pytest.skip(missing)
    server = postgresql.server() if kind == "postgresql" else nullcontext(f"sqlite:///{tmp_path / 'studies.db'}")
    with server as address:
        count, rest = admit_at_once(address, tmp_path, threads=8, each=16)
    assert count == 50 + 4 * 16  # four threads of team nlp fill their 5 USD, the others fit into the 20
    assert rest["nlp"] == pytest.approx(0.0, abs=1e-9)
    assert rest["everything"] == pytest.approx(20 - 0.1 * count)


def test_a_job_whose_worst_case_has_grown_is_asked_again_and_refused_if_it_does_not_fit(tmp_path: Path) -> None:
    accounts = accounts_in(tmp_path)
    accounts.reserve(claim("a", 2.0))

    for worst_usd in (50_000.0, None):
        with pytest.raises(
            BudgetRefused, match="cannot be charged to a budget" if worst_usd is None else "worst case 50,000.00 USD "
        ):
            accounts.reserve(claim("a", worst_usd))
    assert left(accounts) == {"everything": 18.0, "nlp": 3.0}
    accounts.reserve(claim("a", 4.0))
    assert left(accounts) == {"everything": 16.0, "nlp": 1.0}
    accounts.reserve(claim("a", 1.0))  # a promise is not lowered while the job runs
    assert left(accounts) == {"everything": 16.0, "nlp": 1.0}
