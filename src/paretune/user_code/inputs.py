"""The user's own training: reads the code of a job, and binds a job to it.

A script is a project with one entry point: `code_inputs` binds either to a job, and returns the command that runs, the
files that travel, and the data that the command reads.
"""

import posixpath
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from paretune.core.errors import BadInput, collecting, did_you_mean, refuse
from paretune.core.reading import at_home, exists, is_file
from paretune.core.shell import options, split_words
from paretune.launchers import archive
from paretune.specification.container import Command, JobInputs, UserCode
from paretune.specification.inputs import SCRIPT_CHANNELS, missing_files
from paretune.specification.user_code import CodeRequest, ScriptTraining
from paretune.user_code.binding import Bound, bind, is_expected
from paretune.user_code.code import RUNNER_FILES, Code
from paretune.user_code.script import Script
from paretune.user_code.trainer_script import training_of


def script_faults(request: CodeRequest) -> list[str]:
    """Return why a job's script cannot run with the parameters that were given; empty if it can."""
    return list(bind(request, Script.of(request.source)).faults)


def with_own_options(
    values: Mapping[str, Any], ours: Mapping[str, bool], *, listed_by: str, idle: Collection[str] = ()
) -> dict[str, Any]:
    """Return the values of a request in which the options of its script are `training_arguments`.

    `ours` has the names of all parameters, which the help of the command `listed_by` lists, and says which of them have
    parameters inside, as `lora.r`. Any other name is passed to
    the script if the script's text or --help shows an option of that name, or if `bind` says how the script can get it.
    So are `idle` names, parameters without an effect on this job, if the script has such an option; and names inside
    of a parameter that has no inside, such as `model.learning_rate`.

    Raises BadInput for names that are neither, with the nearest of all names, if the script's names are all known.
    """
    others = [name for name in values if _may_be_own(name, ours) or name in idle]
    given, project = (str(values.get(name) or "") for name in ("entry_script", "project"))
    words, entry = split_words(str(values.get("script_words") or "")), str(values.get("entry_point") or "main")
    declared, script = list[str](), None
    if others and project and exists(project):
        from paretune.user_code.project import declared_parameters  # imports MLflow, which takes a second

        declared = list(declared_parameters(project, entry))
        given = str(Path(project) / entry)
    if others and project and not declared and entry.endswith(".sh"):  # a shell script does not say what it reads
        return {name if name not in others else f"training_arguments.{name}": value for name, value in values.items()}
    if not (others and (declared or (given.endswith(".py") and is_file(given)))):
        return dict(values)
    path, names = at_home(given).resolve(), declared
    if declared:
        by_name = {name.replace("-", "_"): name for name in declared}
        spelled = {name: by_name.get(name.replace("-", "_")) for name in others}
    else:
        script = Script.read(path, may_ask=str(values.get("ask_script")) == "true", command=next(iter(words), ""))
        spelled = {name: script.argument(name) or name * is_expected(script, name, words) for name in others}
        names = [*script.names, *script.reported.constants]
    own = {name: f"training_arguments.{found}" for name, found in spelled.items() if found}
    faults = [f"{name} is given twice, also as {key}" for name, key in own.items() if key in values]
    for name in others if script is None or script.is_complete else ():
        if name not in own and name not in idle:
            has = f"it has {', '.join(sorted(names))}" if names else "it reads no options"
            meant = did_you_mean(name, [*names, *ours], most=1)
            meant = meant or f"{has}; `paretune {listed_by} --help all` lists all parameters"
            owner = f"entry point {entry}" if script is None else path.name
            faults.append(f"unknown parameter {name}, which {owner} does not have either: {meant}")
    refuse(faults)
    return {own.get(name, name): value for name, value in values.items()}


def _may_be_own(name: str, ours: Mapping[str, bool]) -> bool:
    """Return whether a name is no parameter of a job: unknown, or inside of a parameter that is a single value."""
    outer, dot, _ = name.partition(".")
    return outer not in ours or bool(dot and not ours[outer])


def naming_both(faults: Sequence[str], values: Mapping[str, Any], ours: Collection[str]) -> list[str]:
    """Return faults of parameters; one of a name that the script has, too, says how the script's option is given."""
    script = str(values.get("entry_script") or "")
    if not (script.endswith(".py") and is_file(script)):
        return [*faults]
    own, named = Script.read(at_home(script).resolve()), list[str]()
    for fault in faults:
        name = fault.partition(" ")[0]
        both = name in ours and own.find(name) is not None
        passes = options(**{f"training_arguments.{name}": "VALUE"})
        named.append(f"{fault}; {passes} is the option of {Path(script).name}" if both else fault)
    return named


def training_in_script(request: CodeRequest) -> ScriptTraining | None:
    """Return what the script of a job says of its training with the Trainer; None if that is unknown.

    This is for jobs that are only estimated; the inputs of others have it as `UserCode.training`.
    """
    with suppress(BadInput):  # its text cannot be read
        return None if request.source.entry_script is None else training_of(request, Script.of(request.source))
    return None


def code_of(request: CodeRequest) -> Code:
    """Read the code of a job. Raises BadInput if there is no such project or entry point."""
    if request.source.project is None:
        return Code.of(request)
    from paretune.user_code.project import ProjectCode  # imports MLflow, which takes a second

    return ProjectCode.of(request)


def code_inputs(request: CodeRequest, home: Path, *, prepare: bool = True) -> JobInputs:
    """Return what a job of the user's own training runs, and the files and data that it needs.

    On this machine, a script runs where it is, and a project in a copy of its files, with links to the files that git
    ignores, and with paretune's own Python and packages. If the launcher uploads files, the folder of the code is
    uploaded, the data reach the job as channels, and the packages that the code requires are installed.

    Without `prepare`, return only what a script would run, and nothing for a project or for a script that is not here.
    `home` gets the files on servers that the command of a project reads. Raises BadInput with all faults; arguments are
    checked only if no file is missing.
    """
    if not prepare:
        script = None if request.source.entry_script is None else Script.of(request.source)
        if script is None or not script.files:
            return JobInputs()
        bound, training = bind(request, script), training_of(request, script)
        return JobInputs(code=UserCode(command=bound.command, described=bound.described, training=training))
    refuse(missing_files(request.paths))
    code, travels, faults = code_of(request), request.files_travel, list[str]()
    bound, files, requirements, folder = Bound(command=Command(words=())), dict[str, Path](), tuple[str, ...](), "."
    with collecting(faults):
        bound = code.bind(request, home)
        faults += bound.faults
    with collecting(faults):
        files = code.files(travels=travels)
    with collecting(faults):
        requirements, folder = code.requirements(files, travels=travels)
    refuse(faults)
    linked = () if travels else code.linked(files).items()
    command, is_project = bound.command, request.source.project is not None
    if is_project:
        command = replace(command, folder=code.folder, requirements=requirements, requirements_folder=folder)
    return JobInputs(
        code=UserCode(
            command=command,
            files={**{f"{code.folder}/{name}": path for name, path in files.items()}, **RUNNER_FILES},
            key=code.key(files) if travels else "",
            linked={posixpath.normpath(f"{code.folder}/{name}"): path for name, path in linked},
            inputs=bound.inputs,
            left_behind=archive.left_behind(code.root) if travels else (),
            requirements=requirements,
            texts=code.texts(files),
            described=bound.described,
            training=None if is_project or code.script is None else training_of(request, code.script),
            parameters={} if is_project else {channel: name for name, channel in SCRIPT_CHANNELS.items()},
        )
    )
