"""Training inside a job: the only folder that imports torch. It imports no launcher, no MLflow and no Optuna.

Data comes and goes through the folder and the JSON formats of `paretune.specification.container`.

Processes that others start:
    python -m paretune.training                   one process of a job: our training, or a user's script
    python -m paretune.training.prepare           checks model and data before a job, and tokenises the data
    python -m paretune.training.device            what PyTorch sees of this machine

One training:
    loop.train              from the job document to report.json
    trainer, callback       the Hugging Face Trainer with our batches; its events, throughput, stop requests, profile
    strategies, pipeline    what ddp, fsdp and smddp mean; weights and layers divided over devices
    processes, checkpoints  torchrun, exchange between processes, stop signal; checkpoints that all have written
    device                  what this machine can do; attention and dropout without a GPU
    model, mlflow_model     finds, builds and writes the model that trains; the files by which MLflow loads it
    rows/, tasks            rows of a data set; labels, losses, metrics and baselines of each task
    script.run_script       runs a user's own training script
"""
