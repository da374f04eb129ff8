-- The tables that came with version 3: a part of the schema, and the migration to it. Version 2 kept steps
-- and drew no conclusion from them. Whoever changes one of these writes the older form into a migration.

-- What early warnings go on from: the fold of the run's steps and snapshots, also of those thinned out since.
CREATE TABLE training (
  run INTEGER PRIMARY KEY REFERENCES run (key) ON DELETE CASCADE,
  body BLOB NOT NULL                   -- TrainingHistory
);

CREATE TABLE warning (
  job TEXT NOT NULL,
  position INTEGER NOT NULL,           -- by step
  run TEXT NOT NULL,
  rank INTEGER NOT NULL,
  severity TEXT NOT NULL,
  id TEXT NOT NULL,
  step INTEGER NOT NULL,
  body BLOB NOT NULL,                  -- Warning
  PRIMARY KEY (job, position)
) WITHOUT ROWID;
