"""Which training image a job runs in, what it holds, and what must be installed beside it.

Images and their versions come from the SageMaker SDK's own list (2.27.0 of sagemaker-core).
"""

import re
from dataclasses import dataclass
from importlib.metadata import version

from paretune.spec import catalog
from paretune.spec.cluster import unsupported
from paretune.spec.job import JobSpec

# The newest Hugging Face training image of that list, and the other images that can be made to do the same.
_HUGGING_FACE = {"version": "5.3.0", "base_framework_version": "pytorch2.9.0", "py_version": "py312"}
_CPU = {"version": "2.9.0", "py_version": "py312"}
# The newest images that hold AWS's own libraries: SMDDP 2.5.0 and SMP 2.7.0 in the first, SMP 2.8.0 in the second.
# Source: release notes of SMDDP (2024-10-17) and the SDK's list of pytorch-smp images, read 2026-11-20.
_SMDDP = {"version": "2.4.1", "py_version": "py311"}
_SMP = {"version": "2.5.1", "py_version": "py311"}

OLDEST_TRANSFORMERS = (5, 3)
"""What the training wing is tested with, to the newest one."""
_TRAINING_NEEDS = ("accelerate", "peft", "psutil", "pyarrow", "scikit-learn")
_DIRECT_LOGGING_NEEDS = ("mlflow", "sagemaker-mlflow", "sqlalchemy")
_TRANSFORMERS_OF_OLD_TORCH = "transformers==5.3.0"  # torch 2.4 and 2.5; newer ones want torch 2.6


@dataclass(frozen=True, kw_only=True)
class Image:
    """A training image, and packages that pip installs when the job starts, paid by the second."""

    uri: str
    requirements: tuple[str, ...]


def choose(spec: JobSpec, region: str, *, direct: bool) -> Image:
    """The image for a job; `direct` where the job itself writes to MLflow."""
    added = _as_here(_DIRECT_LOGGING_NEEDS) if direct else ()
    if spec.image_uri is not None:
        return Image(uri=spec.image_uri, requirements=added)
    from sagemaker.core import image_uris

    where = {"region": region, "instance_type": spec.instance_type, "image_scope": "training"}
    if spec.strategy in {"smddp", "smp"}:
        newest = _SMDDP if spec.strategy == "smddp" else _SMP
        uri = image_uris.retrieve("pytorch-smp", **where, **newest)
        needs = (_TRANSFORMERS_OF_OLD_TORCH, *_as_here(_TRAINING_NEEDS))
        return Image(uri=uri, requirements=(*needs, *added))
    if catalog.instance(spec.instance_type).has_gpu:
        needs = ("deepspeed",) if spec.strategy == "deepspeed" else ()
        return Image(uri=image_uris.retrieve("huggingface", **where, **_HUGGING_FACE), requirements=(*needs, *added))
    uri = image_uris.retrieve("pytorch", **where, **_CPU)  # there is no Hugging Face image for CPUs
    return Image(uri=uri, requirements=(*_as_here(("transformers", *_TRAINING_NEEDS)), *added))


def _as_here(packages: tuple[str, ...]) -> tuple[str, ...]:
    """Requirements for the versions that are installed on this machine, which have prepared the data."""
    return tuple(f"{name}=={version(name)}" for name in packages)


def faults(spec: JobSpec, region: str) -> list[str]:
    """Why strategy, instance type and image do not go together; empty if they do."""
    found = unsupported(spec) + _untried_faults(spec)
    if spec.image_uri is not None:
        return found + _image_faults(spec, spec.image_uri, region)
    return found or [
        fault for name in spec.instance_types() for fault in _missing_image(spec.on_instance_type(name), region)
    ]


def _missing_image(spec: JobSpec, region: str) -> list[str]:
    try:
        choose(spec, region, direct=False)
    except ValueError as error:
        why = str(error).partition(". ")[0].strip()
        return [
            f"AWS's list has no image for strategy {spec.strategy} on {spec.instance_type} in {region} ({why}): give "
            "image_uri, or another region or instance_type"
        ]
    return []


def _untried_faults(spec: JobSpec) -> list[str]:
    """What paretune's own training would get wrong: devices that share layers or sequences must share rows too."""
    if spec.strategy != "smp" or spec.entry_script is not None or spec.dry_run:
        return []
    names = ("tensor_parallel_degree", "context_parallel_degree", "expert_parallel_degree")
    return [
        f"{name} above 1 needs a training script of your own (entry_script) that uses torch.sagemaker: paretune's own "
        "training would evaluate and save such a model wrongly; dry_run=true shows the request all the same"
        for name in names
        if (getattr(spec, name) or 1) > 1
    ]


def _image_faults(spec: JobSpec, uri: str, region: str) -> list[str]:
    """What the address of an image tells about it: AWS names versions and processor in the tag."""
    found = []
    place = re.search(r"\.dkr\.ecr\.([\w-]+)\.", uri)
    if place and place[1] != region:
        found.append(f"image_uri lies in {place[1]}, the job runs in {region}: use the address of that region")
    transformers = re.search(r"transformers(\d+)\.(\d+)", uri)
    if transformers and spec.entry_script is None and tuple(map(int, transformers.groups())) < OLDEST_TRANSFORMERS:
        oldest = ".".join(map(str, OLDEST_TRANSFORMERS))
        found.append(
            f"image_uri holds transformers {'.'.join(transformers.groups())}, paretune's training needs {oldest} or "
            "newer: leave image_uri out, or give an entry_script of your own"
        )
    gpu = catalog.instance(spec.instance_type).has_gpu
    if gpu and "-cpu" in uri:
        found.append(f"image_uri is built for CPUs, and {spec.instance_type} has GPUs: use its -gpu- variant")
    if not gpu and "-gpu" in uri:
        found.append(f"image_uri is built for GPUs, and {spec.instance_type} has none: use its -cpu- variant")
    if spec.strategy in {"smddp", "smp"} and re.search(r"/(huggingface-)?pytorch-training", uri):
        found.append(
            f"strategy {spec.strategy} needs the library in the image, and {uri.rpartition('/')[2]} lacks it: leave "
            "image_uri out, or use an smdistributed-modelparallel image"
        )
    return found
