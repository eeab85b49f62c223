"""Objects in S3 that a person names: fetched to this machine once, whichever job reads them.

fetching.fetch    the file or folder on this machine with the content of an S3 URI
"""
