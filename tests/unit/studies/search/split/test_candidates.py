"""The points of a split search, and what of each F1 and seconds depend on."""

from collections.abc import Callable
from pathlib import Path

import pytest

from paretune.specification.job import JobSpec
from paretune.studies.definition.file import StudyFile
from paretune.studies.results.quality_model import quality_key
from paretune.studies.search.split.candidates import (
    LEVELS,
    MOST_CANDIDATES,
    Candidate,
    CandidateSpace,
    candidates,
    step_of,
)


class FakeLauncher:
    """A launcher without prices, which bills nothing after a job's limit."""

    exceeded_s = 0.0
    has_seen_upload = True

    def billed_after_limit_s(self, _: JobSpec) -> float:
        return 0.0

    def unknown_upload_s(self, _: JobSpec) -> float:
        return 0.0

    def price(self, _: JobSpec) -> None:
        return None


Read = Callable[[str], list[Candidate]]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Candidates of a search, given as YAML."""

    def result(search: str) -> list[Candidate]:
        path = tmp_path / "study.yaml"
        path.write_text(f"name: test\njob: {{launcher: simulated}}\nn_trials: 5\nsearch:\n{search}")
        return candidates(StudyFile.read(str(path), {}))

    return result


def test_choices_are_taken_as_they_are_and_ranges_are_cut_by_ratio(read: Read) -> None:
    content = read("  num_train_epochs: {choices: [1, 2]}\n  learning_rate: {low: 1e-5, high: 1e-3, log: true}\n")

    rates = sorted({item.spec.learning_rate for item in content})
    assert len(content) == 2 * LEVELS
    assert rates[0] == 1e-5
    assert rates[-1] == 1e-3
    assert rates[LEVELS // 2] == pytest.approx(1e-4)


def test_a_point_that_makes_no_job_is_none(read: Read) -> None:
    content = read(
        "  global_batch_size: {choices: [4, 16]}\n"
        "  instance_type: {choices: [ml.g5.xlarge, ml.g5.48xlarge]}\n"  # the second has eight devices
    )

    assert [(item.spec.instance_type, item.plan.global_batch_size) for item in content] == [
        ("ml.g5.xlarge", 4),
        ("ml.g5.xlarge", 16),
        ("ml.g5.48xlarge", 16),
    ]


def test_clusters_that_make_the_same_global_batch_share_their_quality_and_not_their_speed(read: Read) -> None:
    first, two = (
        item
        for item in read(
            "  instance_type: {choices: [ml.g5.xlarge, ml.g5.12xlarge]}\n"
            "  per_device_train_batch_size: {choices: [16, 64]}\n"
        )
        if item.plan.global_batch_size == 64
    )

    assert first.spec.instance_type != two.spec.instance_type
    assert quality_key(first.spec, first.plan) == quality_key(two.spec, two.plan)
    assert step_of(first.spec, first.plan) != step_of(two.spec, two.plan)


def test_learning_rates_differ_in_quality_and_not_in_speed(read: Read) -> None:
    first, two = read("  learning_rate: {choices: [1e-5, 1e-4]}\n")

    assert quality_key(first.spec, first.plan) != quality_key(two.spec, two.plan)
    assert step_of(first.spec, first.plan) == step_of(two.spec, two.plan)


def test_of_a_huge_space_a_share_is_taken_the_same_each_time(read: Read) -> None:
    huge = "".join(
        f"  {name}: {{low: {low}, high: {high}, log: true}}\n"
        for name, low, high in (
            ("learning_rate", 1e-5, 1e-3),
            ("num_train_epochs", 1, 8),
            ("max_seq_length", 16, 512),
            ("per_device_train_batch_size", 1, 256),
        )
    )

    first, again = read(huge), read(huge)

    assert len(first) == MOST_CANDIDATES < LEVELS**4
    assert [item.point for item in first] == [item.point for item in again]


def test_a_large_space_is_refined_around_good_points_and_a_small_one_is_not(tmp_path: Path) -> None:
    def refined(search: str) -> tuple[int, list[Candidate]]:
        path = tmp_path / "study.yaml"
        path.write_text(f"name: test\njob: {{launcher: simulated}}\nn_trials: 5\nsearch:\n{search}")
        space = CandidateSpace(StudyFile.read(str(path), {}), FakeLauncher())  # type: ignore[arg-type]
        count = len(space.candidates)
        space.refine([space.candidates[0].point])
        space.refine([space.candidates[0].point])
        assert len(space.usd_per_second) == len(space.quality_keys) == len(space.family) == len(space.candidates)
        return count, space.candidates[count:]

    batches = "  per_device_train_batch_size: {choices: [8, 16, 32]}\n"
    count, (added,) = refined(f"{batches}  learning_rate: {{low: 1e-5, high: 1e-3, log: true}}\n")
    assert count == 3 * LEVELS
    assert added.spec.per_device_train_batch_size == 8
    assert added.spec.learning_rate == pytest.approx(1e-5 * 100 ** (0.5 / (LEVELS - 1)))
    assert refined(f"{batches}  learning_rate: {{choices: [1e-5, 1e-4]}}\n") == (6, [])
