"""The specification of a job, and the documents that travel into it.

parameters        parameter, Parameters         base of everything that a user can write; values from and to text
job               JobSpec                       every parameter of a job, declared once; hash and command
rules             RULES, launch_faults          rules between parameters
inputs            missing_files, data_faults    model and data set: names, paths, cheap checks
script_arguments  script_arguments              the command line of a user's own script
parallelism       BatchPlan, ParallelDegrees    how one job is divided over devices
catalog           Instance, usual_region        SageMaker's training instances and regions
profile           read_profile                  defaults of a team, from paretune.toml
container         JobDocument, JobReport        documents and files that launcher and training exchange
metrics           F1, COST_USD, ...             names and units of what is recorded; formulas
"""
