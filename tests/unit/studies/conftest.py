"""The desk of a study whose jobs end as tests want."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from paretune.tracking.store import Tracking
from tests.support.scripted_study import Desk, QuickClock


@pytest.fixture
def desk(workplace: Path, empty_storage: Path, tmp_path: Path) -> Iterator[Desk]:
    shutil.copy(empty_storage, tmp_path / "studies.db")
    clock = QuickClock()
    made = Desk(tmp_path, clock, Tracking({}, clock))
    yield made
    made.close()
