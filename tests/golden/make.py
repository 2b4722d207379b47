"""Makes ``schema-N.db.gz`` of the present schema, with work in every state: run it once when a schema is released.

    python tests/golden/make.py

Old files are never made again: they are what an older version wrote.
"""

from __future__ import annotations

import gzip
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent.parent), str(HERE.parent)]

from session_world import World, answer, flag, park  # noqa: E402

from store.opening import KNOWN_VERSION, note_clean_stop  # noqa: E402


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        world = World(Path(name), answer("it is 42", lessons=[{"text": "ask twice", "failed": True}]))
        world.doc("tea.md", "# Tea\n\nTea is made with water that has just boiled.\n")
        world.hand("done: how is tea made?")
        world.session("q")
        world.decider.script = [flag()]
        world.hand("waiting")
        world.session("q")
        world.decider.script = [park("2040-01-01T00:00:00Z")]
        world.hand("parked")
        world.session("q")
        aborted = world.hand("aborted")
        world.store.people.abort(aborted, by="anna", reason="", now=world.now)
        paused = world.hand("paused")
        world.store.people.pause(paused, by="anna", now=world.now)
        world.hand("revised", key="k")
        world.hand("revised twice", key="k")
        world.hand("running", queue="r")
        world.claim("r")
        note_clean_stop(world.store.db)
        data = (world.state / "shiftwork.db").read_bytes()
        world.link.close()
    target = HERE / f"schema-{KNOWN_VERSION}.db.gz"
    if target.exists():
        sys.exit(f"{target} is there; a released schema is not made again")
    target.write_bytes(gzip.compress(data, mtime=0))


if __name__ == "__main__":
    main()
