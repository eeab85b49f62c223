"""The places where jobs run. A new launcher is a file here, a line in `registry` and a fixture of the contract suite.

base          the interface: `Launcher`, `Job`, `JobState`, and the features that only some launchers support
archive       the code that travels to a job or into a container
registry      the launchers by name, each opened for a job's specification
local         jobs as processes on this machine
processes     processes of this machine: whether they run, and how to end them
sagemaker     jobs on SageMaker training clusters
simulated     jobs on a virtual clock, with figures from estimates and recorded runs
storage       the bytes on an instance's disk, and the volume that they need
"""
