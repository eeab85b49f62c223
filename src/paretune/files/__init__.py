"""Files that a user writes by hand, read strictly.

yaml.read_yaml    a YAML file as a tree that knows its lines
"""
