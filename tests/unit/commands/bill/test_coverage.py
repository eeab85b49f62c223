"""Up to when a bill tells what SageMaker has charged."""

from datetime import UTC, datetime, timedelta

from paretune.commands.bill.coverage import LATE, Coverage

HOUR, DAY = timedelta(hours=1), timedelta(days=1)


def at(day: int, hour: int = 0, minute: int = 0) -> datetime:
    return datetime(2026, 11, day, hour, minute, tzinfo=UTC)


def test_a_job_is_covered_by_all_months_of_its_time_up_to_the_last_hour() -> None:
    coverage = Coverage()
    job = datetime(2026, 10, 31, 23, tzinfo=UTC), at(1, 1, 30)
    coverage.add(at(1), datetime(2026, 12, 1, tzinfo=UTC), of_service=True)

    assert "no lines of an hour or a day" in coverage.missing(*job)

    coverage.add(at(1), at(1, 1), of_service=True)

    assert coverage.missing(*job) == "the bill has no lines of 2026-10: reconcile a folder with all months of the job"

    coverage.add(job[0], at(1), of_service=True)
    report = "the bill has SageMaker's hours up to 2026-11-01 01:00 UTC, and the job ended at 2026-11-01 01:30"

    assert coverage.missing(*job) == report

    coverage.add(at(1, 1), at(1, 2), of_service=True)

    assert coverage.missing(*job) == ""


def test_lines_of_other_services_tell_of_sagemaker_only_two_days_later() -> None:
    coverage = Coverage()
    coverage.add(at(5, 8), at(5, 9), of_service=True)
    coverage.add(at(5, 12), at(5, 13), of_service=False)

    assert coverage.complete_until == at(5, 9)

    coverage.add(at(9, 12), at(9, 13), of_service=False)

    assert coverage.complete_until == at(9, 13) - LATE


def test_the_newest_day_of_daily_lines_may_be_a_part_of_a_day_and_does_not_count() -> None:
    coverage = Coverage()
    for day in (4, 5):
        coverage.add(at(day), at(day) + DAY, of_service=True)

    assert coverage.complete_until == coverage.until == at(5)

    coverage.add(at(6), at(6) + DAY, of_service=False)

    assert coverage.complete_until == at(6)
