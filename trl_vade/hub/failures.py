"""Errors of the Hub's client, translated to `HubError` with what the Hub said, and the way out."""

import re
from json import JSONDecodeError

from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled
from huggingface_hub.utils import parse_ratelimit_headers

from trl_vade.errors import HubError, HubOfflineError

HTTP_ERROR = HfHubHTTPError.__bases__[0]
"""httpx's base error (no connection, a cut connection, a timeout), whichever version huggingface_hub uses."""

FAILURES = (HTTP_ERROR, OSError, ValueError, LookupError, RuntimeError)
"""Errors of the client. RuntimeError: a large file; its cause is the reason. LookupError and ValueError: an answer of
a proxy instead of the Hub. ValueError also: an argument that the client refuses. OSError: Xet, too."""

QUOTA_WAIT = 120.0
"""Seconds to wait after a 429 that names no time. The Hub does not say when its hour of commits begins anew."""

_ROOM = "Delete old files there, or get more room at https://huggingface.co/settings/billing. Then push again."
_WAYS_OUT = {  # by status
    None: "Check the network and HF_ENDPOINT.",
    400: "Change the files that the Hub names, and push again.",
    401: "Set HF_TOKEN to a valid token, or run `hf auth login`.",
    402: _ROOM,
    403: f"Use a token with write access to a repository of yours. If its storage is full: {_ROOM}",
    404: "It is created if this login may.",
    409: "If this stays, end the other push, and push again.",
    412: "If this stays, give each run a repository of its own.",
    413: "Delete or shrink files that are no weights.",
    422: "Change what the Hub names, or `pip install -U huggingface_hub`.",
    429: "A repository takes 128 commits an hour: a larger save_steps makes fewer.",
    507: _ROOM,
}
_MAY_PASS = (None, 404, 408, 409, 412, 429)  # and the Hub's own failures, from 500 on, unless it has no room


def as_hub_error(error: Exception, target: object) -> HubError:
    """Return an error of the client as a `HubError` about `target`, with the way out."""
    if isinstance(error, HubError):
        return error
    if isinstance(error, RuntimeError) and isinstance(error.__cause__, FAILURES):
        error = error.__cause__
    if isinstance(error, OfflineModeIsEnabled):
        return HubOfflineError(f"HF_HUB_OFFLINE is set, so nothing is sent to {target}. Unset it to push.")
    what = f"{target}: {in_one_line(error)}."
    if isinstance(error, HTTP_ERROR):
        response = getattr(error, "response", None)
        status, headers = getattr(response, "status_code", None), getattr(response, "headers", {})
        # 400 also if the Hub does not see yet what was just sent.
        may_pass = status in _MAY_PASS or (status >= 500 and status != 507) or "LFS pointer" in what
        limit, after = parse_ratelimit_headers(headers), headers.get("Retry-After", "")
        wait = float(after) if after.isdigit() else QUOTA_WAIT if status == 429 else 0.0
        if limit is not None and limit.remaining == 0:  # the Hub sends this header with every answer
            wait = limit.reset_in_seconds + 1.0  # it rounds
        advice = _WAYS_OUT.get(status, "See https://status.huggingface.co.")
        return HubError(f"{what} {advice}", status=status, may_pass=may_pass, retry_after=wait)
    if isinstance(error, ValueError) and not isinstance(error, JSONDecodeError):
        return HubError(f"{what} Nothing was sent. Fix this first.")
    advice = "If large files fail, HF_HUB_DISABLE_XET=1 sends them by LFS." if type(error) is ConnectionError else ""
    return HubError(f"{what} {advice}".rstrip(), may_pass=True)


def in_one_line(error: BaseException) -> str:
    """Return the name and the message of an error as one line of up to 1,000 characters.

    The client writes the reason below its first line. Signatures in addresses are left out.
    """
    text = re.sub(r"For more information check: \S+", "", str(error))  # httpx explains the status by a link
    text = re.sub(r"(https?://[^\s?]+)\?\S+", r"\1", " ".join(text.split())).rstrip(".")
    return f"{type(error).__name__}: {text[:1000]}" if text else type(error).__name__
