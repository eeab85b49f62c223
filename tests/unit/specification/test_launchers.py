"""A launcher is a plug-in: its entry point makes it available, and paretune asks it what it declares."""

import importlib.metadata
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from paretune import pricing
from paretune.core.errors import BadInput
from paretune.launchers.offers import order_of, usual_price
from paretune.specification import catalog, launchers
from paretune.specification.job import JobSpec

HEADER = "instance_type,accelerator,accelerator_count,accelerator_memory_gb,network_gbps,vcpus,memory_gb"
TRAITS = """
from pathlib import Path
from paretune.specification.launchers import LauncherTraits

TRAITS = LauncherTraits(
    name="beach",
    api=2,
    title="the beach",
    implementation="beach:Beach",
    is_billed=False,
    has_instances=True,
    instance_table=Path(__file__).with_name("beach.csv"),
)
"""


def forget() -> None:
    for read in (launchers.names, launchers.known, catalog.rows, catalog.instances, pricing._packaged):
        read.cache_clear()


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield an installed package with a launcher named beach and a table of one instance type."""
    (tmp_path / "beach.py").write_text(TRAITS)
    rows = [f"{HEADER},price_usd_per_hour,region,as_of,source,confidence"]
    rows.append("sand-8,NVIDIA A100,8,40,100,96,1024,2.5,,2026-11-01,the lifeguard,confirmed")
    (tmp_path / "beach.csv").write_text("\n".join(rows))
    info = tmp_path / "beach-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: beach\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[paretune.launchers]\nbeach = beach:TRAITS\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    forget()
    yield tmp_path
    forget()
    sys.modules.pop("beach", None)


def test_a_launcher_that_is_not_installed_is_refused_with_those_that_are() -> None:
    with pytest.raises(BadInput) as caught:
        JobSpec(launcher="slurm")

    assert "launcher must be one of auto, local, sagemaker, simulated, got 'slurm'" in str(caught.value)
    assert "install the package" in str(caught.value)


def test_the_package_declares_its_own_launchers_by_entry_points_too() -> None:
    declared = {entry.name: entry.value for entry in importlib.metadata.entry_points(group=launchers.GROUP)}

    assert {"local", "sagemaker", "simulated"} <= declared.keys()
    assert JobSpec.schema_at(["launcher"])["enum"] == ["auto", *sorted(declared)]


def test_an_installed_launcher_is_taken_with_its_instance_types_and_their_prices(plugin: Path) -> None:
    spec = JobSpec(launcher="beach", instance_type="sand-8", instance_count=2)
    price = usual_price(spec, pricing.PriceList.read({}), {})

    assert (spec.has_instances, spec.is_simulated, spec.processes, spec.plan().devices) == (True, False, 8, 16)
    assert price is not None
    assert (price.usd_per_hour, price.region) == (2.5, "")
    assert not catalog.owner("sand-8").is_billed
    assert JobSpec(launcher="simulated", instance_type="sand-8").has_instances
    assert JobSpec(instance_type="ml.g5.xlarge").runs_on.name == "sagemaker"


@pytest.mark.parametrize(
    ("given", "part"),
    [
        ({"launcher": "beach"}, "launcher beach needs an instance_type such as sand-8"),
        ({"launcher": "beach", "instance_type": "ml.g5.xlarge"}, "launcher beach needs an instance_type"),
        ({"launcher": "sagemaker", "instance_type": "sand-8"}, "launcher sagemaker needs an instance_type such as ml."),
        ({"launcher": "beach", "instance_type": "sand-8", "spot": True}, "spot is for instances that support it"),
    ],
)
def test_a_job_mixes_no_launchers(plugin: Path, given: dict[str, object], part: str) -> None:
    with pytest.raises(BadInput) as caught:
        JobSpec(**given)

    assert part in str(caught.value)


def test_a_launcher_that_cannot_be_read_names_the_package_to_update(plugin: Path) -> None:
    (plugin / "beach.py").write_text("import not_there")
    forget()

    with pytest.raises(BadInput, match=r"the launcher beach cannot be loaded .*not_there.*package beach"):
        JobSpec(launcher="beach")


def test_a_launcher_for_an_older_version_names_the_package_to_update_and_what_its_author_does(plugin: Path) -> None:
    path = plugin / "beach.py"
    path.write_text(path.read_text().replace("    api=2,\n", ""))  # as a launcher for version 0.6
    forget()

    with pytest.raises(BadInput) as caught:
        JobSpec(launcher="beach", instance_type="sand-8")

    (fault,) = caught.value.faults
    assert "the launcher beach has api=1, and this version of paretune needs api=2" in fault
    assert "update or uninstall the package beach; its author declares api=2" in fault


def test_a_job_is_read_where_neither_its_launcher_nor_its_instance_type_is_known(plugin: Path, tmp_path: Path) -> None:
    spec = JobSpec(launcher="beach", instance_type="sand-8")
    path = tmp_path / "job.json"
    path.write_text(json.dumps(order_of(spec, job_name="paretune-x-1").as_json()))
    program = (
        "import sys\n"
        "import importlib.metadata as metadata\n"
        "metadata.entry_points = lambda **_: metadata.EntryPoints()\n"  # the code in a job has no metadata
        "from pathlib import Path\n"
        "from paretune.specification.job import JobSpec\n"
        "from paretune.specification.order import Order\n"
        "spec = JobSpec.read(Order.read(Path(sys.argv[1])).training)\n"
        "print(spec.runs_on.name, spec.processes, spec.runs_on.files_travel)\n"
    )

    done = subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True, check=False)

    assert done.stdout.split() == ["beach", "8", "False"], done.stderr


def test_reading_what_launchers_declare_imports_no_library_of_theirs() -> None:
    program = (
        "import sys\n"
        "from paretune.specification.job import JobSpec\n"
        "assert JobSpec(instance_type='ml.g5.xlarge').runs_on.has_spot\n"
        "print(sorted({'boto3', 'torch', 'mlflow', 'psutil', 'numpy', 'paretune.launchers.base'} & {*sys.modules}))\n"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert done.stdout.strip() == "[]", done.stderr
