"""The command `import`: a table of finished runs, brought into MLflow and marked `published`.

command    ImportRequest: the table, each row of it a whole specification
importing  creates the runs, each once, and says what it has done
"""
