"""Predicted seconds, dollars and memory of jobs, from physics and from earlier jobs.

estimator      Estimate, Estimator, Forecast    the prediction for a job and its basis
evidence       Evidence                         measurements from earlier runs
timing         TimeModel, exchange_of           seconds, and bytes that devices exchange
memory         MemoryModel                      peak memory of a device
phases         usual, phases_of                 usual seconds of the phases of a job
features       describe, Footprint              a job as the numbers that the models need
workload       workload                         rows, tokens, steps and arithmetic of a training
architecture   architecture_of                  sizes of a model
hardware       accelerator_of                   data sheets of accelerators and processors
noise          Scatter                          how much two equal runs differ
"""
