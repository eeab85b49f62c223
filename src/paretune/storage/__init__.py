"""Files and databases, read and written safely.

archives   unpack                        tar archives of jobs, read within limits
database   address_fault, open_engine    addresses of SQLite and PostgreSQL, and engines for them
files      read_yaml, find_path          YAML with line numbers; paths from the current folder or shipped with paretune
"""
