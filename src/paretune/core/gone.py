"""What people are likeliest to look for and no longer find, with what to use instead."""

_SCRIPT = "run a script of your own with entry_script"
GONE = {
    "trials_per_job": "it is gone: keep_alive_minutes lets trials share a start-up",
    "in_job": "it is gone: keep_alive_minutes in job lets trials share a start-up",
    "finish_by": "it is gone: max_runtime_minutes limits a job, n_trials and budget_usd a study",
    "finish_confidence": "it is gone with finish_by: max_runtime_minutes limits a job",
    "queue": "it is gone: fallback_instance_types finds capacity without AWS Batch",
    "scheduling_priority": "it is gone with AWS Batch queues: fallback_instance_types finds capacity",
    "share_identifier": "it is gone with AWS Batch queues: fallback_instance_types finds capacity",
    "training_plan": "it is gone: start a job in reserved capacity with the SageMaker SDK",
    "context_parallel_degree": "it is gone: use tensor_parallel_degree or strategy=fsdp",
    "expert_parallel_degree": "it is gone: use tensor_parallel_degree or strategy=fsdp",
    "regression": f"it is gone: {_SCRIPT}",
    "seq2seq": f"it is gone: {_SCRIPT}",
    "recur": "it is gone: run `paretune study NAME --once` from a scheduler such as cron",
    "predict": "it is gone: use transformers.pipeline, or `mlflow models predict`",
    "schedule": "it is gone: docs/team.md shows the entry for cron, Kubernetes, GitHub and EventBridge",
    "pull_request": "it is gone: `paretune report` prints the table for a comment",
}
"""Name of a parameter, key, task or command to what follows "unknown parameter NAME: "."""
