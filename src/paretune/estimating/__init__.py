"""How long, how much, does it fit: physics, and what earlier jobs have shown.

estimates        Estimate, Estimator     what a job is predicted to take, and from what
forecast         Forecast                estimates of a process's jobs, and the batch that earlier jobs leave them
evidence         Evidence, collect       what earlier runs have shown; job_of: the job of a run
timing           TimeModel               seconds
memory           MemoryModel             GiB of a device
traced/                                  what a step of the model's own code holds in memory
memory_limits    MemoryLimits, Footprint which batches fit, from those that did and did not
posterior        Posterior, fit          unknown constants with priors, and the one fit of them
noise            SECONDS_NOISE, F1_NOISE how much two equal runs differ
workload         Workload                rows, tokens, steps, arithmetic of a training
timing_features  JobFeatures, DeviceShare    a job in the numbers that the models need
architecture     Architecture            what a model consists of
hardware         Accelerator             data sheets of accelerators and processors
"""
