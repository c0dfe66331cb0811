"""Checks of servers' addresses. Requests to this machine must not go through a proxy."""

import ipaddress
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from trl_vade.errors import ConfigurationError, abbreviated

PROXIES = {"http_proxy", "https_proxy", "all_proxy"}


def check_address(option: str, url: Any, *, key: str, advice: str = "") -> None:
    """Raise `ConfigurationError` unless `url` is an http(s) address without a secret, which belongs in `key`."""
    example = "Give an address such as http://HOST:8000/v1."
    text = url if isinstance(url, str) else ""
    if any(sign in text for sign in "@?#"):
        # The message does not repeat the address: the part before the @, or after the ?, may be a secret.
        raise ConfigurationError(
            f"{option} has a @, ? or #, so it may hold a secret, but addresses are written into files and messages. "
            f"{example} The server's key is read from the environment variable {key}."
        )
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname, parts.port  # ValueError: the port is no number
        sound = parts.scheme in ("http", "https") and bool(host) and not any(sign.isspace() for sign in text)
    except ValueError:
        sound = False
    if not sound:
        raise ConfigurationError(
            f"{option} is {abbreviated(url)}, which is not an http(s) address. {example} {advice}"
        )


def openai_address(option: str, url: Any, *, key: str, advice: str = "") -> str:
    """Return the address of OpenAI's interface at `url`, with "/v1" and without routes; see `check_address`."""
    url = url.strip() if isinstance(url, str) else url
    check_address(option, url, key=key, advice=advice)
    parts = urlsplit(url)
    path = parts.path.rstrip("/").removesuffix("/chat/completions").rstrip("/")
    return f"{parts.scheme}://{parts.netloc}{path or '/v1'}"


def server_key(variable: str, environ: Mapping[str, str]) -> str:
    """Return the key in an environment variable, or "EMPTY": OpenAI's client needs one, and vLLM accepts any."""
    key = environ.get(variable, "").strip()
    if not re.fullmatch(r"[!-~]*", key):
        # The error of the HTTP client would show the key.
        raise ConfigurationError(
            f"{variable} has a character that cannot be sent, such as a space or an accent. Set it again."
        )
    return key or "EMPTY"


def without_key(text: str, variable: str, environ: Mapping[str, str]) -> str:
    """Return a server's text without the key in an environment variable, which a server may repeat."""
    key = server_key(variable, environ)
    return text if key == "EMPTY" else text.replace(key, "***")


def most_tokens(model: str, tokens: int) -> dict[str, int]:
    """Return the limit of a reply as the server of `model` takes it: OpenAI's reasoning models have another name."""
    return {"max_completion_tokens" if model.startswith(("gpt-5", "o1", "o3", "o4")) else "max_tokens": tokens}


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
