-- The fleet's database, version 1. A change is a further file; this one stays as it is.
-- Bodies are messages of proto/*.proto; the columns beside them are what is searched by.

-- All that daemons report but the states of runs. The day is that of the reporting daemon's clock, so a row
-- that comes again meets itself.
CREATE TABLE nanwatch.fact (
  day date NOT NULL,
  daemon uuid NOT NULL,
  sequence bigint NOT NULL,
  kind smallint NOT NULL,              -- FleetKind (daemon/fleet/fleet_row.h)
  job text NOT NULL,
  run text NOT NULL,
  rank integer NOT NULL,
  recorded_ns bigint NOT NULL,         -- the daemon's clock
  received_at timestamp with time zone NOT NULL DEFAULT CURRENT_TIMESTAMP,
  body bytea NOT NULL,
  PRIMARY KEY (day, daemon, sequence)
) PARTITION BY RANGE (day);
CREATE INDEX fact_by_job ON nanwatch.fact (job, kind);
-- Days that no partition was made for: of clocks that are far off, or while nobody maintained the database.
CREATE TABLE nanwatch.fact_other PARTITION OF nanwatch.fact DEFAULT;

-- The newest state of each run; for a moment older ones too, where two gatherers write at once.
CREATE TABLE nanwatch.run (
  daemon uuid NOT NULL,
  run text NOT NULL,
  sequence bigint NOT NULL,
  job text NOT NULL,
  launch text NOT NULL,                -- what tells launches of one job id apart (daemon/gather/launches.h)
  rank integer NOT NULL,
  world_size integer NOT NULL,
  attempt integer NOT NULL,
  host text NOT NULL,
  ended boolean NOT NULL,
  recorded_ns bigint NOT NULL,
  received_at timestamp with time zone NOT NULL DEFAULT CURRENT_TIMESTAMP,
  body bytea NOT NULL,                 -- RunFacts
  PRIMARY KEY (daemon, run, sequence)
);
CREATE INDEX run_by_job ON nanwatch.run (job);

-- Who sends cannot read: it sees which state is newer, and no more. (An upsert would need to read what it writes.)
GRANT USAGE ON SCHEMA nanwatch TO nanwatch_ingest, nanwatch_read;
GRANT INSERT ON nanwatch.fact, nanwatch.run TO nanwatch_ingest;
GRANT DELETE, SELECT (daemon, run, sequence) ON nanwatch.run TO nanwatch_ingest;
-- Who reads cannot write.
GRANT SELECT ON nanwatch.fact, nanwatch.run, nanwatch.schema_version TO nanwatch_read;
