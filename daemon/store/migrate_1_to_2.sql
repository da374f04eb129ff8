-- Version 1 did not know what had been lost on the way.
ALTER TABLE cursor ADD COLUMN holes INTEGER NOT NULL DEFAULT 0;
ALTER TABLE cursor ADD COLUMN malformed INTEGER NOT NULL DEFAULT 0;
ALTER TABLE cursor ADD COLUMN steps_lost INTEGER NOT NULL DEFAULT 0;
ALTER TABLE run ADD COLUMN records_thinned INTEGER NOT NULL DEFAULT 0;
CREATE INDEX incident_by_severity ON incident (severity);
