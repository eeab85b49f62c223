"""Bytes that a SageMaker job leaves, the seconds that their upload is billed, and when the training must stop for it.

    upload = START + bytes / RATE              billed after the training; outside AWS's MaxRuntimeInSeconds
    deadline = limit - BEFORE_CONTAINER - saving       seconds after the container's start at which the training stops

Rates are of /opt/ml/model packed by gzip, from public jobs whose model is known (read 2026-11-23): DistilBERT, 0.27 GB,
in 26 to 58 s; Stable Diffusion, 4.3 GB, in 582 s; GPT-J, 12.1 GB, in 1,029 and 1,077 s. No public job shows an
uncompressed upload: its bound is assumed, at about the slowest of these rates. Nobody knows what a script or a project
leaves: its bound holds for 95 % of public jobs on such instances, 96 % of those of repositories that were left out,
and its first upload may take twice as long as the longest of them. `benchmarks/public_jobs.py` measures all this.
"""

from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache

from paretune.core.errors import BadInput
from paretune.core.untrusted import is_folder
from paretune.estimating.architecture import Architecture, architecture_of, well_known
from paretune.estimating.phases import COMPRESSED_BYTES, kind_of, transfer_s, usual
from paretune.estimating.workload import trained_weights
from paretune.specification.inputs import IN_S3
from paretune.specification.job import ADAPTERS, JobSpec
from paretune.specification.parallelism import DEEPSPEED

SCRIPT_BYTES = 1e9
"""The output of a script counts with this, or with the size of `model`."""
UNKNOWN_MODEL_BYTES = 4e9  # stands for a model whose size nobody tells before the launch: a billion weights in fp32
BEFORE_CONTAINER_S = 200.0
"""Seconds billed before the container starts that the deadline leaves room for: data and image usually take 167 s
on several GPUs, and less on others."""
LONGEST_BEFORE_CONTAINER_S = 300.0
"""The same of 19 of 20 public jobs. AWS alone stops as late: 841 s after a limit of 603 (sagemaker-python-sdk#4451)
and 350 after 60 (airflow#33982), because its limit does not count them."""
LONGEST_SHARE = 2.0
"""The first upload of a script counts with so many times the longest public one: leaving out each repository in turn,
no longest upload of the others was exceeded by more (1,077 against 582 s)."""
_START_S = 60.0  # bound of the seconds until an upload begins and after it
_SLOWEST_COMPRESSED_BYTES_PER_S = 5e6
"""Half of the usual rate of public jobs holds for 95 % of uploads if rates scatter as those do, by 0.2 to 0.4."""
_SLOWEST_UNCOMPRESSED_BYTES_PER_S = 10e6  # assumed
_SAVING_BYTES_PER_S = 500e6  # of a checkpoint to the instance's own disk; assumed


def written_shares(spec: JobSpec, built: Architecture | None) -> tuple[float, float]:
    """Return the sizes of the trained model and of one checkpoint, as multiples of all weights in fp32.

    A checkpoint holds weights and two moments of Adam for each trained weight. DeepSpeed writes the weights twice more,
    in the model's and in its own format. Adapters are written without the frozen weights; merged, they are as large as
    the pretrained model. A head counts as half of all weights: the output layer of a small language model.
    Without an architecture, adapters count as all weights.
    """
    if spec.fine_tuning in ADAPTERS and built is not None:
        share = trained_weights(spec, built) / built.parameters
        return share, 3 * share
    if spec.fine_tuning == "head":
        return 1.0, 2.0
    return 1.0, 5.0 if spec.strategy in DEEPSPEED else 3.0


def output_bytes(spec: JobSpec, environment: Mapping[str, str]) -> float:
    """Return the most bytes that a job leaves in its model folder; for scripts and projects an allowance."""
    if spec.runs_own_training:
        names_model = "model" in spec.changed() and spec.project is None
        return max(SCRIPT_BYTES, _fp32_bytes(spec, environment) if names_model else 0.0)
    if spec.probe_steps is not None:
        return 0.0
    merged = spec.fine_tuning in ADAPTERS and spec.lora.merge
    share = written_shares(spec, _architecture(spec, environment))[0] + (1.0 if merged else 0.0)
    return share * _fp32_bytes(spec, environment)


