-- Who may talk to a server. Of a key's secret only its digest is kept.
CREATE TABLE principal_key (
  id TEXT NOT NULL PRIMARY KEY,
  tenant TEXT NOT NULL,
  name TEXT NOT NULL,
  rights TEXT NOT NULL,
  secret_digest BLOB NOT NULL CONSTRAINT principal_key_secret UNIQUE,
  created_ms INTEGER NOT NULL,
  expires_ms INTEGER,
  revoked_ms INTEGER
) STRICT, WITHOUT ROWID;
