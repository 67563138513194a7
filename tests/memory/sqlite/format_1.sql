-- A file as the first release wrote it (format 1), with one of everything. Never changed: it stands for files out there.
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

INSERT INTO experience (seq, id, at, bytes, session, task, success, lesson, body) VALUES (1, 'e1', 1767225600.0, 437, 'main', '', 1, 1,
    '{"situation":"the disk is full","action":"","outcome":"","success":true,"task":"","cause":"","lesson":"make room","id":"e1","at":"2026-01-01T00:00:00Z","session":"main","cost":0.0,"trust":"untrusted","origin":""}');
INSERT INTO experience_text (rowid, situation, task, action, outcome, cause, lesson) VALUES (1, 'the disk is full', '', '', '', '', 'make room');
INSERT INTO cycle VALUES (1, 'c1', 1767225600.0, 661, 'acted', 'main', 'main', 0.1,
    '{"goal":"","about":"","perceptions":0,"calls":0,"failed_calls":0,"status":null,"score":null,"phases":{},"faults":[]}',
    '{"record":{"cycle_id":"c1","agent":"main","session":"main","started_at":"2026-01-01T00:00:00Z","duration":0.1,"outcome":"acted","perceptions":[],"action":null,"result":null,"reflection":null,"phases":{},"faults":[]},"links":[],"truncated":false}');
INSERT INTO state VALUES ('cursor', '7');
PRAGMA application_id = 1936744818;
PRAGMA user_version = 1;
