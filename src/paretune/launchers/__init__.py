"""The places where jobs run.

A new launcher is a folder here, a branch of `jobs.workplace.Workplaces`, a choice of `JobSpec.launcher` and a fixture
of the contract suite (tests/launcher_contract.py). What differs on AWS asks `JobSpec.on_sagemaker`, or `has_instances`
for its catalogue and prices: grep for both, and for the prefix `ml.`; a third place makes them questions to a launcher.

base          the interface: `Launcher`, `Job`, `JobState`, and the features that only some launchers support
archive       the code that travels to a job or into a container
local         jobs as processes on this machine
processes     processes of this machine: whether they run, and how to end them
sagemaker     jobs on SageMaker training clusters
simulated     jobs on a virtual clock, with figures from estimates and recorded runs
storage       the bytes on an instance's disk, and the volume that they need
"""
