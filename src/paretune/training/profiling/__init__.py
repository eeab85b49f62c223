"""Where the time and the memory of optimiser steps go: `profile_steps=N`.

callback.ProfileCallback     profiles steps of a training with torch.profiler, in every process
trace.step_time              shares of the step and dearest operators, from a Chrome trace
memory.holders_at_peak       what holds the memory at its peak, from the allocations of a step
advice.advice_of             what to try, by those figures
page.Profile                 profile.json and profile.md
intervals                    union, intersection and difference of intervals

Only `callback` imports torch.
"""
