"""The docs are true: what they name exists, what they show runs, and their figures are those of the code."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import re
import signal
import subprocess
import sys
import time
import tomllib

import pytest
from docs_pages import DOCS, PAGES, ROOT, fences, indented, links, rows, section, spans
from session_world import World

from daemon import sections
from daemon.cli.main import _Parser
from daemon.cli.verbs import VERBS
from notify.config import NotifySettings, Service
from notify.messages import HEADLINES
from sessions import config as sessions_config
from sessions import decisions, session
from sessions.deciders.command import KEPT_ENVIRONMENT, CommandDecider
from store import claims, errors
from triggers import config as triggers_config
from triggers import frontmatter, intake
from triggers.inbox.spec import BACKOFF_S
from triggers.inbox.stability import EMPTY_FOR_S


def page(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def parser_of(verb: str) -> argparse.ArgumentParser:
    module = importlib.import_module(f"daemon.cli.{VERBS[verb].module}")
    name = verb.replace(" ", "_").replace("-", "_")
    parser = _Parser(prog="shiftwork", add_help=False)
    parser.add_argument("--config")
    (getattr(module, f"{name}_arguments", None) or module.add_arguments)(parser)
    return parser


def options_of(verb: str) -> set[str]:
    return {option for action in parser_of(verb)._actions for option in action.option_strings}


def commands_in(text: str) -> list[list[str]]:
    """Every ``shiftwork …`` in code, as words."""
    found = []
    for code in [*spans(text), *indented(text), *fences(text, "sh"), *fences(text, "console")]:
        for line in code.splitlines():
            for part in re.split(r"&&|\|", line.partition("   #")[0]):
                words = part.strip().removeprefix("$ ").split()
                if words and os.path.basename(words[0]) == "shiftwork":
                    found.append(words[1:])
    return found


# ---------------------------------------------------------------- names


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_and_option_is_in_the_page_about_the_command_line(verb):
    text = page("docs/cli.md")
    assert re.search(rf"\b{re.escape(verb)}\b", text)
    for option in options_of(verb):
        assert re.search(rf"(?<![\w-]){re.escape(option)}(?![\w-])", text), f"{verb} {option}"


@pytest.mark.parametrize("file", PAGES, ids=lambda file: file.name)
def test_every_command_that_is_named_exists(file):
    for line in commands_in(file.read_text(encoding="utf-8")):
        words = line[2:] if line[:1] == ["--config"] else line
        if not words or words[0].isupper() or words[0].startswith("-"):
            continue
        verb = next((" ".join(words[:n]) for n in (2, 1) if " ".join(words[:n]) in VERBS), None)
        assert verb is not None, f"shiftwork {' '.join(words)}"
        given = {word.partition("=")[0].strip("[]") for word in words if word.strip("[]").startswith("--")}
        assert given <= options_of(verb) | {"--help"}, f"shiftwork {' '.join(words)}"


@pytest.mark.parametrize("file", PAGES, ids=lambda file: file.name)
def test_every_relative_link_leads_somewhere(file):
    for target in links(file.read_text(encoding="utf-8")):
        path, _, anchor = target.partition("#")
        found = (file.parent / path).resolve() if path else file
        assert found.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.*)$", found.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w -]", "", one.lower()).replace(" ", "-") for one in headings}, (
                target
            )


@pytest.mark.parametrize("file", DOCS, ids=lambda file: file.name)
def test_the_pages_that_init_copies_do_not_point_outside_of_their_folder(file):
    for target in links(file.read_text(encoding="utf-8")):
        assert not target.startswith(("..", "/")), target


@pytest.mark.parametrize("file", PAGES, ids=lambda file: file.name)
def test_no_page_names_a_folder_of_the_machine_it_was_written_on(file):
    text = file.read_text(encoding="utf-8")
    for place in ("/root", "/home/", "/tmp/", str(ROOT)):
        assert place not in text


def known_keys() -> set[str]:
    models = [
        sections.QueueSettings,
        sections.HttpSettings,
        sessions_config.DaemonLimits,
        sessions_config.ConstraintRule,
        NotifySettings,
        Service,
        *sessions_config.DECIDERS.values(),
        *triggers_config.TRIGGERS.values(),
        triggers_config.WebhookSettings,
    ]
    keys = {key for model in models for key in model.model_fields}
    tables = {"state_dir", "daemon", "http", "queues", "deciders", "triggers", "webhooks", "notify"}
    return keys | tables | {"title", "body"}


def toml_in(text: str) -> list[dict]:
    found = [block for block in indented(text) if block.startswith("[")]
    return [tomllib.loads(block) for block in [*found, *fences(text, "toml")]]


def keys_of(table: dict, depth: int = 0) -> set[str]:
    """All keys, without the names that people give to queues, deciders and triggers."""
    keys = set()
    for key, value in table.items():
        if not (depth == 1 and isinstance(value, dict)):
            keys.add(key)
        inner = value if isinstance(value, list) else [value]
        for one in inner if key != "extra" else ():  # its keys are a model server's
            if isinstance(one, dict):
                named = depth == 0 and key in {"queues", "deciders", "triggers", "webhooks"}
                keys |= keys_of(one, 1 if named else 2)
    return keys


@pytest.mark.parametrize("file", PAGES, ids=lambda file: file.name)
def test_every_key_of_the_configuration_that_is_shown_exists(file):
    text = file.read_text(encoding="utf-8")
    if file.name != "plugins.md":  # that page shows the example's own keys, which run in test_plugins.py
        for table in toml_in(text):
            assert keys_of(table) <= known_keys()
    for code in spans(text):
        assigned = re.match(r"([a-z_]+) = ", code)
        if assigned:
            assert assigned[1] in known_keys(), code


def test_every_key_that_is_named_in_the_readme_works(tmp_path):
    (block,) = fences(page("README.md"), "toml")
    (tmp_path / "shiftwork.toml").write_text(block)
    (tmp_path / "page.url").write_text("json://localhost")
    (tmp_path / "page.url").chmod(0o600)
    from daemon import config

    loaded = config.load(tmp_path / "shiftwork.toml")
    assert list(loaded.queues) == ["questions"]


# ---------------------------------------------------------------- figures


def test_the_table_of_exit_codes_is_that_of_the_errors():
    def codes(kind: type[errors.ShiftworkError]) -> set[int]:
        return {kind.exit_code}.union(
            *(codes(one) for one in kind.__subclasses__() if one.__module__ == "store.errors")
        )

    told = {int(code) for code, _ in rows(section(page("docs/failure.md"), "Exit codes"))}
    assert told == codes(errors.ShiftworkError) | {0, 130}


LIMITS = sessions_config.DaemonLimits()
QUEUE = sections.QueueSettings.model_fields
NOTIFY = NotifySettings()
FIGURES = [
    ("docs/failure.md", f"`crash_limit` sessions in a row, {LIMITS.crash_limit} by default"),
    ("docs/failure.md", f"then 2, 4 and\nso on up to {claims.MAX_CRASH_DELAY_S:g} seconds"),
    ("docs/failure.md", f"`worker_memory`, {LIMITS.worker_memory >> 30} GiB by default"),
    ("docs/operating.md", f"up to `grace`, {LIMITS.grace:g} seconds by default"),
    (
        "docs/deciders.md",
        "after {:g}, {:g} and {:g} seconds, then after {:g} minutes".format(
            *claims.DELAYS_AFTER_FAILURE_S[:3], claims.DELAYS_AFTER_FAILURE_S[3] / 60
        ),
    ),
    ("docs/deciders.md", f"The {['', '', '', '', '', 'fifth'][session.FAILURE_LIMIT]} failure in a row"),
    ("README.md", "after {:g}, {:g}, {:g} and {:g} seconds".format(*claims.DELAYS_AFTER_FAILURE_S)),
    ("docs/handing-in.md", f"empty for {EMPTY_FOR_S:g} seconds"),
    ("docs/handing-in.md", f"over {frontmatter.MAX_BYTES >> 10} KiB"),
    ("docs/handing-in.md", f"`max_bytes`, {intake.MAX_BYTES >> 20} MiB by default"),
    ("docs/handing-in.md", f"from\n-{intake.MAX_PRIORITY} to {intake.MAX_PRIORITY}"),
    ("docs/handing-in.md", f"`stable_for`, which is {QUEUE['stable_for'].default:g} seconds by default"),
    ("docs/handing-in.md", f"`max_waiting` open items, {QUEUE['max_waiting'].default:,} by default"),
    ("docs/handing-in.md", {60.0: "again every minute"}[BACKOFF_S]),
    (
        "docs/handing-in.md",
        f"every `poll_every`, {triggers_config.FilesTrigger.model_fields['poll_every'].default:g} seconds",
    ),
]


@pytest.mark.parametrize(
    ("name", "phrase"), FIGURES, ids=[phrase.replace("\n", " ")[:50] for _, phrase in FIGURES]
)
def test_the_figures_are_those_of_the_code(name, phrase):
    assert " ".join(phrase.split()) in " ".join(page(name).split())


def test_ten_minutes_are_the_sessions_timeout():
    assert LIMITS.session_timeout == 600
    assert "`session_timeout`, ten minutes by default" in page("docs/failure.md")


def test_every_rule_by_which_input_is_refused_is_told():
    told = section(page("docs/handing-in.md"), "What happens to a file that is refused")
    told += section(page("docs/webhooks.md"), "Rules")
    source = "".join(file.read_text() for file in (ROOT / "triggers").rglob("*.py"))
    for rule in set(re.findall(r'rule="([a-z0-9-]+)"', source)) | {"link", "fifo", "socket", "device"}:
        assert f"`{rule}`" in told or rule.startswith("json-"), rule


# ---------------------------------------------------------------- the map of the house


def test_the_page_about_alerts_lists_every_family_of_them():
    told = {
        cells[0].strip("`").partition(":")[0]
        for cells in rows(section(page("docs/alerts.md"), "Which alerts there are"))
    }
    assert told == {*HEADLINES, "start"}


def test_the_map_names_every_file_and_no_other():
    text = page("docs/architecture.md")
    rooms = ("daemon", "triggers", "sessions", "memory", "notify", "store")
    files = {str(file.relative_to(ROOT)) for room in rooms for file in (ROOT / room).rglob("*.py")}
    named = {
        name
        for name in re.findall(r"^\| `([\w/]+\.py)` \|", text, re.MULTILINE)
        if name.split("/")[0] in rooms
    }
    assert named == files
    for name in re.findall(r"`([\w./-]+/[\w.-]*\.py)`", text):
        assert (ROOT / name).exists(), name


def test_the_map_gives_a_reason_for_every_dependency():
    project = tomllib.loads(page("pyproject.toml"))["project"]
    wanted = {re.match(r"[\w-]+", line)[0].lower() for line in project["dependencies"]}
    told = {
        cells[0].lower()
        for cells in rows(section(page("docs/architecture.md"), "Decisions and their reasons"))
    }
    assert told == wanted


def test_the_map_draws_every_move_of_a_flag_and_an_item():
    text = section(page("docs/architecture.md"), "State machines")
    from store.states import FLAG_STATES, ITEM_STATES, NODE_STATES, SHOWN_STATES

    for state in {
        *FLAG_STATES,
        *ITEM_STATES,
        *NODE_STATES,
        *SHOWN_STATES,
        "pending",
        "firing",
        "unsent",
        "sending",
    }:
        assert re.search(rf"\b{state}\b", text), state


# ---------------------------------------------------------------- the command protocol


@pytest.fixture
def letters(tmp_path):
    (block,) = fences(page("docs/deciders.md"), "python")
    program = tmp_path / "letters.py"
    program.write_text(block)
    program.chmod(0o755)
    decider = CommandDecider(
        (sys.executable, str(program)), timeout_s=20, max_output=1 << 20, folder=str(tmp_path)
    )
    world = World(tmp_path)
    world.room = world.room._replace(deciders={"scripted": decider})
    yield world
    world.close()


def test_the_example_of_a_decider_answers_and_asks_as_it_says(letters):
    plain, refund = letters.hand("Please file this."), letters.hand("I want a refund.")
    letters.drain()
    assert letters.item(plain)["result"]["text"] == "Filed: Please file this."
    (flag,) = letters.flags()
    assert flag["item"] == refund
    from store.people import Answer

    letters.store.people.resolve(flag["id"], Answer("anna", "refuse it", option=2), now=letters.now)
    letters.drain()
    assert letters.item(refund)["result"]["text"] == "Refund: refuse it"


def test_the_shape_of_the_request_is_the_one_that_is_told(tmp_path):
    world = World(tmp_path, "no json", {"decision": "answer", "reason": "r", "text": "t"})
    world.doc("a.md", "# A\n\nThe sky is blue.")
    world.hand("what is it?")
    world.session("q")
    sent = set(world.decider.requests[1]) | {"deadline_s"}
    told = {cells[0].strip("`") for cells in rows(section(page("docs/deciders.md"), "The request"))}
    assert told == sent
    for key in ("item", "node", "budget"):
        row = next(
            cells[1]
            for cells in rows(section(page("docs/deciders.md"), "The request"))
            if cells[0] == f"`{key}`"
        )
        shape = re.search(r"\{([^}]*)\}", row)[1]
        assert set(shape.split(", ")) == set(world.decider.requests[0][key]), key
    world.close()


def test_the_shape_of_the_reply_is_the_one_that_is_told():
    told = section(page("docs/deciders.md"), "The reply")
    for model in (decisions.Answer, decisions.Flag, decisions.Park):
        for key in model.model_fields:
            assert f"`{key}`" in told or f"`{key}, " in told, key
    for model in (
        decisions.Question,
        decisions.Option,
        decisions.Recommendation,
        decisions.Lesson,
        decisions.Usage,
    ):
        for key in model.model_fields:
            assert re.search(rf"\b{key}\b", told), key
    for name in sessions_config.LATER_DECISIONS:
        assert f"`{name}`" in page("docs/deciders.md")


def test_the_environment_of_the_program_is_the_one_that_is_told():
    told = section(page("docs/deciders.md"), "How the program runs")
    for name in KEPT_ENVIRONMENT:
        plain = {
            "LANG": "locale",
            "LC_ALL": "locale",
            "LC_CTYPE": "locale",
            "USER": "name",
            "LOGNAME": "name",
        }
        assert plain.get(name, name) in told


# ---------------------------------------------------------------- what is shown, runs


class Shell:
    """Runs lines as a person would, in a scratch clone that has nothing but ``.venv/bin/shiftwork`` and ``demo/``."""

    def __init__(self, folder):
        self.folder = folder
        binary = folder / ".venv" / "bin"
        binary.mkdir(parents=True)
        program = binary / "shiftwork"
        program.write_text(
            f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(ROOT)!r})\n"
            "from daemon.cli.main import main\nsys.exit(main())\n"
        )
        program.chmod(0o755)
        self.environment = {
            "PATH": f"{binary}:{os.path.dirname(sys.executable)}:/usr/local/bin:/usr/bin:/bin",
            "HOME": str(folder),
            "TZ": "UTC",
            "PYTHONWARNINGS": "error",
            "PYTHONPATH": str(ROOT),
        }

    def start(self, *words, **more):
        return subprocess.Popen(words, cwd=self.folder, env=self.environment, start_new_session=True, **more)

    def run(self, line):
        return subprocess.run(
            ["bash", "-c", line],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )


def plain(text: str) -> list[str]:
    """Lines without what differs from run to run, in order, since two streams meet on a terminal."""
    text = re.sub(r"\d{4}-\d\d-\d\d|\d\d:\d\d(:\d\d)?", "TIME", text)
    text = re.sub(r"\b\d+(\.\d+)? ?(s|m|kB|MB)\b", "SIZE", text)
    text = re.sub(r"pid \d+", "pid N", text)
    text = re.sub(r"support 0?\.\d+", "support N", text)
    text = re.sub(r"waiting for running sessions.*\n", "", text)  # said when a stop takes a while
    return sorted(" ".join(line.split()) for line in text.splitlines() if line.strip())


def tour() -> list[tuple[str, str]]:
    (block,) = fences(page("README.md"), "console")
    steps = re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]
    return [(line, output) for line, _, output in (step.partition("\n") for step in steps)]


def test_the_tour_of_the_readme_runs_as_it_is_printed(tmp_path):
    shell = Shell(tmp_path)
    assert shell.run("shiftwork init demo").returncode == 0
    daemon = shell.start(
        "shiftwork",
        "--config",
        "demo/shiftwork.toml",
        "run",
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        (first, _), *rest = tour()
        for line, wanted in rest:
            reads = line.split()[0] == "cat" or line.split()[1] in {"why", "flags", "status"}
            done = shell.run(f"{first} && {line}")
            end = time.monotonic() + 30
            while reads and plain(done.stdout + done.stderr) != plain(wanted) and time.monotonic() < end:
                time.sleep(0.1)
                done = shell.run(f"{first} && {line}")
            assert plain(done.stdout + done.stderr) == plain(wanted), line
        assert daemon.wait(20) == 0
    finally:
        if daemon.poll() is None:
            os.killpg(daemon.pid, signal.SIGKILL)
            daemon.wait()


def test_the_tour_is_about_ten_lines():
    assert 9 <= len(tour()) <= 12


def test_a_restore_goes_as_the_page_says(tmp_path):
    shell = Shell(tmp_path)
    assert (
        shell.run(
            "shiftwork init . && echo 'How do I pause a queue?' > inbox/a.md && shiftwork run --drain"
        ).returncode
        == 0
    )
    blocks = [block for block in indented(page("docs/recovery.md")) if "shiftwork" in block]
    copy, restore = blocks[0], blocks[1]
    name = re.search(r"cp (\S+) state/", restore)[1]
    assert shell.run(f"mkdir backups && {copy}").returncode == 0
    (made,) = (tmp_path / "backups").iterdir()
    assert shell.run("shiftwork add - <<< 'Is this newer?' && shiftwork run --drain").returncode == 0
    lines = (
        restore.replace(name, f"backups/{made.name}")
        .replace("shiftwork run", "shiftwork run --drain")
        .splitlines()
    )
    done = shell.run("set -e\n" + "\n".join(lines))
    assert done.returncode == 0, done.stderr
    items = json.loads(shell.run("shiftwork list --json").stdout)
    assert [item["id"] for item in items] == ["q-0001"]


def test_a_backup_put_into_the_old_folder_is_refused_as_the_page_says(tmp_path):
    shell = Shell(tmp_path)
    line = (
        "shiftwork init . && shiftwork add - <<< 'one?' && shiftwork run --drain && shiftwork backup copy.db"
    )
    assert shell.run(line).returncode == 0
    assert shell.run("shiftwork add - <<< 'two?' && shiftwork run --drain").returncode == 0
    done = shell.run("rm -f state/shiftwork.db-*; cp copy.db state/shiftwork.db && shiftwork run --drain")
    assert done.returncode == 70
    assert "lacks its newest" in done.stderr


def test_the_state_folder_holds_what_is_told_and_nothing_else(tmp_path):
    shell = Shell(tmp_path)
    assert (
        shell.run("shiftwork init . && shiftwork add - <<< 'Which?' && shiftwork run --drain").returncode == 0
    )
    told = section(page("docs/operating.md"), "What lies in the state folder")
    for path in (tmp_path / "state").iterdir():
        name = path.name + ("/" if path.is_dir() else "")
        name = re.sub(r"(shiftwork|history)\.db-", "-", name)
        assert f"`{name}`" in told, path.name


def test_the_messages_of_a_refused_store_are_those_of_the_code():
    source = " ".join(re.sub(r'"\s+f?"', "", page("store/opening.py")).split())
    for message, _, _ in rows(section(page("docs/recovery.md"), "What to do when the store is refused")):
        for words in message.split(", "):
            assert words.removeprefix("migrate ") in source, words
