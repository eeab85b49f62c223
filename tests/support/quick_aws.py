"""A fixture that reads the data files of boto only once in a process.

Each session of boto reads the models of its services again, and the SageMaker SDK reads the list of all endpoints for
each address of an image, which takes up to 0.1 s. A command does this a few times, but the tests hundreds of times.
"""

import functools
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def quick_aws() -> Iterator[None]:
    """Share the data files of boto, which nothing changes, between all sessions of this process."""
    from botocore.loaders import JSONFileLoader

    plain = JSONFileLoader._load_file

    @functools.cache
    def read(path: str, open_file: object) -> object:
        return plain(JSONFileLoader(), path, open_file)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(JSONFileLoader, "_load_file", lambda loader, path, open_file: read(path, open_file))
        yield
