"""What the Hub's client raises, as one error that says what to do."""

from json import JSONDecodeError

from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

from trl_vade.errors import HubError, HubOfflineError

HTTP_ERROR = HfHubHTTPError.__bases__[0]
"""What httpx raises, whichever of its names huggingface_hub uses: no connection, a cut one, no answer in time."""

FAILURES = (HTTP_ERROR, OSError, ValueError, LookupError, RuntimeError)
"""What the client raises: RuntimeError for a large file (its cause says why), LookupError and ValueError where the
answer is not one of the Hub, but of some proxy before it, ValueError also for what it refuses itself."""


def as_hub_error(error: Exception, target: object) -> HubError:
    """The error of the client, about `target`, as one that says what to do."""
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
            f"{target}: {what} ({_first_line(error)}). {advice}",
            status=status,
            may_pass=may_pass,
            retry_after=float(retry_after) if retry_after.isdigit() else 0.0,
        )
    if isinstance(error, ValueError) and not isinstance(error, JSONDecodeError):
        return HubError(f"{target}: {_first_line(error)}. Nothing was sent; this is to be mended first.")
    return HubError(
        f"{target}: a file could not be read here, or the answer is not one of the Hub ({_first_line(error)}).",
        may_pass=True,
    )


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0].rstrip('.')}" if lines else type(error).__name__


# status: what it means, what to do, whether it may pass by itself
_ANSWERS: dict[int | None, tuple[str, str, bool]] = {
    None: ("no answer from the Hub", "See to the network, or to HF_ENDPOINT.", True),
    400: ("the Hub does not accept what was sent", "If it stays, the message above says what is wrong.", True),
    401: (
        "the Hub knows no login for this",
        "Set HF_TOKEN, or run `hf auth login`, with a token that may write here; it may have expired.",
        False,
    ),
    403: (
        "this login may not write there",
        "Use a token with write access to this repository, or name one of your own.",
        False,
    ),
    404: ("it is not there, or hidden from this login", "It is made anew where this login may.", True),
    409: ("somebody else changes it at this moment", "", True),
    412: ("another commit came in between", "", True),
    429: ("too many requests", "The Hub asks to wait.", True),
}


def _other(status: int) -> tuple[str, str, bool]:
    if status >= 500:
        return f"the Hub answers {status}", "It is down or overloaded; see https://status.huggingface.co.", True
    return f"the Hub answers {status}", "", status == 408
