"""The command ``shiftwork``: finds the verb, imports its module alone, runs it, turns errors into exit codes.

    0 ok · 1 failure · 2 usage · 3 not found · 4 already running · 5 conflict or already resolved
    70 store refused · 75 busy, try again · 78 configuration · 130 interrupted

Only the called verb's parser is built: a cold start of a reading verb stays near that of ``import sqlite3``.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn, cast

from daemon.cli.verbs import VERBS
from store.errors import ShiftworkError, UsageProblem

INTERRUPTED = 130
TRY_AGAIN = 75
_QUICK = frozenset({"flags", "list", "log", "show", "status", "why"})
_HELP = ("-h", "--help", "help")
_VERSION = ("-V", "--version")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line and give its exit code. Nothing but a bug of ours leaves as an exception."""
    _never_fail_to_write_a_character()
    words = list(sys.argv[1:] if argv is None else argv)
    quick = argv is None and _is_quick(words)
    if quick:
        gc.disable()  # nothing of it outlives the process
    try:
        code = _run(words)
        if sys.stdout is not None:
            sys.stdout.flush()
    except ShiftworkError as error:
        _say(_copyable(str(error), words))
        code = error.exit_code
    except KeyboardInterrupt:
        code = INTERRUPTED
    except BrokenPipeError:
        _drop_stdout()
        code = 1
    except OSError as error:
        _drop_stdout()
        _say(_os_error_words(error))
        code = 1
    except Exception as error:
        if not _is_disk_trouble(error):
            raise
        _say(f"the store cannot be written: {error}. Nothing was changed; try again when that is mended")
        code = TRY_AGAIN
    if quick:
        _leave(code)
    return code


def _is_disk_trouble(error: Exception) -> bool:
    """A full, failing or read-only disk, as SQLite says it; the module is there if it was needed."""
    database = sys.modules.get("store.database")
    code = getattr(error, "sqlite_errorcode", None)
    return database is not None and code is not None and code & 0xFF in database.DISK_CODES


def _is_quick(words: list[str]) -> bool:
    """Whether the verb only reads."""
    start = 2 if words[:1] == ["--config"] else 1 if words[:1] and words[0].startswith("--config=") else 0
    return bool(_QUICK.intersection(words[start : start + 1]))


def _leave(code: int) -> NoReturn:
    """End here and now: taking the interpreter apart would cost a reading verb a sixth of its time.

    Everything is closed and flushed by then, and no such verb starts a thread or a child.
    """
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except (OSError, ValueError):
            continue
    os._exit(code)


def _run(words: list[str]) -> int:
    config, words = _leading_config(words)
    if not words:
        return _first_screen()
    if words[0] in _VERSION:
        words = ["version", *words[1:]]
    if words[0] in _HELP:
        if len(words) == 1:
            return _first_screen()
        words = [*words[1:], "--help"]
    verb, rest = _verb(words)
    module = importlib.import_module(f"daemon.cli.{VERBS[verb].module}")
    name = verb.replace(" ", "_").replace("-", "_")
    parser = _Parser(
        prog=f"shiftwork {verb}",
        description=_sentence(VERBS[verb].purpose),
        allow_abbrev=False,
        formatter_class=_Formatter,
    )
    parser.add_argument("--config", metavar="FILE", default=config, help="the configuration file to use")
    add_arguments = getattr(module, f"{name}_arguments", None) or module.add_arguments
    add_arguments(parser)
    args = parser.parse_args(rest)
    args.verb = verb
    run = cast("Callable[[argparse.Namespace], int]", getattr(module, name, None) or module.run)
    return run(args)


class _Formatter(argparse.HelpFormatter):
    """Always as wide as our screens: asking for the terminal's width costs an import for every verb."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=78)


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in two lines, and how to see the whole usage in a third."""

    def error(self, message: str) -> NoReturn:
        """Exit 2 through the same door as every other error."""
        usage = self.format_usage().removeprefix("usage: ").rstrip()
        raise UsageProblem(f"{self.prog}: {message}\nUsage: {usage}\nAll of it:  {self.prog} --help")


def _leading_config(words: list[str]) -> tuple[str | None, list[str]]:
    """``--config FILE`` may stand before the verb, too."""
    if words and words[0] == "--config":
        if len(words) < 2:
            raise UsageProblem("--config needs a file")
        return words[1], words[2:]
    if words and words[0].startswith("--config="):
        return words[0].partition("=")[2], words[1:]
    return None, words


def _verb(words: list[str]) -> tuple[str, list[str]]:
    """The verb, of one word or two, and the words after it."""
    for length in (2, 1):
        verb = " ".join(words[:length])
        if len(words) >= length and verb in VERBS:
            return verb, words[length:]
    longer = [verb for verb in VERBS if verb.startswith(f"{words[0]} ")]
    if longer:
        raise UsageProblem("\n".join([f'"{words[0]}" needs one more word:', *_lines(longer)]))
    from daemon.cli import screen

    hint = f"{_hint(words[0])}\nAll verbs:  {screen.command('--help')}"
    raise UsageProblem(f'there is no verb "{_escaped(words[0])}"{hint}')


def _hint(word: str) -> str:
    import difflib

    close = difflib.get_close_matches(word, VERBS, n=1)
    return f'; did you mean "{close[0]}"?' if close else ""


def _first_screen() -> int:
    from daemon.cli import light, screen
    from daemon.cli.version import VERSION

    screen.out(f"shiftwork {VERSION} drains queues of work in short, crash-proof sessions.\n")
    for line in _lines(list(VERBS)):
        screen.out(line)
    screen.out("\nMore of one verb:  shiftwork VERB --help")
    places = (os.environ.get(light.VARIABLE), light.LOCAL, light.SYSTEM)
    if not any(os.path.exists(name) for name in places if name):
        screen.out(f"Begin here:        {screen.command('init', 'demo')}")
    return 0


def _lines(verbs: list[str]) -> list[str]:
    width = max(len(verb) for verb in VERBS)
    return [f"  {verb.ljust(width)}  {VERBS[verb].purpose}" for verb in verbs]


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _escaped(text: str) -> str:
    from store.text import shown

    return shown(text, 60)


def _os_error_words(error: OSError) -> str:
    from store.text import shown

    words = error.strerror or str(error) or type(error).__name__
    return f"{shown(str(error.filename))}: {words}" if error.filename is not None else words


def _copyable(text: str, words: list[str]) -> str:
    """What it advises, with this program's name as it was called and the configuration that was named."""
    from daemon.cli import screen

    named = [word.partition("=")[2] for word in words if word.startswith("--config=")]
    named += words[words.index("--config") + 1 :][:1] if "--config" in words else []
    return screen.copyable(text, config=next((one for one in named if os.path.exists(one)), None))


def _say(text: str) -> None:
    if "JOURNAL_STREAM" in os.environ:
        from daemon import journal

        if journal.is_journal(sys.stderr):
            text = journal.marked(text, journal.ERROR)
    try:
        print(text, file=sys.stderr, flush=True)
    except OSError:  # nobody is there to read it; the exit code still tells
        return


def _never_fail_to_write_a_character() -> None:
    """A terminal that lacks a character shows its escape instead of a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def _drop_stdout() -> None:
    """Stdout cannot be written any more: keep the interpreter from trying again when it ends."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError, AttributeError):
        return


if __name__ == "__main__":
    sys.exit(main())
