"""Checks a user's own script, and prepares its job: the files of its folder and the data that it reads."""

from pathlib import Path

from paretune.core.errors import collecting, refuse
from paretune.core.reading import LARGEST_SETTINGS, at_home, exists, read_text
from paretune.launchers import archive
from paretune.specification.container import JobInputs, UserCode
from paretune.specification.inputs import CHANNELS, IN_S3, SCRIPT_CHANNELS, in_channel, missing_files
from paretune.specification.job import JobSpec
from paretune.specification.script_arguments import argument_faults, asked_options


def script_inputs(spec: JobSpec) -> JobInputs:
    """Return the inputs of a job that runs an `entry_script`.

    A job on this machine uses the script and its data where they are. If the launcher uploads files, the script's
    folder is uploaded, and the data reach the job as channels. Raises BadInput with all faults; the script's arguments
    are checked only if no file is missing.
    """
    faults = missing_files(spec.as_text()) or argument_faults(spec)
    script, travels = at_home(spec.entry_script or "").resolve(), spec.runs_on.files_travel
    files, requirements, inputs, moved = dict[str, Path](), "", dict[str, Path | str](), dict[str, str]()
    with collecting(faults):
        is_sent = travels and script.is_file()
        sent = {**archive.project_files(script.parent), script.name: script} if is_sent else {}
        if (path := sent.get(archive.REQUIREMENTS)) is not None:
            requirements = read_text(path, LARGEST_SETTINGS)
        files = {f"{archive.SCRIPT_FOLDER}/{name}": path for name, path in sent.items()}
        moved = {"entry_script": f"{CHANNELS}/code/{archive.SCRIPT_FOLDER}/{script.name}"} if travels else {}
    refuse(faults)
    for name, channel in SCRIPT_CHANNELS.items():
        text = str(getattr(spec, name) or "")
        if travels and text.startswith(IN_S3):  # the job reads it from S3; it does not pass through this machine
            inputs[channel], moved[name] = in_channel(channel, text)
        elif travels and text and exists(text):
            inputs[channel], moved[name] = in_channel(channel, at_home(text).resolve())
        elif text and exists(text):
            inputs[channel] = at_home(text).absolute()
    return JobInputs(
        code=UserCode(
            files=files,
            key=archive.code_key(files) if is_sent else "",
            left_behind=archive.left_behind(script.parent) if travels else (),
            inputs=inputs,
            requirements=tuple(requirements.split("\n")) if requirements else (),
            moved=moved,
            options=asked_options(spec),
        )
    )
