"""Several trials in one job: interpreter, imports, processes and data once, each trial with its own end.

members.train_members    the trials one after the other, or in groups side by side
ends                     ends that survive an interruption of the job
stops.MemberStop         why one trial stops while the others go on
isolation                settings of the process, restored after each trial

It imports nothing from the floor above, which trains: that is given to it as a `members.Room`.
"""
