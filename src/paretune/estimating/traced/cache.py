"""Traced steps that are kept, so that each is traced once: a file for each setting."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from paretune.estimating.traced.step import StepSetting, TracedStep
from paretune.specification.container import write_json

_PACKAGES = ("torch", "transformers", "peft")


class TracedSteps:
    """The traced steps below a folder, `PARETUNE_HOME` of a process; none without one."""

    def __init__(self, home: Path | None) -> None:
        self._folder = None if home is None else home / "traced-steps"
        self._known: dict[str, TracedStep | None] = {}

    def find(self, setting: StepSetting) -> TracedStep | None:
        """The step; None where it was not traced, or its model cannot be."""
        key = setting.key(_versions())
        if key not in self._known:
            found = self._read(key)
            if found is None:
                return None
            self._known[key] = _step(found)
        return self._known[key]

    def is_open(self, setting: StepSetting) -> bool:
        """Whether nobody has tried to trace it."""
        return self._folder is not None and self.find(setting) is None and self._read(setting.key(_versions())) is None

    def keep(self, setting: StepSetting, answer: Mapping[str, Any]) -> None:
        """Keep what the tracing process has answered: a step, or `error`, so that it is not tried again."""
        if self._folder is not None:
            write_json(self._folder / f"{setting.key(_versions())}.json", {**answer, "setting": asdict(setting)})

    def _read(self, key: str) -> dict[str, Any] | None:
        if self._folder is None:
            return None
        try:
            found = json.loads((self._folder / f"{key}.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return found if isinstance(found, dict) else None


def _step(found: dict[str, Any]) -> TracedStep | None:
    return None if "error" in found else TracedStep.of_json({k: v for k, v in found.items() if k != "setting"})


@cache
def _versions() -> tuple[str, ...]:
    return tuple(map(_version, _PACKAGES))


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
