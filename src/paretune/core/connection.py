"""Checks whether a server accepts connections, before a library would retry for a long time."""

import socket
from urllib.parse import urlsplit

_TIMEOUT_S = 5.0


def connect(address: str) -> None:
    """Connect once to the server of an http address, unless the environment names a proxy for it.

    Only the proxy can connect to a server behind it. Raises OSError if there is no connection after 5 s, and ValueError
    if the port is not a number.
    """
    from urllib.request import getproxies, proxy_bypass  # takes a while, and few commands connect

    parts = urlsplit(address)
    host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    has_proxy = not {parts.scheme, "all"}.isdisjoint(getproxies()) and not proxy_bypass(host)
    if not has_proxy:
        socket.create_connection((host, port), timeout=_TIMEOUT_S).close()
