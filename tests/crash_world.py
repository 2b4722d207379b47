"""A daemon to be killed: two queues fed by files, commands and a webhook, and what must hold when it is quiet again.

The decider appends each call to ``calls.log`` and does what the item's body says, always the same: an answer that
repeats the body, a question, a wait, or something bad to the worker that asked it. Words that end in ``-once`` do
it the first time only, so that work which was killed comes to its end.

``assert_whole`` is the one list of invariants. It is asked after every kill of every test here.
"""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from pathlib import Path

from daemon_world import ENVIRONMENT, World, alive
from hook_sender import Hook, Told

DECIDER = """
import json, os, signal, sys, time
request = json.load(sys.stdin)
item = request["item"]
words = item["body"].split()
verb = words[0]
seen = [rule["text"] for rule in request["constraints"]]
line = json.dumps([item["id"], os.getpid(), os.getppid(), seen])
log = os.open("calls.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
os.write(log, (line + "\\n").encode())
first = True
if verb.endswith("-once"):
    try:
        os.close(os.open("first-" + item["id"], os.O_WRONLY | os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        first = False
    verb = verb.removesuffix("-once")
reply = {"decision": "answer", "reason": "as told", "text": "done: " + item["body"], "citations": []}
if first and verb == "sleep":
    time.sleep(float(words[1]))
elif first and verb == "kill":
    os.kill(os.getppid(), int(words[1]))
    time.sleep(60)
elif first and verb == "fail":
    sys.exit("told to fail")
elif first and verb == "park":
    at = time.gmtime(time.time() + 2)
    reply = {"decision": "park", "reason": "later", "until": time.strftime("%Y-%m-%dT%H:%M:%SZ", at)}
elif verb == "flag" and not request["answers"]:
    reply = {"decision": "flag", "reason": "two ways", "stuck": "cannot tell", "questions": [{
        "question": "Which?", "kind": "direction",
        "options": [{"label": "left", "cost": "none"}, {"label": "right", "cost": "none"}],
        "recommendation": {"option": 1, "reason": "first"}}]}
elif first and verb == "eat":
    hoard = []
    while True:
        hoard.append(bytearray(1 << 24))
elif first and verb == "fork":
    open("children.log", "a").close()
    for number in range(5):
        if os.fork() == 0:
            if number % 2:
                os.setsid()
            with open("children.log", "a") as children:
                children.write(f"{os.getpid()}\\n")
            for fd in range(3):
                os.close(fd)
            time.sleep(600)
            os._exit(0)
    while len(open("children.log").read().split()) < 5:
        time.sleep(0.01)
    if "kill" in words:
        os.kill(os.getppid(), signal.SIGKILL)
    if len(words) > 1:
        time.sleep(60)
print(json.dumps(reply))
"""

WITNESS = """
import os, sys
def note():
    log = os.open(os.environ["SHIFTWORK_WITNESS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(log, (" ".join(sys.orig_argv[1:4]) + "\\n").encode())
    os.close(log)
note()
os.register_at_fork(after_in_child=note)
"""

RULES = ("Never  mail\ttwice – ünïcode “quoted” …", "Answer in one line.")


