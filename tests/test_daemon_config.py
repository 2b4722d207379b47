from __future__ import annotations

import json
import os
import re
import sys
import tomllib
from pathlib import Path

import pytest
from pydantic import BaseModel

from daemon import config, config_words
from daemon.cli import light
from daemon.sections import HttpSettings, QueueSettings
from daemon.toml_lines import key_lines
from notify.config import NotifySettings, Service
from sessions import plan
from sessions.config import DECIDERS, ConstraintRule, DaemonLimits
from store.errors import ConfigProblem
from triggers.config import TRIGGERS, TickItem, WebhookSettings

GOOD = """\
[queues.questions]
inbox = "inbox"
outbox = "outbox"
sources = ["docs/**/*.md"]
constraints = ["Quote.", { text = "Never mail.", kind = "prohibition" }]
decider = "local"

[deciders.local]
kind = "extractive"
"""
ROOT = Path(__file__).parent.parent


def written(folder: Path, text: str) -> Path:
    file = folder / "shiftwork.toml"
    file.write_text(text, encoding="utf-8")
    return file


def problems(folder: Path, text: str) -> list[str]:
    """Each problem without the file's name, as ``LINE KEY = VALUE | RULE``."""
    found = config.read(written(folder, text)).problems
    return [f"{p.line} {p.key}{'' if p.value is None else f' = {p.value}'} | {p.rule}" for p in found]


def test_the_shortest_configuration_has_the_documented_defaults(tmp_path):
    loaded = config.load(written(tmp_path, GOOD))
    queue = loaded.queues["questions"]
    assert (queue.notes_max, queue.notes_chars, queue.episodes_max, queue.passages_max) == (20, 4000, 5, 6)
    assert (queue.context_chars, queue.max_decisions, queue.max_waiting) == (24_000, 50, 100_000)
    assert (queue.stable_for, queue.inbox_immediate, queue.ignore, queue.max_bytes) == (
        2.0,
        True,
        (),
        1 << 20,
    )
    assert queue.decisions == ("answer", "flag", "park")
    limits = loaded.daemon
    assert (limits.max_sessions, limits.session_timeout, limits.grace, limits.lease) == (1, 600, 20, 60)
    assert (limits.crash_limit, limits.worker_memory) == (3, 1 << 30)
    notify = loaded.notify
    assert (notify.flag_age, notify.repeat, notify.escalate, notify.clear_hold) == (3600, 14400, 7200, 600)
    assert loaded.http.bind == "127.0.0.1:8765"


def test_paths_start_at_the_file_whatever_the_current_folder(tmp_path, monkeypatch):
    written(tmp_path, GOOD)
    monkeypatch.chdir("/")
    loaded = config.load(Path(os.path.relpath(tmp_path / "shiftwork.toml", "/")))
    assert loaded.state_dir == tmp_path / "state"
    assert loaded.queues["questions"].inbox == tmp_path / "inbox"
    assert loaded.queues["questions"].sources == (f"{tmp_path}/docs/**/*.md",)


def test_a_folder_with_glob_signs_in_its_name_is_no_pattern(tmp_path):
    folder = tmp_path / "we[i]rd*"
    (folder / "docs").mkdir(parents=True)
    (folder / "docs" / "a.md").write_text("a")
    import glob

    (pattern,) = config.load(written(folder, GOOD)).queues["questions"].sources
    assert glob.glob(pattern, recursive=True) == [str(folder / "docs" / "a.md")]


def test_a_constraint_is_a_text_or_a_text_with_its_kind(tmp_path):
    first, second = config.load(written(tmp_path, GOOD)).queues["questions"].constraints
    assert (first.text, first.kind) == ("Quote.", "scope")
    assert (second.text, second.kind) == ("Never mail.", "prohibition")


def test_a_configuration_cannot_be_changed_after_it_was_read(tmp_path):
    loaded = config.load(written(tmp_path, GOOD))
    with pytest.raises(ValueError, match="frozen"):
        loaded.daemon.grace = 1.0


