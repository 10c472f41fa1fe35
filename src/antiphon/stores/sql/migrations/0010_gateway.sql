-- What a key may use beside its rights: models, limits, budgets, repairs. NULL is: no limit.
ALTER TABLE principal_key ADD COLUMN terms BLOB;

-- What keys have used, by the day (UTC, from 1970). Money is in millionths of a dollar.
CREATE TABLE spending (
  key TEXT NOT NULL,
  day INTEGER NOT NULL,
  answers INTEGER NOT NULL,
  input_tokens INTEGER NOT NULL,
  output_tokens INTEGER NOT NULL,
  micros INTEGER NOT NULL,
  PRIMARY KEY (key, day)
) STRICT, WITHOUT ROWID;

-- How far a tenant's traffic for a model has come, and what was found on the way.
CREATE TABLE rollout (
  tenant TEXT NOT NULL,
  model TEXT NOT NULL,
  stage TEXT NOT NULL,
  share INTEGER NOT NULL CONSTRAINT rollout_share CHECK (share BETWEEN 0 AND 100),
  adapter_version INTEGER,
  updated_ms INTEGER NOT NULL,
  changed_by TEXT NOT NULL,
  PRIMARY KEY (tenant, model)
) STRICT, WITHOUT ROWID;

CREATE TABLE shadow_difference (
  tenant TEXT NOT NULL,
  model TEXT NOT NULL,
  kind TEXT NOT NULL,
  cause TEXT NOT NULL,
  example TEXT NOT NULL,
  count INTEGER NOT NULL,
  first_ms INTEGER NOT NULL,
  last_ms INTEGER NOT NULL,
  PRIMARY KEY (tenant, model, kind, cause)
) STRICT, WITHOUT ROWID;

CREATE TABLE shadow_tally (
  tenant TEXT NOT NULL,
  model TEXT NOT NULL,
  outcome TEXT NOT NULL,
  count INTEGER NOT NULL,
  PRIMARY KEY (tenant, model, outcome)
) STRICT, WITHOUT ROWID;
