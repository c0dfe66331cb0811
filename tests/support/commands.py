"""The command `trl-vade`, run in this process."""

from typer.testing import CliRunner

from tests.support.refusals import says
from trl_vade.cli.main import app


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], prog_name="trl-vade")


def said(result, exit_code, *words):
    """What went to stderr: one message, on however many lines, that names the `words`, and no traceback."""
    assert result.exit_code == exit_code, result.output
    assert isinstance(result.exception, SystemExit), result.exception
    assert "Traceback" not in result.output
    message = " ".join(result.stderr.replace("│", " ").split())
    missing = [str(word) for word in words if not says(message, str(word))]
    assert not missing, f"{missing} not in: {message}"
    return result.stderr
