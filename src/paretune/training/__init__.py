"""The training inside a job. Only this folder imports torch; it imports neither launchers nor Optuna.

It exchanges all data with a launcher through the job's folder and JSON files (`paretune.specification.container`). Only
`text_model`, which MLflow runs, imports MLflow.

Entry points:
    python -m paretune.training FOLDER      one process of a job: our training, or a user's script
    python -m paretune.training.prepare     checks model and data before a job, and tokenizes the data
    python -m paretune.training.device      prints which GPUs PyTorch sees on this machine

Modules:
    job.train               one training run, from the job document to report.json
    loop                    the steps; between them, evaluations, checkpoints and stop requests: start reading here
    strategies, optimizer   ddp and fsdp: forward, backward and the exchange of gradients; the update of weights
    arguments, evaluation   reads training_arguments; computes loss and metrics of a split
    meter, profile          events, losses, throughput and the exchange of stop requests; where the time of a step goes
    processes, checkpoints  torchrun, exchange between processes, stop signal; checkpoints that all processes write
    experiments/            matrices and layers divided over devices; not yet run on a GPU
    device, cpu             what this machine can do; faster attention and dropout on CPUs
    model, mlflow_model     finds, builds and writes the model; writes the files that MLflow needs to load it
    downloads               errors of the Hugging Face Hub; the model and data that are installed as packages
    rows/, tasks            rows of a data set; labels, losses, metrics and baselines of each task
    script.run_script       runs a user's own training script
"""
