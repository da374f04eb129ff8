-- The fleet's database, version 4: what `nanwatch-gather alert` has said, so that any number of them say it once.
CREATE TABLE nanwatch.alert (
  tenant text NOT NULL,
  job text NOT NULL,
  launch text NOT NULL,
  begun_at timestamp with time zone NOT NULL DEFAULT CURRENT_TIMESTAMP,
  ended_at timestamp with time zone,
  settled boolean NOT NULL DEFAULT FALSE,  -- its end was taken by whom it was told
  summary text NOT NULL,
  description text NOT NULL,
  PRIMARY KEY (tenant, job, launch)
);
CREATE INDEX alert_open ON nanwatch.alert (begun_at) WHERE NOT settled;
GRANT USAGE ON SCHEMA nanwatch TO nanwatch_alert;
GRANT SELECT, INSERT, UPDATE ON nanwatch.alert TO nanwatch_alert;
