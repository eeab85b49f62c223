"""Several trials in one job: interpreter, imports, processes and data once, each trial with its own end.

members.train_members    the trials one after the other, or in groups side by side
ends                     ends that survive an interruption of the job
stops.MemberStop         why one trial stops while the others go on
together.JointSteps      the forward and backward passes of several trials as one
turns.conduct            trials in threads, one at a time, each with its own random numbers and its own clock
isolation                settings of the process, restored after each trial

It imports nothing from the floor above, which trains: that is given to it as a `members.Room`.
"""
