"""Builds the package; pyproject.toml says everything else."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

SHIPPED = ("studies", "examples")


class BuildWithShippedFiles(build_py):
    """Copies the studies and examples into the wheel as `paretune/shipped/`; an editable install reads the clone's."""

    def run(self) -> None:
        """Build the package, then copy the files."""
        super().run()
        if self.editable_mode:
            return
        shipped = Path(self.build_lib) / "paretune" / "shipped"
        shutil.rmtree(shipped, ignore_errors=True)
        for folder in SHIPPED:
            ignored = shutil.ignore_patterns(".*", "__pycache__", "mlruns", "mlflow.db")
            shutil.copytree(folder, shipped / folder, ignore=ignored)


setup(cmdclass={"build_py": BuildWithShippedFiles})
