"""The schema of ``shiftwork.db``: one page of tables, narrow hot rows apart from long history.

Recovery reads ``items``, ``nodes``, ``leases`` and ``flags``; audits read ``events``, ``sessions`` and
``decisions``. Every state column repeats its machine (``states.py``) as a CHECK. Times are REAL seconds since
the epoch, UTC. Rows are never overwritten by an insert; a move is an UPDATE that looks at its row count.
"""

from __future__ import annotations

from store.alerts import ALERTS_DDL
from store.search import SEARCH_DDL

APPLICATION_ID = 0x53484654  # "SHFT"

CORE_DDL = """
CREATE TABLE meta (
    key TEXT PRIMARY KEY,
    value TEXT NOT NULL
) WITHOUT ROWID;

-- one row, on a page of its own: how many commits this store has seen
CREATE TABLE commits (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    seq INTEGER NOT NULL CHECK (seq >= 0)
);
INSERT INTO commits VALUES (1, 0);

CREATE TABLE items (
    seq INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    queue TEXT NOT NULL CHECK (queue <> ''),
    key TEXT NOT NULL CHECK (key <> ''),
    state TEXT NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'done', 'aborted')),
    paused INTEGER NOT NULL DEFAULT 0 CHECK (paused IN (0, 1)),
    version INTEGER NOT NULL DEFAULT 1 CHECK (version >= 1),
    generation INTEGER NOT NULL DEFAULT 1 CHECK (generation >= 1),
    plan_version INTEGER NOT NULL DEFAULT 1 CHECK (plan_version >= 1),
    revision INTEGER NOT NULL DEFAULT 1 CHECK (revision >= 1),
    stale TEXT,
    digest TEXT NOT NULL,
    title TEXT NOT NULL,
    body TEXT NOT NULL,
    constraints TEXT NOT NULL DEFAULT '[]',
    priority INTEGER NOT NULL DEFAULT 0,
    not_before_at REAL,
    name TEXT NOT NULL DEFAULT '',
    door TEXT NOT NULL,
    origin TEXT NOT NULL DEFAULT '',
    decisions INTEGER NOT NULL DEFAULT 0,
    result TEXT,
    unverified INTEGER NOT NULL DEFAULT 0 CHECK (unverified IN (0, 1)),
    created_at REAL NOT NULL,
    changed_at REAL NOT NULL,
    finished_at REAL,
    UNIQUE (queue, key),
    CHECK ((state = 'open') = (finished_at IS NULL)),
    CHECK (state <> 'done' OR result IS NOT NULL)
);
-- counts per queue and state, and per hour of finishing, without reading a row
CREATE INDEX items_by_state ON items (queue, state, unverified, finished_at);
CREATE INDEX items_by_arrival ON items (created_at);
CREATE INDEX items_paused ON items (queue) WHERE paused = 1 AND state = 'open';

CREATE TABLE paused_queues (
    queue TEXT PRIMARY KEY,
    by TEXT NOT NULL,
    at REAL NOT NULL
) WITHOUT ROWID;

CREATE TABLE revisions (
    item_id TEXT NOT NULL,
    revision INTEGER NOT NULL,
    digest TEXT NOT NULL,
    title TEXT NOT NULL,
    body TEXT NOT NULL,
    constraints TEXT NOT NULL,
    door TEXT NOT NULL,
    origin TEXT NOT NULL,
    at REAL NOT NULL,
    PRIMARY KEY (item_id, revision)
) WITHOUT ROWID;

CREATE TABLE nodes (
    seq INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    item_id TEXT NOT NULL REFERENCES items (id),
    queue TEXT NOT NULL,
    path TEXT NOT NULL,
    parent_id TEXT,
    kind TEXT NOT NULL CHECK (kind IN ('decide', 'action', 'human', 'check')),
    title TEXT NOT NULL DEFAULT '',
    state TEXT NOT NULL DEFAULT 'pending' CHECK
        (state IN ('pending', 'running', 'blocked', 'succeeded', 'failed', 'void', 'abandoned')),
    version INTEGER NOT NULL DEFAULT 1 CHECK (version >= 1),
    generation INTEGER NOT NULL DEFAULT 1,
    priority INTEGER NOT NULL DEFAULT 0,
    held INTEGER NOT NULL DEFAULT 0 CHECK (held IN (0, 1)),
    not_before_at REAL,
    parked INTEGER NOT NULL DEFAULT 0 CHECK (parked IN (0, 1)),
    park_expires_at REAL,
    waits_for TEXT,
    why TEXT NOT NULL DEFAULT '',
    attempt INTEGER NOT NULL DEFAULT 0 CHECK (attempt >= 0),
    crashes INTEGER NOT NULL DEFAULT 0 CHECK (crashes >= 0),
    failures INTEGER NOT NULL DEFAULT 0 CHECK (failures >= 0),
    reentrant INTEGER NOT NULL DEFAULT 1 CHECK (reentrant IN (0, 1)),
    reuse_key TEXT,
    result TEXT,
    created_at REAL NOT NULL,
    changed_at REAL NOT NULL,
    UNIQUE (item_id, path, generation),
    CHECK ((state = 'blocked') = (waits_for IS NOT NULL)),
    CHECK (state <> 'succeeded' OR result IS NOT NULL)
);
-- the whole ready question is one short scan of this index (human nodes are never claimed)
CREATE INDEX nodes_ready ON nodes (queue, priority DESC, seq)
    WHERE state = 'pending' AND not_before_at IS NULL AND held = 0 AND kind <> 'human';
CREATE INDEX nodes_asleep ON nodes (not_before_at)
    WHERE state = 'pending' AND not_before_at IS NOT NULL AND held = 0 AND kind <> 'human';
CREATE INDEX nodes_live ON nodes (state, queue, item_id) WHERE state IN ('running', 'blocked', 'failed');
CREATE INDEX nodes_of_item ON nodes (item_id);
CREATE INDEX nodes_crashed ON nodes (queue, crashes) WHERE crashes > 0;

CREATE TABLE dependencies (
    node_id TEXT NOT NULL,
    needs_id TEXT NOT NULL,
    kind TEXT NOT NULL DEFAULT 'needs' CHECK (kind IN ('needs', 'sees')),
    PRIMARY KEY (node_id, needs_id)
) WITHOUT ROWID;

CREATE TABLE leases (
    node_id TEXT PRIMARY KEY,
    item_id TEXT NOT NULL,
    session_id INTEGER NOT NULL,
    token TEXT NOT NULL,
    owner TEXT NOT NULL,
    daemon TEXT NOT NULL DEFAULT '',
    expires_at REAL NOT NULL,
    heartbeat_at REAL NOT NULL,
    deadline_at REAL
) WITHOUT ROWID;

CREATE TABLE sessions (
    id INTEGER PRIMARY KEY,
    item_id TEXT NOT NULL,
    node_id TEXT NOT NULL,
    queue TEXT NOT NULL,
    trigger TEXT NOT NULL DEFAULT '',
    attempt INTEGER NOT NULL,
    start_version INTEGER NOT NULL,
    end_version INTEGER,
    outcome TEXT NOT NULL DEFAULT 'running' CHECK (outcome IN
        ('running', 'answered', 'flagged', 'parked', 'void', 'failed', 'denied', 'crashed', 'released', 'conflict')),
    cause TEXT NOT NULL DEFAULT '',
    context_digest TEXT,
    context_chars INTEGER,
    steps TEXT NOT NULL DEFAULT '[]',
    input_tokens INTEGER,
    output_tokens INTEGER,
    cost REAL,
    started_at REAL NOT NULL,
    ended_at REAL,
    CHECK ((outcome = 'running') = (ended_at IS NULL))
);
CREATE INDEX sessions_by_item ON sessions (item_id, id);
CREATE INDEX sessions_failed ON sessions (outcome) WHERE outcome IN ('failed', 'crashed');

CREATE TABLE decisions (
    node_id TEXT NOT NULL,
    reuse_key TEXT NOT NULL,
    item_id TEXT NOT NULL,
    session_id INTEGER,
    kind TEXT NOT NULL,
    decided_by TEXT NOT NULL CHECK (decided_by IN ('code', 'model', 'person')),
    body TEXT NOT NULL,
    premises TEXT NOT NULL DEFAULT '{}',
    at REAL NOT NULL,
    PRIMARY KEY (item_id, node_id, reuse_key)
) WITHOUT ROWID;

CREATE TABLE effects (
    key TEXT PRIMARY KEY,
    item_id TEXT NOT NULL,
    node_id TEXT NOT NULL,
    target TEXT NOT NULL,
    action TEXT NOT NULL,
    class TEXT NOT NULL CHECK (class IN ('read', 'local', 'remote', 'irreversible')),
    digest TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('intent', 'executed', 'confirmed', 'unknown', 'compensated', 'refused')),
    outcome TEXT,
    intended_at REAL NOT NULL,
    confirmed_at REAL,
    CHECK ((state = 'confirmed') <= (confirmed_at IS NOT NULL))
) WITHOUT ROWID;
CREATE INDEX effects_of_item ON effects (item_id);

CREATE TABLE flags (
    seq INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    item_id TEXT NOT NULL,
    node_id TEXT NOT NULL,
    about_node_id TEXT NOT NULL,
    queue TEXT NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('direction', 'confirm', 'exception', 'acceptance')),
    cause TEXT NOT NULL DEFAULT 'decision' CHECK (cause IN
        ('decision', 'crash', 'failures', 'max_decisions', 'context', 'unreadable', 'expired', 'stuck')),
    state TEXT NOT NULL DEFAULT 'waiting' CHECK (state IN ('waiting', 'parked', 'resolved', 'withdrawn')),
    stuck TEXT NOT NULL,
    questions TEXT NOT NULL,
    evidence TEXT NOT NULL DEFAULT '[]',
    plan_version INTEGER NOT NULL DEFAULT 1,
    revision INTEGER NOT NULL DEFAULT 1,
    asked_at REAL NOT NULL,
    waiting_since_at REAL NOT NULL,
    parked_until_at REAL,
    expires_at REAL,
    resolved_at REAL,
    resolved_by TEXT,
    answer TEXT,
    CHECK ((state = 'resolved') = (resolved_at IS NOT NULL AND resolved_by IS NOT NULL AND answer IS NOT NULL)),
    CHECK ((state = 'parked') = (parked_until_at IS NOT NULL))
);
CREATE INDEX flags_waiting ON flags (queue, waiting_since_at) WHERE state IN ('waiting', 'parked');
CREATE INDEX flags_of_item ON flags (item_id);

CREATE TABLE notes (
    id INTEGER PRIMARY KEY,
    queue TEXT NOT NULL,
    item_id TEXT NOT NULL,
    node_id TEXT NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('conclusion', 'rejected', 'question', 'stage')),
    text TEXT NOT NULL CHECK (text <> ''),
    sources TEXT NOT NULL DEFAULT '[]',
    pinned INTEGER NOT NULL DEFAULT 0 CHECK (pinned IN (0, 1)),
    stale TEXT,
    merged INTEGER NOT NULL DEFAULT 1,
    at REAL NOT NULL,
    dropped_at REAL
);
-- what a queue shares; questions and stages are read with their own item alone
CREATE INDEX notes_shared ON notes (queue, id) WHERE dropped_at IS NULL AND kind IN ('conclusion', 'rejected');
CREATE INDEX notes_of_item ON notes (item_id, id);

CREATE TABLE conclusions (
    id INTEGER PRIMARY KEY,
    queue TEXT NOT NULL,
    item_id TEXT NOT NULL,
    node_id TEXT NOT NULL,
    subject TEXT NOT NULL CHECK (subject <> ''),
    value TEXT NOT NULL,
    evidence TEXT NOT NULL DEFAULT '[]',
    superseded_by INTEGER,
    at REAL NOT NULL
);
CREATE INDEX conclusions_of_item ON conclusions (item_id, id);

CREATE TABLE episodes (
    id INTEGER PRIMARY KEY,
    queue TEXT NOT NULL,
    item_id TEXT NOT NULL,
    node_id TEXT NOT NULL,
    text TEXT NOT NULL CHECK (text <> ''),
    digest TEXT NOT NULL,
    evidence TEXT NOT NULL DEFAULT '[]',
    failed INTEGER NOT NULL DEFAULT 0 CHECK (failed IN (0, 1)),
    source TEXT NOT NULL DEFAULT '',
    trust TEXT NOT NULL DEFAULT 'untrusted' CHECK (trust IN ('operator', 'person', 'untrusted')),
    stale TEXT,
    superseded_by INTEGER,
    observed_at REAL NOT NULL,
    verified_at REAL,
    valid_for_s REAL,
    UNIQUE (queue, digest)
);
CREATE INDEX episodes_of_item ON episodes (item_id, id);

CREATE TABLE facts (
    id INTEGER PRIMARY KEY,
    queue TEXT NOT NULL,
    text TEXT NOT NULL CHECK (text <> ''),
    source TEXT NOT NULL,
    state TEXT NOT NULL DEFAULT 'proposed' CHECK (state IN ('proposed', 'confirmed', 'withdrawn')),
    confirmed_by TEXT,
    observed_at REAL NOT NULL,
    verified_at REAL,
    valid_for_s REAL,
    CHECK (state <> 'confirmed' OR confirmed_by IS NOT NULL)
);

-- the constraints of queues (from the operator's file) and of items (handed in), each an object of its own
CREATE TABLE constraints (
    id INTEGER PRIMARY KEY,
    queue TEXT NOT NULL,
    item_id TEXT NOT NULL DEFAULT '',
    text TEXT NOT NULL CHECK (text <> ''),
    kind TEXT NOT NULL CHECK (kind IN ('scope', 'prohibition', 'acceptance', 'interface')),
    author TEXT NOT NULL CHECK (author IN ('operator', 'item', 'person')),
    quote TEXT NOT NULL DEFAULT '',
    position INTEGER NOT NULL,
    at REAL NOT NULL,
    removed_at REAL
);
CREATE INDEX constraints_live ON constraints (queue, item_id, position) WHERE removed_at IS NULL;

CREATE TABLE sources (
    id INTEGER PRIMARY KEY,
    queue TEXT NOT NULL,
    path TEXT NOT NULL,
    digest TEXT NOT NULL,
    bytes INTEGER NOT NULL,
    mtime_ns INTEGER NOT NULL,
    problem TEXT,
    indexed_at REAL NOT NULL,
    gone_at REAL,
    UNIQUE (queue, path)
);

CREATE TABLE passages (
    id INTEGER PRIMARY KEY,
    queue TEXT NOT NULL,
    source_id INTEGER NOT NULL REFERENCES sources (id),
    ref TEXT NOT NULL,
    heading TEXT NOT NULL DEFAULT '',
    text TEXT NOT NULL,
    digest TEXT NOT NULL,
    indexed_at REAL NOT NULL,
    gone_at REAL
);
CREATE INDEX passages_live ON passages (source_id) WHERE gone_at IS NULL;

-- which passages, episodes and answers a finished node was shown or cited, by digest (its premises)
CREATE TABLE shown (
    node_id TEXT NOT NULL,
    item_id TEXT NOT NULL,
    source_id INTEGER NOT NULL,
    ref TEXT NOT NULL,
    digest TEXT NOT NULL,
    cited INTEGER NOT NULL DEFAULT 0 CHECK (cited IN (0, 1)),
    PRIMARY KEY (source_id, ref, node_id)
) WITHOUT ROWID;

CREATE TABLE papers (
    item_id TEXT NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('answer', 'waiting')),
    about TEXT NOT NULL,
    state TEXT NOT NULL DEFAULT 'due' CHECK (state IN ('due', 'written', 'unwanted', 'removed')),
    path TEXT,
    digest TEXT,
    at REAL NOT NULL,
    PRIMARY KEY (item_id, kind, about),
    CHECK (state <> 'written' OR path IS NOT NULL)
) WITHOUT ROWID;
CREATE INDEX papers_due ON papers (state) WHERE state IN ('due', 'unwanted');

CREATE TABLE events (
    id INTEGER PRIMARY KEY,
    at REAL NOT NULL,
    kind TEXT NOT NULL,
    queue TEXT,
    item_id TEXT,
    session_id INTEGER,
    data TEXT NOT NULL DEFAULT '{}'
);
CREATE INDEX events_by_item ON events (item_id, id) WHERE item_id IS NOT NULL;

CREATE TABLE deliveries (
    source TEXT NOT NULL,
    delivery_id TEXT NOT NULL,
    item_id TEXT NOT NULL,
    at REAL NOT NULL,
    PRIMARY KEY (source, delivery_id)
) WITHOUT ROWID;

CREATE TABLE tombstones (
    queue TEXT NOT NULL,
    key TEXT NOT NULL,
    digest TEXT NOT NULL,
    item_id TEXT NOT NULL,
    outcome TEXT NOT NULL,
    at REAL NOT NULL,
    PRIMARY KEY (queue, key)
) WITHOUT ROWID;
"""


def ddl() -> str:
    """The whole schema, as ``opening.KNOWN_VERSION`` has it."""
    return CORE_DDL + ALERTS_DDL + SEARCH_DDL
