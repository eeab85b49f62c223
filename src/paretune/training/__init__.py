"""Training inside a job: the only folder that imports torch. It imports no launcher, no MLflow and no Optuna.

Data comes and goes through the folder and the JSON formats of `paretune.specification.container`.

python -m paretune.training FOLDER    one process of a job: our training or a user's script
python -m paretune.training.prepare   checks model and data before a job, and tokenises the data
loop.train                            one training, from the job document to report.json
trainer.LengthGroupedTrainer          the Hugging Face Trainer with batches of equal length
strategies.strategy_of                ddp, fsdp, smddp, smp or deepspeed: how the model is distributed
shared.members.train_members          several trials in one job, each with its own end
parallel                              matrices, layers and activations of a model, divided over devices
on_processor                          dropout, attention and memory as they are fast without a GPU
profiling                             where the time and the memory of some steps go
memory                                what a step of a model holds, traced without its weights
script.run_script                     runs a user's own training script
model.find_model, build_model         model files, and the module that trains
device                                what this process trains on
"""
