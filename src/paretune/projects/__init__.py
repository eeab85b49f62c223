"""MLflow projects: what a command of somebody else's needs, how it runs in a job, and what it leaves.

fetching.fetched                      the folder of a project, fetched once
payload.project_inputs                what a job of ours needs to run an entry point, on any launcher
command.read_command                  the entry point's command, with files as they are called in the job
environment.read_environment          what the project's environment file means to pip and to an image
container_entrypoint                  what runs in the job, beside the project
collection.Collector                  copies what the command has recorded in its job into its run
"""
