"""The names of the schema's tables, for commands that look at a store and would not read the whole schema for it."""

from __future__ import annotations

TABLES = frozenset(
    {
        *("alert_channels", "alerts", "commits", "conclusions", "constraints", "decisions", "deliveries"),
        *(
            "dependencies",
            "effects",
            "episodes",
            "events",
            "facts",
            "flags",
            "items",
            "leases",
            "meta",
            "nodes",
        ),
        *("notes", "outbox", "papers", "passages", "paused_queues", "problems", "revisions", "search_docs"),
        *("search_index", "search_scopes", "search_terms", "sessions", "shown", "sources", "tombstones"),
    }
)
