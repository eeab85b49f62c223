"""Histories with fresh seeds; a failure names the seed, and `python -m tests.histories --seed N` plays it again."""

import logging
import secrets
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.histories.history import play, simulated

_CI_SECONDS = 18.0
_CI_HISTORIES = 1000


@pytest.fixture(autouse=True)
def _simulated(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    caplog.set_level(logging.CRITICAL)
    with simulated():
        yield


def test_the_same_seed_plays_the_same_history(tmp_path: Path) -> None:
    first, second = play(4, tmp_path, log=True), play(4, tmp_path, log=True)

    assert first.log == second.log
    assert len(first.log) > 50


def test_no_promise_is_broken_in_a_few_histories(tmp_path: Path) -> None:
    first = 10 * secrets.randbits(40)  # a study, which takes a second
    assert [text for seed in range(first + 1, first + 10) for text in play(seed, tmp_path).described()] == []


@pytest.mark.slow
def test_no_promise_is_broken_in_many_histories(tmp_path: Path) -> None:
    first, begun = secrets.randbits(40), time.process_time()
    for seed in range(first, first + _CI_HISTORIES):
        assert play(seed, tmp_path).described() == []
        if time.process_time() - begun > _CI_SECONDS:
            break
