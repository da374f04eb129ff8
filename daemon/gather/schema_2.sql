-- The fleet's database, version 2: incidents are found without reading all facts (kind 4: daemon/fleet/fleet_row.h).
CREATE INDEX fact_incidents ON nanwatch.fact (received_at) WHERE kind = 4;
