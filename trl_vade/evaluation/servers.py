"""Addresses of servers. Requests to this machine must not go through a proxy."""

import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit

PROXIES = {"http_proxy", "https_proxy", "all_proxy"}


def is_address(url: str) -> bool:
    """Return whether `url` is an http(s) address of a host."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(host) and not any(sign.isspace() for sign in url)


def is_loopback(url: str) -> bool:
    """Return whether the address is this machine: localhost, 127.0.0.1, ::1."""
    host = urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def no_proxy_variables(url: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Return variables that keep a client from using a proxy for a local `url`; {} if there is no proxy."""
    if not is_loopback(url) or not any(name.lower() in PROXIES for name in environ):
        return {}
    hosts = [environ.get("no_proxy") or environ.get("NO_PROXY") or "", urlsplit(url).hostname or ""]
    # Both names are set; clients prefer the lower-case one.
    return dict.fromkeys(("no_proxy", "NO_PROXY"), ",".join(filter(None, hosts)))
