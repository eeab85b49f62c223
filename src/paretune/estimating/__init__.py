"""Predicted seconds, dollars and memory of jobs, from physics and from earlier jobs.

estimator        Estimator, Estimate: the prediction for a job and its basis
time_estimate    TimeEstimate: predicted seconds and dollars
forecast         Forecast: estimates of a process's jobs, and the batch to start with; OwnTrainingTimes: seconds of
                 trainings of the user's own
evidence         Evidence: measurements from earlier runs
timing           TimeModel: seconds
memory           MemoryModel: peak memory of a device
memory_limits    Footprint: which batches cannot fit, from jobs that did not
noise            how much two equal runs differ
workload         rows, tokens, steps and arithmetic of a training
timing_features  a job as the numbers that the models need
exchange         bytes that devices exchange
architecture     the architecture of a model
hardware         data sheets of accelerators and processors
recorded         tables of recorded runs, for simulated jobs
"""
