"""Simulated jobs: the same commands, states, events and bills as on SageMaker, on a virtual clock; nothing is trained.

launcher.SimulatedLauncher          creates and finds simulated jobs
launcher.SimulatedJob               one of them: its state at the virtual time, from its timeline
launcher.clock_path                 file of the virtual time
timeline.Timeline, Phase            phases, events and result of one job
timeline_factory.TimelineFactory    makes them, from recorded runs or from an estimate, with simulated failures
virtual_clock.VirtualClock          time that advances only during `sleep`
"""
