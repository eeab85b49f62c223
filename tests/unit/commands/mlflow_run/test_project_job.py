"""Notes on a project before its job is launched."""

from paretune.commands.mlflow_run.project_job import python_note


def test_another_python_than_the_image_s_is_said() -> None:
    image = "1.dkr.ecr.x.amazonaws.com/pytorch-training:2.9.0-cpu-py312-ubuntu22.04"

    assert python_note("3.12.4", image) is None
    assert python_note(None, image) is None
    assert python_note("3.10", image) == (
        "the project asks for Python 3.10, but the image has Python 3.12, which will be used"
    )
    assert python_note("3.10", "own:1") == (
        "the project asks for Python 3.10, but the image has its own Python, which will be used"
    )
