"""Where a study's ledger lies: a journal file in its folder, or a PostgreSQL database given by URL."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import optuna

from statelab.sweeps.errors import UserError
from statelab.sweeps.extras import need
from statelab.sweeps.journal import held, open_journal

_FORM = "a storage is given as postgresql://user@host:port/database"


class Storage:
    """An Optuna storage and the one lock under which lanes change hands, of one study's folder.

    `shared` says whether workers may have no folder in common, so that records travel through the storage;
    `rebuilt` whether a journal that could not be read was set aside for a new one.
    """

    def __init__(self, folder: Path, url: str | None = None) -> None:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.shared = url is not None
        self.rebuilt = False
        self._folder = folder
        self._url = None if url is None else checked_url(url)
        if self._url is None:
            folder.mkdir(parents=True, exist_ok=True)
            with self.lock(""):
                self.optuna = self._journal()
        else:
            self.optuna = _database(self._url)

    def close(self) -> None:
        """Let go of a database's connections."""
        if isinstance(self.optuna, optuna.storages.RDBStorage):
            self.optuna.engine.dispose()

    def lock(self, name: str) -> AbstractContextManager[None]:
        """Held by one worker at a time; the end of its process releases it."""
        if self._url is None:
            return held(self._folder / "ledger.flock")
        return _advisory_lock(self._url, name)

    def _journal(self) -> optuna.storages.BaseStorage:
        path = self._folder / "journal.log"
        try:
            return open_journal(path)
        except OSError:
            raise
        except Exception:  # Optuna fails in many ways on lines that are not its own.
            path.replace(self._folder / f"journal.log.unreadable-{time.time_ns()}")
            self.rebuilt = True
            return open_journal(path)


def checked_url(url: str) -> str:
    """A storage's URL as it may be used. Raises UserError for one of another kind."""
    try:
        kind = urlsplit(url).scheme
    except ValueError:
        raise UserError(f"storage {without_password(url)!r} is no URL: {_FORM}") from None
    if kind.startswith("sqlite"):
        raise UserError(
            f"storage {url}: SQLite locks fail between workers; leave --storage out for the journal file in the "
            "study's folder, or give a postgresql:// URL"
        )
    if kind not in ("postgresql", "postgres"):
        raise UserError(f"storage {without_password(url)!r}: {_FORM}")
    return "postgresql" + url[len(kind) :]


def without_password(url: str) -> str:
    """The URL as it may be shown and written down."""
    try:
        parts = urlsplit(url)
    except ValueError:  # a password may stand anywhere in it
        return f"{url.partition('://')[0][:20]}://…"
    user, at, host = parts.netloc.rpartition("@")
    query = "&".join(item for item in parts.query.split("&") if "password" not in item.partition("=")[0])
    return urlunsplit(parts._replace(netloc=f"{user.partition(':')[0]}{at}{host}", query=query))


def reach(url: str) -> str:
    """What answers at a storage's URL. Raises UserError where nothing does."""
    with _connected(checked_url(url)) as connection:
        return f"PostgreSQL {connection.info.server_version // 10000} answers"


def _database(url: str) -> optuna.storages.BaseStorage:
    with _connected(url):  # says in a sentence what SQLAlchemy would say in a page
        pass
    with _advisory_lock(url, "tables of optuna"):
        return optuna.storages.RDBStorage(
            "postgresql+psycopg" + url.removeprefix("postgresql"), engine_kwargs={"pool_pre_ping": True}
        )


def _connected(url: str) -> Any:
    psycopg = need("psycopg", "postgres")
    try:
        # A host that vanished holds its lock until the server misses it: after about a minute and a half.
        return psycopg.connect(
            url, autocommit=True, connect_timeout=10, keepalives_idle=30, keepalives_interval=15,
            keepalives_count=4,
        )  # fmt: skip
    except (psycopg.Error, UnicodeError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise UserError(f"storage {without_password(url)} cannot be reached: {reason}") from None


@contextmanager
def _advisory_lock(url: str, name: str) -> Iterator[None]:
    key = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "big", signed=True)
    with _connected(url) as connection:
        connection.execute("SELECT pg_advisory_lock(%s)", [key])
        yield
