CREATE TABLE meta (key TEXT PRIMARY KEY, value) WITHOUT ROWID;

CREATE TABLE vaults (
    id INTEGER PRIMARY KEY,
    root TEXT NOT NULL UNIQUE,
    name TEXT NOT NULL,
    kind TEXT NOT NULL DEFAULT 'vault',
    swept_ms INTEGER NOT NULL DEFAULT 0,
    unreadable TEXT NOT NULL DEFAULT '[]',
    suspended TEXT NOT NULL DEFAULT ''
);

-- One row per version of a note; valid_to IS NULL marks the current one.
CREATE TABLE notes (
    id INTEGER PRIMARY KEY,
    vault_id INTEGER NOT NULL REFERENCES vaults(id),
    path TEXT NOT NULL,
    title TEXT NOT NULL,
    kind TEXT NOT NULL DEFAULT '',
    status TEXT NOT NULL DEFAULT '',
    date TEXT NOT NULL DEFAULT '',
    project TEXT NOT NULL DEFAULT '',
    parsed BLOB NOT NULL,               -- msgpack of ParsedNote
    problem TEXT NOT NULL DEFAULT '',
    hash BLOB NOT NULL,
    dev INTEGER NOT NULL, inode INTEGER NOT NULL, size INTEGER NOT NULL, mtime_ns INTEGER NOT NULL,
    valid_from INTEGER NOT NULL,
    valid_to INTEGER,
    revision INTEGER NOT NULL           -- of the transaction that last changed this row
);
CREATE UNIQUE INDEX notes_current ON notes (vault_id, path) WHERE valid_to IS NULL;
CREATE INDEX notes_revision ON notes (revision);
CREATE INDEX notes_validity ON notes (valid_from, valid_to);
CREATE INDEX notes_versions ON notes (vault_id, path, valid_to);
CREATE INDEX notes_problem ON notes (problem) WHERE problem <> '' AND valid_to IS NULL;

CREATE TABLE chunks (
    id INTEGER PRIMARY KEY,             -- rowid in chunk_fts (current) or past_fts (superseded)
    note_id INTEGER NOT NULL REFERENCES notes(id) ON DELETE CASCADE,
    ordinal INTEGER NOT NULL,
    hash BLOB NOT NULL,
    context TEXT NOT NULL,
    text TEXT NOT NULL,
    line_from INTEGER NOT NULL,
    line_to INTEGER NOT NULL
);
CREATE INDEX chunks_note ON chunks (note_id, ordinal);
CREATE INDEX chunks_hash ON chunks (hash);

-- title: title, aliases, tags, path words (first chunk of a note only); heading: heading path; body: the passage.
CREATE VIRTUAL TABLE chunk_fts USING fts5 (
    title, heading, body, content='', contentless_delete=1, tokenize='porter unicode61 remove_diacritics 2');
CREATE VIRTUAL TABLE past_fts USING fts5 (
    title, heading, body, content='', contentless_delete=1, tokenize='porter unicode61 remove_diacritics 2');
CREATE VIRTUAL TABLE chunk_words USING fts5vocab (chunk_fts, 'row');

CREATE TABLE models (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    sha256 TEXT NOT NULL UNIQUE,
    dim INTEGER NOT NULL,
    active INTEGER NOT NULL DEFAULT 0
);

CREATE TABLE vectors (
    hash BLOB NOT NULL,
    model_id INTEGER NOT NULL,
    ordinal INTEGER NOT NULL,           -- 0 the chunk, 1… its sentences
    char_from INTEGER NOT NULL, char_to INTEGER NOT NULL,
    vec BLOB NOT NULL,                  -- float16, L2-normalised
    revision INTEGER NOT NULL,
    PRIMARY KEY (hash, model_id, ordinal)
) WITHOUT ROWID;
CREATE INDEX vectors_revision ON vectors (revision);

