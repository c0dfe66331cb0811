"""Errors of the Hub's client, translated to `HubError` with what the Hub said, and the way out."""

import re
from json import JSONDecodeError

from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

from trl_vade.errors import HubError, HubOfflineError

HTTP_ERROR = HfHubHTTPError.__bases__[0]
"""httpx's base error (no connection, a cut connection, a timeout), whichever version huggingface_hub uses."""

FAILURES = (HTTP_ERROR, OSError, ValueError, LookupError, RuntimeError)
"""Errors of the client. RuntimeError: a large file; its cause is the reason. LookupError and ValueError: an answer of
a proxy instead of the Hub. ValueError also: an argument that the client refuses. ConnectionError: hf_xet."""

_MEND = "Mend this, and push again."
_ROOM = "Delete old files there, or get more room at https://huggingface.co/settings/billing."
_WAYS_OUT = {  # by status
    None: "Check the network and HF_ENDPOINT.",
    401: "Set HF_TOKEN to a valid token, or run `hf auth login`.",
    403: f"Use a token with write access to a repository of yours. If its storage is full: {_ROOM}",
    404: "Was it deleted? A run makes no repository again: make it yourself, private if it was, and push again.",
    429: "A repository takes 128 commits an hour: a larger save_steps makes fewer.",
    **dict.fromkeys((402, 507), _ROOM),
}


def as_hub_error(error: Exception, target: object) -> HubError:
    """Return an error of the client as a `HubError` about `target`, with the way out."""
    if isinstance(error, HubError):
        return error
    if isinstance(error, RuntimeError) and isinstance(error.__cause__, FAILURES):
        error = error.__cause__
    if isinstance(error, OfflineModeIsEnabled):
        return HubOfflineError(f"HF_HUB_OFFLINE is set, so nothing is sent to {target}. Unset it to push.")
    what, status, wait = f"{target}: {in_one_line(error)}.", None, 0.0
    may_pass = isinstance(error, JSONDecodeError) or not isinstance(error, ValueError)
    advice = "If large files fail, HF_HUB_DISABLE_XET=1 sends them by LFS." if may_pass else _MEND
    if isinstance(error, HTTP_ERROR):
        response = getattr(error, "response", None)
        status, headers = getattr(response, "status_code", None), getattr(response, "headers", {})
        may_pass = status in (None, 404, 408, 409, 412, 429) or (status >= 500 and status != 507)
        may_pass |= "LFS pointer" in what  # the Hub does not see yet what was just sent
        advice = _WAYS_OUT.get(status, "See https://status.huggingface.co." if may_pass else _MEND)
        after = headers.get("Retry-After", "")
        wait = float(after) if after.isdigit() else 120.0 if status == 429 else 0.0  # the Hub rarely says how long
    return HubError(f"{what} {advice}", status=status, may_pass=may_pass, retry_after=wait)


def in_one_line(error: BaseException) -> str:
    """Return the name and the message of an error as one line of up to 1,000 characters.

    The client writes the reason below its first line. Signatures in addresses are left out.
    """
    text = re.sub(r"For more information check: \S+", "", str(error))  # httpx explains the status by a link
    text = re.sub(r"(https?://[^\s?]+)\?\S+", r"\1", " ".join(text.split())).rstrip(".")
    return f"{type(error).__name__}: {text[:1000]}" if text else type(error).__name__