def test_all_problems_are_told_at_once_each_with_its_line_value_and_rule(tmp_path):
    """FIELD 49."""
    text = """\
state_dri = "state"
[daemon]
max_sessions = "two"
worker_memory = "1KiB"
grace = 20
[queues.questions]
decidr = "local"
crash_limit = 4
constraints = [
  "a",
  { text = "b", kind = "scop" },
]
[deciders.local]
kind = "extractive"
threshold = 3
[triggers.nightly]
kind = "timer"
cron = "0 2 * *"
queues = ["question"]
"""
    kinds = '"scope", "prohibition", "acceptance" or "interface"'
    assert problems(tmp_path, text) == [
        '1 state_dri = "state" | unknown key; did you mean "state_dir"?',
        '3 daemon.max_sessions = "two" | must be a whole number',
        '4 daemon.worker_memory = "1KiB" | must be at least 128MiB',
        '5 daemon.grace = 20 | must be a duration in quotes, such as "90s", "5m", "2h" or "3d"',
        '7 queues.questions.decidr = "local" | unknown key; did you mean "decider"?',
        "8 queues.questions.crash_limit = 4 | unknown key; it belongs to [daemon]",
        f'11 queues.questions.constraints[1].kind = "scop" | must be {kinds}; did you mean "scope"?',
        "15 deciders.local.threshold = 3 | must be at most 1",
        '18 triggers.nightly.cron = "0 2 * *" | 4 fields, cron needs 5 (minute hour day month weekday)',
        '19 triggers.nightly.queues[0] = "question" | there is no [queues.question]; did you mean "questions"?',
    ]


def test_loading_a_bad_file_raises_them_all_as_one_configuration_problem(tmp_path):
    with pytest.raises(ConfigProblem) as caught:
        config.load(written(tmp_path, 'state_dri = "x"\n' + GOOD.replace("decider =", "decidr =")))
    assert caught.value.exit_code == 78
    assert str(caught.value).splitlines() == [
        f'{tmp_path}/shiftwork.toml:1  state_dri = "x"    unknown key; did you mean "state_dir"?',
        f'{tmp_path}/shiftwork.toml:7  queues.questions.decidr = "local"    unknown key; did you mean "decider"?',
        "2 errors. Nothing was changed.",
    ]


@pytest.mark.parametrize("word", ["act", "plan", "rewind"])
def test_decisions_of_later_versions_are_refused_with_a_clear_word(tmp_path, word):
    text = GOOD.replace("decider =", f'decisions = ["answer", "{word}"]\ndecider =')
    assert problems(tmp_path, text) == [
        f'6 queues.questions.decisions[1] = "{word}" | comes with a later version'
    ]


def test_a_kind_that_nobody_brings_is_named_with_those_there_are_and_how_to_install(tmp_path):
    text = GOOD + '[triggers.mail]\nkind = "imap"\n[triggers.tick]\nkind = "timr"\n'
    install = f"If a plug-in brings it, install that beside Shiftwork:  {sys.executable} -m pip install DISTRIBUTION"
    assert problems(tmp_path, text) == [
        '11 triggers.mail.kind = "imap" | no trigger of this kind is installed; there is "timer" or "files". '
        + install,
        '13 triggers.tick.kind = "timr" | must be "timer" or "files"; did you mean "timer"?',
    ]


