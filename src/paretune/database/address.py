"""Addresses of databases, as SQLAlchemy takes them."""

import re

_ADDRESS = re.compile(r"sqlite:///(?!:memory:)[^?#]+|postgresql(\+\w+)?://.+", re.DOTALL)


def address_fault(address: str) -> str:
    """Why `storage` cannot have this value; empty where it can."""
    if _ADDRESS.fullmatch(address):
        return ""
    text = "storage must be sqlite:///FILE or postgresql://USER:PASSWORD@HOST/DATABASE (a file or a database that "
    return text + f"outlives the command), got {shown(address)!r}"


def shown(address: str) -> str:
    """An address without user and password, for people to read."""
    scheme, colon, rest = address.partition(":")
    if "@" in rest:  # a password may hold any other character, also one that should have been escaped
        rest = f"//{rest.rpartition('@')[2]}"
    return re.sub(r"(?i)([?&](?:password|passfile|sslpassword|user)=)[^&\s]*", r"\1...", scheme + colon + rest)
