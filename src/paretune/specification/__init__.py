"""The specification of a job, and the documents that travel into it.

parameters        parameter, Parameters      base of everything that a user can write; values from and to text
job               JobSpec                    every parameter of a job, declared once; hash and command
rules             RULES, launch_faults       rules between parameters
inputs            missing_files              model and data set: names, paths, missing files
data_files        data_faults                faults of a file with rows that can be told cheaply
script_arguments  script_arguments           the command line of a user's own script
batch_size        BatchPlan, plan_batch      the batch plan that follows from the parameters
parallelism       ParallelDegrees            strategies and degrees of parallelism
simulation        Simulation                 settings of the simulated launcher
catalog           Instance, instances        SageMaker's training instances
regions           usual_region               AWS regions that have SageMaker
profile           read_profile               defaults of a team, from paretune.toml
container         JobDocument, JobReport     documents and files that launcher and training exchange
job_phases        read_phases                phases and bill of a job from its status transitions
metrics           F1, COST_USD, ...          names and units of what is recorded; formulas
"""
