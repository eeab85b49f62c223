"""The places where jobs run.

A new launcher is a folder here, a branch of `jobs.workplace.Workplaces`, a choice of `JobSpec.launcher` and a fixture
of the contract suite (tests/launcher_contract.py). What differs on AWS asks `JobSpec.on_sagemaker`, or `has_instances`
for its catalogue and prices: grep for both, for the prefix `ml.`, and for `"sagemaker"` (rules, profile, study files,
doctor). Its packages are an extra, checked in `core.packages`; `pyproject.toml` says which folder may import them.

base          the interface: `Launcher`, `Job`, `JobState`, and the features that only some launchers support
archive       the code that travels to a job or into a container
deadlines     when a training stops itself, and how long its upload may take
disk          the bytes on an instance's disk and in its main memory, and the volume that they need
local         jobs as processes on this machine
processes     processes of this machine: whether they run, and how to end them
sagemaker     jobs on SageMaker training clusters
simulated     jobs on a virtual clock, with figures from estimates and recorded runs
transitions   the phases that DescribeTrainingJob shows
"""
