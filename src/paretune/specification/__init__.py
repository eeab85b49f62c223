"""What can be asked for, and what travels into a job: the standard library only.

parameters   parameter, affecting   a field with help, range and what it affects; the names that affect something
             read, check            a value from texts, and what is wrong with it
job          JobSpec                one training on one cluster; BatchPlan from it, its hash, what it has in common
cluster      Cluster, unsupported   where a job runs; strategies that do not go with an instance type
batch_size   BatchPlan, plan_batch  per-device batch x devices x accumulation = global batch size
catalog      Instance, instances    SageMaker's training instances
container    JobDocument, JobReport, Event, JobFolder    what launcher and training say to each other
metrics      F1, COST_USD, ...      names of what is recorded, with units; formulas
profile      read_profile           defaults of a team, from paretune.toml
regions      usual_region           AWS regions that have SageMaker
simulation   Simulation             what a simulated job may meet
"""
