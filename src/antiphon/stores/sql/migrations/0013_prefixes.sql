-- Where a history that was brought whole is stored: by the keyed digest of what it said.
CREATE TABLE known_prefix (
  tenant TEXT NOT NULL,
  digest ANY NOT NULL,
  conversation TEXT NOT NULL,
  message TEXT NOT NULL,
  PRIMARY KEY (tenant, digest)
) STRICT, WITHOUT ROWID;
