"""A stand-in for huggingface.co on the loopback interface; the real `huggingface_hub` client talks to it.

    with LoopbackHub() as hub:
        create_repo("you/notes")  # with the `client_environment`, as by the fixture `hub` of conftest.py
        hub.repos["you/notes"].files()  # {path: bytes}; a dataset repo is hub.repos["datasets/you/notes"]

It proves the client's side only: which requests our calls make the client send, and what becomes of them when an
answer is an error or never comes. That huggingface.co answers in the same way is not proven by a test that passes
here. It has the routes that huggingface_hub 2.4 uses, and of Xet those of an upload by hf_xet 1.8. Not there:
downloads by Xet, pull requests, paging, multi-part uploads, the data set viewer, .gitignore, tags by request. Of a
card's metadata the YAML syntax and the types in `CARD_KEYS` are checked.
"""

import asyncio
import base64
import fnmatch
import hashlib
import json
import os
import re
import struct
import subprocess
import sys
import textwrap
import time
from collections import namedtuple
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import SimpleNamespace
from urllib.parse import parse_qs, unquote

import yaml
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from tests.support.loopback import Loopback

# What goes to LFS whatever its size. The Hub decides by the repo's .gitattributes, of which it writes a longer one.
LFS_PATTERNS = ("*.arrow", "*.bin", "*.npz", "*.parquet", "*.pt", "*.safetensors", "*.zip", "*tfevents*")
GITATTRIBUTES = "".join(f"{pattern} filter=lfs diff=lfs merge=lfs -text\n" for pattern in LFS_PATTERNS)
CARD_KEYS = {  # of modelcard.md in https://github.com/huggingface/hub-docs; `language: no` is a text in its YAML 1.2
    **dict.fromkeys(("license", "library_name", "pipeline_tag", "pretty_name"), (str, "a string")),
    **dict.fromkeys(("tags", "configs", "model-index", "widget"), (list, "an array")),
    **dict.fromkeys(("base_model", "datasets"), ((str, list), "a string or an array")),
}


def card_errors(data):
    """What the Hub says of a card's metadata."""
    if not isinstance(data, dict | None):
        return ["the metadata must be a mapping"]
    lists = {key: value for key, value in (data or {}).items() if isinstance(value, list)}
    checked = [(key, data[key], *CARD_KEYS[key]) for key in CARD_KEYS.keys() & (data or {}).keys()]
    for key in ("base_model", "datasets", "tags"):
        checked += [(f"{key}[{n}]", value, str, "a string") for n, value in enumerate(lists.get(key, ()))]
    for number, model in enumerate(lists.get("model-index", ())):
        checked.append((f"model-index[{number}].name", model.get("name"), str, "a string"))
        for place, result in enumerate(model.get("results", ())):
            for part, key in (("task", "type"), ("dataset", "type"), ("dataset", "name")):
                name = f"model-index[{number}].results[{place}].{part}.{key}"
                checked.append((name, result.get(part, {}).get(key), str, "a string"))
    return [f'"{name}" must be {words}' for name, value, kind, words in checked if not isinstance(value, kind)]


class Refused(Exception):
    """An answer that is an error; the client makes its exception of the status and `X-Error-Code`."""

    def __init__(self, status, message, code=None, body=None, **headers):
        super().__init__(message)
        named = {"X-Error-Message": message, "X-Error-Code": code}
        headers = {name: value for name, value in named.items() if value} | headers
        self.response = JSONResponse(({"error": message} if message else {}) | (body or {}), status, headers)


