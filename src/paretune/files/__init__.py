"""Files of two kinds, read strictly: those that a user writes by hand, and those that a stranger has packed.

yaml.read_yaml     a YAML file as a tree that knows its lines
archives.unpack    a tar archive within limits
"""
