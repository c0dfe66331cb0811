"""The version of the installed package."""

from importlib import metadata

try:
    __version__ = metadata.version("trl-vade")
except metadata.PackageNotFoundError:  # run from a checkout that was never installed
    __version__ = "unknown"