-- Chunks of current notes that the active model has not embedded yet.
CREATE TABLE pending (
    hash BLOB PRIMARY KEY,
    queued_ms INTEGER NOT NULL,
    tries INTEGER NOT NULL DEFAULT 0,
    lease_until_ms INTEGER NOT NULL DEFAULT 0,
    error TEXT NOT NULL DEFAULT ''      -- with tries >= 3: set aside
) WITHOUT ROWID;
CREATE INDEX pending_queue ON pending (tries, queued_ms);
CREATE INDEX pending_leases ON pending (lease_until_ms) WHERE lease_until_ms > 0;

-- Where the journal has been applied to, and what it says.
CREATE TABLE projects (
    name TEXT PRIMARY KEY,
    root TEXT NOT NULL DEFAULT '',
    created_ms INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE sessions (
    id TEXT PRIMARY KEY,
    host TEXT NOT NULL,
    project TEXT NOT NULL,
    cwd TEXT NOT NULL,
    branch TEXT NOT NULL DEFAULT '',
    started_ms INTEGER NOT NULL,
    last_ms INTEGER NOT NULL,
    ended_ms INTEGER NOT NULL DEFAULT 0,
    events INTEGER NOT NULL DEFAULT 0,
    title TEXT NOT NULL DEFAULT '',
    page TEXT NOT NULL DEFAULT '',
    state BLOB NOT NULL                 -- msgpack of memory.sessions.Session
) WITHOUT ROWID;
CREATE INDEX sessions_last ON sessions (project, last_ms);
CREATE INDEX sessions_live ON sessions (ended_ms) WHERE ended_ms = 0;

CREATE TABLE events (
    seq INTEGER PRIMARY KEY,
    event_id TEXT NOT NULL UNIQUE,
    session TEXT NOT NULL,
    host TEXT NOT NULL,
    kind TEXT NOT NULL,
    at_ms INTEGER NOT NULL,
    project TEXT NOT NULL,
    event BLOB NOT NULL                 -- msgpack of memory.events.Event
);
CREATE INDEX events_session ON events (session, seq);
CREATE VIRTUAL TABLE event_fts USING fts5 (
    body, content='', contentless_delete=1, tokenize='porter unicode61 remove_diacritics 2');

CREATE TABLE handoffs (
    id TEXT PRIMARY KEY,
    project TEXT NOT NULL,
    state TEXT NOT NULL,
    at_ms INTEGER NOT NULL,
    handoff BLOB NOT NULL               -- msgpack of protocol.messages.capture.Handoff
) WITHOUT ROWID;
CREATE INDEX handoffs_open ON handoffs (project, state, at_ms);

-- Which handoff a session was shown in its briefing: its first prompt claims that one.
CREATE TABLE offers (session TEXT PRIMARY KEY, handoff TEXT NOT NULL, at_ms INTEGER NOT NULL) WITHOUT ROWID;

CREATE TABLE replays (key TEXT PRIMARY KEY, at_ms INTEGER NOT NULL, reply BLOB NOT NULL) WITHOUT ROWID;

CREATE INDEX notes_hash ON notes (hash) WHERE valid_to IS NULL;

-- What was said of a file's very bytes, one row a voice (a session, or a person).
CREATE TABLE feedback (
    hash BLOB NOT NULL,
    voice TEXT NOT NULL,
    signal TEXT NOT NULL,
    at_ms INTEGER NOT NULL,
    session TEXT NOT NULL,
    path TEXT NOT NULL,
    root TEXT NOT NULL,
    reason TEXT NOT NULL,
    PRIMARY KEY (hash, voice)
) WITHOUT ROWID;

-- Messages from one project to another.
CREATE TABLE letters (
    id TEXT PRIMARY KEY,
    to_project TEXT NOT NULL,
    from_project TEXT NOT NULL,
    session TEXT NOT NULL,
    state TEXT NOT NULL,
    at_ms INTEGER NOT NULL,
    letter BLOB NOT NULL                -- msgpack of protocol.messages.capture.Letter
) WITHOUT ROWID;
CREATE INDEX letters_inbox ON letters (to_project, state, at_ms);
CREATE INDEX letters_outbox ON letters (from_project, state, at_ms);
