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
