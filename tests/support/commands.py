"""The command `trl-vade`, run in this process."""

from typer.testing import CliRunner

from trl_vade.cli.main import app


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], prog_name="trl-vade")


def said(result, exit_code):
    """What went to stderr: one message and no traceback."""
    assert result.exit_code == exit_code, result.output
    assert isinstance(result.exception, SystemExit), result.exception
    assert "Traceback" not in result.output
    return result.stderr
