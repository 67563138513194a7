-- Format 8: like experiences are one row, which counts them; whom it helped; where each came from.
-- The columns of `experience` that are added stand after `body`.

ALTER TABLE experience ADD COLUMN key TEXT NOT NULL DEFAULT '';        -- the most exact name of the situation
ALTER TABLE experience ADD COLUMN trust TEXT NOT NULL DEFAULT 'untrusted';
ALTER TABLE experience ADD COLUMN run TEXT NOT NULL DEFAULT '';        -- the run and the cycle of the first of them
ALTER TABLE experience ADD COLUMN cycle TEXT NOT NULL DEFAULT '';
ALTER TABLE experience ADD COLUMN first_at REAL NOT NULL DEFAULT 0;    -- when the first was made; `at` is the last
ALTER TABLE experience ADD COLUMN count INTEGER NOT NULL DEFAULT 1;
ALTER TABLE experience ADD COLUMN helped INTEGER NOT NULL DEFAULT 0;   -- decisions that went by it, and went well
ALTER TABLE experience ADD COLUMN harmed INTEGER NOT NULL DEFAULT 0;
ALTER TABLE experience ADD COLUMN score REAL;                          -- the best; NULL: nobody knows
ALTER TABLE experience ADD COLUMN digest BLOB;                         -- equal for like ones; NULL: never merged
ALTER TABLE experience ADD COLUMN words INTEGER NOT NULL DEFAULT 0;    -- over what is indexed
ALTER TABLE experience ADD COLUMN last TEXT;                           -- the body of the last, where `body` is a better one
UPDATE experience SET first_at = at;
UPDATE experience SET cycle = ifnull(json_extract(substr(body, 1, instr(body || char(10), char(10)) - 1), '$.origin'), '')
    WHERE json_valid(substr(body, 1, instr(body || char(10), char(10)) - 1));  -- behind a body is its checksum
UPDATE experience SET cycle = substr(cycle, 8) WHERE cycle LIKE 'memory:%';    -- it came from recalled text
UPDATE experience SET trust = 'trusted'
    WHERE body LIKE '%"trusted"%' AND json_valid(substr(body, 1, instr(body || char(10), char(10)) - 1))
    AND json_extract(substr(body, 1, instr(body || char(10), char(10)) - 1), '$.trust') = 'trusted';

CREATE UNIQUE INDEX experience_alike ON experience (digest) WHERE digest IS NOT NULL;
CREATE INDEX experience_by_key ON experience (key, at) WHERE key <> '';
CREATE INDEX experience_by_run ON experience (run) WHERE run <> '';
CREATE INDEX experience_by_cycle ON experience (cycle) WHERE cycle <> '';

CREATE TABLE experience_source (     -- the newest of those that were merged into a row, but for its first
    id          TEXT PRIMARY KEY,
    experience  INTEGER NOT NULL,    -- seq
    run         TEXT NOT NULL,
    cycle       TEXT NOT NULL,
    at          REAL NOT NULL
) WITHOUT ROWID;
CREATE INDEX experience_source_by_run ON experience_source (run);
CREATE INDEX experience_source_by_cycle ON experience_source (cycle);
CREATE INDEX experience_source_of ON experience_source (experience, at);
CREATE TRIGGER experience_source_forgotten AFTER DELETE ON experience BEGIN
    DELETE FROM experience_source WHERE experience = old.seq;
END;

CREATE TABLE experience_vector (     -- made in idle time; of a model, which its fingerprint names
    experience  INTEGER PRIMARY KEY,
    model       INTEGER NOT NULL,    -- as numbered in experience_vector_model; 0: its text has changed since
    words       INTEGER NOT NULL,    -- `experience.words` of the text that it was made of
    vector      BLOB NOT NULL        -- of unit length; as memory/experiences/vectors.py packs it
);
CREATE INDEX experience_vector_stale ON experience_vector (experience) WHERE model = 0;
CREATE TABLE experience_vector_model (
    number       INTEGER PRIMARY KEY,
    fingerprint  TEXT NOT NULL UNIQUE
);
CREATE TRIGGER experience_vector_forgotten AFTER DELETE ON experience BEGIN
    DELETE FROM experience_vector WHERE experience = old.seq;
END;

CREATE INDEX cycle_failed ON cycle (started_at, id)  -- with the words of `cycle_log.queries.FAILED`
    WHERE outcome = 'failed' OR (summary <> '' AND summary NOT LIKE '%"failed_calls":0,%');
