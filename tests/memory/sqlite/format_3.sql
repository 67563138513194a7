-- A file as the first release wrote it (format 3) that was killed in the middle of a cycle. Never changed: it stands for files out there.
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

INSERT INTO fact VALUES (1, 1795288557.836635, '', 'x', 'record.approval', '{"version":1,"crc":3561700222}', x'e917ec232ab2275d17e52ca972825c00c9382f3a16946de99aec46cbcdf1410c');
INSERT INTO fact VALUES (2, 1795288557.838213, '', 'the-perception', 'accepted', '{"kind":"perception"}', x'80f4bef2cdef3db774ceb1dccf75fb3d9ff85432c44b44b4e4d498ab5d0b9056');
INSERT INTO fact VALUES (3, 1795288557.839881, '18ea256e775307670000245362', '', 'opened', '{"items":["the-perception"],"run":null}', x'bb2fd5ffc9ef4734c177652f26abc59f7306eb2eb8d54f368e107b2f81270248');
INSERT INTO fact VALUES (4, 1795288557.839314, '18ea256e775307670000245362', 'the-action', 'acting', '{"action":{"calls":[],"goal":"","id":"the-action","perceptions":[],"run_id":null,"reason":"","output":null,"next_look":null,"degraded":false,"trust":null},"effect":"","calls":4}', x'a7823cbaada49549c92cc198a7a21ac8cab072e51727927c85121f5eb1ce5ea4');
INSERT INTO fact VALUES (5, 1795288557.839351, '18ea256e775307670000245362', '', 'planned', '[{"_tool":"look","at":1,"_id":"a","_outputPath":"\u2020state.a"},{"_tool":"pay","amount":"\u2020state.a","_id":"b","_outputPath":"\u2020state.b"},{"_tool":"pay","amount":3,"_id":"c","_after":["b"]},{"_tool":"put","value":"\u2020state.b","_id":"d","_outputPath":"\u2020state.d","_after":["b"]}]', x'd22e911ec62df137a17ef10785239aa81e608edff1c2be7bb321daab1c309fae');
INSERT INTO fact VALUES (6, 1795288557.83972, '18ea256e775307670000245362', 'a', 'started', '{"attempt":1,"effect":"read","allowed":"auto"}', x'56afb04b4811016e3dd43975e1b25e1a993ce0a41bb9ea51b7197682f5d9f602');
INSERT INTO fact VALUES (7, 1795288557.839789, '18ea256e775307670000245362', 'a', 'ended', '{"status":"ok","reason":"","output":2,"fault":null,"attempts":1,"started_at":"2026-11-21T19:15:57.839735Z","duration":0.000043156000174349174,"verified":null}', x'31e85fa004c06deb1aaa0cd9da0669f7adf47528103019f3c7858adafd753968');
INSERT INTO fact VALUES (8, 1795288557.839852, '18ea256e775307670000245362', 'b', 'started', '{"attempt":1,"effect":"once","allowed":"auto","values":{"amount":2}}', x'27fd76c5092174c918990eaa3acc24898e665a434a6d68fdd0b747a0724696e1');
INSERT INTO fact VALUES (9, 1795288557.840733, '18ea256e775307670000245362', 'b', 'ended', '{"status":"ok","reason":"","output":4,"fault":null,"attempts":1,"started_at":"2026-11-21T19:15:57.839735Z","duration":0.00003620300049078651,"verified":null}', x'6dba9d2166b3ab56a60afae91e7eb3553fb1ce5331650e1e68d586acc06366f8');
INSERT INTO fact VALUES (10, 1795288557.840849, '18ea256e775307670000245362', 'c', 'started', '{"attempt":1,"effect":"once","allowed":"auto"}', x'4ee9373a3cd0c10ea4445df3a7ecbd1e0736aa8e4da0d62b80f7017dd13426f3');
INSERT INTO fact VALUES (11, 1795288557.841053, '18ea256e775307670000245362', 'd', 'started', '{"attempt":1,"effect":"idempotent","allowed":"auto","values":{"value":4}}', x'ab08e20e9195bf9ffed7480a8089bb2eca442036cccbbd63186a7e0372aee023');
INSERT INTO item VALUES ('the-perception', 'main', 'main', 'perception', NULL, 1795288557.838182, 0, 'waiting', '{"id":"the-perception","perception":{"content":"go","source":"manual","kind":"","id":"the-perception","at":"2026-11-21T19:15:57.838138Z","key":null,"subject":null,"session":"main","intent":"","priority":0.5,"confidence":1.0,"trust":"untrusted","evidence":[],"attributes":{}},"kind":"perception","session":"main","key":null,"at":"2026-11-21T19:15:57.838182Z","attempts":0,"fault":null,"due_at":null,"past":[],"is_sensed":false}');
INSERT INTO item VALUES ('waiting-one', 'main', 'main', 'perception', NULL, 1795288557.837549, 0, 'waiting', '{"id":"waiting-one","perception":{"content":"still waiting","source":"manual","kind":"","id":"waiting-one","at":"2026-11-21T19:15:57.837545Z","key":null,"subject":null,"session":"main","intent":"","priority":0.5,"confidence":1.0,"trust":"untrusted","evidence":[],"attributes":{}},"kind":"perception","session":"main","key":null,"at":"2026-11-21T19:15:57.837549Z","attempts":0,"fault":null,"due_at":null,"past":[],"is_sensed":false}');
INSERT INTO open_cycle VALUES ('18ea256e775307670000245362', 'main', 1, '{"cycle_id":"18ea256e775307670000245362","session":"main","perceptions":[{"content":"go","source":"manual","kind":"","id":"the-perception","at":"2026-11-21T19:15:57.838138Z","key":null,"subject":null,"session":"main","intent":"","priority":0.5,"confidence":1.0,"trust":"untrusted","evidence":[],"attributes":{}}],"items":["the-perception"],"run_id":null,"action":null,"known":[],"attempts":1,"opened_at":"2026-11-21T19:15:57.839051Z","is_stepped":false,"effect":""}');
INSERT INTO record VALUES ('approval', 'x', 1, '{"n":1}');
INSERT INTO state VALUES ('agent:main', '{"stats":{"outcomes":{"acted":0,"idle":0,"skipped":0,"degraded":0,"failed":0,"interrupted":0},"errors_by_phase":{"sense":0,"plan":0,"act":0,"reflect":0}},"seq":1000000000,"abilities":[]}');
INSERT INTO state VALUES ('epoch', '1');
INSERT INTO state VALUES ('hand:main', '0');

PRAGMA application_id = 1936744818;
PRAGMA user_version = 3;
