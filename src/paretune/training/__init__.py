"""The training code inside a job. Only this folder imports torch; it imports neither launchers nor Optuna.

It exchanges all data with a launcher through the job's folder and JSON files (`paretune.specification.container`). Only
`text_model`, which MLflow runs, imports MLflow.

Entry points:
    python -m paretune.training FOLDER      one process of a job: our training, or a user's script
    python -m paretune.training.prepare     checks model and data before a job, and tokenizes the data
    python -m paretune.training.device      prints which GPUs PyTorch sees on this machine

Modules:
    job           one training run, from the job document to report.json
    loop          optimizer steps, with evaluations, checkpoints and stop requests between them; start reading here
    strategies    ddp and fsdp: forward pass, backward pass and exchange of gradients
    optimizer     update of the weights
    experiments/  tensor and pipeline parallelism; not yet run on a GPU
    arguments     reads training_arguments
    evaluation    loss and metrics of a split
    meter         events, losses and throughput; exchange of stop requests between processes
    profile       where the time of a step goes
    processes     torchrun, exchange of values between processes, stop signal
    checkpoints   checkpoints, to which all processes write their part
    device        what this machine can do
    cpu           faster attention, dropout and memory allocation on CPUs
    model         finds, builds and writes the model
    mlflow_model  writes the files that MLflow needs to load the model
    text_model    loads the model in MLflow if its text column has a name
    downloads     errors of the Hugging Face Hub; the model and data that are installed as packages
    prepare       checks and data preparation before a job
    rows/         rows of a data set
    tasks         labels, losses, metrics and baselines of each task
    script        runs a user's own training script
"""
