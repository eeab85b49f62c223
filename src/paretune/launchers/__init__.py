"""Where jobs run. A launcher is a plug-in: a declaration of its traits, and a class that runs jobs.

`LOCAL`, `SAGEMAKER` and `SIMULATED` are paretune's own launchers. `specification.launchers` documents the traits that a
launcher declares. A new launcher needs no change here. It is a separate package with

- a `LauncherTraits` with `api=2`, registered as an entry point in the group `paretune.launchers`;
- a subclass of `launchers.base.Launcher`;
- a subclass of `launchers.base.Job`, or of `launchers.job_folder.FolderJob` if the machine that launches a job can
  read the job's files;
- a test that runs the contract suite of all launchers, `paretune.testing`.

The folder `examples` of the repository contains a complete launcher.
"""

from pathlib import Path

from paretune.specification import launchers
from paretune.specification.launchers import API, LauncherTraits

LOCAL = LauncherTraits(
    name=launchers.LOCAL,
    api=API,
    title="this machine",
    implementation="paretune.launchers.local:LocalLauncher",
    is_billed=False,
    runs_here=True,
    disk_remedy="make room, or set PARETUNE_HOME to another disk",
)
SAGEMAKER = LauncherTraits(
    name="sagemaker",
    api=API,
    title="SageMaker",
    implementation="paretune.launchers.sagemaker.launcher:SageMakerLauncher",
    files_travel=True,
    has_instances=True,
    instance_prefix="ml.",
    instance_table=Path(__file__).with_name("sagemaker") / "instances.csv",
    has_regions=True,
    has_spot=True,
    has_fallbacks=True,
    special_strategies={
        # AWS, "Supported frameworks, regions and instance types" of SMDDP; older types (p3) have no current image.
        "smddp": ("ml.p4d.24xlarge", "ml.p4de.24xlarge"),
        "smp": ("p4d", "p4de", "p5", "p5e", "p5en"),  # AWS, "Supported instance types" of SMP v2
    },
    keeps_instances=True,
    disk_remedy="set a larger sagemaker.volume_size_in_gb for model, data and checkpoints or, if the instance has "
    "disks of its own, an instance_type with larger ones",
    is_experimental=True,
)
SIMULATED = LauncherTraits(
    name="simulated",
    api=API,
    title="the simulation",
    implementation="paretune.launchers.simulated.launcher:SimulatedLauncher",
    is_simulated=True,
    has_instances=True,  # the instance types of all launchers; a simulated job may also run on instance_type=local
    has_spot=True,
    has_fallbacks=True,
)
