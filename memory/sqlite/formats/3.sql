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
