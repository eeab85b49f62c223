"""What a job's script gets, for tests of how scripts are read and bound."""

from pathlib import Path

from paretune.specification.container import Command
from paretune.specification.job import JobSpec
from paretune.specification.parallelism import BatchPlan
from paretune.user_code.binding import Binding, bind, described
from paretune.user_code.script import Script


def script_of(spec: JobSpec) -> Script:
    return Script.read(Path(str(spec.entry_script)), may_ask=spec.ask_script)


def bound(spec: JobSpec) -> Binding:
    return bind(spec, script_of(spec))


def argument_faults(spec: JobSpec) -> list[str]:
    return list(bound(spec).faults)


def script_arguments(spec: JobSpec, plan: BatchPlan, output: str) -> list[str]:
    """Return the words that a script gets in an attempt with this plan."""
    return Command(words=bound(spec).words).filled(plan, output)


def script_in_words(spec: JobSpec) -> dict[str, str]:
    return described(bound(spec), spec, script_of(spec))
