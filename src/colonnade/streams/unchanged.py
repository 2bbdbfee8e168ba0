"""Files that are read more than once must be the same each time: what they looked like when they were first opened.

Ids are read before an alignment and columns after it, and some of them once more in every pass. A nightly export that
takes a file's place meanwhile would put other people's numbers beside the ids; so every pass ends with a look at the
files, and one that is another by then ends the run.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from colonnade.errors import DataError
from colonnade.settings.settings import Settings
from colonnade.streams.files import SourceFiles

# What stores say of a file that another one in its place differs in; some say besides when it was last read.
_SHOWN = ("size", "ETag", "etag", "generation", "LastModified", "last_modified", "mtime", "created")


class Unchanged:
    """The looks of a source's files.

    Parameters
    ----------
    files : of the source.
    held : whether the files are open for as long as they are read, so that another one in its place is not seen.
    """

    def __init__(self, settings: Settings, files: SourceFiles, *, held: bool = False) -> None:
        self._settings, self._files, self._held = settings, files, held
        self._looks = [self._look(path) for path in files.paths]

    def check(self) -> None:
        """Refuse files that are not those that were opened."""
        if self._files.store is not None:
            self._files.store.invalidate_cache()
        for path, name, before in zip(self._files.paths, self._files.names, self._looks, strict=True):
            now = self._look(path)
            # Some file systems number a file anew while it is as it was, and a store may know nothing of its files.
            if now == before or (now and now[1:] == before[1:]) or (self._held and now[:1] != before[:1]):
                continue
            sentence = f"{name} was changed while it was being read; start again, and write new files beside old ones"
            raise self._settings.error("source", sentence, DataError)

    def _look(self, path: str) -> tuple[Any, ...]:
        store = self._files.store
        try:
            if store is not None:
                known = store.info(path)
                return (path, *(str(known.get(key)) for key in _SHOWN))
            found = os.stat(Path(path))
        except Exception:  # every store has errors of its own; a file that is gone is another than it was
            return ()
        return found.st_ino, found.st_size, found.st_mtime_ns
