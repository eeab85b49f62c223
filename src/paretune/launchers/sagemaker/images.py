"""Chooses the training image of a SageMaker job among AWS's images.

`IMAGES` lists the images that a job may get. Their addresses come from the SageMaker SDK. AWS patches an image only for
a while, so the list must be brought up to date: READ_ON says when that was last done.
"""

from datetime import date
from functools import cache
from typing import NamedTuple

from paretune.core.packages import pinned
from paretune.estimating.hardware import accelerator_of
from paretune.specification.catalog import Instance
from paretune.specification.parallelism import DEEPSPEED

READ_ON = date(2026, 11, 30)
"""When IMAGES was compared with the images that sagemaker-core 2.27.0 lists, and with AWS's support policy."""
_TRAINING_NEEDS = ("accelerate", "peft", "psutil", "pyarrow", "scikit-learn")
_TRANSFORMERS_OF_OLD_TORCH = "transformers==5.3.0"  # for torch 2.4 and 2.5; newer versions need torch 2.6
_SMP = {"torch_distributed": {"enabled": True}, "smdistributed": {"modelparallel": {"enabled": True}}}
"""Asks the SDK for an image with AWS's libraries for distributed training."""


class Image(NamedTuple):
    """A training image, and the packages that pip installs when the job starts, in billed time."""

    uri: str
    requirements: tuple[str, ...]


class ListedImage(NamedTuple):
    """One of AWS's images: its versions as `get_training_image_uri` of the SDK takes them, and what it lacks.

    A job gets the first image of IMAGES that suits its strategy and its GPU, and that AWS has in the job's region.
    """

    framework: str
    framework_version: str
    py_version: str
    pytorch_version: str | None = None  # of a Hugging Face image
    strategies: tuple[str, ...] = ()  # whose AWS libraries it has; empty if it has none
    on: str = "gpu"
    lowest_driver: int = 0  # the oldest branch of NVIDIA's driver on which it runs, with CUDA's compatibility package
    gpus: tuple[tuple[int, int], tuple[int, int]] = ((7, 5), (99, 0))  # lowest and highest compute capability
    lacks: tuple[str, ...] = _TRAINING_NEEDS  # packages of our training
    transformers: str | None = None  # the requirement, if it cannot have the version that is installed here

    def suits(self, strategy: str, has_gpu: bool, capability: tuple[int, int], driver: int) -> bool:
        """Return whether a job can use it on a GPU of this capability, if it has GPUs, with this driver branch."""
        if strategy in self.strategies or strategy in _AWS_LIBRARIES:
            return strategy in self.strategies
        if not has_gpu or self.on == "cpu":
            return (self.on == "cpu") is not has_gpu
        return not self.strategies and self.gpus[0] <= capability <= self.gpus[1] and self.lowest_driver <= driver


IMAGES = (
    # AWS's own libraries: SMDDP 2.5.0 and SMP 2.7.0 in the first, SMP 2.8.0 in the second. Source: release notes of
    # SMDDP (2024-10-17) and the SDK's list of pytorch-smp images.
    ListedImage("pytorch", "2.4.1", "py311", strategies=("smddp",), transformers=_TRANSFORMERS_OF_OLD_TORCH),
    ListedImage("pytorch", "2.5.1", "py311", strategies=("smp",), transformers=_TRANSFORMERS_OF_OLD_TORCH),
    ListedImage("pytorch", "2.10.0", "py313", on="cpu"),
    # For Volta (V100): the newest image that has kernels for it according to both PyTorch's build script and its
    # release notes. AWS patched it until 2026-01-29.
    ListedImage("pytorch", "2.6.0", "py312", gpus=((7, 0), (7, 4))),
    # CUDA 13.0, which needs driver 580, or 535 with CUDA's compatibility package (NVIDIA, CUDA Compatibility). The
    # first one has the libraries with which our training is tested (.ci/image.txt). AWS patched it until 2026-10-15.
    ListedImage("huggingface", "5.3.0", "py312", "2.9.0", lowest_driver=535, lacks=()),
    ListedImage("pytorch", "2.10.0", "py313", lowest_driver=535),
    # CUDA 12.9, which needs driver 525, or 470 with CUDA's compatibility package. AWS patched them until 2026-08-06.
    ListedImage("huggingface", "4.56.2", "py312", "2.8.0", lowest_driver=470, lacks=("accelerate", "peft")),
    ListedImage("pytorch", "2.8.0", "py312", lowest_driver=470),
)
_OLD_DRIVERS = {"g4dn": 470, "g5": 470, "p4d": 470, "p4de": 470}
"""Branches of NVIDIA's driver by instance family. AWS documents drivers only for inference (SageMaker Developer Guide,
inference-gpu-drivers, read 2026-11-30): 470 for these families by default, and 535 or newer for all later ones. If the
driver of a job is too old after all, container_start.py ends the job in seconds."""
_LATER_DRIVER = 535
_AWS_LIBRARIES = {name for image in IMAGES for name in image.strategies}
_ARM_FAMILIES = ("p6e-gb200",)  # whose processors run none of these images
_UNKNOWN_GPU = (9, 0)  # instead of the capability of a GPU that is not in our tables


def choose_image(instance: Instance, strategy: str, region: str, *, is_users: bool) -> Image:
    """Choose the image for a job, and the packages to install in it, which are fewer if the training `is_users`.

    Raises ValueError if AWS has no suitable image.
    """
    if instance.family in _ARM_FAMILIES:
        raise ValueError("its processors have the architecture arm64")
    deepspeed, chip = ("deepspeed",) if strategy in DEEPSPEED else (), accelerator_of(instance)
    capability = _UNKNOWN_GPU if chip is None or chip.compute_capability is None else chip.compute_capability
    driver = _OLD_DRIVERS.get(instance.family, _LATER_DRIVER)
    error = ValueError("no image suits this instance type")
    for image in (image for image in IMAGES if image.suits(strategy, instance.has_gpu, capability, driver)):
        try:
            uri = _uri_of(image, region, instance.family)
        except ValueError as missing:
            error = missing
        else:
            return Image(uri, (*deepspeed, *_needed(image, is_users)))
    raise error


@cache  # an environment does not change while a command runs
def _needed(image: ListedImage, is_users: bool) -> tuple[str, ...]:
    """Return the packages that a job installs into its image. Hugging Face's have what scripts usually import."""
    if image.framework == "huggingface" and (is_users or not image.lacks):
        return ()
    transformers = pinned(("transformers",)) if image.transformers is None else (image.transformers,)
    return (*transformers, *pinned(image.lacks))


@cache
def _uri_of(image: ListedImage, region: str, family: str) -> str:
    """Return an image's address from the SDK's list. It is the same for all sizes of a family of instance types.

    Cached, because each call takes 12 ms to read AWS's endpoints.
    """
    from sagemaker.core import image_uris

    return str(
        image_uris.get_training_image_uri(
            region,
            image.framework,
            framework_version=image.framework_version,
            py_version=image.py_version,
            pytorch_version=image.pytorch_version,
            distribution=_SMP if image.strategies else None,
            instance_type=f"ml.{family}.xlarge",
        )
    )