def test_the_http_table_is_checked(tmp_path):
    text = GOOD + '[http]\nbind = "8765"\nallowed_hosts = []\n'
    assert problems(tmp_path, text) == [
        '11 http.bind = "8765" | must be HOST:PORT such as "127.0.0.1:8765"',
        "12 http.allowed_hosts = [] | must not be empty",
    ]


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("decisions = []", "must name at least one decision"),
        ('decisions = ["flag", "flag"]', "names a decision twice"),
        ('sources = "docs"', "must be a list in [ ]"),
        ('sources = ["~/docs/*.md"]', '"~" is not expanded: write the whole path'),
        ('sources = [""]', "must not be empty"),
        ("inbox_immediate = 1", "must be true or false"),
        ("notes_max = true", "must be a whole number"),
        ("notes_max = 2.0", "must be a whole number"),
        ("notes_chars = 24000", "must be less than context_chars (24000)"),
        ('stable_for = "2"', 'must be a duration such as 90s, 5m, 2h or 3d; "2s" means seconds'),
        ('constraints = [" "]', "must not be blank"),
        ("constraints = [1]", "must be a table"),
    ],
)
def test_each_rule_of_a_queue_is_said_in_plain_words(tmp_path, line, rule):
    text = f'[queues.q]\n{line}\ndecider = "local"\n[deciders.local]\nkind = "extractive"\n'
    (problem,) = config.read(written(tmp_path, text)).problems
    assert (problem.line, problem.rule) == (2, rule)


@pytest.mark.parametrize(
    ("table", "rule"),
    [
        ('queues = ["questions"]', 'needs either "every" or "cron"'),
        ('queues = ["questions"]\nevery = "1m"\ncron = "* * * * *"', 'needs either "every" or "cron"'),
        ('queues = ["questions"]\nevery = "1m"\ntimezone = "UTC"', '"timezone" belongs to "cron"'),
        ('queues = []\nevery = "1m"', "must not be empty"),
        ('queues = ["questions"]\nevery = "1m"\nitem = { title = "t" }', "missing"),
        (
            'queues = ["questions"]\ncron = "* * * * *"\ntimezone = "Europe/Berln"',
            'must be a time zone such as "Europe/Berlin" or "UTC"',
        ),
    ],
)
def test_each_rule_of_a_timer_is_said_in_plain_words(tmp_path, table, rule):
    (problem,) = config.read(written(tmp_path, f'{GOOD}[triggers.t]\nkind = "timer"\n{table}\n')).problems
    assert problem.rule == rule


def test_names_are_plain_and_never_look_like_ids(tmp_path):
    text = 'queues."a b" = { decider = "x" }\nqueues.q-0007 = { decider = "x" }\ndeciders.x = { kind = "extractive" }'
    assert [line.partition(" | ")[2] for line in problems(tmp_path, text)] == [
        "a name is 1 to 64 of A-Z a-z 0-9 _ - . and starts with a letter or digit",
        "a name must not look like an id such as q-0007",
    ]


def test_nothing_of_ours_may_lie_in_an_inbox(tmp_path):
    def queue(name: str, inbox: str, outbox: str) -> str:
        return f'[queues.{name}]\ninbox = "{inbox}"\noutbox = "{outbox}"\ndecider = "d"\n'

    decider = '[deciders.d]\nkind = "extractive"\n'
    assert problems(tmp_path, queue("a", "in", "in/out") + decider) == [
        '3 queues.a.outbox = "in/out" | lies in the inbox of [queues.a]: answers would come back as work'
    ]
    assert problems(tmp_path, queue("a", "in", "out") + queue("b", "in", "out") + decider) == [
        '6 queues.b.inbox = "in" | lies in the inbox of [queues.a]'
    ]
    assert problems(tmp_path, queue("a", "in/a", "out") + queue("b", "in", "out") + decider) == [
        '2 queues.a.inbox = "in/a" | lies in the inbox of [queues.b]'
    ]
    assert problems(tmp_path, 'state_dir = "in/state"\n' + queue("a", "in", "out") + decider) == [
        '3 queues.a.inbox = "in" | holds state_dir: the store would be taken as work'
    ]
    assert problems(tmp_path, 'state_dir = "/var/s"\n' + queue("a", ".", "/var/out") + decider) == [
        '3 queues.a.inbox = "." | holds this configuration file: it would be taken as work'
    ]
    (tmp_path / "link").symlink_to(tmp_path / "in")
    (tmp_path / "in").mkdir()
    assert problems(tmp_path, queue("a", "in", "out") + queue("b", "link", "out") + decider) == [
        '6 queues.b.inbox = "link" | lies in the inbox of [queues.a]'
    ]


