-- What one request of a client started: a stretch of a run, from the event after `since` to where
-- the run next ends or waits. Nothing of what came of it stands here. The run may be born in the
-- same transaction, after its response, so it is named by its id.
CREATE TABLE response (
  place INTEGER PRIMARY KEY,
  id TEXT NOT NULL,
  run TEXT NOT NULL,
  previous TEXT,
  since INTEGER NOT NULL,
  request ANY,
  input BLOB NOT NULL,
  stored INTEGER NOT NULL,
  created_ms INTEGER NOT NULL,
  deleted INTEGER NOT NULL
) STRICT;

CREATE UNIQUE INDEX response_id ON response (id);
CREATE INDEX response_run ON response (run);
CREATE INDEX response_unstored ON response (place) WHERE stored = 0;

CREATE TABLE response_key (
  scope TEXT NOT NULL,
  key TEXT NOT NULL,
  response INTEGER NOT NULL CONSTRAINT response_key_response REFERENCES response (place),
  body_digest ANY NOT NULL,
  expires_ms INTEGER NOT NULL,
  PRIMARY KEY (scope, key)
) STRICT, WITHOUT ROWID;

ALTER TABLE conversation ADD COLUMN deleted INTEGER NOT NULL DEFAULT 0;
