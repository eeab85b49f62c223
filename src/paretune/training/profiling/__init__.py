"""Time and memory of some optimiser steps: `profile_steps=N`.

callback.ProfileCallback        profiles steps of a training with torch.profiler, in every process
trace.step_time                 shares of the step's time and the dearest operators, from a Chrome trace
trace.holders_at_peak           purposes of the memory at its peak, from the allocations of a step
page.Profile                    profile.json and profile.md, with parameters to try

Only `callback` imports torch.
"""
