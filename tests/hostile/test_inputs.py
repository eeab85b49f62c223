"""Broken and harmful input of every command: one message, exit code 2, and nothing else has happened."""

import os
import random
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.hostile.inputs import HostileInput, an_input, give, store_in
from tests.hostile.values import HARMFUL, MARK
from tests.hostile.watch import Gate, watching


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An MLflow store for all of them."""
    return store_in(tmp_path_factory.mktemp("store"))


@settings(
    max_examples=100,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.integers(0, 2**32))
def test_no_input_ends_in_a_traceback_starts_anything_or_writes_elsewhere(store: str, seed: int) -> None:
    hostile = an_input(random.Random(seed))
    with tempfile.TemporaryDirectory() as folder:
        outcome = give(hostile, Path(folder), store)

    assert not outcome.wrong, f"seed {seed}: {hostile}\n" + "\n".join(outcome.wrong)


@pytest.mark.parametrize("name", ["dataset", "entry_script", "project"])
@pytest.mark.parametrize("part", range(3))
def test_a_harmful_name_of_a_file_or_a_folder_does_nothing(store: str, tmp_path: Path, name: str, part: int) -> None:
    for text in HARMFUL[part::3]:
        outcome = give(HostileInput(words=("main", "--dry_run", "true", f"--{name}", text)), tmp_path, store)

        assert not outcome.wrong, ascii(text[:200])


def test_what_is_watched_for_is_seen(tmp_path: Path) -> None:
    """So that the tests above can fail."""
    allowed, elsewhere = tmp_path / "allowed", tmp_path / "elsewhere"
    allowed.mkdir()
    elsewhere.mkdir()
    with watching(allowed) as seen:
        (allowed / "a").write_text("")
        (elsewhere / "b").write_text("")
        os.mkdir(elsewhere / "c")
    assert seen.written == [str(elsewhere / "b"), str(elsewhere / "c")]
    with watching(allowed) as seen, pytest.raises(Gate):
        os.system(f"touch {MARK}")  # noqa: S605  # it does not come to that
    assert seen.begun == [f"touch {MARK}"]
