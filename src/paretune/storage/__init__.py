"""Files and databases, read and written safely.

address      address_fault, file_fault    valid addresses of databases, and whether SQLite can use a file
archives     unpack                       tar archives of strangers, read within limits
database     open_engine                  engines for SQLite and PostgreSQL
shipped      find_path, find_file         paths from the current folder, else among the files that paretune ships
tables       read_table                   CSV files of users: the header, and the lines with their numbers
yaml         read_yaml, Node              YAML files as trees that know their line numbers
"""
