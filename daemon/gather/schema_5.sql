-- The fleet's database, version 5: whoever sends may ask whether a row is there, by its name alone.
GRANT SELECT (day, daemon, sequence) ON nanwatch.fact TO nanwatch_ingest;
