"""Names of hosts, as they stand in a Host header: whether one can only mean this machine, or is an address.

A name that an attacker owns may come to mean this machine while a page of his is open (DNS rebinding); what is checked
here cannot.
"""

from __future__ import annotations

import ipaddress


def host_name(header: str) -> str:
    """The host of a Host header, without port and brackets.

    >>> host_name("[::1]:8787")
    '::1'
    """
    if header.startswith("["):
        return header[1:].partition("]")[0]
    return header.partition(":")[0]


def is_loopback(host: str) -> bool:
    """Whether a host name or address can only mean this machine."""
    name = normal(host)
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def is_address(host: str) -> bool:
    """Whether it is an address, which no DNS server can give another meaning."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def normal(host: str) -> str:
    """A host name as it is compared: in lower case, without the dot that may end it."""
    return host.lower().removesuffix(".")
