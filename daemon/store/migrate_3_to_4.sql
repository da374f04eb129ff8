-- Version 3 knew steps only as a whole, not their parameters.
CREATE TABLE stats (
  run INTEGER NOT NULL REFERENCES run (key) ON DELETE CASCADE,
  number INTEGER NOT NULL,             -- StatsSnapshot.number
  body BLOB NOT NULL,                  -- StatsSnapshot
  PRIMARY KEY (run, number)
) WITHOUT ROWID;
ALTER TABLE cursor ADD COLUMN stats INTEGER NOT NULL DEFAULT 0;
ALTER TABLE cursor ADD COLUMN stats_lost INTEGER NOT NULL DEFAULT 0;
