-- Format 2: small versioned rows.

CREATE TABLE record (
    kind     TEXT NOT NULL,
    id       TEXT NOT NULL,
    version  INTEGER NOT NULL,  -- counts the row's changes from 1
    value    TEXT NOT NULL,
    PRIMARY KEY (kind, id)
) WITHOUT ROWID;
