"""What a job's script gets, for tests of how scripts are read and bound."""

from pathlib import Path

from paretune.specification.container import Command, JobInputs
from paretune.specification.job import JobSpec
from paretune.specification.parallelism import BatchPlan
from paretune.user_code.binding import bind
from paretune.user_code.inputs import code_inputs
from paretune.user_code.script import Script


def script_of(spec: JobSpec) -> Script:
    return Script.read(Path(str(spec.entry_script)), may_ask=spec.ask_script)


def script_inputs(spec: JobSpec) -> JobInputs:
    return code_inputs(spec.code_request, Path("no home is needed"))


def bound(spec: JobSpec) -> Command:
    return bind(spec.code_request, script_of(spec)).command


def argument_faults(spec: JobSpec) -> list[str]:
    return list(bind(spec.code_request, script_of(spec)).faults)


def script_arguments(spec: JobSpec, plan: BatchPlan, output: str) -> list[str]:
    """Return the words that a script gets in an attempt with this plan."""
    return Command(words=bound(spec).words).filled(plan, output)


def script_in_words(spec: JobSpec) -> dict[str, str]:
    return dict(bind(spec.code_request, script_of(spec)).described)
