"""Errors of the Hub's client, translated to `HubError` with what the Hub said, and the way out."""

import re
from json import JSONDecodeError
from typing import Any

from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled
from huggingface_hub.utils import parse_ratelimit_headers

from trl_vade.errors import HubError, HubOfflineError

HTTP_ERROR = HfHubHTTPError.__bases__[0]
"""httpx's base error (no connection, a cut connection, a timeout), whichever version huggingface_hub uses."""

FAILURES = (HTTP_ERROR, OSError, ValueError, LookupError, RuntimeError)
"""Errors of the client. RuntimeError: a large file; its cause is the reason. LookupError and ValueError: an answer of
a proxy instead of the Hub. ValueError also: an argument that the client refuses."""

XET_ERROR = ConnectionError
"""The error of hf_xet, which sends large files. httpx's errors have types of their own."""

QUOTA_WAIT = 120.0
"""Seconds to wait after a 429 that names no time. The Hub does not say when its hour of commits begins anew."""

_SPACE = "Delete old files there, or get more at https://huggingface.co/settings/billing. Then push again."
_ANSWERS: dict[Any, tuple[str, str, bool]] = {  # status: its meaning, the way out, whether a retry may help
    None: ("no answer from the Hub", "Check the network and HF_ENDPOINT.", True),
    400: ("the Hub does not accept the files", "Change the files that the brackets name, and push again.", False),
    401: ("the Hub needs a login for this", "Set HF_TOKEN to a valid token, or run `hf auth login`.", False),
    402: ("the plan of this account has no room for this", _SPACE, False),
    403: ("this login may not write there", "Use a token with write access, or name a repository of yours.", False),
    "storage": ("the storage of this account is full", _SPACE, False),
    404: ("it does not exist, or this login may not see it", "It is created if this login may.", True),
    409: ("somebody else is changing it", "If this stays, end the other push, and push again.", True),
    412: ("another commit came in between", "If this stays, give each run a repository of its own.", True),
    413: ("the files are too large for one request", "Delete or shrink files that are no weights.", False),
    422: ("the Hub cannot do this", "Change what the brackets name, or `pip install -U huggingface_hub`.", False),
    429: ("too many requests", "A repository takes 128 commits an hour: a larger save_steps makes fewer.", True),
    507: ("the storage is full", _SPACE, False),
}


def as_hub_error(error: Exception, target: object) -> HubError:
    """Return an error of the client as a `HubError` about `target`, with the way out."""
    if isinstance(error, HubError):
        return error
    if isinstance(error, RuntimeError) and isinstance(error.__cause__, FAILURES):
        error = error.__cause__
    if isinstance(error, OfflineModeIsEnabled):
        return HubOfflineError(f"HF_HUB_OFFLINE is set, so nothing is sent to {target}. Unset it to push.")
    if isinstance(error, HTTP_ERROR):
        return _of_answer(error, target)
    if isinstance(error, ValueError) and not isinstance(error, JSONDecodeError):
        return HubError(f"{target}: {in_one_line(error)}. Nothing was sent. Fix this first.")
    what = "a local file could not be read, or the answer does not come from the Hub"
    if type(error) is XET_ERROR:
        what = "its Xet storage refuses large files, which go by LFS from now on, as with HF_HUB_DISABLE_XET=1"
    return HubError(f"{target}: {what} ({in_one_line(error)}).", may_pass=True)


def _of_answer(error: Exception, target: object) -> HubError:
    response, reason = getattr(error, "response", None), in_one_line(error)
    status, headers = getattr(response, "status_code", None), getattr(response, "headers", {})
    may_pass = status == 408 or (status or 0) >= 500
    down = (f"the Hub answers {status}", "See https://status.huggingface.co.", may_pass)
    case = "storage" if status == 403 and re.search("storage (limit|quota)", reason, re.IGNORECASE) else status
    what, advice, may_pass = _ANSWERS.get(case, down)
    may_pass |= status == 400 and "LFS pointer" in reason  # the Hub does not see yet what was just sent
    limit, after = parse_ratelimit_headers(headers), headers.get("Retry-After", "")
    wait = float(after) if after.isdigit() else QUOTA_WAIT if status == 429 else 0.0
    if limit is not None and limit.remaining == 0:  # the Hub sends this header with every answer
        wait = limit.reset_in_seconds + 1.0  # it rounds
    message = f"{target}: {what} ({reason}). {f'Wait {wait:.0f} s. ' if wait else ''}{advice}"
    return HubError(message, status=status, may_pass=may_pass, retry_after=wait)


def in_one_line(error: BaseException) -> str:
    """Return the name and the message of an error as one line of up to 1,000 characters.

    The client writes the reason below its first line. Signatures in addresses are left out.
    """
    text = re.sub(r"For more information check: \S+", "", str(error))  # httpx explains the status by a link
    text = re.sub(r"(https?://[^\s?]+)\?\S+", r"\1", " ".join(text.split())).rstrip(".")
    return f"{type(error).__name__}: {text[:1000]}" if text else type(error).__name__
