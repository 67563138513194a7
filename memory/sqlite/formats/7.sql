-- Format 7: the audit log, a chain like the facts (memory/engine/hash_chain.py), kept for longer.

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
