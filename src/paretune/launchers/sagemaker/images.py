"""The training image of a job, and the packages that must be installed in it.

Images and their versions come from the list in the SageMaker SDK (sagemaker-core 2.27.0), read 2026-11-20.
"""

import re
from dataclasses import dataclass
from functools import cache

from paretune.core.packages import pinned
from paretune.estimating.hardware import accelerator_of
from paretune.specification.job import JobSpec
from paretune.specification.parallelism import DEEPSPEED
from paretune.specification.rules import launch_faults

_CPU = {"version": "2.9.0", "py_version": "py312"}  # there is no Hugging Face image for CPUs
# The newest Hugging Face image for CUDA 12, which needs driver 525, or its compatibility package. The next one, with
# transformers 5.3 for CUDA 13, needs 580, and AWS names 470 to 550 (SageMaker Developer Guide, inference-gpu-drivers,
# read 2026-11-25).
_HUGGING_FACE = {"version": "4.56.2", "base_framework_version": "pytorch2.8.0", "py_version": "py312"}
# The newest one on which PyTorch's build script and release notes agree that it has kernels for Volta (V100, compute
# capability 7.0); the first seconds of a job find an image of the user's own that has none for its GPU.
_OLDER_GPUS = {"version": "2.6.0", "py_version": "py312"}
# The newest images that hold AWS's own libraries: SMDDP 2.5.0 and SMP 2.7.0 in the first, SMP 2.8.0 in the second.
# Source: release notes of SMDDP (2024-10-17) and the SDK's list of pytorch-smp images, read 2026-11-20.
_SMDDP = {"version": "2.4.1", "py_version": "py311"}
_SMP = {"version": "2.5.1", "py_version": "py311"}

OLDEST_TRANSFORMERS = (5, 3)  # the oldest version that our training is tested with
_TRAINING_NEEDS = ("accelerate", "peft", "psutil", "pyarrow", "scikit-learn")
_NEWER_TRANSFORMERS = ("transformers", "accelerate", "peft")  # what that Hugging Face image needs
_TRANSFORMERS_OF_OLD_TORCH = "transformers==5.3.0"  # torch 2.4 and 2.5; newer ones want torch 2.6


@dataclass(frozen=True, kw_only=True)
class Image:
    """A training image, and packages that pip installs when the job starts, which is billed."""

    uri: str
    requirements: tuple[str, ...]


def choose(spec: JobSpec, region: str) -> Image:
    """The image for a job. Raises ValueError if AWS has none."""
    has_qlora = spec.fine_tuning == "qlora" and not spec.runs_own_training
    added = pinned(("bitsandbytes",)) if has_qlora else ()
    if spec.sagemaker.training_image is not None:
        return Image(uri=spec.sagemaker.training_image, requirements=added)
    target = {"region": region, "instance_type": spec.instance_type}
    if spec.strategy in {"smddp", "smp"}:
        uri = _uri("pytorch-smp", **target, **(_SMDDP if spec.strategy == "smddp" else _SMP))
        return Image(uri=uri, requirements=(_TRANSFORMERS_OF_OLD_TORCH, *pinned(_TRAINING_NEEDS), *added))
    if not spec.instance().has_gpu:
        uri = _uri("pytorch", **target, **_CPU)
        return Image(uri=uri, requirements=(*pinned(("transformers", *_TRAINING_NEEDS)), *added))
    needs = ("deepspeed",) if spec.strategy in DEEPSPEED else ()
    chip = accelerator_of(spec.instance())
    if chip is not None and chip.compute_capability is not None and chip.compute_capability < (7, 5):
        uri = _uri("pytorch", **target, **_OLDER_GPUS)
        needs = (*needs, *pinned(("transformers", *_TRAINING_NEEDS)))
    else:
        uri = _uri("huggingface", **target, **_HUGGING_FACE)
        needs = (*needs, *(() if spec.runs_own_training else pinned(_NEWER_TRANSFORMERS)))
    return Image(uri=uri, requirements=(*needs, *added))


@cache
def _uri(framework: str, **options: str) -> str:
    """The SDK's image. Cached, because each call reads the endpoints of all of AWS, which takes 12 ms."""
    from sagemaker.core import image_uris

    return str(image_uris.retrieve(framework, image_scope="training", **options))


def faults(spec: JobSpec, region: str) -> list[str]:
    """The reasons why strategy, instance type and image do not go together; empty if they do."""
    faults = launch_faults(spec)
    if spec.sagemaker.training_image is not None:
        return faults + _image_faults(spec, spec.sagemaker.training_image, region)
    for cluster in () if faults else spec.clusters():
        try:
            choose(cluster, region)
        except ValueError as error:
            reason = str(error).partition(". ")[0].strip()
            faults.append(
                f"AWS's list has no image for strategy {spec.strategy} on {cluster.instance_type} in {region} "
                f"({reason}): give sagemaker.training_image, or another region or instance_type"
            )
    return faults


def _image_faults(spec: JobSpec, uri: str, region: str) -> list[str]:
    faults = []
    registry = re.search(r"\.dkr\.ecr\.([\w-]+)\.", uri)
    if registry and registry[1] != region:
        faults.append(
            f"sagemaker.training_image lies in {registry[1]}, the job runs in {region}: use the address of that region"
        )
    transformers = re.search(r"transformers(\d+)\.(\d+)", uri)
    if transformers and not spec.runs_own_training and tuple(map(int, transformers.groups())) < OLDEST_TRANSFORMERS:
        oldest = ".".join(map(str, OLDEST_TRANSFORMERS))
        faults.append(
            f"sagemaker.training_image holds transformers {'.'.join(transformers.groups())}, paretune's training needs "
            f"{oldest} or newer: leave sagemaker.training_image out, or give an entry_script of your own"
        )
    kind, other = ("gpu", "cpu") if spec.instance().has_gpu else ("cpu", "gpu")
    if f"-{other}" in uri:
        faults.append(f"sagemaker.training_image must suit {spec.instance_type}, got {uri}: use its -{kind}- variant")
    return faults
