-- The database of nanwatchd. user_version is the schema's version (schema.h); a change here goes with a
-- migration beside this file. Bodies are messages of proto/*.proto; the columns beside them are what
-- is searched by. Unsigned 64-bit numbers are stored as SQLite's signed ones, bit for bit.

CREATE TABLE run (
  key INTEGER PRIMARY KEY,
  id TEXT NOT NULL UNIQUE,             -- nonce, 16 hexadecimal digits
  job TEXT NOT NULL,                   -- the job's name, or the run's id when it has none
  rank INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  host TEXT NOT NULL,
  pid INTEGER NOT NULL,
  pid_outer INTEGER NOT NULL,
  program TEXT NOT NULL,
  started_real_ns INTEGER NOT NULL,
  updated_real_ns INTEGER NOT NULL,
  ended INTEGER NOT NULL,              -- 0 or 1
  records_thinned INTEGER NOT NULL DEFAULT 0,
  identity BLOB NOT NULL,              -- Run
  state BLOB NOT NULL                  -- RunState
);
CREATE INDEX run_by_job ON run (job, started_real_ns);
CREATE INDEX run_by_start ON run (started_real_ns);

CREATE TABLE site (
  run INTEGER NOT NULL REFERENCES run (key) ON DELETE CASCADE,
  id INTEGER NOT NULL,
  body BLOB NOT NULL,                  -- Site
  PRIMARY KEY (run, id)
) WITHOUT ROWID;

CREATE TABLE record (
  run INTEGER NOT NULL REFERENCES run (key) ON DELETE CASCADE,
  ticket INTEGER NOT NULL,
  kind INTEGER NOT NULL,               -- number of the field in Record's oneof
  body BLOB NOT NULL,                  -- Record
  PRIMARY KEY (run, ticket)
) WITHOUT ROWID;

CREATE TABLE reach (
  run INTEGER NOT NULL REFERENCES run (key) ON DELETE CASCADE,
  reach INTEGER NOT NULL,
  body BLOB NOT NULL,                  -- FirstReachFact
  PRIMARY KEY (run, reach)
) WITHOUT ROWID;

CREATE TABLE step (
  run INTEGER NOT NULL REFERENCES run (key) ON DELETE CASCADE,
  number INTEGER NOT NULL,             -- StepSummary.index
  body BLOB NOT NULL,                  -- StepSummary
  PRIMARY KEY (run, number)
) WITHOUT ROWID;

CREATE TABLE stats (
  run INTEGER NOT NULL REFERENCES run (key) ON DELETE CASCADE,
  number INTEGER NOT NULL,             -- StatsSnapshot.number
  body BLOB NOT NULL,                  -- StatsSnapshot
  PRIMARY KEY (run, number)
) WITHOUT ROWID;

-- How far the run's segment has been read: written in the transaction that writes the rows.
CREATE TABLE cursor (
  run INTEGER PRIMARY KEY REFERENCES run (key) ON DELETE CASCADE,
  ring INTEGER NOT NULL,
  steps INTEGER NOT NULL,
  holes INTEGER NOT NULL DEFAULT 0,
  malformed INTEGER NOT NULL DEFAULT 0,
  steps_lost INTEGER NOT NULL DEFAULT 0,
  stats INTEGER NOT NULL DEFAULT 0,
  stats_lost INTEGER NOT NULL DEFAULT 0
);

CREATE TABLE incident (
  job TEXT NOT NULL,
  position INTEGER NOT NULL,           -- 0 is the most important
  run TEXT NOT NULL,                   -- id of the origin's run
  rank INTEGER NOT NULL,
  severity TEXT NOT NULL,
  op TEXT NOT NULL,
  layer TEXT NOT NULL,
  step INTEGER NOT NULL,
  body BLOB NOT NULL,                  -- Incident
  PRIMARY KEY (job, position)
) WITHOUT ROWID;
CREATE INDEX incident_by_severity ON incident (severity);

-- How a command that `nanwatch run` started ended.
CREATE TABLE job_exit (
  job TEXT NOT NULL,
  pid INTEGER NOT NULL,
  exit_code INTEGER,
  signal INTEGER,
  ended_real_ns INTEGER NOT NULL,
  PRIMARY KEY (job, pid)
) WITHOUT ROWID;
