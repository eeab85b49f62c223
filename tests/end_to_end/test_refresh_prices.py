"""`paretune prices --refresh true` against the Pricing API of the emulator, as a process of its own."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.stand_ins.sagemaker.emulator import Emulator

ROOT = Path(__file__).parents[2]


def product(name: str, usd: str, component: str = "Training") -> dict[str, Any]:
    return {
        "serviceCode": "AmazonSageMaker",
        "product": {
            "productFamily": "ML Instance",
            "attributes": {
                "instanceName": name,
                "instanceType": f"{name}-{component}",
                "component": component,
                "regionCode": "us-west-2",
                "locationType": "AWS Region",
                "usagetype": f"USW2-{'Train' if component == 'Training' else component}:{name}",
            },
        },
        "terms": {"OnDemand": {"t": {"priceDimensions": {"d": {"unit": "Hrs", "pricePerUnit": {"USD": usd}}}}}},
    }


def paretune(emulator: Emulator, folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "entrypoints/run.py", "prices", *arguments],
        cwd=ROOT,
        env={**os.environ, **emulator.environment, "XDG_CACHE_HOME": str(folder / "cache"), "HOME": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_training_prices_are_read_from_the_pricing_api_and_kept(tmp_path: Path) -> None:
    types = [f"ml.m5.{size}xlarge" for size in range(2, 150)]  # two pages
    products = [product(name, "0.5") for name in types] + [product("ml.g5.xlarge", "1.408")]
    products += [product("ml.g5.xlarge", "9.99", "Hosting"), product("ml.g6.xlarge", "9.99", "Processing")]
    with Emulator.start(tmp_path / "emulator", prices=products) as emulator:
        read = paretune(emulator, tmp_path, "--refresh", "true", "--region", "us-west-2")
    output = paretune(emulator, tmp_path, "--region", "us-west-2")

    assert read.returncode == 0, read.stderr
    assert read.stdout.startswith("149 prices read (AWS Pricing API, us-west-2), kept in ")
    assert output.returncode == 0, output.stderr
    (line,) = [line for line in output.stdout.splitlines() if line.startswith("ml.g5.xlarge ")]
    assert "1.408" in line
    assert "USW2-Train:ml.g5.xlarge" in line
    assert "9.99" not in output.stdout
