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
