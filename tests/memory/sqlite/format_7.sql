-- A file of format 7: two experiences, one of them learnt beside recalled text, and a seal for every row. Never changed: it stands for files out there.
-- The tables that format 1 has.
-- Bodies are ASCII JSON (codec.py); the other columns are there to be searched by.

CREATE TABLE experience (
    seq      INTEGER PRIMARY KEY AUTOINCREMENT,  -- order of arrival; never used twice
    id       TEXT NOT NULL UNIQUE,
    at       REAL NOT NULL,                      -- seconds since 1970
    bytes    INTEGER NOT NULL,                   -- about what the row and its index take
    session  TEXT NOT NULL,
    task     TEXT NOT NULL,
    success  INTEGER,                            -- NULL: nobody knows
    lesson   INTEGER NOT NULL,                   -- whether there is one
    body     TEXT NOT NULL
);
CREATE INDEX experience_by_age ON experience (at, bytes);
CREATE INDEX experience_by_session ON experience (session, at);

-- The words only: the text itself stands in the body. The tokenizer folds case, accents and English endings.
CREATE VIRTUAL TABLE experience_text USING fts5 (
    situation, task, action, outcome, cause, lesson,
    content = '', contentless_delete = 1, tokenize = 'porter unicode61 remove_diacritics 2'
);
INSERT INTO experience_text (experience_text, rank) VALUES ('rank', 'bm25(3.0, 2.0, 1.0, 1.0, 1.0, 2.0)');
CREATE TRIGGER experience_forgotten AFTER DELETE ON experience BEGIN
    DELETE FROM experience_text WHERE rowid = old.seq;
END;

-- The tape.
CREATE TABLE cycle (
    seq         INTEGER PRIMARY KEY AUTOINCREMENT,
    id          TEXT NOT NULL UNIQUE,
    started_at  REAL NOT NULL,
    bytes       INTEGER NOT NULL,
    outcome     TEXT NOT NULL,
    session     TEXT NOT NULL,
    agent       TEXT NOT NULL,
    duration    REAL,
    summary     TEXT NOT NULL,
    body        TEXT NOT NULL
);
CREATE INDEX cycle_by_age ON cycle (started_at, id, bytes, outcome, session);

-- Small values by key: cursors, abilities.
CREATE TABLE state (
    key    TEXT PRIMARY KEY,
    value  TEXT NOT NULL
) WITHOUT ROWID;
-- Format 2: small versioned rows.

CREATE TABLE record (
    kind     TEXT NOT NULL,
    id       TEXT NOT NULL,
    version  INTEGER NOT NULL,  -- counts the row's changes from 1
    value    TEXT NOT NULL,
    PRIMARY KEY (kind, id)
) WITHOUT ROWID;
-- Format 3: the journal.

CREATE TABLE fact (
    seq   INTEGER PRIMARY KEY,  -- in the order in which they happened; only the oldest are ever deleted
    at    REAL NOT NULL,        -- seconds since 1970
    work  TEXT NOT NULL,        -- the cycle, or the action where there is none
    call  TEXT NOT NULL,        -- the call, item, doubt or approval that it is about
    kind  TEXT NOT NULL,
    body  TEXT NOT NULL,
    link  BLOB NOT NULL         -- over this row and the link before
);
CREATE INDEX fact_by_work ON fact (work);

CREATE TABLE item (             -- accepted work, and for a while what is known of it when it is through
    id        TEXT PRIMARY KEY,
    agent     TEXT NOT NULL,
    session   TEXT NOT NULL,
    kind      TEXT NOT NULL,
    key       TEXT,
    at        REAL NOT NULL,
    attempts  INTEGER NOT NULL,
    state     TEXT NOT NULL,    -- waiting, done, dead
    body      TEXT NOT NULL
) WITHOUT ROWID;
CREATE UNIQUE INDEX item_by_key ON item (agent, key) WHERE key IS NOT NULL;
CREATE INDEX item_by_state ON item (state, at);
CREATE INDEX item_by_age ON item (at);

