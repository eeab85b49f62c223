"""A file of budgets: dollars of a calendar month (UTC), each for all jobs or for those with its tags.

    storage: postgresql://HOST/DATABASE       # default: PARETUNE_STORAGE, else .paretune/studies.db beside
    budgets:
      - {name: everything, usd_per_month: 2000}
      - {name: nlp, usd_per_month: 500, tags: {team: nlp}}
      - {name: ana, usd_per_month: 100, tags: {user: ana}}

A job counts against every budget whose tags it has: `study`, `user` and `team`, as paretune records them, and the names
in its parameter `tags`.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from paretune.core.errors import BadInput, did_you_mean
from paretune.core.untrusted import at_home
from paretune.storage.address import address_fault
from paretune.storage.yaml import FileKind, Node, read_yaml

BUDGETS = FileKind("budget", "budgets", "budgets: [{name: nlp, usd_per_month: 500, tags: {team: nlp}}]")
_LONGEST_NAME = 80  # characters
_SQLITE = "sqlite:///"


@dataclass(frozen=True, kw_only=True)
class Budget:
    """Dollars a calendar month for the jobs that have all of `tags`; without tags, for every job."""

    name: str
    usd_per_month: float
    tags: Mapping[str, str] = field(default_factory=dict)

    def covers(self, tags: Mapping[str, str]) -> bool:
        """Whether a job with these tags counts against it."""
        return self.tags.items() <= tags.items()


@dataclass(frozen=True, kw_only=True, repr=False)
class BudgetFile:
    """The budgets of a file; `storage` is the address of the database of their ledger, None for the default.

    The address may hold a password: show it with `storage.address.redacted` only.
    """

    path: str
    budgets: tuple[Budget, ...]
    storage: str | None = None

    @classmethod
    def read(cls, path: str) -> "BudgetFile":
        """Read a file, and a relative SQLite path from its folder; raises BadInput with all faults and their lines."""
        document, doubles = read_yaml(path, BUDGETS)
        return _Reader(path, list(doubles)).file(document)


class _Reader:
    """Reads the parts of one file and collects their faults, each with its line."""

    def __init__(self, path: str, faults: list[tuple[int, str]]) -> None:
        self._path = path
        self._faults = faults

    def file(self, document: Mapping[str, Node]) -> BudgetFile:
        self._check_keys(document, ("storage", "budgets"), "")
        storage = self._storage(document.get("storage"))
        budgets = self._budgets(document.get("budgets"))
        if self._faults:
            faults = sorted(self._faults, key=lambda fault: fault[0])
            raise BadInput([f"{self._path}:{line}: {text}" for line, text in faults])
        return BudgetFile(path=self._path, budgets=budgets, storage=storage)

    def _refuse(self, node: Node, text: str) -> None:
        self._faults.append((node.line, text))

    def _check_keys(self, nodes: Mapping[str, Node], allowed: tuple[str, ...], owner: str) -> None:
        for key, node in nodes.items():
            if key not in allowed:
                hint = did_you_mean(key, allowed) or f"there are {', '.join(allowed)}"
                self._refuse(node, f"unknown key {key}{owner}: {hint}")

    def _text(self, name: str, node: Node) -> str:
        """The one value of a node; empty, with a fault, if it has none or several."""
        if not isinstance(node.value, str) or node.is_nothing:
            got = "nothing" if node.is_nothing else node.described()
            self._refuse(node, f"{name} must be one value, got {got}: give one")
            return ""
        return node.value.strip()

    def _storage(self, node: Node | None) -> str | None:
        """The address of the database, None for the default; refuses hard links that would have one each."""
        node = node or Node(1, "")
        address = self._text("storage", node) if node.value else ""
        if address and (fault := address_fault(address)):
            self._refuse(node, fault)
        if address and (not address.startswith(_SQLITE) or address.startswith(f"{_SQLITE}/")):
            return address
        path = at_home(self._path)
        if (links := path.stat().st_nlink) > 1:
            text = f"the file must have no hard links, got {links}, because its accounts are in its own folder"
            self._refuse(node, f"{text}: use symbolic links, or name a `storage` elsewhere")
        return f"{_SQLITE}{path.resolve().parent / address.removeprefix(_SQLITE)}" if address else None

    def _budgets(self, node: Node | None) -> tuple[Budget, ...]:
        if node is None or not isinstance(node.value, list) or not node.value:
            got = "none" if node is None else "an empty one" if node.value == [] else node.described()
            self._refuse(node or Node(1, ""), f"budgets must be a list, got {got}: such as {BUDGETS.example}")
            return ()
        budgets: dict[str, Budget] = {}
        for item in node.value:
            budget = self._budget(item)
            if budget.name and budget.name in budgets:
                self._refuse(item, f"there are two budgets {budget.name}: give one of them another name")
            budgets[budget.name] = budget
        return tuple(budgets.values())

    def _budget(self, node: Node) -> Budget:
        nodes = node.value
        if not isinstance(nodes, dict):
            self._refuse(node, f"a budget must be a mapping, got {node.described()}: {{name: nlp, usd_per_month: 500}}")
            return Budget(name="", usd_per_month=0.0)
        self._check_keys(nodes, ("name", "usd_per_month", "tags"), " of a budget")
        for key in ("name", "usd_per_month"):
            if key not in nodes:
                self._refuse(node, f"{key} is missing: a budget is like {{name: nlp, usd_per_month: 500}}")
        name = self._text("name", nodes["name"]) if "name" in nodes else ""
        if len(name) > _LONGEST_NAME:
            text = f"name must have at most {_LONGEST_NAME} characters, got {len(name)}: shorten it"
            self._refuse(nodes["name"], text)
        usd = self._dollars(nodes["usd_per_month"]) if "usd_per_month" in nodes else 0.0
        return Budget(name=name, usd_per_month=usd, tags=self._tags(nodes["tags"]) if "tags" in nodes else {})

    def _dollars(self, node: Node) -> float:
        text = self._text("usd_per_month", node)
        try:
            usd = float(text or 0)
        except ValueError:
            usd = math.nan
        if not math.isfinite(usd) or usd < 0:
            self._refuse(node, f"usd_per_month must be a number of at least 0, got {text!r}: such as 500")
            return 0.0
        return usd

    def _tags(self, node: Node) -> dict[str, str]:
        if not isinstance(node.value, dict) or not node.value:
            got = "an empty one" if node.value == {} else "nothing" if node.is_nothing else node.described()
            self._refuse(node, f"tags must be a mapping, got {got}: such as {{team: nlp}}; leave it out for every job")
            return {}
        return {name: self._text(f"tag {name}", entry) for name, entry in node.value.items()}
