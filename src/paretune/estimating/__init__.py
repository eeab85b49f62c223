"""Predicts seconds, dollars and memory of jobs from physics and from earlier jobs.

forecast       Forecast                         the estimate of a job from the recorded runs
estimator      Estimate, Estimator              the prediction for a job, and the evidence for it
remedy         with_remedy                      what fits instead of a job that does not
evidence       Evidence                         measurements from earlier runs
timing         seconds, fit                     seconds, from counted work and from constants fitted to measurements
counting       describe -> Work                 what one device computes, moves, launches and exchanges in a step
memory         MemoryModel, Footprint           peak memory of a device
phases         usual, phases_of                 phases of a job on SageMaker and their usual seconds
workload       setting_of -> Setting            a job with its model, its work, a device and formats
architecture   architecture_of                  sizes of a model
hardware       DeviceShare                      data sheets of accelerators, figures for CPUs
formats        formats_of                       number formats of a training run
"""
