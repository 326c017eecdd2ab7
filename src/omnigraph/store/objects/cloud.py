"""Objects in S3, Google Cloud Storage or Azure, through obstore."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    NotSupportedError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
    UnknownConfigurationKeyError,
)
from obstore.store import ObjectStore as Client
from obstore.store import from_url

from omnigraph.store.errors import (
    CopyRefusedError,
    ObjectChangedError,
    ObjectExistsError,
    ObjectNotFoundError,
    StorageError,
    StorageOptionError,
    StoragePermissionError,
    StorageTimeoutError,
    StorageUnavailableError,
    WriteOutcomeUnknownError,
)
from omnigraph.store.objects.protocol import ObjectInfo, StoredObject
from omnigraph.store.uri import Root, checked_path, normalise_options

if TYPE_CHECKING:
    from obstore import ObjectMeta

_CLIENT_OPTIONS: Final = frozenset(
    {
        "allow_http",
        "allow_invalid_certificates",
        "connect_timeout",
        "proxy_url",
        "timeout",
        "user_agent",
    }
)
_RETRY_COUNT: Final = "client_max_retries"
_RETRY_TIME: Final = "client_retry_timeout"
_NO_SUCH_BUCKET: Final = "NoSuchBucket"
_LIST_PAGE: Final = 1_000
_DELETE_BATCH: Final = 1_000

_Answer = TypeVar("_Answer")


class CloudObjectStore:
    """An `ObjectStore` in a bucket."""

    def __init__(self, root: Root, options: Mapping[str, str] | None = None) -> None:
        self._root = root
        settled = normalise_options(root, options)
        self._client = _client(root, settled)
        # A conditional put that is sent again after a lost answer finds its own object and
        # reports a conflict that does not exist; sent once, it reports an unknown outcome.
        self._once = _client(root, {**settled, _RETRY_COUNT: "0"})

    def get(self, path: str) -> StoredObject:
        def fetch() -> StoredObject:
            answer = obstore.get(self._client, checked_path(path))
            return StoredObject(path, bytes(answer.bytes()), _tag(answer.meta["e_tag"]))

        return self._read(path, fetch)

    def head(self, path: str) -> ObjectInfo | None:
        try:
            meta = self._read(path, lambda: obstore.head(self._client, checked_path(path)))
        except ObjectNotFoundError:
            return None
        return _info(path, meta)

    def list(self, prefix: str = "") -> tuple[ObjectInfo, ...]:
        def collect() -> list[ObjectInfo]:
            pages = obstore.list(
                self._client, checked_path(prefix) if prefix else None, chunk_size=_LIST_PAGE
            )
            return [_info(meta["path"], meta) for page in pages for meta in page]

        found = self._read(prefix, collect)
        return tuple(sorted(found, key=lambda info: info.path))

    def put(self, path: str, data: bytes) -> str:
        return self._put(self._client, path, data, use_multipart=False)

    def put_pieces(self, path: str, pieces: Iterable[bytes | memoryview]) -> str:
        # Pieces are made here and not inside of the client: making one may ask this store. The
        # object appears when the writer is closed, which does not happen after a failure.
        def upload() -> None:
            writer = obstore.open_writer(self._client, checked_path(path))
            for piece in pieces:
                writer.write(piece)
            writer.close()

        self._write(path, upload)
        written = self.head(path)
        return "" if written is None else written.tag

    def put_if_absent(self, path: str, data: bytes) -> str:
        return self._put(self._once, path, data, mode="create")

    def put_if_match(self, path: str, data: bytes, *, tag: str) -> str:
        try:
            return self._put(self._once, path, data, mode={"e_tag": tag})
        except (ObjectNotFoundError, ObjectChangedError):
            raise ObjectChangedError(path=path, expected=tag) from None

    def copy(self, path: str, to_path: str) -> None:
        names = checked_path(path), checked_path(to_path)
        try:
            # A copy that failed half-way is made again: its outcome does not matter.
            self._read(path, lambda: obstore.copy(self._client, *names))
        except StorageError as error:
            if isinstance(error.__cause__, NotSupportedError):
                raise CopyRefusedError(path=to_path, reason=str(error.__cause__)) from error
            raise

    def delete(self, path: str) -> None:
        try:
            self._write(path, lambda: obstore.delete(self._client, checked_path(path)))
        except ObjectNotFoundError:
            return

    def delete_prefix(self, prefix: str) -> int:
        doomed = [info.path for info in self.list(checked_path(prefix))]
        for start in range(0, len(doomed), _DELETE_BATCH):
            batch = doomed[start : start + _DELETE_BATCH]
            try:
                self._write(prefix, partial(obstore.delete, self._client, batch))
            except ObjectNotFoundError:
                # Another process deletes too; delete the rest of the batch one by one.
                for path in batch:
                    self.delete(path)
        return len(doomed)

    def leftovers(self) -> tuple[ObjectInfo, ...]:
        """Describe temporary files: there are none, a write is one call."""
        return ()

    def _put(self, client: Client, path: str, data: bytes, **how: Any) -> str:
        answer = self._write(path, lambda: obstore.put(client, checked_path(path), data, **how))
        return _tag(answer["e_tag"])

    def _read(self, path: str, call: Callable[[], _Answer]) -> _Answer:
        try:
            return call()
        except FileNotFoundError as error:
            raise self._missing(path, error) from None
        except (BaseError, OSError) as error:
            raise self._refusal(path, error) or _failed_read(self._name(path), error) from error

    def _write(self, path: str, call: Callable[[], _Answer]) -> _Answer:
        try:
            return call()
        except FileNotFoundError as error:
            raise self._missing(path, error) from None
        except (BaseError, OSError) as error:
            raise self._refusal(path, error) or WriteOutcomeUnknownError(
                path=self._name(path), reason=_first_line(error)
            ) from error

    def _name(self, path: str) -> str:
        return self._root.join(path) if path else self._root.uri

    def _missing(self, path: str, error: FileNotFoundError) -> StorageError:
        if _NO_SUCH_BUCKET in str(error):
            return StorageUnavailableError(
                path=self._root.uri, reason=f"the bucket `{self._root.bucket}` does not exist"
            )
        return ObjectNotFoundError(path=self._name(path))

    def _refusal(self, path: str, error: Exception) -> StorageError | None:
        """Return an error for answers with which the storage certainly did nothing."""
        name = self._name(path)
        if isinstance(error, AlreadyExistsError):
            return ObjectExistsError(path=name)
        if isinstance(error, PreconditionError):
            return ObjectChangedError(path=name, expected="")
        if isinstance(error, PermissionDeniedError | UnauthenticatedError):
            return StoragePermissionError(path=name, reason=_first_line(error))
        if isinstance(error, NotSupportedError):
            return StorageUnavailableError(path=name, reason=_first_line(error))
        if _NO_SUCH_BUCKET in str(error):
            return StorageUnavailableError(
                path=name, reason=f"the bucket `{self._root.bucket}` does not exist"
            )
        return None


def _client(root: Root, options: Mapping[str, str]) -> Client:
    client_options = {
        name: _switch(value) if name.startswith("allow_") else value
        for name, value in options.items()
        if name in _CLIENT_OPTIONS
    }
    config = {
        name: value
        for name, value in options.items()
        if name not in _CLIENT_OPTIONS and name not in {_RETRY_COUNT, _RETRY_TIME}
    }
    retry: dict[str, object] = {}
    if _RETRY_COUNT in options:
        retry["max_retries"] = int(options[_RETRY_COUNT])
    if _RETRY_TIME in options:
        retry["retry_timeout"] = timedelta(seconds=int(options[_RETRY_TIME]))
    try:
        return from_url(
            root.uri,
            config=config or None,  # type: ignore[arg-type]  # one dictionary for three clouds
            client_options=client_options or None,  # type: ignore[arg-type]  # built by name
            retry_config=retry or None,  # type: ignore[arg-type]  # built by name
        )
    except UnknownConfigurationKeyError as error:
        # The message has the name in quotes; the error has no field for it.
        name = next((name for name in config if f"'{name.lower()}'" in str(error).lower()), "")
        raise StorageOptionError(path=root.uri, name=name) from None


def _switch(value: str) -> bool:
    return value.strip().lower() in {"1", "true", "yes", "on"}


def _info(path: str, meta: ObjectMeta) -> ObjectInfo:
    modified_us = round(meta["last_modified"].timestamp() * 1_000_000)
    return ObjectInfo(path, meta["size"], modified_us, _tag(meta["e_tag"]))


def _tag(etag: str | None) -> str:
    return etag or ""


def _failed_read(name: str, error: Exception) -> StorageError:
    text = str(error).lower()
    if isinstance(error, TimeoutError) or "timed out" in text or "timedout" in text:
        return StorageTimeoutError(path=name, reason=_first_line(error))
    return StorageUnavailableError(path=name, reason=_first_line(error))


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
