"""Several trials in one job: interpreter, imports, processes and data are set up once, each trial ends by itself.

trials.train_trials        trains the trials one after the other, or in groups side by side
side_by_side               LoRA trials on one frozen base: their forward and backward passes as one
cooperative_threads        trainings in threads of which one runs at a time, each with its own random numbers
"""