def test_there_is_never_a_second_watcher_of_an_inbox(tmp_path):
    text = GOOD + '[queues.none]\ndecider = "local"\n'
    text += '[triggers.one]\nkind = "files"\nqueues = ["questions", "none"]\n'
    text += '[triggers.two]\nkind = "files"\nqueues = ["questions"]\n'
    assert problems(tmp_path, text) == [
        '14 triggers.one.queues[1] = "none" | this queue has no inbox to watch',
        '17 triggers.two.queues[0] = "questions" | [triggers.one] tunes this queue\'s inbox already',
    ]


def test_a_program_that_is_not_there_is_told_before_the_first_session(tmp_path):
    text = GOOD + '[deciders.cmd]\nkind = "command"\nargv = ["./decide", "--token=hush"]\n'
    assert problems(tmp_path, text) == [
        '12 deciders.cmd.argv[0] = "./decide" | no such program, or it may not be executed'
    ]
    program = tmp_path / "decide"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    decider = config.load(written(tmp_path, text)).deciders["cmd"]
    assert decider.argv == (str(program), "--token=hush")


def test_secret_files_must_be_there_and_hold_something(tmp_path):
    """FIELD 50."""
    text = GOOD + '[notify]\nservices = [{ url_file = "a", tags = ["page"] }]\nheartbeat_url_file = "b"\n'
    (tmp_path / "b").write_text("\n")
    assert problems(tmp_path, text) == [
        '11 notify.services[0].url_file = "a" | cannot be read: No such file or directory',
        '12 notify.heartbeat_url_file = "b" | is empty',
    ]


def test_a_secret_that_everyone_can_read_is_a_warning(tmp_path):
    text = GOOD + '[http]\ntoken_file = "token"\n'
    token = tmp_path / "token"
    token.write_text("hush")
    token.chmod(0o644)
    rules = [warning.rule for warning in config.read(written(tmp_path, text)).warnings]
    assert f"everyone on this machine can read it:  chmod 600 {token}" in rules
    token.chmod(0o600)
    assert config.read(written(tmp_path, text)).warnings[0].rule == "matches no file"  # the sources, only


def test_passwords_in_values_are_not_repeated_in_problems(tmp_path):
    text = (
        GOOD
        + '[deciders.cmd]\nkind = "command"\nargv = ["sh"]\nenv = ["API_KEY=hush", "https://u:hush@h/"]\n'
    )
    (line,) = problems(tmp_path, text)
    assert "hush" not in line
    assert "***" in line


def test_a_key_that_stands_where_its_file_should_be_named_is_not_repeated(tmp_path):
    text = GOOD + '[deciders.o]\nkind = "openai"\nbase_url = "http://h/"\nmodel = "m"\napi_key = "sk-hush"\n'
    (line,) = problems(tmp_path, text)
    assert 'deciders.o.api_key = "***"' in line
    assert 'did you mean "api_key_file"?' in line


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("token", "hush", "***"),
        ("mail_password", "hush", "***"),
        ("secret_file", "/etc/hush", "/etc/hush"),
        ("max_new_tokens", "100", "100"),
        ("argv", "--max-tokens=100", "--max-tokens=100"),
        ("argv", "--api-key hush", "--api-key ***"),
        ("argv", "token: hush", "token: ***"),
        ("proxy", "http://me:hush@host/", "http://***@host/"),
    ],
)
def test_what_is_masked_is_a_secret_and_no_count_of_tokens(name, text, told):
    assert config_words.without_secrets({"a": [{name: text}]}) == {"a": [{name: told}]}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a = \n", ":1  not TOML: invalid value"),
        (b'a = 1\nb = "x\n', ":2  not TOML: "),
        (b"a = 1\na = 2\n", ":2  not TOML: cannot overwrite a value"),
        (b'a = "\xff"', ": not UTF-8 at byte 5"),
        (b"a = " + b"[" * 100_000, ": nested too deeply"),
        (b" " * (2 << 20), ": larger than 1 MiB, this is no configuration"),
    ],
)
def test_a_file_that_is_no_toml_is_told_with_its_line(tmp_path, content, message):
    file = tmp_path / "shiftwork.toml"
    file.write_bytes(content)
    with pytest.raises(ConfigProblem) as caught:
        config.load(file)
    assert str(caught.value).startswith(f"{file}{message}")


