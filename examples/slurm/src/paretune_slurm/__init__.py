"""Jobs of paretune on a Slurm cluster, as a launcher that paretune finds by its entry point.

Instance types are the rows of a table, `~/.paretune/slurm.csv` or the file that PARETUNE_SLURM_TABLE names. If the
table has prices, jobs have a cost and count against budgets. Otherwise no cost is recorded.
"""

import csv
import os
from pathlib import Path

from paretune.specification.launchers import LauncherTraits

TABLE = Path(os.environ.get("PARETUNE_SLURM_TABLE") or "~/.paretune/slurm.csv").expanduser()


def _has_prices(table: Path) -> bool:
    if not table.is_file():
        return False
    with table.open(encoding="utf-8") as file:
        return any(row.get("price_usd_per_hour") for row in csv.DictReader(file))


TRAITS = LauncherTraits(
    name="slurm",
    api=2,
    title="Slurm",
    implementation="paretune_slurm.launcher:SlurmLauncher",
    is_billed=_has_prices(TABLE),
    has_instances=True,
    is_experimental=True,
    instance_table=TABLE,
    disk_remedy="make room on the shared file system, or set PARETUNE_HOME to another one",
)
