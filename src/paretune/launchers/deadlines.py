"""When a billed job must stop itself, and how long it may be billed after its limit: bounds, not estimates.

AWS stops a job that has run for MaxRuntimeInSeconds. So the training must stop itself early enough to save a
checkpoint. The upload of a job's results does not count toward this limit, but it is billed. So the worst case must
include the upload:

    upload = START + bytes / RATE                      seconds billed after the training
    deadline = limit - BEFORE_CONTAINER - saving       seconds after the container's start at which the training stops

Here, `bytes` is the size of the results, `limit` the maximum runtime, and `saving` the time to write a checkpoint, both
in seconds. START, RATE and BEFORE_CONTAINER are _START_S, _SLOWEST_UPLOAD_BYTES_PER_S and BEFORE_CONTAINER_S.

A later attempt gets what is left of the limit and of the deadline. No attempt starts after the deadline, because it
would be billed beyond the limit.

Files are uploaded without compression (CompressionType NONE). No public job does this, so RATE is an assumption. It is
about the rate at which public jobs compress a known model with gzip and upload it (read 2026-11-23):
DistilBERT, 0.27 GB, in 26 to 58 s; Stable Diffusion, 4.3 GB, in 582 s; GPT-J, 12.1 GB, in 1,029 and 1,077 s.

The output of a script or a project has an unknown size. The bound for its upload covers 95 % of public jobs on similar
instances, and 96 % of the jobs of repositories that were left out when the bound was chosen. The first upload of a
study is assumed to take up to twice as long as the longest public one. All public jobs compress their output, so their
uploads should take longer than uploads without compression.
`benchmarks/public_jobs.py` computes these figures, except the rates of known models.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache

from paretune.core.errors import BadInput
from paretune.core.reading import is_folder
from paretune.estimating.architecture import Architecture, architecture_of, well_known
from paretune.estimating.phases import kind_of, usual
from paretune.estimating.workload import trained_weights
from paretune.specification.inputs import IN_S3
from paretune.specification.job import ADAPTERS, JobSpec, ModelArguments
from paretune.specification.parallelism import DEEPSPEED

SCRIPT_BYTES = 1e9
"""The output of a script counts as this many bytes, or as the size of its `model` if that is larger."""
UNKNOWN_MODEL_BYTES = 4e9  # assumed for a model whose size is unknown before the launch: a billion weights in fp32
BEFORE_CONTAINER_S = 200.0
"""Seconds that the deadline allows for what is billed before the container starts: downloading data and image usually
takes 167 s on instances with several GPUs, and less on others."""
LONGEST_BEFORE_CONTAINER_S = 300.0
"""The billed seconds before the container starts are at most this in 19 of 20 public jobs. AWS's limit does not count
them, so AWS itself stops jobs late: after 841 s with a limit of 603 s (sagemaker-python-sdk#4451), and after 350 s with
a limit of 60 s (airflow#33982)."""
LONGEST_SHARE = 2.0
"""The first upload of a script is assumed to take up to this many times the longest public upload. With each repository
left out in turn, its longest upload was at most 1.85 times the longest of the others (1,077 against 582 s)."""
# Margins of the worst case. For a script, the first two apply only if its `model` is larger than SCRIPT_BYTES.
_START_S = 60.0  # bound of the seconds before an upload begins and after it ends, together
_SLOWEST_UPLOAD_BYTES_PER_S = 10e6  # assumed
_SAVING_BYTES_PER_S = 500e6  # rate of writing a checkpoint to the instance's own disk; assumed


@dataclass(frozen=True, kw_only=True)
class Output:
    """States what a job writes and uploads at most, and how long that may take.

    The seconds are bounds for a job on instances; `kind` is `phases.kind_of` of its own type, and "" without instances.
    """

    model_bytes: float  # in the model folder; for a script or project, an assumed size
    checkpoint_bytes: float  # of one checkpoint; 0 for a script or project, which saves nothing when it is stopped
    is_of_user: bool
    kind: str
    limit_s: float  # the maximum runtime of the job

    @property
    def longest_upload_s(self) -> float:
        """The seconds of uploading that the job's worst case includes."""
        seconds = _START_S + self.model_bytes / _SLOWEST_UPLOAD_BYTES_PER_S
        if not self.is_of_user:
            return seconds
        public_s = usual("uploading", self.kind).bound
        return public_s if self.model_bytes <= SCRIPT_BYTES else max(public_s, seconds)

    @property
    def first_upload_s(self) -> float:
        """The seconds that a study reserves in addition to `longest_upload_s` until it has seen one upload.

        They are 0 for paretune's own training, because the size of its results is known, and for jobs without
        instances. A script or project may write any amount, but all jobs of a study write about the same amount, so one
        upload shows it.
        """
        if not (self.is_of_user and self.kind):
            return 0.0
        return max(0.0, LONGEST_SHARE * usual("uploading", self.kind).longest - self.longest_upload_s)

    @property
    def deadline_s(self) -> float:
        """The seconds after its container's start at which the training stops itself.

        The rest of the job's maximum runtime is for what happens before the container starts, and for saving a
        checkpoint. The training gets at least half of the maximum runtime.
        """
        return max(self.limit_s / 2, self.limit_s - BEFORE_CONTAINER_S - self.saving_s)

    @property
    def billed_after_limit_s(self) -> float:
        """The most seconds billed beyond the job's maximum runtime, for a late stop, saving and the upload."""
        late_s = LONGEST_BEFORE_CONTAINER_S - BEFORE_CONTAINER_S
        stopped_s = LONGEST_BEFORE_CONTAINER_S + self.deadline_s + self.saving_s
        return max(late_s, stopped_s - self.limit_s) + self.longest_upload_s

    @property
    def saving_s(self) -> float:
        """The seconds of writing a checkpoint."""
        return self.checkpoint_bytes / _SAVING_BYTES_PER_S


def output_of(spec: JobSpec, environment: Mapping[str, str]) -> Output:
    """Return what a job writes at most. `environment` may name the Hugging Face Hub, which knows the model's size."""
    of_hub = tuple(item for item in environment.items() if item[0].startswith("HF_"))
    built = _architecture_of(spec.model, spec.task, of_hub)
    weights = UNKNOWN_MODEL_BYTES if built is None else 4.0 * built.parameters  # bytes in fp32
    model, checkpoint = written_shares(spec.model_arguments, spec.strategy, built)
    if spec.runs_user_code:
        names_model = "model" in spec.given_text() and spec.project is None
        size, checkpoint = max(SCRIPT_BYTES, weights if names_model else 0.0), 0.0
    else:
        merged = 1.0 if spec.fine_tuning in ADAPTERS and spec.lora.merge else 0.0
        size = 0.0 if spec.probe_steps is not None else (model + merged) * weights
    return Output(
        model_bytes=size,
        checkpoint_bytes=checkpoint * weights,
        is_of_user=spec.runs_user_code,
        kind=kind_of(spec.instance()) if spec.has_instances else "",
        limit_s=spec.max_runtime_minutes * 60,
    )


def written_shares(model: ModelArguments, strategy: str, built: Architecture | None) -> tuple[float, float]:
    """Return the sizes of the trained model and of one checkpoint, as multiples of all weights in fp32.

    A checkpoint contains the weights, and two moments of Adam for each trained weight. DeepSpeed writes the weights
    twice more, in the model's format and in its own. Adapters are written without the frozen weights; a merged copy,
    which is as large as the pretrained model, is not included. A trained head is assumed to have half of all weights,
    which is the share of the output layer in a small language model. Without an architecture, adapters are assumed to
    be as large as the model.
    """
    if model.adapts and built is not None:
        share = trained_weights(model, built) / built.parameters
        return share, 3 * share
    if model.fine_tuning == "head":
        return 1.0, 2.0
    return 1.0, 5.0 if strategy in DEEPSPEED else 3.0


@lru_cache(maxsize=256)
def _architecture_of(model: str, task: str, environment: tuple[tuple[str, str], ...]) -> Architecture | None:
    if well_known(model) is None and not is_folder(model) and ("/" not in model or model.startswith(IN_S3)):
        return None
    with suppress(BadInput):  # the preparation of the job's inputs reports the error
        return architecture_of(model, task, dict(environment))
    return None
