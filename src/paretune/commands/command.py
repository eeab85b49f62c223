"""The description of a command for the command line: its parameters, its reader and its runner.

Every command defines one `COMMAND` in a module that imports quickly: `paretune NAME --help` and refused input must not
wait for MLflow, boto3 or torch. `run` imports the rest, see `imported_later`.
"""

import os
import pkgutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, Generic, TypeVar

from paretune.core.clock import SystemClock
from paretune.core.errors import BadInput, collecting
from paretune.core.result import CommandOutput, Result
from paretune.core.untrusted import markdown
from paretune.specification.inputs import missing_files
from paretune.specification.job import JobSpec
from paretune.specification.parameters import annotations, read, spell
from paretune.specification.profile import CHARGED, FILE, read_profile, with_profile

_Request = TypeVar("_Request")
HelpGroups = dict[str, dict[str, str]]  # title of each group of parameters to their names and lines of help


@dataclass(frozen=True, kw_only=True)
class Command(Generic[_Request]):
    """One command of `paretune`."""

    read: Callable[[Mapping[str, str], list[str]], _Request]
    """Makes the request from the typed texts. It also gets the faults found so far, and raises BadInput with these and
    its own."""
    run: Callable[[_Request], CommandOutput | Result]  # does the work and returns what is printed
    parameters: Mapping[str, str] = field(default_factory=dict)  # name to line of help of the command's own parameters
    switches: frozenset[str] = frozenset()  # those of them whose bare name means true
    takes_jobs: bool = False  # whether the parameters of a job can be typed, too
    excluded: tuple[str, ...] = ()  # parameters of a job that this command does not take

    def all_switches(self) -> frozenset[str]:
        """Parameters whose bare name means true."""
        return self.switches | (switches_of(JobSpec) if self.takes_jobs else frozenset())

    def all_groups(self) -> HelpGroups:
        """The help of all parameters."""
        groups: HelpGroups = {}
        title, titles = "parameters of this command", groups_of(JobSpec)
        for name, line in (dict(self.parameters) | self._job_parameters()).items():
            title = titles.get(name, title)  # a group's title stands at its first parameter
            groups.setdefault(title, {})[name] = line
        return groups

    def basic_groups(self) -> tuple[HelpGroups, int]:
        """The help of the command's own parameters and the basic ones of a job, and how many are left out."""
        others = {name: line for name, line in self._job_parameters().items() if name not in self.parameters}
        basic = {name: line for name, line in others.items() if name in basics_of(JobSpec)}
        groups = {"parameters of this command": dict(self.parameters), "the most used parameters of a job": basic}
        return {title: lines for title, lines in groups.items() if lines}, len(others) - len(basic)

    def _job_parameters(self) -> dict[str, str]:
        lines = parameter_help() if self.takes_jobs else {}
        return {name: line for name, line in lines.items() if name not in self.excluded}


def command_of(cls: type[_Request], name: str, run: Callable[[_Request], CommandOutput | Result]) -> Command[_Request]:
    """A command whose parameters are the fields of `cls`."""
    return Command(
        read=lambda texts, faults: make_or_refuse(lambda: read(cls, texts, name), faults),
        run=run,
        parameters=help_lines(cls),
        switches=switches_of(cls),
    )


def imported_later(name: str) -> Callable[[Any], CommandOutput | Result]:
    """The function `MODULE:FUNCTION`, imported when it is called, because MLflow takes a second to import."""
    return lambda request: pkgutil.resolve_name(name)(request)


def make_or_refuse(
    make: Callable[[], _Request], faults: list[str], further_faults: Callable[[], list[str]] = list
) -> _Request:
    """Return what `make` makes.

    Raises:
        BadInput: `faults` and those that `make` raises; if there are any, also those of `further_faults`.
    """
    faults = list(faults)
    with collecting(faults):
        made = make()
    if faults:
        raise BadInput([*faults, *further_faults()])
    return made