def test_hostile_keys_and_values_are_shown_escaped(tmp_path):
    (line,) = problems(tmp_path, GOOD.replace("decider =", '"x\\u001b[31m\\u202e" = "\\u0007"\ndecider ='))
    assert line.isprintable()
    assert "\\x1b[31m\\u202e" in line


def test_odd_shapes_are_problems_and_never_tracebacks(tmp_path):
    shapes = ["1", '"x"', "[]", "[1]", "{}", "{ a = 1 }", "{ a = { b = 1 } }", "1979-05-27", "inf", "true"]
    for section in ("state_dir", "daemon", "http", "queues", "deciders", "triggers", "webhooks", "notify"):
        for shape in shapes:
            reading = config.read(written(tmp_path, f"{section} = {shape}\n"))
            assert reading.problems, (section, shape)
    for key in QueueSettings.model_fields:
        for shape in shapes:
            text = (
                f"[queues.q]\n{key} = {shape}\n[deciders.d]\nkind = {shape}\n[triggers.t]\nqueues = {shape}\n"
            )
            assert config.read(written(tmp_path, text)).problems, (key, shape)


def test_no_queue_is_told(tmp_path):
    assert problems(tmp_path, 'state_dir = "s"\n') == [
        "1 queues | no queue: add a table such as [queues.questions]"
    ]


def test_what_a_worker_is_told_travels_as_json_and_reads_back_equal(tmp_path):
    text = GOOD.replace("[queues", 'state_dir = "s"\n[daemon]\ngrace = "1h30m"\nlease = "1500ms"\n[queues', 1)
    text += '[deciders.other]\nkind = "command"\nargv = ["sh", "-c", "true"]\n'
    loaded = config.load(written(tmp_path, text))
    told = plan.Plan(
        state_dir=loaded.state_dir,
        folder=loaded.folder,
        limits=loaded.daemon,
        queues={name: plan.policy_of(queue) for name, queue in loaded.queues.items()},
        deciders=loaded.deciders,
    )
    again = plan.plan_of(json.loads(json.dumps(plan.job(told))))
    assert again == told
    assert again.limits.lease == 1.5


