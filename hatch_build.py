"""What the package's metadata take from the clone: the addresses of the project, and a README with whole links.

The address is that of the remote `origin`, or VADE_REPOSITORY_URL. Without one there are no such addresses, and the
README stays as it is. A wheel that is built from an sdist takes the sdist's.
"""

import os
import re
import subprocess
from email.parser import HeaderParser
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

HOST = r"(?:[\w-]+\.)+[a-zA-Z]{2,}"  # no alias of somebody's ssh configuration, and no address of a local network
PATH = r"[\w.~-]+(?:/[\w.~-]+)+"
REMOTES = (
    rf"https://(?:[^@/]*@)?(?P<host>{HOST}(?::\d+)?)/(?P<path>{PATH})",
    rf"git@(?P<host>{HOST}):(?P<path>{PATH})",
)


def public_address(remote: str) -> str | None:
    """Return the https address of a remote, without user or token; None for a local path and any other kind."""
    for pattern in REMOTES:
        if match := re.fullmatch(pattern, remote.strip().removesuffix("/").removesuffix(".git")):
            return f"https://{match['host']}/{match['path']}"
    return None


def repository(root: Path) -> str | None:
    """Return the public address of the project in `root`, if there is one.

    Raises:
        ValueError: VADE_REPOSITORY_URL is set, and is no such address. Empty it stands for none.
    """
    asked = os.environ.get("VADE_REPOSITORY_URL")
    if asked is not None:
        if asked and not public_address(asked):
            raise ValueError("VADE_REPOSITORY_URL is not of the form https://host/owner/repository.")
        return public_address(asked)
    if (root / "PKG-INFO").is_file():
        urls = HeaderParser().parsestr((root / "PKG-INFO").read_text(encoding="utf-8")).get_all("Project-URL", [])
        return next((url.removeprefix("Repository, ") for url in urls if url.startswith("Repository, ")), None)
    if not (root / ".git").exists():  # git would answer with the address of a repository around this folder
        return None
    try:
        command = ["git", "-C", str(root), "remote", "get-url", "origin"]
        return public_address(subprocess.run(command, capture_output=True, text=True).stdout)
    except OSError:  # there is no git
        return None


def with_whole_links(readme: str, address: str) -> str:
    """Return the Markdown with relative links and images made absolute; blocks of code stay as they are."""

    def whole(match: re.Match[str]) -> str:
        kind = "raw" if match["image"] else "blob"
        return f"{match['image']}{match['text']}({address}/{kind}/HEAD/{match['target']})"

    link = r"(?P<image>!?)(?P<text>\[[^\[\]]*\])\((?P<target>(?![a-z]+:|[#/])[^()\s]+)\)"
    parts = re.split(r"(^```.*?^```)", readme, flags=re.DOTALL | re.MULTILINE)
    return "".join(part if part.startswith("```") else re.sub(link, whole, part) for part in parts)


class ProjectAddresses(MetadataHookInterface):
    """Sets `urls` and `readme`, which pyproject.toml declares as dynamic."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add the addresses to the `urls` of the hook's configuration, and the README."""
        root = Path(self.root)
        address, text = repository(root), (root / "README.md").read_text(encoding="utf-8")
        urls = dict(self.config["urls"])
        if address:
            places = {"Documentation": "blob/HEAD/docs/index.md", "Changelog": "blob/HEAD/CHANGELOG.md"}
            urls["Repository"] = address
            urls |= {name: f"{address}/{place}" for name, place in (places | {"Issues": "issues"}).items()}
            text = with_whole_links(text, address)
        metadata["urls"] = urls
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
