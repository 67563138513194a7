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
