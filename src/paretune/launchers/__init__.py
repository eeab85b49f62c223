"""Where jobs run. A launcher is one file or folder here and one fixture of the contract suite.

base.Launcher         starts jobs, finds those that were started before, knows their price
base.Job              one job: state, events, report, failure, seconds, log
base.JobState         RUNNING, STOPPING, and the terminal states COMPLETED, FAILED, STOPPED
local.LocalLauncher   jobs as processes on this machine
sagemaker             jobs on SageMaker training clusters
simulated             jobs whose figures come from estimates and recorded runs
"""
