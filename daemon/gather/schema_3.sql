-- The fleet's database, version 3: tenants. '' is that of a gatherer with one token for all.
ALTER TABLE nanwatch.fact ADD COLUMN tenant text NOT NULL DEFAULT '';
ALTER TABLE nanwatch.run ADD COLUMN tenant text NOT NULL DEFAULT '';

-- A daemon belongs to the tenant that its first row came from.
CREATE TABLE nanwatch.daemon (
  daemon uuid PRIMARY KEY,
  tenant text NOT NULL,
  claimed_at timestamp with time zone NOT NULL DEFAULT CURRENT_TIMESTAMP
);
INSERT INTO nanwatch.daemon (daemon, tenant) SELECT DISTINCT daemon, '' FROM nanwatch.run;
GRANT INSERT, SELECT ON nanwatch.daemon TO nanwatch_ingest;
