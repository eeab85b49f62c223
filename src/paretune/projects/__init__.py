"""MLflow projects of other people as jobs: their commands, their environments, and what they record.

project.read_project        the folder of a project, fetched once, and the command of an entry point
project.project_inputs      files, command and settings that a job needs to run it, on any launcher
project.read_environment    the pip requirements of its environment file
container_entrypoint        the program that runs the command inside a job
collection.collect_from     copies what the command has recorded inside its job into the job's run
"""
