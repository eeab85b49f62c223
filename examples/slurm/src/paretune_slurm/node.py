"""What Slurm runs on each node of a job: `python -m paretune_slurm.node HOSTS FOLDER COMMAND...`.

This process makes a folder for its node, with links to the parts of the job's folder and a description of the cluster
as SageMaker writes it. Then it replaces itself with the command. The training learns from the description which nodes
take part, and which network interface they use.
"""

import json
import os
import sys
from pathlib import Path

_SHARED = ("input/data", "checkpoints", "model", "output")
_DEFAULT_ROUTE = "00000000"


def record_of(folder: Path) -> Path:
    """Return the folder of what the launcher knows of a job: the job may not write there, as it may in `folder`."""
    return folder.parents[1] / "launched" / folder.name


def main(hosts: str, folder: str, *words: str) -> None:
    """Describe the cluster to this node, and run the command in the folder of this node instead of `folder`."""
    if (record_of(Path(folder)) / "stop").exists():  # asked for before there was a process to signal
        return
    names, rank = hosts.split(","), int(os.environ.get("SLURM_NODEID", "0"))
    root = Path(folder) / "nodes" / str(rank)
    for name in _SHARED:
        link = root / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(Path(folder) / name)
    config = root / "input" / "config" / "resourceconfig.json"
    config.parent.mkdir(parents=True, exist_ok=True)
    description = {
        "hosts": names,
        "current_host": names[rank],
        "network_interface_name": "lo" if len(names) == 1 else interface(),
    }
    config.write_text(json.dumps(description))
    os.execvp(words[0], [str(root) if word == folder else word for word in words])  # noqa: S606


def interface(routes: Path = Path("/proc/net/route")) -> str:
    """Return the network interface for the training: PARETUNE_SLURM_INTERFACE, or that of the default route."""
    rows = [line.split() for line in routes.read_text().splitlines()[1:]] if routes.exists() else []
    default = next((row[0] for row in rows if len(row) > 1 and row[1] == _DEFAULT_ROUTE), "eth0")
    return os.environ.get("PARETUNE_SLURM_INTERFACE") or default


if __name__ == "__main__":
    main(*sys.argv[1:])
