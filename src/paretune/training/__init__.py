"""Training inside a job: the only folder that imports torch. It imports no launcher, no MLflow and no Optuna.

Data comes and goes through the folder and the JSON formats of `paretune.specification.container`.

Processes that others start:
    python -m paretune.training                   one process of a job: our training or a user's script
    python -m paretune.training.warm              forks jobs of one process, which begin sooner
    python -m paretune.training.prepare           checks model and data before a job, and tokenises the data
    python -m paretune.training.device            what PyTorch sees of this machine

One training:
    loop.train              from the job document to report.json
    trainer                 the Hugging Face Trainer with our batches and default arguments
    callback                events, throughput and stop requests of a running training
    checkpoints             chooses the checkpoint that a training continues from
    strategies              ddp, fsdp, smddp, smp or deepspeed: arguments of the Trainer, or a division of ours
    parallel/               weights, matrices and layers of a model, divided over devices
    model                   finds and builds the model that trains
    model_folder            writes the trained model
    rows/                   rows of a data set: read, split, tokenised, distributed to devices
    tasks                   labels, losses, metrics and baselines of each task
    cpu_kernels             attention and dropout that are fast on a CPU
    device                  the device of this process: name, precision, memory
    profile                 trace and table of some steps

Jobs and processes:
    script.run_script       runs a user's own training script
    rendezvous              starts the processes of a job with torchrun
    processes               values that the processes of a job exchange
    stop_signal             ends a process with its parent, and on SIGTERM with a checkpoint
"""
