"""Errors of the Hub's client, translated to `HubError` with advice."""

from json import JSONDecodeError

from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

from trl_vade.errors import HubError, HubOfflineError

HTTP_ERROR = HfHubHTTPError.__bases__[0]
"""httpx's base error (no connection, a cut connection, a timeout), whichever version huggingface_hub uses."""

FAILURES = (HTTP_ERROR, OSError, ValueError, LookupError, RuntimeError)
"""Errors of the client. RuntimeError: a large file; its cause is the reason. LookupError and ValueError: an answer of
a proxy instead of the Hub. ValueError also: an argument that the client refuses."""


def as_hub_error(error: Exception, target: object) -> HubError:
    """Return an error of the client as a `HubError` about `target`, with advice."""
    if isinstance(error, HubError):
        return error
    if isinstance(error, RuntimeError) and isinstance(error.__cause__, FAILURES):
        error = error.__cause__
    if isinstance(error, OfflineModeIsEnabled):
        return HubOfflineError(f"HF_HUB_OFFLINE is set, so nothing is sent to {target}. Unset it to push.")
    if isinstance(error, HTTP_ERROR):
        response = getattr(error, "response", None)
        status = getattr(response, "status_code", None)
        what, advice, may_pass = _ANSWERS.get(status, _ANSWERS[None] if status is None else _other(status))
        retry_after = getattr(response, "headers", {}).get("Retry-After", "")
        return HubError(
            f"{target}: {what} ({first_line(error)}). {advice}",
            status=status,
            may_pass=may_pass,
            retry_after=float(retry_after) if retry_after.isdigit() else 0.0,
        )
    if isinstance(error, ValueError) and not isinstance(error, JSONDecodeError):
        return HubError(f"{target}: {first_line(error)}. Nothing was sent. Fix this first.")
    return HubError(
        f"{target}: a local file could not be read, or the answer does not come from the Hub ({first_line(error)}).",
        may_pass=True,
    )


def first_line(error: BaseException) -> str:
    """Return the name and the first line of an error, for a message."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0].rstrip('.')}" if lines else type(error).__name__


# status: its meaning, the advice, whether a retry may help
_ANSWERS: dict[int | None, tuple[str, str, bool]] = {
    None: ("no answer from the Hub", "Check the network and HF_ENDPOINT.", True),
    400: ("the Hub does not accept the files", "If it stays, the message above names the reason.", True),
    401: (
        "the Hub needs a login for this",
        "Set HF_TOKEN, or run `hf auth login`, with a token that may write there. Your token may have expired.",
        False,
    ),
    403: (
        "this login may not write there",
        "Use a token with write access to this repository, or name one of your own.",
        False,
    ),
    404: ("it does not exist, or this login may not see it", "It is created if this login may.", True),
    409: ("somebody else is changing it", "", True),
    412: ("another commit came in between", "", True),
    429: ("too many requests", "The Hub asks to wait.", True),
}


def _other(status: int) -> tuple[str, str, bool]:
    if status >= 500:
        return f"the Hub answers {status}", "It is down or overloaded, see https://status.huggingface.co.", True
    return f"the Hub answers {status}", "", status == 408
