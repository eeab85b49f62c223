"""MLflow's model registry: versions of registered models, their tags, and the aliases that point to them."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import LoggedModel
from mlflow.exceptions import MlflowException

from paretune.tracking.models import logged_model_of

_READY_WITHIN_S = 120  # a managed server makes a Model Package of each version
_LONGEST_TAG = 5000  # characters of a version's tag in MLflow 3.17's databases
_ABSENT = {"RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE", "NOT_FOUND"}
"""Codes with which stores answer that there is no such alias, version or model."""
_PAGE = 200


@dataclass(frozen=True, kw_only=True)
class RegisteredVersion:
    """One version of a registered model, `NAME/3`."""

    name: str
    version: int
    run_id: str
    tags: Mapping[str, str]

    @classmethod
    def of(cls, model_version: Any) -> "RegisteredVersion":
        """From MLflow's own ModelVersion."""
        tags = {name: str(text) for name, text in (model_version.tags or {}).items()}
        return cls(
            name=model_version.name, version=int(model_version.version), run_id=model_version.run_id or "", tags=tags
        )

    def __str__(self) -> str:
        return f"{self.name}/{self.version}"


class Registry:
    """The model registry beside a tracking store. What MLflow raises is raised as it is.

    `alone` gives a block in which no other process of paretune writes to the same store, where that can be had: to a
    SQLite file it can, to a server it cannot.
    """

    def __init__(self, client: MlflowClient, alone: Callable[[], AbstractContextManager[None]]) -> None:
        self._client = client
        self.alone = alone

    def model(self, run_id: str) -> LoggedModel | None:
        """The model of the run of a finished job; None if MLflow has none."""
        return logged_model_of(self._client, run_id)

    def versions(self, name: str) -> list[RegisteredVersion]:
        """All versions of a registered model, oldest first; empty if there is no such model."""
        versions, token = list[RegisteredVersion](), None
        while True:
            page = self._client.search_model_versions(f"name = '{name}'", max_results=_PAGE, page_token=token)
            versions += map(RegisteredVersion.of, page)
            token = page.token
            if not token:
                return sorted(versions, key=lambda version: version.version)

    def add(self, name: str, model: LoggedModel, run_id: str, tags: Mapping[str, str]) -> RegisteredVersion:
        """A new version of a registered model, which is made if there is none of that name."""
        try:
            self._client.create_registered_model(name)
        except MlflowException as error:
            if error.error_code not in {"RESOURCE_ALREADY_EXISTS", "ALREADY_EXISTS"}:
                raise
        made = self._client.create_model_version(
            name,
            model.model_uri,
            run_id=run_id,
            tags={key: text[:_LONGEST_TAG] for key, text in tags.items()},
            await_creation_for=_READY_WITHIN_S,
            model_id=model.model_id,
        )
        return RegisteredVersion.of(made)

    def at(self, name: str, alias: str) -> RegisteredVersion | None:
        """The version that an alias points to; None where it points to none."""
        try:
            return RegisteredVersion.of(self._client.get_model_version_by_alias(name, alias))
        except MlflowException as error:
            if error.error_code in _ABSENT:
                return None
            raise

    def point(self, alias: str, version: RegisteredVersion) -> None:
        """Have an alias point to a version."""
        self._client.set_registered_model_alias(version.name, alias, str(version.version))

    def tag(self, version: RegisteredVersion, tags: Mapping[str, str]) -> None:
        """Set tags of a version."""
        for name, text in tags.items():
            self._client.set_model_version_tag(version.name, str(version.version), name, text[:_LONGEST_TAG])
