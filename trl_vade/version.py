"""The version of the installed package, and the releases of TRL that it was tested with."""

from importlib import metadata

try:
    __version__ = metadata.version("trl-vade")
except metadata.PackageNotFoundError:  # run from a checkout that was never installed
    __version__ = "unknown"

TESTED_TRL = ">=1.15,<1.17"
