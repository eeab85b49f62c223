"""Training inside a job: the only folder that imports torch. It imports no launcher, no MLflow and no Optuna.

Data comes and goes through the folder and the JSON formats of `paretune.specification.container`.

Entry points: python -m paretune.training one process of a job: our training, or a user's script python -m
paretune.training.prepare checks model and data before a job, and tokenizes the data python -m paretune.training.device
what PyTorch sees of this machine

One training:
    job.train               from the job document to report.json
    loop                    the steps, with evaluations, checkpoints and a stop in between: begin to read here
    strategies, optimizer   what ddp and fsdp mean: forward, backward, exchange of gradients; the update of weights
    arguments, evaluation   which training_arguments are read; loss and metrics of a split
    meter, profile          events, losses, throughput, what processes want of each other; where the time of steps goes
    processes, checkpoints  torchrun, exchange between processes, stop signal; checkpoints that all have written
    experiments/            matrices and layers divided over devices: no GPU has tried it
    device                  what this machine can do; attention and dropout without a GPU
    model, mlflow_model     finds, builds and writes the model that trains; the files by which MLflow loads it
    rows/, tasks            rows of a data set; labels, losses, metrics and baselines of each task
    script.run_script       runs a user's own training script
"""