def read_with_profile(
    make: Callable[[Mapping[str, str]], _Request], texts: Mapping[str, str], faults: list[str]
) -> _Request:
    """Make a request from the typed texts, completed by the profile; faults of the profile are reported, too."""
    completed = texts
    with collecting(faults):
        completed = with_profile(texts, os.environ)
    return make_or_refuse(lambda: make(completed), faults, lambda: _further_faults(completed))


def _further_faults(texts: Mapping[str, str]) -> list[str]:
    return missing_files(texts)


def read_file_argument(
    make: Callable[[str, Mapping[str, str]], _Request],
    texts: Mapping[str, str],
    faults: list[str],
    *,
    name: str,
    kind: str,
    example: str,
) -> _Request:
    """Make a request from the file that the parameter `name` names, and the other typed texts.

    Prints a remark if the profile sets something that such a file does not take from it.

    Raises:
        BadInput: no file is named, or `make` raises it.
    """
    path = texts.get(name, "").strip()
    if not path:
        raise BadInput([*faults, f"{name} must name the file of a {kind}, such as {example}"])
    with collecting(faults):
        if ignored := sorted(read_profile(os.environ).keys() - set(CHARGED)):
            print(f"{FILE}: {', '.join(ignored)} without effect on a {kind}: write them into its job", file=sys.stderr)
    return make_or_refuse(lambda: make(path, {key: text for key, text in texts.items() if key != name}), faults)


def describe_opened_run(kind: str, answer: str, values: Mapping[str, float] | None = None) -> None:
    """Give the run that `mlflow run` has opened for this command a name, a note and metrics.

    Does nothing for a command typed by hand. The note begins with the answer, because MLflow shows its first four
    lines.

    Args:
        kind: the command, which is the name of the run and its tag `paretune.kind`.
        answer: the text of the note; a line is a paragraph.
        values: metrics by name.
    """
    if "MLFLOW_RUN_ID" not in os.environ:
        return
    from paretune.tracking import Tracking, schema  # MLflow takes a second to import

    run = Tracking(dict(os.environ), SystemClock()).begin(kind)
    run.set_tags({schema.KIND: kind, schema.NOTE: markdown(answer.replace("\n", "\n\n"))})
    if values:
        run.log_metrics(values)


def switches_of(cls: type) -> frozenset[str]:
    """Names of the boolean parameters; their bare name on a command line means true."""
    return frozenset(name for name, kind in annotations(cls).items() if kind is bool)


def help_lines(cls: type) -> dict[str, str]:
    """Parameter name to one line of help, with choices and default."""
    lines = {}
    for item in fields(cls):
        default = spell(item.default) if item.default is not MISSING else "{}"
        choices = f" [{' | '.join(item.metadata['choices'])}]" if item.metadata["choices"] else ""
        lines[item.name] = f"{item.metadata['help']}{choices}" + (f" (default: {default})" if default else "")
    return lines


def basics_of(cls: type) -> frozenset[str]:
    """Names of the parameters in the short help."""
    return frozenset(item.name for item in fields(cls) if item.metadata["basic"])


def choices_of(cls: type, name: str) -> tuple[str, ...]:
    """The values that a parameter can have; empty if any value is allowed or no parameter has this name."""
    item = {item.name: item for item in fields(cls)}.get(name)
    if item is None:
        return ()
    return ("true", "false") if annotations(cls)[name] is bool else tuple(item.metadata["choices"])


def groups_of(cls: type) -> dict[str, str]:
    """First parameter of each help group to the title of the group."""
    return {item.name: item.metadata["group"] for item in fields(cls) if item.metadata["group"]}


def parameter_help() -> dict[str, str]:
    """Parameter name to one line of help; parameters of the training come before those of the placement."""
    lines = help_lines(JobSpec)
    placement = {item.name for item in fields(JobSpec)}
    return {name: lines[name] for name in sorted(lines, key=lambda name: name in placement)}
