"""Which image a job runs in, and what stands against it."""

import re

import pytest

from paretune.launchers.sagemaker.request import choose_image, image_faults
from paretune.specification.job import JobSpec

GPU, P4D, CPU = "ml.g5.12xlarge", "ml.p4d.24xlarge", "ml.m5.large"
V100 = "ml.p3.2xlarge"
REGISTRY = "123456789012.dkr.ecr.{}.amazonaws.com/"


def spec(instance_type: str = GPU, **changes: object) -> JobSpec:
    return JobSpec(instance_type=instance_type, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("region", ["us-east-1", "eu-west-1", "us-gov-west-1", "cn-north-1"])
@pytest.mark.parametrize(
    ("instance_type", "strategy", "image"),
    [
        (GPU, "ddp", "huggingface-pytorch-training:2.8.0-transformers4.56.2-gpu-py312"),
        (GPU, "fsdp", "huggingface-pytorch-training:2.8.0-transformers4.56.2-gpu-py312"),
        (GPU, "deepspeed", "huggingface-pytorch-training:2.8.0-transformers4.56.2-gpu-py312"),
        ("ml.p5.48xlarge", "ddp", "huggingface-pytorch-training:2.8.0-transformers4.56.2-gpu-py312"),
        ("ml.p3dn.24xlarge", "ddp", "pytorch-training:2.6.0-gpu-py312"),
        (V100, "ddp", "pytorch-training:2.6.0-gpu-py312"),
        (V100, "deepspeed", "pytorch-training:2.6.0-gpu-py312"),
        (CPU, "ddp", "pytorch-training:2.9.0-cpu-py312"),
        (CPU, "fsdp", "pytorch-training:2.9.0-cpu-py312"),
    ],
)
def test_the_image_suits_instance_and_strategy_and_lies_in_the_region(
    region: str, instance_type: str, strategy: str, image: str
) -> None:
    chosen = choose_image(spec(instance_type, strategy=strategy), region)

    assert image in chosen.uri
    assert f".dkr.ecr.{region}." in chosen.uri


@pytest.mark.parametrize("strategy", ["smddp", "smp"])
def test_strategies_of_aws_s_own_libraries_get_the_image_that_holds_them(strategy: str) -> None:
    chosen = choose_image(spec(P4D, strategy=strategy), "us-east-1")

    assert "smdistributed-modelparallel:" in chosen.uri
    assert "transformers==5.3.0" in chosen.requirements


def test_what_an_image_lacks_is_installed_in_exact_versions() -> None:
    bare = choose_image(spec(CPU), "us-east-1").requirements
    full = choose_image(spec(GPU), "us-east-1").requirements
    deepspeed = choose_image(spec(GPU, strategy="deepspeed"), "us-east-1").requirements

    assert {line.split("==")[0] for line in bare} >= {"transformers", "accelerate", "scikit-learn"}
    assert all(re.fullmatch(r"[\w-]+==[\w.]+", line) for line in bare)
    assert {line.split("==")[0] for line in full} == {"transformers", "accelerate", "peft"}
    assert choose_image(spec(GPU, entry_script="train.py"), "us-east-1").requirements == ()
    assert choose_image(spec(V100), "us-east-1").requirements == bare
    assert deepspeed == ("deepspeed", *full)
    assert choose_image(spec(GPU, strategy="deepspeed_zero3"), "us-east-1").requirements == deepspeed


def test_a_region_without_images_is_a_fault_that_names_it_and_no_crash() -> None:
    (fault,) = image_faults(spec(GPU), "mars-1")

    assert "on ml.g5.12xlarge in mars-1" in fault
    assert "give sagemaker.training_image, or another region" in fault
    assert image_faults(spec(GPU, sagemaker={"training_image": "own:1"}), "mars-1") == []


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"instance_type": "ml.g5.48xlarge", "strategy": "smddp"}, "strategy smddp needs ml.p4d.24xlarge"),
        ({"instance_type": GPU, "strategy": "smp"}, "strategy=smp needs a training script of your own"),
        ({"instance_type": CPU, "strategy": "deepspeed"}, "needs GPUs, and ml.m5.large has none"),
        (
            {"instance_type": CPU, "sagemaker.training_image": "x/pytorch-training:2.9.0-gpu-py312"},
            "use its -cpu- variant",
        ),
        (
            {"instance_type": GPU, "sagemaker.training_image": "x/pytorch-training:2.9.0-cpu-py312"},
            "use its -gpu- variant",
        ),
        (
            {"instance_type": GPU, "sagemaker.training_image": REGISTRY.format("eu-west-1") + "own:1"},
            "lies in eu-west-1",
        ),
        (
            {
                "instance_type": GPU,
                "sagemaker.training_image": "x/huggingface-pytorch-training:2.1.0-transformers4.36.0-gpu-py310",
            },
            "holds transformers 4.36, paretune's training needs 5.3",
        ),
    ],
)
def test_what_does_not_go_together_is_one_fault_with_a_way_out(changes: dict[str, object], part: str) -> None:
    (fault,) = image_faults(spec(**changes), "us-east-1")  # type: ignore[arg-type]

    assert part in fault
    assert re.search(r": (use|leave|give|lower|set)|, or ", fault)
