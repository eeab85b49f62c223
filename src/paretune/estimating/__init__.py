"""Predicted seconds, dollars and memory of jobs, from physics and from earlier jobs.

estimator      Estimate, Estimator, Forecast    the prediction for a job and its basis
evidence       Evidence                         measurements from earlier runs
timing         seconds, fit                     seconds, from work and constants that measurements correct
counting       describe -> Work                 what one device computes, moves, launches and exchanges in a step
memory         MemoryModel, Footprint           peak memory of a device
phases         usual, phases_of                 usual seconds of the phases of a job
workload       workload                         rows, tokens, steps and arithmetic of a training
architecture   architecture_of                  sizes of a model
hardware       DeviceShare                      data sheets of accelerators and processors
"""
