"""The file that keeps the replies of an LLM, so that none is asked for twice."""

import json
import os
from pathlib import Path


class Replies:
    """Replies by the keys of their requests: a file of JSON lines, one each, written as they come."""

    def __init__(self, path: Path):
        self._path, self._texts = path, dict[str, str]()
        self.get = self._texts.get  # a reply, or None if it never came
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        lines = path.read_bytes().split(b"\n")
        if lines[-1]:  # the process was killed while it wrote: the next line would continue this one
            os.truncate(path, path.stat().st_size - len(lines[-1]))
        for line in lines[:-1]:
            try:
                kept = json.loads(line)
                self._texts[str(kept["key"])] = str(kept["reply"])
            except (ValueError, KeyError, TypeError):  # of a full disk: it is asked again
                continue

    def keep(self, key: str, reply: str) -> None:
        """Add a reply, in memory and in the file."""
        self._texts[key] = reply
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"key": key, "reply": reply}) + "\n")
