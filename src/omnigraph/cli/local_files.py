"""What the file system of this machine refuses while a command runs."""

from __future__ import annotations

import errno
from pathlib import Path

from omnigraph.errors import InvalidInputError


class LocalFileError(InvalidInputError):
    """A file that the command line names cannot be read or written."""

    code = "OG-FILE"
    path: str | None
    reason: str
    hint: str

    def _message(self) -> str:
        return f"cannot use `{self.path}`: {self.reason}" if self.path else self.reason


class NotTextError(InvalidInputError):
    """A file of text is not UTF-8."""

    code = "OG-NOT-UTF-8"
    hint = "convert it: `iconv -f LATIN1 -t UTF-8 FILE > NEW`"
    template = "a file is not UTF-8 text: byte 0x{byte:02x} at offset {offset}"
    byte: int
    offset: int


def local_failure(error: OSError | UnicodeDecodeError) -> LocalFileError | NotTextError:
    """Return the typed error for what the file system, or the bytes of a file, did."""
    if isinstance(error, UnicodeDecodeError):
        return NotTextError(error.object[error.start], error.start)
    path = None if error.filename is None else str(error.filename)
    return LocalFileError(path, error.strerror or str(error), _next_step(path, error))


def _next_step(path: str | None, error: OSError) -> str:
    if path is None:
        return "`omnigraph doctor` checks this machine"
    if error.errno == errno.ENOENT and not Path(path).parent.exists():
        return f"make the folder first: `mkdir -p {Path(path).parent}`"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "free some space, then run the command again"
    return f"`ls -ld {path}` shows whose it is and what it is"
