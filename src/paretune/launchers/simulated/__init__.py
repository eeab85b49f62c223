"""Jobs that nobody runs: the same commands, events, states and bills, on a virtual clock.

timeline    what happens to one job, second by second
course      the timeline of a job, from recorded runs or from an estimate, with the trouble that was asked for
launcher    jobs as two small files: that they were created, and that they were asked to stop
"""
