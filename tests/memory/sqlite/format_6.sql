-- A file of format 6 whose process was killed: that of format 5 with a row for each session. Never changed: it stands for files out there.
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
CREATE VIRTUAL TABLE experience_text USING fts5 (
    situation, task, action, outcome, cause, lesson,
    content = '', contentless_delete = 1, tokenize = 'porter unicode61 remove_diacritics 2'
);
INSERT INTO experience_text (experience_text, rank) VALUES ('rank', 'bm25(3.0, 2.0, 1.0, 1.0, 1.0, 2.0)');
CREATE TRIGGER experience_forgotten AFTER DELETE ON experience BEGIN
    DELETE FROM experience_text WHERE rowid = old.seq;
END;
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
CREATE TABLE state (
    key    TEXT PRIMARY KEY,
    value  TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE record (
    kind     TEXT NOT NULL,
    id       TEXT NOT NULL,
    version  INTEGER NOT NULL,  -- counts the row's changes from 1
    value    TEXT NOT NULL,
    PRIMARY KEY (kind, id)
) WITHOUT ROWID;
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
CREATE TABLE transcript (
    seq      INTEGER PRIMARY KEY AUTOINCREMENT,  -- never used twice
    agent    TEXT NOT NULL,
    session  TEXT NOT NULL,
    run      TEXT NOT NULL,
    kind     TEXT NOT NULL,     -- user, turn, end, compaction
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

INSERT INTO state VALUES ('agent:main', '{"stats":{"outcomes":{"acted":0,"idle":0,"skipped":0,"degraded":0,"failed":0,"interrupted":0},"errors_by_phase":{"sense":0,"plan":0,"act":0,"reflect":0}},"seq":1000000000,"abilities":[]}');
INSERT INTO state VALUES ('counted', '[12,0]');
INSERT INTO state VALUES ('epoch', '3');
INSERT INTO state VALUES ('fence', '9008298783145984');
INSERT INTO state VALUES ('flushed', '2');
INSERT INTO state VALUES ('hand:main', '0');
INSERT INTO state VALUES ('seals', '{"rows":{"experience":[0,0],"cycle":[0,0],"state":[6,3825056099235407013],"record":[1,9355012659518437895],"item":[2,7661670188547465458],"open_cycle":[1,14899499523973091391],"doubt":[0,0],"spent":[0,0],"transcript":[7,4569056057371905181],"writer":[3,10082986601911749877],"own_row":[1,11448650385050820110],"tape_piece":[0,0],"session":[2,16769631567291791589]},"fact":12,"link":"e5fb3340a52aa063f2e8117dd62107f7bd85164b56c336ae8503660833cf0e31"}');
INSERT INTO record VALUES ('approval', 'x', 1, '{"n":1}');
INSERT INTO fact VALUES (1, 1795288557.836635, '', 'x', 'record.approval', '{"version":1,"crc":3561700222}', X'e917ec232ab2275d17e52ca972825c00c9382f3a16946de99aec46cbcdf1410c');
INSERT INTO fact VALUES (2, 1795288557.838213, '', 'the-perception', 'accepted', '{"kind":"perception"}', X'80f4bef2cdef3db774ceb1dccf75fb3d9ff85432c44b44b4e4d498ab5d0b9056');
INSERT INTO fact VALUES (3, 1795288557.839881, '18ea256e775307670000245362', '', 'opened', '{"items":["the-perception"],"run":null}', X'bb2fd5ffc9ef4734c177652f26abc59f7306eb2eb8d54f368e107b2f81270248');
INSERT INTO fact VALUES (4, 1795288557.839314, '18ea256e775307670000245362', 'the-action', 'acting', '{"action":{"calls":[],"goal":"","id":"the-action","perceptions":[],"run_id":null,"reason":"","output":null,"next_look":null,"degraded":false,"trust":null},"effect":"","calls":4}', X'a7823cbaada49549c92cc198a7a21ac8cab072e51727927c85121f5eb1ce5ea4');
INSERT INTO fact VALUES (5, 1795288557.839351, '18ea256e775307670000245362', '', 'planned', '[{"_tool":"look","at":1,"_id":"a","_outputPath":"\u2020state.a"},{"_tool":"pay","amount":"\u2020state.a","_id":"b","_outputPath":"\u2020state.b"},{"_tool":"pay","amount":3,"_id":"c","_after":["b"]},{"_tool":"put","value":"\u2020state.b","_id":"d","_outputPath":"\u2020state.d","_after":["b"]}]', X'd22e911ec62df137a17ef10785239aa81e608edff1c2be7bb321daab1c309fae');
INSERT INTO fact VALUES (6, 1795288557.83972, '18ea256e775307670000245362', 'a', 'started', '{"attempt":1,"effect":"read","allowed":"auto"}', X'56afb04b4811016e3dd43975e1b25e1a993ce0a41bb9ea51b7197682f5d9f602');
INSERT INTO fact VALUES (7, 1795288557.839789, '18ea256e775307670000245362', 'a', 'ended', '{"status":"ok","reason":"","output":2,"fault":null,"attempts":1,"started_at":"2026-11-21T19:15:57.839735Z","duration":0.000043156000174349174,"verified":null}', X'31e85fa004c06deb1aaa0cd9da0669f7adf47528103019f3c7858adafd753968');
INSERT INTO fact VALUES (8, 1795288557.839852, '18ea256e775307670000245362', 'b', 'started', '{"attempt":1,"effect":"once","allowed":"auto","values":{"amount":2}}', X'27fd76c5092174c918990eaa3acc24898e665a434a6d68fdd0b747a0724696e1');
INSERT INTO fact VALUES (9, 1795288557.840733, '18ea256e775307670000245362', 'b', 'ended', '{"status":"ok","reason":"","output":4,"fault":null,"attempts":1,"started_at":"2026-11-21T19:15:57.839735Z","duration":0.00003620300049078651,"verified":null}', X'6dba9d2166b3ab56a60afae91e7eb3553fb1ce5331650e1e68d586acc06366f8');
INSERT INTO fact VALUES (10, 1795288557.840849, '18ea256e775307670000245362', 'c', 'started', '{"attempt":1,"effect":"once","allowed":"auto"}', X'4ee9373a3cd0c10ea4445df3a7ecbd1e0736aa8e4da0d62b80f7017dd13426f3');
INSERT INTO fact VALUES (11, 1795288557.841053, '18ea256e775307670000245362', 'd', 'started', '{"attempt":1,"effect":"idempotent","allowed":"auto","values":{"value":4}}', X'ab08e20e9195bf9ffed7480a8089bb2eca442036cccbbd63186a7e0372aee023');
INSERT INTO fact VALUES (12, 1795296357.480759, '18ea256e775307670000245360', 'run-1', 'closed', '{"outcome":"acted","done":[]}', X'e5fb3340a52aa063f2e8117dd62107f7bd85164b56c336ae8503660833cf0e31');
INSERT INTO item VALUES ('the-perception', 'main', 'main', 'perception', NULL, 1795288557.838182, 0, 'waiting', '{"id":"the-perception","perception":{"content":"go","source":"manual","kind":"","id":"the-perception","at":"2026-11-21T19:15:57.838138Z","key":null,"subject":null,"session":"main","intent":"","priority":0.5,"confidence":1.0,"trust":"untrusted","evidence":[],"attributes":{}},"kind":"perception","session":"main","key":null,"at":"2026-11-21T19:15:57.838182Z","attempts":0,"fault":null,"due_at":null,"past":[],"is_sensed":false}');
INSERT INTO item VALUES ('waiting-one', 'main', 'main', 'perception', NULL, 1795288557.837549, 0, 'waiting', '{"id":"waiting-one","perception":{"content":"still waiting","source":"manual","kind":"","id":"waiting-one","at":"2026-11-21T19:15:57.837545Z","key":null,"subject":null,"session":"main","intent":"","priority":0.5,"confidence":1.0,"trust":"untrusted","evidence":[],"attributes":{}},"kind":"perception","session":"main","key":null,"at":"2026-11-21T19:15:57.837549Z","attempts":0,"fault":null,"due_at":null,"past":[],"is_sensed":false}');
INSERT INTO open_cycle VALUES ('18ea256e775307670000245362', 'main', 1, '{"cycle_id":"18ea256e775307670000245362","session":"main","perceptions":[{"content":"go","source":"manual","kind":"","id":"the-perception","at":"2026-11-21T19:15:57.838138Z","key":null,"subject":null,"session":"main","intent":"","priority":0.5,"confidence":1.0,"trust":"untrusted","evidence":[],"attributes":{}}],"items":["the-perception"],"run_id":null,"action":null,"known":[],"attempts":1,"opened_at":"2026-11-21T19:15:57.839051Z","is_stepped":false,"effect":""}');
INSERT INTO transcript VALUES (1, 'main', 'talk', 'run-1', 'user', 1795288557.836, 215, '{"text":"what is the load?","id":"p1","trust":"trusted"}
84bde25d');
INSERT INTO transcript VALUES (2, 'main', 'talk', 'run-1', 'turn', 1795288557.836, 289, '{"calls":[{"call":{"_tool":"look","at":1,"_id":"a"},"status":"ok","reason":"","output":2,"error":null}],"reason":"","output":null}
34a0a6c6');
INSERT INTO transcript VALUES (3, 'main', 'talk', 'run-1', 'end', 1795288557.836, 218, '{"status":"ok","error":"","reply":"it is 2","silent":false}
ab29b3d1');
INSERT INTO transcript VALUES (4, 'main', 'talk', 'run-2', 'user', 1795288557.836, 206, '{"text":"and now?","id":"p2","trust":"trusted"}
c0f19463');
INSERT INTO transcript VALUES (5, 'main', 'talk', 'run-2', 'compaction', 1795288557.836, 240, '{"summary":"the load was 2","first_kept":4,"tokens_before":900,"tokens_after":40}
90b7ce3b');
INSERT INTO transcript VALUES (6, 'main', 'chat', 'run-3', 'user', 1795161600.0, 203, '{"text":"hello","id":"p3","trust":"trusted"}
9be028b4');
INSERT INTO transcript VALUES (7, 'main', 'chat', 'run-3', 'end', 1795366725.055256, 216, '{"status":"ok","error":"","reply":"hello","silent":false}
a53e98f6');
INSERT INTO writer VALUES (1, 'main', 'talk', 'run-1', 1795288557.836);
INSERT INTO writer VALUES (2, 'main', 'talk', 'run-2', 1795288557.836);
INSERT INTO writer VALUES (3, 'main', 'chat', 'run-3', 1795161600.0);
INSERT INTO own_row VALUES ('ability:main', 'look|', '{"n":1}
d44b3b7e');
INSERT INTO seal VALUES (3, 'agent:main', -6358979036702687655);
INSERT INTO seal VALUES (3, 'counted', -6434971278292903630);
INSERT INTO seal VALUES (3, 'epoch', 4383838836974491681);
INSERT INTO seal VALUES (3, 'fence', 7002019171404007359);
INSERT INTO seal VALUES (3, 'flushed', -3899000003506628143);
INSERT INTO seal VALUES (3, 'hand:main', 9132148409359127401);
INSERT INTO seal VALUES (4, 'approval'||X'00'||'x', -9091731414191113721);
INSERT INTO seal VALUES (5, 'the-perception', -4230023527211586581);
INSERT INTO seal VALUES (5, 'waiting-one', -6555050357950499577);
INSERT INTO seal VALUES (6, '18ea256e775307670000245362', -3547244549736460225);
INSERT INTO seal VALUES (9, 1, 985351344686274522);
INSERT INTO seal VALUES (9, 2, -7043409382866316392);
INSERT INTO seal VALUES (9, 3, -56470736259402489);
INSERT INTO seal VALUES (9, 4, -2969188351049934139);
INSERT INTO seal VALUES (9, 5, 4278423216728979202);
INSERT INTO seal VALUES (9, 6, 8879975962404562558);
INSERT INTO seal VALUES (9, 7, 494374003727741919);
INSERT INTO seal VALUES (10, 1, -1242199973595963684);
INSERT INTO seal VALUES (10, 2, -1709058339651843050);
INSERT INTO seal VALUES (10, 3, -5412499158549995005);
INSERT INTO seal VALUES (11, 'ability:main'||X'00'||'look|', -6998093688658731506);
INSERT INTO seal VALUES (13, 'main'||X'00'||'chat', 3513537467864181772);
INSERT INTO seal VALUES (13, 'main'||X'00'||'talk', -5190649974281941799);
INSERT INTO session VALUES ('main', 'chat', 1, 1795161600.0, 1795366725.055256, 0, '{"created_at":"2026-11-20T08:00:00.000Z"}');
INSERT INTO session VALUES ('main', 'talk', 1, 1795288557.836, 1795288557.836, 0, '{"created_at":"2026-11-21T19:15:57.836Z"}');
PRAGMA application_id = 1936744818; PRAGMA user_version = 6;