class CrashWorld(World):
    """See the module's head. ``rules`` are the queues' constraints; ``extra`` is more configuration.

    ``hook`` is a webhook for one of the queues; without it nothing listens.
    """

    def __init__(
        self, folder: Path, *, daemon: str = "crash_limit = 100", extra: str = "", queue_extra: str = "",
        hook: Hook | None = None,
    ):  # fmt: skip
        self.hook = hook
        self.rules = list(RULES)
        self.ruled: list[tuple[str, ...]] = []  # every set of rules that was in force
        self.queue_extra = queue_extra
        self.handed: dict[str, str] = {}  # body → queue
        self.dropped: dict[str, bytes] = {}  # queue/name → bytes, of good and of bad files
        self.aborted: set[str] = set()
        self.flagged: set[str] = set()
        self.place = ""
        self._settings = {"daemon": daemon, "extra": extra}
        super().__init__(folder, **self._settings, queues=("alpha", "beta"))
        (folder / "decider.py").write_text(DECIDER)
        (folder / "docs").mkdir(exist_ok=True)
        self.doc("guide", "# Guide\n\nA walrus answers by letter.\n")

    def write_config(self, *, daemon: str = "", queues: tuple[str, ...] = (), extra: str = "") -> None:
        super().write_config(daemon=daemon, queues=queues, extra=extra)
        self.ruled.append(tuple(self.rules))
        rules = f"constraints = {json.dumps(self.rules, ensure_ascii=False)}\n"
        more = f'sources = ["docs/*.md"]\n{rules}{self.queue_extra}\n'
        text = self.config.read_text().replace('stable_for = "0s"\n', f'stable_for = "0s"\n{more}')
        text = text.replace('"-I", "decider.py"', '"-I", "-S", "decider.py"')
        self.config.write_text(text + (self.hook.tables(self.folder) if self.hook else ""))

    def rewrite(self, **settings: str) -> None:
        """Write the configuration again, with other settings."""
        self._settings |= settings
        self.write_config(**self._settings, queues=("alpha", "beta"))

    def doc(self, name: str, text: str) -> None:
        (self.folder / "docs" / f"{name}.md").write_text(text)

    # ---------------------------------------------------------------- handing in

    def drop(self, name: str, body: str, queue: str = "alpha") -> None:
        super().drop(name, body, queue)
        self.handed[body] = queue
        self.dropped[f"{queue}/{name}"] = body.encode()

    def drop_bad(self, name: str, queue: str = "alpha") -> None:
        """A file that can never be taken; its bytes tell it from every other."""
        data = b"\0 " + name.encode()
        temporary = self.folder / f".{name}"
        temporary.write_bytes(data)
        temporary.rename(self.folder / f"in-{queue}" / name)
        assert f"{queue}/{name}" not in self.dropped
        self.dropped[f"{queue}/{name}"] = data

    def add(self, body: str, *words: str, queue: str = "beta") -> str:
        self.handed[body] = queue
        return super().add(body, *words, queue=queue)

    def add_under(self, env: dict[str, str], body: str, queue: str = "beta") -> None:
        """Hand in by a command that may be killed at any line; then as a person does: look, and do it again."""
        self.handed[body] = queue
        done = self.command("add", "-", "--queue", queue, input=body, env=env, check=None)
        if done.returncode != 0:
            assert done.returncode == -signal.SIGKILL, done.stderr
            self.command("add", "-", "--queue", queue, input=body)

    def deliver(self, body: str, delivery: str) -> Told:
        """One delivery, sent once."""
        self.handed[body] = self.hook.queue
        return self.hook.post(body, delivery)

    def redeliver(self, body: str, delivery: str) -> str:
        """Send it until it is taken, and once more: the id of the one item that it is."""
        self.handed[body] = self.hook.queue
        seen = [*self.hook.until_told(body, delivery), self.hook.post(body, delivery)]
        assert seen[-1].status == 200, "the same delivery once more is a duplicate"
        [item] = {one.id for one in seen if one.id}
        return item

    # ---------------------------------------------------------------- crash points

    def watch_for(self, place: str) -> None:
        """``fired`` is about this place from here on."""
        self.place = place.partition("@")[0]

    def armed(self, place: str) -> dict[str, str]:
        """The environment of the daemon that is to die at ``place``."""
        self.watch_for(place)
        folder = self.folder / "marks"
        folder.mkdir(exist_ok=True)
        return {"SHIFTWORK_CRASH_AT": place, "SHIFTWORK_CRASH_DIR": str(folder)}

    def armed_command(self, place: str) -> dict[str, str]:
        """The environment of a command that shares the running daemon's one shot."""
        folder = max(self.state.glob(".crash-*"), key=lambda one: one.stat().st_mtime_ns)
        return {
            "SHIFTWORK_CRASH_AT": place,
            "SHIFTWORK_CRASH_DIR": str(folder),
            "SHIFTWORK_DAEMON_PID": str(self.process.pid),
        }

    def fired(self) -> bool:
        name = f"crashed-{self.place}"
        return any((one / name).exists() for one in (self.folder / "marks", *self.state.glob(".crash-*")))

    def disarm(self) -> None:
        """Forget what fired, so that the next place is told from this one."""
        for one in (self.folder / "marks", *self.state.glob(".crash-*")):
            for mark in one.glob("crashed-*"):
                mark.unlink()

    def until_fired(self, seconds: float = 30.0) -> None:
        self.until(self.fired, seconds)

    def until_dead(self, seconds: float = 10.0) -> None:
        """The daemon killed itself, or was killed by the process that reached the place."""
        assert self.process.wait(seconds) == -signal.SIGKILL, self.said()
        self.process = None

    # ---------------------------------------------------------------- who was started

    def witnessed(self) -> dict[str, str]:
        """An environment in which every Python process of ours notes that it began, forked ones too."""
        folder = self.folder / "witness"
        folder.mkdir(exist_ok=True)
        (folder / "sitecustomize.py").write_text(WITNESS)
        (folder / "log").touch()
        path = f"{folder}{os.pathsep}{ENVIRONMENT['PYTHONPATH']}"
        return {"PYTHONPATH": path, "SHIFTWORK_WITNESS": str(folder / "log")}

    def started(self) -> list[str]:
        """The first words of each process that began under ``witnessed``, in order."""
        return (self.folder / "witness" / "log").read_text().splitlines()

    # ---------------------------------------------------------------- looking

    def value(self, sql: str, *values):
        return super().value(sql, *values) if (self.state / "shiftwork.db").exists() else None

    def quiet(self) -> bool:
        """Nothing is left to do but for people."""
        if self.value("SELECT count(*) FROM items") is None or self._lying_about():
            return False
        waiting = len([body for body in self.flagged if body in self.handed])
        bodies = {row[0] for row in self.rows("SELECT body FROM items")}
        return (
            set(self.handed) <= bodies
            and self.value("SELECT count(*) FROM leases") == 0
            and self.value("SELECT count(*) FROM items WHERE state = 'open'") == waiting
            and self.value("SELECT count(*) FROM flags WHERE state = 'waiting'") == waiting
            and self._papers_are_there()
        )

    def all_marked(self) -> bool:
        """What was written or removed for people is in the store."""
        return self.value("SELECT count(*) FROM papers WHERE state IN ('due', 'unwanted')") == 0

    def until_quiet(self, seconds: float = 40.0) -> None:
        try:
            self.until(self.quiet, seconds)
        except AssertionError:
            raise AssertionError(self.report()) from None

    def report(self) -> str:
        """What a person needs who looks at a failure."""
        dump = {
            table: self.rows(f"SELECT {columns} FROM {table}")
            for table, columns in {
                "items": "id, state, body",
                "nodes": "item_id, kind, state, attempt, crashes, failures, not_before_at, why",
                "leases": "item_id, session_id",
                "sessions": "id, item_id, outcome, cause",
                "papers": "item_id, kind, about, state, path",
                "flags": "id, item_id, state",
            }.items()
        }
        tables = "\n".join(
            f"{name}:\n" + "\n".join(f"  {row}" for row in rows) for name, rows in dump.items()
        )
        lying = [str(path) for path in self._lying_about()]
        return (
            f"{tables}\nlying about: {lying}\nhanded: {self.handed}\nwaiting: {self.flagged}\n{self.said()}"
        )

    def _lying_about(self) -> list[Path]:
        """Files in an inbox that no scan has settled."""
        found = []
        for queue in ("alpha", "beta"):
            box = self.folder / f"in-{queue}"
            if not box.exists():
                continue
            own = {"archive", "rejected", ".work"}
            found += [one for one in box.iterdir() if one.name not in own and not one.is_dir()]
            found += _files_below(box / ".work")
        return found

    def outbox_files(self) -> list[Path]:
        return [one for queue in ("alpha", "beta") for one in (self.folder / f"out-{queue}").iterdir()]

    def _papers_are_there(self) -> bool:
        marks = self._marks()
        wanted = self.rows("SELECT i.id, 'g' || i.generation FROM items i WHERE i.state = 'done'")
        wanted += self.rows("SELECT item_id, id FROM flags WHERE state = 'waiting'")
        return all(marks[f"<!-- shiftwork {item} {about} -->"] for item, about in wanted)

    def _marks(self) -> Counter[str]:
        """How often each file for people is there, by the line that names its item and what it is about."""
        marks: Counter[str] = Counter()
        for path in self.outbox_files():
            if path.name.endswith(".md"):
                marks.update(
                    line for line in path.read_text().splitlines() if line.startswith("<!-- shiftwork ")
                )
        return marks

    def processes(self) -> list[int]:
        """Every living process that works in this world's folder: the daemon, its family, deciders, their children."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal():
                try:
                    if os.readlink(entry / "cwd") == str(self.folder) and alive(int(entry.name)):
                        found.append(int(entry.name))
                except OSError:
                    continue
        return found

    def answer_flags(self) -> None:
        """Resolve what waits, by the command line; ``flagged`` is then empty."""
        for flag, body in self.rows(
            "SELECT f.id, i.body FROM flags f JOIN items i ON i.id = f.item_id WHERE f.state = 'waiting'"
        ):
            self.command("resolve", flag, "--option", "2", "--by", "anna")
            self.flagged.discard(body)

    # ---------------------------------------------------------------- what must hold

    def assert_whole(self) -> None:
        """No item lost, one record each, each file in one place, constraints intact, attempts counted, nobody left."""
        try:
            self._assert_items()
            self._assert_records()
            self._assert_files()
            self._assert_papers()
            self._assert_constraints()
            self._assert_attempts()
            self._assert_store()
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.report()}") from None

    def _assert_items(self) -> None:
        rows = self.rows("SELECT body, queue FROM items WHERE door <> 'timer'")
        assert sorted(rows) == sorted(self.handed.items()), "every handed-in body is exactly one item"
        states = dict(self.rows("SELECT body, state FROM items"))
        for body, state in states.items():
            wanted = "aborted" if body in self.aborted else "open" if body in self.flagged else "done"
            assert state == wanted, f"{body} is {state}, not {wanted}"

    def _assert_records(self) -> None:
        for item, body, state, generation, result in self.rows(
            "SELECT id, body, state, generation, result FROM items"
        ):
            answers = self.rows(
                "SELECT d.body FROM decisions d JOIN nodes n ON n.id = d.node_id "
                "WHERE d.item_id = ? AND d.kind = 'answer' AND n.generation = ?", item, generation,
            )  # fmt: skip
            assert len(answers) == (state == "done"), f"{item} has {len(answers)} records of an answer"
            if state == "done":
                assert json.loads(result)["text"] == f"done: {body}"
                assert json.loads(answers[0][0])["text"] == f"done: {body}"
        doubles = self.rows("SELECT node_id, kind, count(*) FROM decisions GROUP BY 1, 2 HAVING count(*) > 1")
        assert doubles == [], "one decision of each kind per node"
        told = Counter(
            item
            for item, data in self.rows("SELECT item_id, data FROM events WHERE kind = 'decision'")
            if json.loads(data)["outcome"] == "answered"
        )
        nodes = Counter(item for (item,) in self.rows("SELECT item_id FROM decisions WHERE kind = 'answer'"))
        assert told == nodes, "the log tells each answer once"

    def _assert_files(self) -> None:
        for queue in ("alpha", "beta"):
            lying = Counter(
                path.read_bytes()
                for path in _files_below(self.folder / f"in-{queue}")
                if not path.name.endswith((".reason", ".tmp"))
            )
            dropped = Counter(data for name, data in self.dropped.items() if name.startswith(queue))
            wrong = {"too often": lying - dropped, "missing": dropped - lying}
            assert lying == dropped, f"{queue}: each dropped file lies in exactly one place; {wrong}"
            for path in _files_below(self.folder / f"in-{queue}" / "rejected"):
                assert path.name.endswith(".reason") or path.with_name(f"{path.name}.reason").exists()
            assert not list((self.folder / f"in-{queue}").rglob("*.tmp")), "no half-written file is left"

    def _assert_papers(self) -> None:
        marks = self._marks()
        wanted = Counter(
            f"<!-- shiftwork {item} g{number} -->"
            for item, generation in self.rows("SELECT id, generation FROM items WHERE state = 'done'")
            for number in range(1, generation + 1)
        )
        wanted.update(
            f"<!-- shiftwork {item} {flag} -->"
            for item, flag in self.rows("SELECT item_id, id FROM flags WHERE state = 'waiting'")
        )
        assert marks == wanted, (
            "one answer file per finished item, one waiting file per waiting flag, no other"
        )
        assert [one.name for one in self.outbox_files() if not one.name.endswith(".md")] == []

    def _assert_constraints(self) -> None:
        for queue in ("alpha", "beta"):
            rows = self.rows(
                "SELECT text FROM constraints WHERE queue = ? AND removed_at IS NULL AND item_id = '' "
                "ORDER BY position", queue,
            )  # fmt: skip
            assert [text for (text,) in rows] == self.rules
        shown = {tuple(call[3]) for call in self.calls()}
        assert shown <= set(self.ruled), "each call was shown the rules of its time, byte for byte"

    def _assert_attempts(self) -> None:
        """Every claim is counted but those that were given back; every call has its session."""
        assert self.value("SELECT count(*) FROM sessions WHERE outcome = 'running'") == 0
        assert self.value("SELECT count(*) FROM leases") == 0
        assert self.value("SELECT count(*) FROM nodes WHERE state = 'running'") == 0
        for node, item, attempt in self.rows("SELECT id, item_id, attempt FROM nodes WHERE kind = 'decide'"):
            counted = self.value(
                "SELECT count(*) FROM sessions WHERE node_id = ? AND outcome NOT IN ('released', 'conflict')",
                node,
            )
            assert attempt == counted, f"{item}: attempt {attempt}, but {counted} sessions"
        sessions = Counter(item for (item,) in self.rows("SELECT item_id FROM sessions"))
        calls = Counter(call[0] for call in self.calls())
        assert all(sessions[item] >= count for item, count in calls.items()), "a session calls at most once"
        decided = Counter(
            item for (item,) in self.rows("SELECT item_id FROM decisions WHERE decided_by = 'model'")
        )
        assert all(calls[item] >= count for item, count in decided.items()), "no decision without a call"

    def _assert_store(self) -> None:
        assert self.rows("PRAGMA quick_check") == [("ok",)]
        noted = (self.state / "store.lock").read_text().split("\n")[0].strip()
        assert int(noted) in (self.commits(), self.commits() - 1), "the commit counter outside the store"

    def assert_nobody_left(self) -> None:
        """After the daemon's end: no worker, decider or child of one outlives it."""
        self.until(lambda: not self.processes(), 10)


def _files_below(folder: Path) -> list[Path]:
    """Files below a folder, also in folders that are links to elsewhere."""
    return [Path(here, name) for here, _, names in os.walk(folder, followlinks=True) for name in names]