def test_the_search_order_is_option_variable_here_system(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    system = tmp_path / "etc.toml"
    with pytest.raises(ConfigProblem, match="shiftwork init") as caught:
        light.find(None, environ={}, system=str(system))
    for place in ("--config", "SHIFTWORK_CONFIG", "./shiftwork.toml", str(system)):
        assert place in str(caught.value)
    system.touch()
    assert light.find(None, environ={}, system=str(system)) == system
    (tmp_path / "shiftwork.toml").touch()
    assert light.find(None, environ={}, system=str(system)) == Path("shiftwork.toml")
    (tmp_path / "v.toml").touch()
    assert light.find(None, environ={"SHIFTWORK_CONFIG": "v.toml"}) == Path("v.toml")
    (tmp_path / "o.toml").touch()
    assert light.find("o.toml", environ={"SHIFTWORK_CONFIG": "v.toml"}) == Path("o.toml")


def test_a_named_file_that_is_missing_is_never_replaced_by_another(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shiftwork.toml").touch()
    with pytest.raises(ConfigProblem, match=r"nope\.toml: no such file"):
        light.find("nope.toml", environ={})
    with pytest.raises(ConfigProblem, match="from SHIFTWORK_CONFIG"):
        light.find(None, environ={"SHIFTWORK_CONFIG": "nope.toml"})


def test_a_named_file_that_cannot_be_reached_is_not_called_missing(tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(ConfigProblem, match=r"loop: Too many levels of symbolic links \(from --config\)"):
        light.find(str(tmp_path / "loop"), environ={})


def test_a_configuration_of_the_system_that_is_closed_to_us_is_not_called_missing(tmp_path, monkeypatch):
    """And a current folder that is closed, such as root's under sudo, is no reason to end there."""
    monkeypatch.chdir(tmp_path)
    system = tmp_path / "closed" / "config.toml"
    really = os.stat

    def stat(path, **more):
        if "closed" in os.fspath(path):
            raise PermissionError(13, "Permission denied", path)
        return really(path, **more)

    monkeypatch.setattr(os, "stat", stat)
    with pytest.raises(ConfigProblem, match=r"closed/config\.toml: Permission denied\."):
        light.find(None, environ={}, system=str(system))
    (tmp_path / "shiftwork.toml").touch()
    assert light.find(None, environ={}, system=str(system)) == Path("shiftwork.toml")


def test_the_light_reading_finds_the_same_places_as_the_whole_one(tmp_path):
    file = written(tmp_path, 'state_dir = "../s"\n' + GOOD)
    loaded, places = config.load(file), light.read_places(file)
    assert places.state_dir == loaded.state_dir
    queue = loaded.queues["questions"]
    assert places.queues["questions"] == (queue.inbox, queue.outbox, queue.decider)


def test_the_light_reading_of_a_bad_file_points_at_check_config(tmp_path):
    for text in ("queues = 1", "state_dir = 1", "queues.a = 1", "queues.a.inbox = 1"):
        with pytest.raises(ConfigProblem, match="check-config"):
            light.read_places(written(tmp_path, text))


def example() -> Path:
    return ROOT / "config.example.toml"


def test_the_example_loads(tmp_path):
    loaded = config.load(example())
    assert set(loaded.queues) == {"questions", "letters"}


def test_the_example_names_every_key():
    uncommented = re.sub(r"(?m)^# {1,3}(?=\w+ = |\[\w+\.)", "", example().read_text())
    keys = {path for path in key_lines(uncommented) if isinstance(path[-1], str)}
    names = {(path[0], path[-1]) for path in keys}
    tables: list[tuple[str, type[BaseModel]]] = [
        ("daemon", DaemonLimits),
        ("http", HttpSettings),
        ("queues", QueueSettings),
        ("queues", ConstraintRule),
        *(("deciders", model) for model in DECIDERS.values()),
        *(("triggers", model) for model in TRIGGERS.values()),
        ("triggers", TickItem),
        ("webhooks", WebhookSettings),
        ("notify", NotifySettings),
        ("notify", Service),
    ]
    for section, model in tables:
        for key in model.model_fields:
            assert (section, key) in names, f"{section}: {key} is not explained"


def test_the_defaults_that_the_example_states_are_the_defaults():
    data = tomllib.loads(example().read_text())
    exceptions = {"inbox", "outbox", "decider", "sources", "constraints", "ignore", "argv"}
    for section, model in (("daemon", DaemonLimits), ("http", HttpSettings), ("notify", NotifySettings)):
        for key, value in data[section].items():
            written_default = json.loads(model().model_dump_json())[key]
            assert model.model_validate({key: value}) == model(), (key, written_default)
    queue = {key: value for key, value in data["queues"]["questions"].items() if key not in exceptions}
    assert QueueSettings.model_validate({**queue, "decider": "d"}) == QueueSettings(decider="d")
    for kind in ("extractive", "command", "openai", "ollama"):
        model = DECIDERS[kind]
        table = next(table for table in data["deciders"].values() if table["kind"] == kind)
        needed = {key: table[key] for key in ("kind", "argv", "model", "base_url") if key in table}
        assert model.model_validate(table) == model.model_validate(needed)