CREATE TABLE open_cycle (       -- begun and not ended
    id        TEXT PRIMARY KEY,
    agent     TEXT NOT NULL,
    attempts  INTEGER NOT NULL, -- beginnings that were not ended in good order
    body      TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE doubt (            -- calls of which nobody knows whether they had their effect
    id      TEXT PRIMARY KEY,
    agent   TEXT NOT NULL,
    at      REAL NOT NULL,
    answer  TEXT,
    body    TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE spent (            -- what was used of the budgets
    window    TEXT NOT NULL,
    quantity  TEXT NOT NULL,
    used      INTEGER NOT NULL,
    PRIMARY KEY (window, quantity)
) WITHOUT ROWID;
-- Format 4: transcripts.

CREATE TABLE transcript (
    seq      INTEGER PRIMARY KEY AUTOINCREMENT,  -- never used twice
    agent    TEXT NOT NULL,
    session  TEXT NOT NULL,
    run      TEXT NOT NULL,
    kind     TEXT NOT NULL,     -- user, turn, end, compaction, reset
    at       REAL NOT NULL,     -- seconds since 1970
    bytes    INTEGER NOT NULL,  -- about what the row takes
    body     TEXT NOT NULL
);
CREATE INDEX transcript_by_session ON transcript (agent, session, seq, bytes);
CREATE INDEX transcript_compacted ON transcript (agent, session, seq) WHERE kind = 'compaction';
CREATE TRIGGER transcript_stays BEFORE UPDATE ON transcript BEGIN
    SELECT RAISE(ABORT, 'a transcript is only added to');
END;

CREATE TABLE writer (           -- the runs that wrote in a session: the last of them may go on
    seq      INTEGER PRIMARY KEY AUTOINCREMENT,
    agent    TEXT NOT NULL,
    session  TEXT NOT NULL,
    run      TEXT NOT NULL,
    at       REAL NOT NULL
);
CREATE UNIQUE INDEX writer_by_run ON writer (agent, session, run);
CREATE INDEX writer_by_session ON writer (agent, session, seq);
-- Format 5: small rows by owner, texts that many cycles share, a seal for every row.

CREATE TABLE own_row (
    owner  TEXT NOT NULL,
    key    TEXT NOT NULL,
    value  TEXT NOT NULL,
    PRIMARY KEY (owner, key)
) WITHOUT ROWID;

CREATE TABLE tape_piece (            -- parts of what stands on the tape, each once
    seq     INTEGER PRIMARY KEY,
    digest  TEXT NOT NULL UNIQUE,
    last    INTEGER NOT NULL,   -- about the newest cycle that refers to it, never more than SLACK before that
    bytes   INTEGER NOT NULL,
    text    TEXT NOT NULL
);
CREATE INDEX tape_piece_by_use ON tape_piece (last, bytes);

CREATE TABLE seal (
    tbl     INTEGER NOT NULL,   -- which table, as numbered in seals.py
    key     NOT NULL,           -- of the row: its number, its name, or its names with a NUL between them
    digest  INTEGER NOT NULL,   -- over all columns
    PRIMARY KEY (tbl, key)
) WITHOUT ROWID;
-- Format 6: sessions. What stands in transcripts already is listed by the migration.

CREATE TABLE session (
    agent     TEXT NOT NULL,
    key       TEXT NOT NULL,
    ordinal   INTEGER NOT NULL,  -- counts the conversations of the session from 1
    began_at  REAL NOT NULL,     -- seconds since 1970: this conversation
    used_at   REAL NOT NULL,     -- the newest message
    is_set    INTEGER NOT NULL,  -- whether people have given it a title or defaults
    body      TEXT NOT NULL,     -- title, defaults, origin, when the session was begun
    PRIMARY KEY (agent, key)
) WITHOUT ROWID;
CREATE INDEX session_by_use ON session (agent, used_at, key);
CREATE INDEX transcript_reset ON transcript (agent, session, seq) WHERE kind = 'reset';
CREATE INDEX item_by_session ON item (agent, session) WHERE state = 'done';
-- Format 7: the audit log, a chain like the facts (memory/sqlite/hash_chain.py), kept for longer.

CREATE TABLE audit (
    seq     INTEGER PRIMARY KEY,
    at      REAL NOT NULL,     -- seconds since 1970
    actor   TEXT NOT NULL,
    subject TEXT NOT NULL,
    action  TEXT NOT NULL,
    body    TEXT NOT NULL,     -- origin, agent, digests before and after, details
    link    BLOB NOT NULL
);
CREATE INDEX audit_by_actor ON audit (actor, seq);
INSERT INTO experience VALUES (1, 'e1', 1767225600.0, 561, 'main', '', 1, 1, '{"situation":"the disk is full","action":"","outcome":"","success":true,"task":"","cause":"","lesson":"make room","id":"e1","at":"2026-01-01T00:00:00Z","session":"main","cost":0.0,"trust":"trusted","origin":"c1","said":"","answer":"","key":"","run_id":"","calls":[],"score":null,"count":1,"first_at":null,"helped":0,"harmed":0}
09ea05d3');
INSERT INTO experience VALUES (2, 'e2', 1767225600.0, 553, 'main', '', 0, 0, '{"situation":"the disk is full","action":"","outcome":"","success":false,"task":"","cause":"","lesson":"","id":"e2","at":"2026-01-01T00:00:00Z","session":"main","cost":0.0,"trust":"untrusted","origin":"memory:c2","said":"","answer":"","key":"","run_id":"","calls":[],"score":null,"count":1,"first_at":null,"helped":0,"harmed":0}
7dcaeea9');
INSERT INTO cycle VALUES (1, 'c1', 1767225600.0, 561, 'acted', 'main', 'main', 0.1, '', '{"record":{"cycle_id":"c1","agent":"main","session":"main","started_at":"2026-01-01T00:00:00Z","duration":0.1,"outcome":"acted","perceptions":[],"action":null,"result":null,"reflection":null,"phases":{},"faults":[],"notes":[],"calls":{},"trace_id":""}}
f052e8c3');
INSERT INTO state VALUES ('counted', '[0,0]');
INSERT INTO state VALUES ('cursor', '7
6abf4a82');
INSERT INTO state VALUES ('epoch', '1');
INSERT INTO state VALUES ('fence', '1795403207736771');
INSERT INTO state VALUES ('flushed', '1');
INSERT INTO state VALUES ('seals', '{"rows":{"tape_piece":[0,0],"state":[5,5213621813086794025],"spent":[0,0],"cycle":[1,545971502678064516],"doubt":[0,0],"open_cycle":[0,0],"record":[1,3462904895932965179],"own_row":[0,0],"item":[0,0],"writer":[0,0],"transcript":[0,0],"experience":[2,18196677941480292654],"session":[0,0]},"fact":1,"link":"f069f081404f78c31d71dcb9e5fee5e9dc4d3ddc7132537a02ec4cd616c2b2b0"}');
INSERT INTO record VALUES ('approval', 'old', 1, '{"n":0}
cd500a3f');
INSERT INTO fact VALUES (1, 1795403190.9688611, '', 'old', 'record.approval', '{"version":1,"crc":2688774395}', X'F069F081404F78C31D71DCB9E5FEE5E9DC4D3DDC7132537A02EC4CD616C2B2B0');
INSERT INTO seal VALUES (1, 1, -5120162276881863848);
INSERT INTO seal VALUES (1, 2, 4870096144652604886);
INSERT INTO seal VALUES (2, 1, 545971502678064516);
INSERT INTO seal VALUES (3, 'counted', -352153126289482595);
INSERT INTO seal VALUES (3, 'cursor', 4195389770692195410);
INSERT INTO seal VALUES (3, 'epoch', 7066859253758393870);
INSERT INTO seal VALUES (3, 'fence', 6063570707605962602);
INSERT INTO seal VALUES (3, 'flushed', 6686699281029276354);
INSERT INTO seal VALUES (4, 'approval'||X'00'||'old', 3462904895932965179);
INSERT INTO experience_text (rowid, situation, task, action, outcome, cause, lesson) VALUES (1, 'the disk is full', '', '', '', '', 'make room');
INSERT INTO experience_text (rowid, situation, task, action, outcome, cause, lesson) VALUES (2, 'the disk is full', '', '', '', '', '');
PRAGMA application_id = 1936744818; PRAGMA user_version = 7;
