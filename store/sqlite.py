"""The store on SQLite: the parts of ``contract.Store`` over one ``Database``.

Parts are made when first asked for, so that a read verb imports nothing it does not use.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from store import bell
from store.database import Database
from store.events import Events
from store.opening import open_database, prepare
from store.views import Views

if TYPE_CHECKING:
    from store.alerts import Alerts
    from store.checkpoints import Checkpoints
    from store.claims import Claims
    from store.contract import Store
    from store.history import History
    from store.intake import Intake
    from store.loading import Loading
    from store.memory import Memory
    from store.papers import Papers
    from store.people import People
    from store.search import Search
    from store.sources import Sources


class SqliteStore:
    """See the module's head."""

    def __init__(self, db: Database) -> None:
        self.db = db
        self.state_dir = db.state_dir
        self.events = Events(db)
        self.views = Views(db)

    @cached_property
    def intake(self) -> Intake:
        """Handing work in."""
        from store.intake import Intake

        return Intake(self.db, self.events)

    @cached_property
    def claims(self) -> Claims:
        """Who works on what."""
        from store.claims import Claims

        return Claims(self.db, self.events)

    @cached_property
    def loading(self) -> Loading:
        """Claimed items, whole."""
        from store.loading import Loading

        return Loading(self.db)

    @cached_property
    def checkpoints(self) -> Checkpoints:
        """Recording outcomes."""
        from store.checkpoints import Checkpoints

        return Checkpoints(self.db, self.events, self.memory.remember)

    @cached_property
    def people(self) -> People:
        """What people do."""
        from store.people import People

        return People(self.db, self.events)

    @cached_property
    def memory(self) -> Memory:
        """What survives a session."""
        from store.memory import Memory

        return Memory(self.db)

    @cached_property
    def sources(self) -> Sources:
        """Sources and their passages."""
        from store.sources import Sources

        return Sources(self.db, self.events)

    @cached_property
    def search(self) -> Search:
        """Finding episodes and passages."""
        from store.search import Search

        return Search(self.db)

    @cached_property
    def papers(self) -> Papers:
        """Files for people."""
        from store.papers import Papers

        return Papers(self.db)

    @cached_property
    def alerts(self) -> Alerts:
        """Alerts and problems."""
        from store.alerts import Alerts

        return Alerts(self.db, self.events)

    @cached_property
    def history(self) -> History:
        """Raw prompts and replies."""
        from store.history import History

        return History(self.state_dir)

    def close(self) -> None:
        """Close every file."""
        self.db.close()
        if "history" in self.__dict__:
            self.history.close()


def _keeps_the_contract(store: SqliteStore) -> Store:
    """Never called: the type checker sees here that nothing of the contract is missing."""
    return store


def open_store(state_dir: Path) -> SqliteStore:
    """The store of a prepared folder, for the daemon and its workers. Raises StoreRefused."""
    return SqliteStore(Database(state_dir))


def open_for_command(state_dir: Path, *, create: bool = False) -> SqliteStore | None:
    """The store for a command that may write: its commits ring the daemon's bell. None when there is no store yet.

    ``create`` builds a new one first. Raises StoreRefused.
    """
    if create and not (state_dir / "shiftwork.db").exists():
        prepare(state_dir)
    db = open_database(state_dir)
    if db is None:
        return None
    db.on_commit = lambda: bell.ring(state_dir)
    return SqliteStore(db)


def open_for_reading(state_dir: Path) -> SqliteStore | None:
    """The store for a command that only reads. None when there is no store yet; nothing is created."""
    db = open_database(state_dir, read_only=True)
    return None if db is None else SqliteStore(db)
