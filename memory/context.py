"""The context of one decision: rebuilt from the store each time, a pure function of the store and ``now``.

    rules · tools · constraints · facts — breakpoint — item constraints · changed · notes · conclusions · rejected ·
    episodes · passages · answers · item · budget

No transcript, ever: its size is bounded by the queue's limits, however many sessions lie behind it. Constraints, item
and answers are shown whole or not at all (``fits``). Where room is short the lowest-ranked passages and episodes are
left out first, then the oldest notes. The same state gives the same bytes: times are absolute, age changes nothing.

Ids: ``k-1`` constraint, ``i-1`` constraint of the item, ``m-12`` note, ``c-5`` conclusion, ``e-88`` episode,
``docs/resolve.md#3`` passage, ``f-0001`` answer, ``q-0007`` the item.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from memory import blocks
from memory.blocks import Block, Entry
from memory.recall import Limits, Recalled, recall
from store.checkpoints import Shown
from store.contract import Store
from store.keys import digest
from store.loading import Loaded
from store.memory import ConstraintRow

SCHEMA: Final = "shiftwork.request/1"
TRUST_OF_DOOR: Final = {"timer": "operator", "cli": "person"}
"""Whose word an item is, by its door; everything else is from outside."""

_BETWEEN: Final = "\n\n"
_NO_PASSAGE: Final = "SOURCE PASSAGES. None shares a word with this item."
_OPTIONAL: Final = ("notes", "conclusions", "rejected", "episodes", "passages")


class Context(NamedTuple):
    """What one decision is made from.

    ``request``      the ``shiftwork.request/1`` object without ``deadline_s``
    ``blocks``       the same as text
    ``digest``       covers every block but the budget
    ``chars``        of all blocks as one text, before anything was shortened that must be shown whole
    ``shown``        the passages as premises; ``premises``: the digests of all that was shown, by id
    ``ids``          every id that a decision may cite
    ``recalled``     the texts of shown memory; ``trust``: the lowest trust of all that is shown
    ``fits``         False: what must be shown whole is larger than ``context_chars``; then ask nobody with it
    """

    request: dict[str, Any]
    blocks: tuple[Block, ...]
    digest: str
    chars: int
    shown: tuple[Shown, ...]
    ids: frozenset[str]
    premises: dict[str, str]
    constraints_digest: str
    recalled: tuple[str, ...]
    trust: str
    fits: bool

    @property
    def text(self) -> str:
        """All blocks as one text."""
        return _BETWEEN.join(block.text for block in self.blocks)


class _Given(NamedTuple):
    """What the caller brings, in its order of showing."""

    loaded: Loaded
    tools: Sequence[Mapping[str, Any]]
    changed: Mapping[str, Any] | None
    budget: Mapping[str, Any]


def build(
    store: Store,
    loaded: Loaded,
    limits: Limits,
    *,
    now: float,
    budget: Mapping[str, Any],
    tools: Sequence[Mapping[str, Any]] = (),
    changed: Mapping[str, Any] | None = None,
) -> Context:
    """The context for the next decision about this node. Reads the store in one snapshot, writes nothing."""
    given = _Given(loaded, sorted(tools, key=lambda tool: str(tool["name"])), changed, budget)
    found = recall(store, loaded, limits, now=now)
    before, after = _whole_blocks(given, found)
    needed = sum(block.chars + len(_BETWEEN) for block in (*before, *after)) - len(_BETWEEN)
    room = limits.context_chars - needed
    if room < 0:
        item = next(block for block in after if block.name == "item")
        short = blocks.item_block(loaded, max(item.chars + room, 0))
        after = [short if block is item else block for block in after]
    entries = _entries(found)
    kept = _what_fits(entries, room)
    middle = [
        blocks.entries_block(name, kept[name], len(entries[name]) - len(kept[name]))
        for name in _OPTIONAL
        if name in kept
    ]
    if found.has_passages and not found.passages and room > len(_NO_PASSAGE):
        middle.append(blocks.block("passages", _NO_PASSAGE))
    return _context(given, found, kept, [*before, *middle, *after], needed=needed, fits=room >= 0)


def budget_of(loaded: Loaded, max_decisions: int) -> dict[str, int]:
    """What is left to the item, for the last block."""
    return {"decisions_left": max(max_decisions - loaded.decisions, 0)}


def _whole_blocks(given: _Given, found: Recalled) -> tuple[list[Block], list[Block]]:
    """The blocks that are never cut: those before the optional ones, and those after."""
    loaded = given.loaded
    before = [blocks.block("rules", blocks.RULES)]
    if given.tools:
        before.append(blocks.tools_block(given.tools))
    if found.constraints:
        before.append(blocks.constraints_block(loaded.queue, found.constraints))
    if loaded.constraints:
        before.append(blocks.item_constraints_block(loaded.constraints))
    if given.changed:
        before.append(blocks.changed_block(given.changed))
    after = [blocks.answers_block(loaded.answers)] if loaded.answers else []
    after.append(blocks.item_block(loaded))
    if given.budget:
        after.append(blocks.budget_block(given.budget))
    return before, after


def _entries(found: Recalled) -> dict[str, list[Entry]]:
    notes = [blocks.note_entry(note) for note in found.notes]
    return {
        "notes": [entry for entry in notes if entry.block == "notes"],
        "conclusions": [blocks.conclusion_entry(row) for row in found.conclusions],
        "rejected": [entry for entry in notes if entry.block == "rejected"],
        "episodes": [blocks.episode_entry(row) for row in found.episodes],
        "passages": [blocks.passage_entry(row) for row in found.passages],
    }


def _what_fits(entries: Mapping[str, Sequence[Entry]], room: int) -> dict[str, list[Entry]]:
    """What of each block is kept within `room` characters, in its order; no block where there is not even room to say
    that something was left out.
    """
    some = {name: entries[name] for name in _OPTIONAL if entries[name]}
    frame = sum(len(_BETWEEN) + len(blocks.HEADS[name]) for name in some)
    if frame + sum(len(entry.text) + 1 for name in some for entry in some[name]) <= room:
        return {name: list(entries) for name, entries in some.items()}
    room -= frame + sum(len(blocks.left_out_words(len(some[name]))) + 1 for name in some)
    if room < 0:
        return {}
    kept = set()
    for entry in _by_worth(entries):
        room -= len(entry.text) + 1
        if room < 0:
            break
        kept.add(entry.id)
    return {name: [entry for entry in some[name] if entry.id in kept] for name in some}


def _by_worth(entries: Mapping[str, Sequence[Entry]]) -> list[Entry]:
    """Who is kept first: what the work itself came to, the newest first; then by rank, passages before episodes and
    the failed attempt, for which a place was kept, among the first.
    """
    order = [*entries["rejected"][::-1], *entries["conclusions"][::-1], *entries["notes"][::-1]]
    episodes = sorted(entries["episodes"], key=lambda entry: not entry.request["failed"])
    ranked = [(rank, 0, entry) for rank, entry in enumerate(entries["passages"])]
    ranked += [(rank, 1, entry) for rank, entry in enumerate(episodes)]
    return order + [entry for _, _, entry in sorted(ranked, key=lambda one: one[:2])]


def _context(
    given: _Given,
    found: Recalled,
    kept: Mapping[str, Sequence[Entry]],
    shown_blocks: Sequence[Block],
    *,
    needed: int,
    fits: bool,
) -> Context:
    loaded = given.loaded
    ids = {entry.id for some in kept.values() for entry in some}
    if len(ids) < len(found.notes) + len(found.conclusions) + len(found.episodes) + len(found.passages):
        found = found._replace(
            notes=[note for note in found.notes if f"m-{note.id}" in ids],
            episodes=[row for row in found.episodes if f"e-{row.id}" in ids],
            passages=[row for row in found.passages if row.ref in ids],
        )
    rules = _rules(loaded, found.constraints)
    ids |= (
        {str(rule["id"]) for rule in rules} | {answer.flag_id for answer in loaded.answers} | {loaded.item_id}
    )
    constraints_digest = digest("constraints", [[row.text, row.kind] for row in found.constraints])
    chars = sum(one.chars + len(_BETWEEN) for one in shown_blocks) - len(_BETWEEN)
    return Context(
        request=_request(given, rules, kept),
        blocks=tuple(shown_blocks),
        digest=digest(
            "context", [[one.name, one.text] for one in shown_blocks if one.name not in blocks.VOLATILE]
        ),
        chars=chars if fits else needed,
        shown=tuple(Shown(row.source_id, row.ref, row.digest) for row in found.passages),
        ids=frozenset(ids),
        premises=_premises(loaded, found, constraints_digest),
        constraints_digest=constraints_digest,
        recalled=(*(row.text for row in found.episodes), *(note.text for note in found.notes)),
        trust=_trust(loaded, found),
        fits=fits,
    )


def _rules(loaded: Loaded, rows: Sequence[ConstraintRow]) -> list[dict[str, Any]]:
    found = [{"id": f"k-{row.id}", "text": row.text, "kind": row.kind, "author": row.author} for row in rows]
    found += [
        {"id": f"i-{number}", "text": rule.text, "kind": rule.kind, "author": "item"}
        for number, rule in enumerate(loaded.constraints, 1)
    ]
    return found


def _request(
    given: _Given, rules: list[dict[str, Any]], kept: Mapping[str, Sequence[Entry]]
) -> dict[str, Any]:
    loaded = given.loaded
    said = {name: [dict(entry.request) for entry in kept.get(name, ())] for name in _OPTIONAL}
    return {
        "schema": SCHEMA,
        "queue": loaded.queue,
        "item": {
            "id": loaded.item_id,
            "key": loaded.key,
            "title": loaded.title,
            "body": loaded.body,
            "attempt": loaded.attempt,
        },
        "node": {"key": loaded.node_id, "kind": loaded.node_kind, "title": loaded.node_title},
        "constraints": rules,
        "facts": [],
        "notes": said["notes"],
        "conclusions": said["conclusions"],
        "rejected": said["rejected"],
        "episodes": said["episodes"],
        "passages": said["passages"],
        "answers": [
            {
                "flag": answer.flag_id,
                "question": answer.question,
                "option": answer.option,
                "text": answer.text,
                "by": answer.by,
                "at": blocks.iso(answer.at),
                "stale": answer.stale,
            }
            for answer in loaded.answers
        ],
        "changed": None if given.changed is None else dict(given.changed),
        "tools": [dict(tool) for tool in given.tools],
        "budget": dict(given.budget),
    }


def _premises(loaded: Loaded, found: Recalled, constraints_digest: str) -> dict[str, str]:
    """Digests of all that was shown, by id."""
    premises = {"constraints": constraints_digest, loaded.item_id: loaded.digest}
    premises |= {row.ref: row.digest for row in found.passages}
    if found.notes:  # one digest for all: they are words of our own, never edited
        premises["notes"] = digest([[note.id, note.text, note.stale] for note in found.notes])
    premises |= {f"e-{row.id}": digest(row.text, row.stale) for row in found.episodes}
    for answer in loaded.answers:  # a flag may have asked several questions
        premises[answer.flag_id] = digest(premises.get(answer.flag_id), *answer)
    return premises


def _trust(loaded: Loaded, found: Recalled) -> str:
    """The lowest trust of everything outside that is shown (FIELD 40); of another item's note nothing is known."""
    trusts = {TRUST_OF_DOOR.get(loaded.door, "untrusted"), *(row.trust for row in found.episodes)}
    if any(note.item_id != loaded.item_id for note in found.notes):
        trusts.add("untrusted")
    return next(trust for trust in ("untrusted", "person", "operator") if trust in trusts)
