"""A budget file. Each budget limits the dollars per calendar month (UTC) of all jobs, or of the jobs with its tags.

    storage: postgresql://HOST/DATABASE       # default: PARETUNE_STORAGE, or .paretune/studies.db next to this file
    budgets:
      - {name: everything, usd_per_month: 2000}
      - {name: nlp, usd_per_month: 500, tags: {team: nlp}}
      - {name: ana, usd_per_month: 100, tags: {user: ana}}

A job counts against every budget whose tags the job has. A job's tags are `study`, `user` and `team`, as paretune
records them, and the tags in its parameter `tags`.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Self

from paretune.core.errors import BadInput
from paretune.core.reading import at_home, is_file
from paretune.specification.declaration import Fault, Parameters, parameter, rules_of
from paretune.storage.database import address_fault
from paretune.storage.files import Document, FileKind

BUDGETS = FileKind("budget", "budgets", "budgets: [{name: nlp, usd_per_month: 500, tags: {team: nlp}}]")
_EXAMPLE = "a budget is like {{name: nlp, usd_per_month: 500}}"
_SQLITE = "sqlite:///"


class Budget(Parameters):
    """Dollars per calendar month for the jobs that have all of `tags`; without tags, for every job."""

    name: str = parameter("", max_length=80)
    """a word for messages"""
    usd_per_month: float = parameter(0.0, ge=0)
    """dollars of a calendar month"""
    tags: dict[str, str] = parameter({})
    """tags of the jobs that count against it"""

    def covers(self, tags: Mapping[str, str]) -> bool:
        """Return whether a job with these tags counts against this budget."""
        return self.tags.items() <= tags.items()


class BudgetFile(Parameters):
    """The budgets of a file, and the address of the database with their ledger, or None for the default database.

    The address may contain a password.
    """

    path: str = parameter("")
    """the file"""
    storage: str | None = parameter(None)
    """address of the database of the ledger"""
    budgets: tuple[Budget, ...] = parameter(())
    """the budgets"""

    @classmethod
    def read(cls, values: Any) -> Self:
        """Read the file at the path `values`. A relative SQLite path is resolved against the file's folder.

        Raises BadInput with all faults and their lines, or with one fault if the file has a second hard link or cannot
        be read as a YAML mapping.
        """
        path = str(values)
        if is_file(path) and at_home(path).stat().st_nlink > 1:
            text = f"{path} has a second name (a hard link), under which its budgets could be spent a second time"
            raise BadInput([f"{text}: copy it with `cp`, and use only the copy"])
        document = Document(path, BUDGETS)
        file, value_faults = cls.check(document.values | {"path": path})
        faults = document.faults + [(document.line_at(fault.path), fault.text) for fault in value_faults]
        if faults or file is None:
            raise BadInput([f"{path}:{line}: {text}" for line, text in sorted(faults, key=lambda item: item[0])])
        if file.storage is None or not file.storage.startswith(_SQLITE) or file.storage.startswith(f"{_SQLITE}/"):
            return file
        folder = at_home(path).resolve().parent
        return file.model_copy(update={"storage": f"{_SQLITE}{folder / file.storage.removeprefix(_SQLITE)}"})


def _stored(file: BudgetFile) -> Iterator[str]:
    if file.storage is not None and (fault := address_fault(file.storage)):
        yield fault


def _listed(file: BudgetFile) -> Iterator[Fault | str]:
    if not file.budgets:
        yield f"budgets is missing: a list such as {BUDGETS.example}"
    names = [budget.name for budget in file.budgets]
    for number, budget in enumerate(file.budgets):
        if budget.name in names[:number]:
            yield Fault(("budgets", number), f"there are two budgets {budget.name}: give each its own name")


Budget.rules = rules_of(
    {
        f"name is missing: {_EXAMPLE}": lambda budget: not budget.name,
        f"usd_per_month is missing: {_EXAMPLE}": lambda budget: (
            not budget.usd_per_month and "usd_per_month" not in budget.model_fields_set
        ),
    }
)
BudgetFile.rules = (_stored, _listed)