def is_compressed(spec: JobSpec, environment: Mapping[str, str]) -> bool:
    """Whether SageMaker packs the job's output into archives; large outputs are uploaded as they are."""
    return output_bytes(spec, environment) <= COMPRESSED_BYTES


def upload_seconds(spec: JobSpec, environment: Mapping[str, str]) -> tuple[float, float]:
    """Return the expected seconds of a job's upload, and the bound that its worst case counts with."""
    size, usually = output_bytes(spec, environment), usual("uploading", kind_of(spec.instance()))
    if not spec.runs_own_training:
        rate = _SLOWEST_COMPRESSED_BYTES_PER_S if size <= COMPRESSED_BYTES else _SLOWEST_UNCOMPRESSED_BYTES_PER_S
        return usually.seconds + transfer_s(size), _START_S + size / rate
    if size <= SCRIPT_BYTES:
        return usually.seconds, usually.bound
    return usually.seconds + transfer_s(size), max(usually.bound, _START_S + size / _SLOWEST_UNCOMPRESSED_BYTES_PER_S)


def first_upload_s(spec: JobSpec, environment: Mapping[str, str]) -> float:
    """Return the seconds beyond its bound that a study reserves until it has seen an upload; 0 for paretune's training.

    Only the script or project itself decides what it leaves, and all jobs of a study leave alike.
    """
    if not (spec.runs_own_training and spec.has_instances):
        return 0.0
    longest = LONGEST_SHARE * usual("uploading", kind_of(spec.instance())).longest
    return max(0.0, longest - upload_seconds(spec, environment)[1])


def deadline_s(spec: JobSpec, limit_s: float, environment: Mapping[str, str]) -> float:
    """Return the seconds after its container's start at which a training with this maximum runtime stops itself.

    What is billed before the container, and the writing of a checkpoint, fit into the limit; but the training has at
    least half of it.
    """
    return max(limit_s / 2, limit_s - BEFORE_CONTAINER_S - _saving_s(spec, environment))


def billed_after_limit_s(spec: JobSpec, environment: Mapping[str, str]) -> float:
    """Return the most seconds that a job is billed beyond its maximum runtime: a late stop, saving and the upload."""
    limit_s = spec.max_runtime_minutes * 60
    late_s = LONGEST_BEFORE_CONTAINER_S - BEFORE_CONTAINER_S
    stopped_s = LONGEST_BEFORE_CONTAINER_S + deadline_s(spec, limit_s, environment) + _saving_s(spec, environment)
    return max(late_s, stopped_s - limit_s) + upload_seconds(spec, environment)[1]


def _saving_s(spec: JobSpec, environment: Mapping[str, str]) -> float:
    if spec.runs_own_training:
        return 0.0
    checkpoint = written_shares(spec, _architecture(spec, environment))[1]
    return checkpoint * _fp32_bytes(spec, environment) / _SAVING_BYTES_PER_S


def _fp32_bytes(spec: JobSpec, environment: Mapping[str, str]) -> float:
    built = _architecture(spec, environment)
    return UNKNOWN_MODEL_BYTES if built is None else 4.0 * built.parameters


def _architecture(spec: JobSpec, environment: Mapping[str, str]) -> Architecture | None:
    endpoint = {
        name: environment[name] for name in ("HF_HUB_OFFLINE", "HF_ENDPOINT", "HF_TOKEN") if name in environment
    }
    return _architecture_of(spec.model, spec.task, tuple(endpoint.items()))


@lru_cache(maxsize=256)
def _architecture_of(model: str, task: str, environment: tuple[tuple[str, str], ...]) -> Architecture | None:
    if well_known(model) is None and not is_folder(model) and ("/" not in model or model.startswith(IN_S3)):
        return None
    with suppress(BadInput):  # preparing the job's inputs says so
        return architecture_of(model, task, dict(environment))
    return None