def git_oid(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def xet_hash(data):
    """The 32 bytes of a hash as hf_xet writes them: four little-endian numbers."""
    return "".join(f"{number:016x}" for number in struct.unpack("<4Q", data))


def xet_chunks(xorb):
    """The chunks of a xorb, which are not compressed. Before each are its version, size, compression and size."""
    chunks, at = [], 0
    while at < len(xorb):
        size = int.from_bytes(xorb[at + 1 : at + 4], "little")
        assert xorb[at] == xorb[at + 4] == 0, "a chunk is compressed, or its format is new"
        chunks.append(xorb[at + 8 : at + 8 + size])
        at += 8 + size
    return chunks


def xet_files(shard, xorbs):
    """The bytes of each file of a shard, which lists their chunks in xorbs. All its entries have 48 bytes."""
    entries = [shard[at : at + 48] for at in range(48, len(shard), 48)]
    while not entries[0].startswith(b"\xff" * 32):
        flags, count = struct.unpack("<2I", entries.pop(0)[32:40])
        parts, entries = entries[:count], entries[count:]
        ranges = ((xorbs[xet_hash(part[:32])], *struct.unpack("<2I", part[40:])) for part in parts)
        yield b"".join(chunk for chunks, start, stop in ranges for chunk in chunks[start:stop])
        entries = entries[count * (flags >> 31) + (flags >> 30 & 1) :]  # their checksums, and the file's SHA-256


class Commit(namedtuple("Commit", "oid parent date title message files lfs")):
    """A snapshot of a repo: `files` holds all contents by path, `lfs` the paths that are stored with LFS."""

    def describe(self, path):
        """A file's entry in a tree listing."""
        data = self.files[path]
        entry = {"type": "file", "path": path, "size": len(data), "oid": git_oid(data)}
        if path in self.lfs:
            pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{sha256(data)}\nsize {len(data)}\n"
            entry["lfs"] = {"oid": sha256(data), "size": len(data), "pointerSize": len(pointer)}
            entry["oid"] = git_oid(pointer.encode())
        return entry

    def tree(self):
        """All entries of the listing by path, folders first."""
        parts = [path.split("/") for path in self.files]
        folders = {"/".join(names[:depth]) for names in parts for depth in range(1, len(names))}
        entries = [{"type": "directory", "path": path, "oid": git_oid(path.encode())} for path in sorted(folders)]
        return {entry["path"]: entry for entry in [*entries, *map(self.describe, sorted(self.files))]}


@dataclass
class Repo:
    """A repo as the Hub holds it: `branches` and `tags` map names to ids of commits, `objects` is its LFS storage."""

    key: str  # as in the address of its page: "you/name", "datasets/you/name"
    private: bool = False
    commits: dict[str, Commit] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    objects: dict[str, bytes] = field(default_factory=dict)

    def commit(self, revision="main"):
        """The commit that a branch, a tag or a whole id names."""
        oid = self.branches.get(revision) or self.tags.get(revision) or revision
        if oid not in self.commits:
            raise Refused(404, f"Invalid rev id: {revision}", "RevisionNotFound")
        return self.commits[oid]

    def files(self, revision="main"):
        """The contents by path, `.gitattributes` included: the Hub puts one into every new repo."""
        return dict(self.commit(revision).files)

    def history(self, revision="main"):
        """The commits from the newest to the first, which the Hub made itself."""
        found = [self.commit(revision)]
        while found[-1].parent:
            found.append(self.commits[found[-1].parent])
        return found

    def add(self, branch, title, message, files, lfs=(), at=None):
        """Commit now, or at that time: `files` are all that the branch has from then on. Returns the commit's id."""
        parent, number = self.branches.get(branch), len(self.commits)
        oid = hashlib.sha1(f"{self.key} {number} {parent} {title}".encode()).hexdigest()
        date = datetime.fromtimestamp(time.time() if at is None else at, UTC)
        date = f"{date:%Y-%m-%dT%H:%M:%S}.{date.microsecond // 1000:03}Z"
        self.commits[oid] = Commit(oid, parent, date, title, message, files, frozenset(lfs) & files.keys())
        self.branches[branch] = oid
        return oid


API, PAGE = "/api/(?P<kind>models|datasets)/(?P<id>[^/]+/[^/]+)", "/(?P<kind>datasets/|)(?P<id>[^/]+/[^/]+)"
XET = "/xet/(?P<key>.+)/v1"
LFS, REV, PATH = r"\.git/info/lfs/objects", "(?P<rev>[^/]+)", "(?P<path>.+)"
ROUTES = []


def route(pattern, writes=False):
    """Register a handler for "METHOD /path"; a repo's handler finds it in `call.repo`, and a write needs a token."""
    return lambda handler: ROUTES.append((re.compile(pattern), writes, handler)) or handler


class Handlers:
    """What the Hub answers: a response, or what is one in JSON. `call` has the parts of the path by name."""

    @route("GET /api/whoami-v2")
    def whoami(self, call):
        if call.role is None:
            raise Refused(401, "Invalid username or password.")
        orgs = [{"type": "org", "name": name, "roleInOrg": "write"} for name in self.orgs]
        return {"type": "user", "name": self.user, "orgs": orgs, "auth": {"accessToken": {"role": call.role}}}

    @route("POST /api/validate-yaml")
    def validate_yaml(self, call):
        block = re.match(r"---\r?\n(.*?)^---\s*$", json.loads(call.body)["content"], re.DOTALL | re.MULTILINE)
        try:
            errors = card_errors(yaml.safe_load(block[1])) if block else []
        except yaml.YAMLError as error:
            errors = [str(error)]
        if errors:
            raise Refused(400, None, body={"errors": [{"message": message} for message in errors]})
        return {"errors": [], "warnings": [] if block else [{"message": "empty or missing yaml metadata"}]}

    @route("POST /api/repos/create", writes=True)
    def create(self, call):
        asked = json.loads(call.body)
        owner = asked.get("organization") or self.user
        repo_id = f"{owner}/{asked['name']}"
        if owner not in (self.user, *self.orgs):
            raise Refused(403, f"You don't have the rights to create a repo under the namespace {owner!r}")
        key = ("" if asked.get("type", "model") == "model" else f"{asked['type']}s/") + repo_id
        answer = {"url": f"{self.url}/{key}", "name": repo_id, "id": repo_id}
        if key in self.repos:
            raise Refused(409, "You already created this repo", body=answer)
        self.add_repo(key, private=asked.get("visibility") == "private" or bool(asked.get("private")))
        return answer

    @route(f"GET {API}(?:/revision/{REV})?")
    def info(self, call):
        head, siblings = call.repo.commit(call.rev or "main"), []
        for entry in map(head.describe, sorted(head.files)):
            siblings.append({"rfilename": entry["path"]})
            if call.asks("blobs"):
                lfs = {"lfs": entry["lfs"] | {"sha256": entry["lfs"]["oid"]}} if "lfs" in entry else {}
                siblings[-1] |= {"size": entry["size"], "blobId": entry["oid"]} | lfs
        about = {"id": call.id, "author": call.id.split("/")[0], "sha": head.oid, "lastModified": head.date}
        about |= {"siblings": siblings, "tags": [], "private": call.repo.private}
        return about | {"gated": False, "disabled": False}

    @route(f"GET {API}/tree/{REV}(?:/{PATH})?")
    def tree(self, call):
        tree, prefix = call.repo.commit(call.rev).tree(), f"{call.path}/" if call.path else ""
        if prefix and tree.get(call.path, {}).get("type") != "directory":
            raise Refused(404, f"{call.path} does not exist on {call.rev}", "EntryNotFound")
        inside = [path for path in tree if path.startswith(prefix)]
        return [tree[path] for path in inside if call.asks("recursive") or "/" not in path[len(prefix) :]]

    @route(f"POST {API}/paths-info/{REV}")
    def paths_info(self, call):
        tree = call.repo.commit(call.rev).tree()
        return [tree[path] for path in parse_qs(call.body.decode()).get("paths", []) if path in tree]

    @route(f"GET {API}/auth-check/write", writes=True)
    def auth_check(self, call):
        return {}

    @route(f"GET {API}/commits/{REV}")
    def commits(self, call):
        about = {"authors": [{"user": self.user}]}
        history = (commit._asdict() for commit in call.repo.history(call.rev))
        return [about | {"id": c["oid"]} | {n: c[n] for n in ("title", "message", "date")} for c in history]

    @route(f"POST {API}/branch/{REV}", writes=True)
    def create_branch(self, call):
        target = call.repo.commit(json.loads(call.body).get("startingPoint") or "main").oid
        if call.rev in call.repo.branches:
            raise Refused(409, f"Reference already exists: {call.rev}")
        call.repo.branches[call.rev] = target
        return {}

    @route(f"POST {API}/preupload/{REV}", writes=True)
    def preupload(self, call):
        head = call.repo.commit(call.rev)

        def told(path, size):
            lfs = size > 10 * 2**20 or any(fnmatch.fnmatch(path, pattern) for pattern in LFS_PATTERNS)
            entry = head.describe(path) if path in head.files else {}
            oid = entry.get("lfs", entry).get("oid")  # by which the client leaves out what has not changed
            return {"path": path, "uploadMode": "lfs" if lfs else "regular", "shouldIgnore": False, "oid": oid}

        return {"files": [told(file["path"], file["size"]) for file in json.loads(call.body)["files"]]}

    @route(f"POST {PAGE}{LFS}/batch", writes=True)
    def lfs_batch(self, call):
        asked = json.loads(call.body)
        objects = asked["objects"]
        if "xet" in asked.get("transfers", ()):  # as huggingface_hub 1 asks; 2 does not ask
            return {"transfer": "xet", "objects": objects}
        for item in objects:
            if item["oid"] not in call.repo.objects:  # what is there gets no actions, and is not uploaded again
                upload, key = f"{self.url}/lfs-storage/{item['oid']}", call.repo.key
                verify = {"href": f"{self.url}/{key}.git/info/lfs/objects/verify"}
                item["actions"] = {"upload": {"href": f"{upload}/{key}"}, "verify": verify}
        return {"transfer": "basic", "objects": objects}

    @route("PUT /lfs-storage/(?P<oid>[0-9a-f]{64})/(?P<key>.+)")
    def lfs_put(self, call):
        # The storage is not the Hub: its address is signed, and the client sends it no token.
        if sha256(call.body) != call.oid:
            raise Refused(400, "The body does not have the sha256 of the address")
        self.repos[call.key].objects[call.oid] = call.body
        return Response()

    @route(f"POST {PAGE}{LFS}/verify", writes=True)
    def lfs_verify(self, call):
        asked = json.loads(call.body)
        if len(call.repo.objects.get(asked["oid"], b"")) != asked["size"]:
            raise Refused(404, f"Object {asked['oid']} was not uploaded")
        return {}

    @route(f"GET {API}/xet-write-token/{REV}", writes=True)
    def xet_token(self, call):
        url, end = f"{self.url}/xet/{call.repo.key}", int(time.time()) + 3600
        about = {"casUrl": url, "accessToken": self.token, "exp": end}
        names = {"casUrl": "X-Xet-Cas-Url", "accessToken": "X-Xet-Access-Token", "exp": "X-Xet-Token-Expiration"}
        return JSONResponse(about, headers={names[name]: str(value) for name, value in about.items()})

    @route(f"POST {XET}/xorbs/default/(?P<hash>[0-9a-f]{{64}})")
    def xet_xorb(self, call):
        self.xorbs[call.hash] = xet_chunks(call.body)
        return {"was_inserted": True}

    @route(f"POST {XET}/shards")
    def xet_shard(self, call):
        self.repos[call.key].objects |= {sha256(data): data for data in xet_files(call.body, self.xorbs)}
        return {"result": 1}

    @route(f"POST {API}/commit/{REV}", writes=True)
    def make_commit(self, call):
        if call.rev not in call.repo.branches or call.asks("create_pr"):
            raise Refused(404, f"{call.rev} is not a branch, or a pull request was asked for", "RevisionNotFound")
        head = call.repo.commit(call.rev)
        header, *changes = (json.loads(line) for line in call.body.split(b"\n") if line)
        if not head.oid.startswith(header["value"].get("parentCommit", "")):
            raise Refused(412, "A commit has happened since. Please refresh and try again.")
        files, lfs = dict(head.files), set(head.lfs)
        for change in changes:
            self._apply(change["key"], change["value"], call, files, lfs)
        oid = call.repo.add(call.rev, header["value"]["summary"], header["value"]["description"], files, lfs)
        return {"success": True, "commitOid": oid, "commitUrl": f"{self.url}/{call.repo.key}/commit/{oid}"}

    @staticmethod
    def _apply(key, value, call, files, lfs):
        """One line of a commit, applied to `files` and `lfs` in place."""
        path = value["path"]
        if key == "file":
            files[path] = base64.b64decode(value["content"])
            lfs.discard(path)
        elif key == "lfsFile":
            if value["oid"] not in call.repo.objects:
                raise Refused(400, "The LFS pointer pointed to a file that does not exist")
            files[path] = call.repo.objects[value["oid"]]
            lfs.add(path)
        else:
            gone = [p for p in files if (p == path if key == "deletedFile" else p.startswith(path.rstrip("/") + "/"))]
            if not gone:
                raise Refused(404, "A file with this name doesn't exist", "EntryNotFound")
            for name in gone:
                del files[name]

    @route(f"(?:GET|HEAD) {PAGE}/resolve/{REV}/{PATH}")
    def resolve(self, call):
        head = call.repo.commit(call.rev)
        headers = {"X-Repo-Commit": head.oid, "Accept-Ranges": "bytes"}
        if call.path not in head.files:
            raise Refused(404, "Entry not found", "EntryNotFound", **headers)
        data, lfs = head.files[call.path], call.path in head.lfs
        headers["ETag"] = f'"{sha256(data) if lfs else git_oid(data)}"'
        if lfs:
            headers |= {"X-Linked-Etag": headers["ETag"], "X-Linked-Size": str(len(data))}
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", call.headers.get("range", ""))
        if not asked:
            return Response(data, headers=headers)
        start, stop = int(asked[1]), min(int(asked[2] or len(data)) + 1, len(data))
        if start >= stop:
            raise Refused(416, "Range not satisfiable", **{"Content-Range": f"bytes */{len(data)}"})
        headers["Content-Range"] = f"bytes {start}-{stop - 1}/{len(data)}"
        return Response(data[start:stop], 206, headers)


class LoopbackHub(Handlers, Loopback):
    """The stand-in, as a context manager that listens at `url`; its state stays readable after the exit.

    `token` may write to the repos of `user` and of `orgs`, `read_token` may only read. `requests` holds "METHOD /path"
    of every request as it was sent (percent-encoded, without the query), those that met a fault too; `tokens` all
    tokens seen; `repos` each `Repo` by its key.
    """

    def __init__(self, user="you", token="hf_loopback", read_token="hf_read_only", orgs=("acme",)):
        self.user, self.orgs, self.token = user, orgs, token
        self.roles = {"": None, token: "write", read_token: "read"}
        self.repos, self.requests, self.tokens, self.faults, self.bugs = {}, [], set(), [], []
        self.xorbs = {}  # the chunks of each, by its hash

    def fault(
        self, pattern, status=None, times=1, applied=False, headers=None, delay=0.0, hold=None, reason="By a test"
    ):
        """The next `times` requests in whose "METHOD /path" the regular expression `pattern` is found go wrong.

        They are answered with `status`, `headers` and the `reason` (502 to 504 with a page in HTML, like one of a
        gateway before the Hub), or, without a status, the connection is cut. They have no effect, unless `applied`:
        then the request takes effect and only the client does not learn of it. With `delay`, and no status, nothing
        is cut: the answer comes that many seconds after the effect. With `hold`, a threading.Event, it comes once
        that is set, with or without a status.

        Returns the fault; its `times` counts down. `faults.clear()` ends all of them.
        """
        late = bool(status is None and (delay or hold))
        about = {"applied": applied or late, "cut": status is None and not late, "headers": headers or {}}
        about |= {"pattern": pattern, "status": status, "times": times, "delay": delay, "hold": hold, "reason": reason}
        self.faults.append(SimpleNamespace(**about))
        return self.faults[-1]

    def add_repo(self, key, private=False):
        """A new repo as the Hub makes it, without a request of the client; returns the `Repo`."""
        self.repos[key] = Repo(key, private)
        self.repos[key].add("main", "initial commit", "", {".gitattributes": GITATTRIBUTES.encode()})
        return self.repos[key]

    def _admit(self, call, writes):
        """Find the call's role and repo, and refuse what the token does not allow."""
        token = call.headers.get("authorization", "").removeprefix("Bearer ")
        self.tokens |= {token} - {""}
        if token not in self.roles:
            raise Refused(401, "Invalid credentials in Authorization header")
        call.role, call.repo = self.roles[token], None
        if writes and not call.role:
            # The code stands for https: there the client takes a 401 on a repo's route for a repo that is missing.
            code = "RepoNotFound" if hasattr(call, "id") else None
            raise Refused(401, "Invalid username or password.", code)
        if hasattr(call, "id"):
            call.repo = self.repos.get(("datasets/" if call.kind.startswith("datasets") else "") + call.id)
            member = call.role and call.id.split("/")[0] in (self.user, *self.orgs)
            if call.repo is None or (call.repo.private and not member):
                raise Refused(404 if call.role else 401, "Repository not found", "RepoNotFound")
            if writes and not member:
                raise Refused(403, f"You don't have the rights to write to {call.id}")
        if writes and call.role != "write":
            raise Refused(403, "You must use a token with write access")

    def _answer(self, line, request, body):
        matches = ((pattern.fullmatch(line), writes, handler) for pattern, writes, handler in ROUTES)
        found, writes, handler = next((match for match in matches if match[0]), (None, False, None))
        if not found:
            return Refused(404, f"The loopback stand-in has no route for {line}").response
        call = SimpleNamespace(**{name: part and unquote(part) for name, part in found.groupdict().items()})
        call.headers, call.body = request.headers, body
        call.asks = lambda name: request.query_params.get(name, "").lower() in ("1", "true")
        try:
            self._admit(call, writes)
            answer = handler(self, call)
        except Refused as refused:
            return refused.response
        except Exception as error:
            self.bugs.append(error)
            return Refused(500, f"The loopback stand-in failed: {error!r}").response
        return answer if isinstance(answer, Response) else JSONResponse(answer)

    async def _serve(self, scope, receive, send):
        # The path as it was sent: a branch "a/b" comes as "a%2Fb", which the decoded path does not tell from folders.
        request, line = Request(scope, receive), f"{scope['method']} {scope['raw_path'].decode()}"
        body = await request.body()
        self.requests.append(line)
        fault = next((f for f in self.faults if f.times > 0 and re.search(f.pattern, line)), None)
        response = self._answer(line, request, body) if fault is None or fault.applied else None
        if fault:
            fault.times -= 1
            await asyncio.sleep(fault.delay)
            while fault.hold and not fault.hold.is_set():
                await asyncio.sleep(0.01)
            if fault.cut:
                return scope["state"]["transport"].abort()
            if fault.status in (502, 503, 504):
                response = HTMLResponse("<html><h1>Injected by a test</h1></html>", fault.status, fault.headers)
            elif fault.status:
                response = Refused(fault.status, fault.reason, **fault.headers).response
        response.headers["Access-Control-Allow-Origin"] = "*"  # to pages of other hosts, such as a Space
        await response(scope, receive, send)

    def __exit__(self, *error):
        super().__exit__(*error)
        if self.bugs:  # of the stand-in itself, which the client takes for an error of the Hub
            raise self.bugs[0]


def client_environment(hub, home, token=None):
    """The environment of this process for a client whose Hub is `hub`: without proxies and `HF_*` settings of its own.

    Its caches and its login are in the folder `home`; the token is the hub's write token, "" for none. Xet is off; by
    HF_HUB_DISABLE_XET=0 it is on, and compresses nothing.
    """
    kept = {name: value for name, value in os.environ.items() if not re.match("HF_|HUGGING|.*_PROXY$", name, re.I)}
    settings = {"HF_ENDPOINT": hub.url, "HF_TOKEN": hub.token if token is None else token, "HF_HUB_OFFLINE": "0"}
    settings |= {"HF_HOME": str(home), "HF_HUB_DISABLE_XET": "1", "HF_XET_XORB_COMPRESSION_POLICY": "none"}
    settings |= {"HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    # Both would ask another server than the hub; the second, of the `hf` command, is PyPI.
    return kept | settings | {"HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_UPDATE_CHECK": "1"}


def run_client(hub, code_or_argv, tmp_path, token=None, check=True, timeout=120, **environment):
    """Run Python code, or a command, in a process whose Hub is `hub`; returns its CompletedProcess, output as text.

    For commands, and for what a client does on import; elsewhere the fixture `hub` is faster. The process starts in
    `tmp_path`, in the `client_environment` with its caches there; `environment` adds variables.

    Raises:
        AssertionError: the process failed, unless `check=False`; the message is its output.
    """
    code = isinstance(code_or_argv, str)
    argv = [sys.executable, "-c", textwrap.dedent(code_or_argv)] if code else [str(part) for part in code_or_argv]
    env = client_environment(hub, tmp_path / "hf_home", token) | environment
    process = subprocess.run(argv, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=timeout)
    if check and process.returncode:
        raise AssertionError(f"exit status {process.returncode}\n{process.stdout}\n{process.stderr}")
    return process
