"""One commit of a folder, and a check that the repository holds the bytes that were sent."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from huggingface_hub import CommitInfo, CommitOperationAdd, CommitOperationDelete, HfApi
from huggingface_hub.utils.sha import git_hash

from trl_vade.errors import HubError

Render = Callable[[list[str]], dict[str, bytes | None]]

MOST_PATHS = 500  # Paths in one request. The Hub refuses more than 1,000 (huggingface_hub 2.4, `_commit_api.py`).


class FolderCommit:
    """A folder to send as one commit. It can be sent again; hashes of large files are kept.

    The arguments are those of `uploading.commit_folder`.
    """

    def __init__(self, folder: Path, render: Render | None, mirror: list[str]):
        self._folder, self._render, self._mirror = folder, render, mirror
        self._uploads: dict[tuple[int, ...], Any] = {}  # by file: its size and hash, as the client computes them

    def send(self, api: HfApi, where: dict[str, Any], message: str) -> CommitInfo:
        """Make the commit, and compare the files in the repository with those that were sent.

        `where` is `repo_id`, `repo_type` and `revision`.

        Raises:
            HubError: the folder is empty, or the repository holds other bytes.
            Exception: the client's errors.
        """
        contents: dict[str, Path | bytes | None] = dict(files_in(self._folder))
        if not contents:
            raise HubError(f"{self._folder} has no files, so there is nothing to send.")
        deletions, head = [], None
        if self._render is not None or self._mirror:
            head = api.repo_info(**where).sha  # the new commit is refused if another one comes in between
            there = api.list_repo_files(where["repo_id"], repo_type=where["repo_type"], revision=head)
            contents |= self._render(there) if self._render else {}
            prefixes = tuple(f"{name}/" for name in self._mirror)
            deletions = [path for path in there if path.startswith(prefixes) and path not in contents]
        additions = [self._addition(path, content) for path, content in contents.items() if content is not None]
        self._upload_each_once(api, where, additions)
        operations = [*additions, *map(CommitOperationDelete, deletions)]
        info = api.create_commit(**where, operations=operations, commit_message=message, parent_commit=head)
        self._compare(api, where, additions, info.oid)
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

    @staticmethod
    def _compare(api: HfApi, where: dict[str, Any], additions: list[CommitOperationAdd], commit: str) -> None:
        paths, found = [operation.path_in_repo for operation in additions], {}
        for start in range(0, len(paths), MOST_PATHS):
            part = paths[start : start + MOST_PATHS]
            entries = api.get_paths_info(where["repo_id"], part, repo_type=where["repo_type"], revision=commit)
            found |= {entry.path: entry for entry in entries}
        missing = [path for path in paths if path not in found]
        if missing:
            raise HubError(
                f"{where['repo_id']} lacks {len(missing)} of {len(paths)} files that were sent, such as {missing[0]} "
                f"(commit {commit[:8]}): its .gitignore excludes them. Delete the .gitignore, or rename the files."
            )
        wrong = [operation.path_in_repo for operation in additions if not _same(operation, found)]
        if wrong:
            raise HubError(
                f"{where['repo_id']} holds other bytes than were sent for {len(wrong)} of {len(paths)} files, such as "
                f"{wrong[0]} (commit {commit[:8]}): they were damaged on the way, or a file changed during the push.",
                may_pass=True,
            )


def files_in(folder: Path) -> dict[str, Path]:
    """Return the files of `folder` by their relative path, with slashes."""
    return {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}


def _same(operation: CommitOperationAdd, found: dict[str, Any]) -> bool:
    entry = found[operation.path_in_repo]
    if entry.lfs is not None:
        return bool(entry.lfs.sha256 == operation.upload_info.sha256.hex())
    with operation.as_file() as file:
        content = file.read()
    return bool(entry.blob_id == git_hash(content))
