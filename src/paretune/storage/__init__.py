"""What the tables of paretune share, in whichever database they are: SQLite on one machine, or PostgreSQL.

address.shown, address.address_fault    addresses for people to read, and which ones there may be
address.file_fault                      why SQLite can neither open nor create a file
engine.open_engine                      an engine whose transactions on SQLite write from their beginning
migrations.migrate                      brings tables to their newest version, one Alembic revision a file
"""
