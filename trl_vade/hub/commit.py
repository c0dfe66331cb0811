"""One commit of a folder, and a check that the repository holds the bytes that were sent."""

import logging
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from huggingface_hub import CommitInfo, CommitOperationAdd, CommitOperationDelete, HfApi
from huggingface_hub.constants import REPOCARD_NAME
from huggingface_hub.utils.sha import git_hash

from trl_vade.errors import HubError

from .failures import in_one_line

logger = logging.getLogger(__name__)  # accelerate's logger does not work in a command without a trainer

Render = Callable[[list[str]], dict[str, bytes | None]]
"""Returns further files for the list of paths in the repository, by path. They replace files of the folder; None
leaves the folder's file out, and that of the repository as it is."""

MOST_PATHS = 500  # Paths in one request. The Hub refuses more than 1,000 (huggingface_hub 2.4, `_commit_api.py`).


class FolderCommit:
    """Commits of folders to one branch, as `uploading.commit_folder` makes them. Large files are hashed only once."""

    def __init__(self) -> None:
        self.card_refusal = ""  # why the last commit went without its card
        self._uploads: dict[tuple[int, ...], Any] = {}  # by file: its size and hash, as the client computes them

    def send(
        self,
        api: HfApi,
        where: dict[str, Any],
        folder: Path,
        *,
        render: Render | None = None,
        mirror: Iterable[str] = (),
        tags: Iterable[str] = (),
        **about: str,
    ) -> CommitInfo:
        """Make the commit, compare the files in the repository with those that were sent, and set or move the tags.

        `where` is `repo_id`, `repo_type` and `revision`; `about` are other arguments of the client. In the folders
        `mirror` of the repository, files that `folder` lacks are deleted.

        Raises:
            HubError: the folder is empty, or the repository holds other bytes.
            Exception: the client's errors.
        """
        contents: dict[str, Path | bytes | None] = dict(files_in(folder))
        if not contents:
            raise HubError(f"{folder} has no files, so there is nothing to send.")
        deletions: list[str] = []
        if (prefixes := tuple(f"{name}/" for name in mirror)) or render is not None:
            about["parent_commit"] = api.repo_info(**where).sha  # refused if another commit comes in between
            at = where | {"revision": about["parent_commit"]}
            there = api.list_repo_files(**at)
            contents |= render(there) if render else {}
            deletions = [path for path in there if path.startswith(prefixes) and path not in contents]
        info = self._send(api, where, contents, deletions, about)
        for tag in tags:
            _set_tag(api, {name: where[name] for name in ("repo_id", "repo_type")}, tag, info.oid)
        return info

    def _send(
        self, api: HfApi, where: dict[str, Any], contents: dict[str, Any], deletions: list[str], about: dict[str, str]
    ) -> CommitInfo:
        """Make the commit. A refused card does not hold back the other files, which then go without it."""
        additions = [self._addition(path, content) for path, content in contents.items() if content is not None]
        try:
            self._upload_each_once(api, where, additions)
            operations = [*additions, *map(CommitOperationDelete, deletions)]
            info = api.create_commit(**where, operations=operations, **about)
        except ValueError as error:
            others = {path: content for path, content in contents.items() if path != REPOCARD_NAME}
            if len(others) in (0, len(contents)) or not re.search("metadata|yaml", str(error), re.IGNORECASE):
                raise
            self.card_refusal = f"The Hub refuses the card of {where['repo_id']}: {in_one_line(error)}"
            logger.warning(f"{self.card_refusal}. The other files go without it. Correct the keys, and push again.")
            return self._send(api, where, others, deletions, about)
        if REPOCARD_NAME in contents:
            self.card_refusal = ""
        _compare(api, where | {"revision": info.oid}, additions)
        return info

    def _addition(self, path: str, content: Path | bytes) -> CommitOperationAdd:
        """Return the addition of a file. A file in two places, or sent before, is hashed only once."""
        if isinstance(content, bytes):
            return CommitOperationAdd(path, content)
        state = content.stat()
        key = (state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns)
        operation = CommitOperationAdd(path, str(content))
        operation.upload_info = self._uploads.setdefault(key, operation.upload_info)
        return operation

    @staticmethod
    def _upload_each_once(api: HfApi, where: dict[str, Any], additions: list[CommitOperationAdd]) -> None:
        """Upload large files that are in two places. The commit alone would send them twice."""
        first: dict[int, CommitOperationAdd] = {}
        twice = {id(o.upload_info) for o in additions if first.setdefault(id(o.upload_info), o) is not o}
        if twice:
            api.preupload_lfs_files(**where, additions=[first[one] for one in twice], free_memory=False)


def files_in(folder: Path) -> dict[str, Path]:
    """Return the files of `folder` by their relative path, with slashes."""
    return {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}


def _compare(api: HfApi, at: dict[str, Any], additions: list[CommitOperationAdd]) -> None:
    sent, found = {operation.path_in_repo: operation for operation in additions}, {}
    for start in range(0, len(sent), MOST_PATHS):
        found |= {entry.path: entry for entry in api.get_paths_info(paths=[*sent][start : start + MOST_PATHS], **at)}
    of_all, commit = f"of {len(sent)} files", at["revision"][:8]
    if missing := [path for path in sent if path not in found]:
        raise HubError(
            f"{at['repo_id']} lacks {len(missing)} {of_all} that were sent, such as {missing[0]} (commit {commit}): "
            "its .gitignore excludes them. Delete the .gitignore, or rename the files."
        )
    if wrong := [path for path, operation in sent.items() if not _same(operation, found[path])]:
        raise HubError(
            f"{at['repo_id']} holds other bytes than were sent for {len(wrong)} {of_all}, such as {wrong[0]} (commit "
            f"{commit}): they were damaged on the way, or a file changed during the push.",
            may_pass=True,
        )


def _same(operation: CommitOperationAdd, entry: Any) -> bool:
    if entry.lfs is not None:
        return bool(entry.lfs.sha256 == operation.upload_info.sha256.hex())
    with operation.as_file() as file:
        return bool(entry.blob_id == git_hash(file.read()))


def _set_tag(api: HfApi, repo: dict[str, Any], tag: str, commit: str) -> None:
    """Set `tag` to `commit`. The tag of an earlier run, or of an attempt that was cut, is moved."""
    there = {ref.name: ref.target_commit for ref in api.list_repo_refs(**repo).tags}
    if tag in there and there[tag] != commit:
        api.delete_tag(tag=tag, **repo)
    if there.get(tag) != commit:
        api.create_tag(tag=tag, revision=commit, **repo)
