"""Fixtures: an AWS account in memory, without this machine's own AWS configuration."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.fake_clock import FakeClock
from tests.support.stand_ins.aws import Aws, account


@pytest.fixture(autouse=True)
def nothing_of_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide this machine's credentials, profiles and configuration files, and turn every connection into an error."""
    for name in [name for name in os.environ if name.startswith(("AWS_", "SAGEMAKER_", "PARETUNE_", "XDG_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "no-config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "no-credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "no-configuration"))
    monkeypatch.setenv("XDG_CONFIG_DIRS", str(tmp_path / "no-configuration"))

    def refuse(*address: Any, **_: Any) -> None:
        raise AssertionError(f"a unit test accesses the network: {address}")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def aws(clock: FakeClock) -> Iterator[Aws]:
    """Yield the account that every boto session uses."""
    with account(clock) as made:
        yield made
