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
