-- What a tenant keeps beside its conversations. A file goes with the last conversation that it was
-- given to; one that never was given to any stays until somebody deletes it.
CREATE TABLE file (
  id TEXT NOT NULL PRIMARY KEY,
  tenant TEXT NOT NULL,
  name TEXT NOT NULL,
  media_type TEXT NOT NULL,
  purpose TEXT NOT NULL,
  bytes INTEGER NOT NULL,
  encoding TEXT NOT NULL,
  evidence TEXT NOT NULL,
  digest ANY NOT NULL,
  created_ms INTEGER NOT NULL,
  lengths BLOB NOT NULL,
  passages INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX file_tenant ON file (tenant, id);

CREATE TABLE file_data (
  file TEXT NOT NULL PRIMARY KEY CONSTRAINT file_data_file REFERENCES file (id),
  data BLOB NOT NULL
) STRICT;

CREATE TABLE file_use (
  conversation INTEGER NOT NULL,
  file TEXT NOT NULL CONSTRAINT file_use_file REFERENCES file (id),
  given_ms INTEGER NOT NULL,
  PRIMARY KEY (conversation, file)
) STRICT, WITHOUT ROWID;

CREATE INDEX file_use_file ON file_use (file);

CREATE TABLE passage (
  file TEXT NOT NULL CONSTRAINT passage_file REFERENCES file (id),
  number INTEGER NOT NULL,
  heading TEXT NOT NULL,
  text TEXT NOT NULL,
  PRIMARY KEY (file, number)
) STRICT;

-- The index, one row for each term of a file: which passages have it, and how often. Both databases
-- hold it alike, and the ranking is worked out of it in one place.
CREATE TABLE file_term (
  file TEXT NOT NULL CONSTRAINT file_term_file REFERENCES file (id),
  term TEXT NOT NULL,
  postings BLOB NOT NULL,
  PRIMARY KEY (file, term)
) STRICT, WITHOUT ROWID;

-- `conversation` is 0 for what holds for all of a tenant's.
CREATE TABLE remembered (
  tenant TEXT NOT NULL,
  conversation INTEGER NOT NULL,
  kind TEXT NOT NULL,
  key TEXT NOT NULL,
  text TEXT NOT NULL,
  trust TEXT NOT NULL,
  priority INTEGER NOT NULL,
  required INTEGER NOT NULL,
  updated_ms INTEGER NOT NULL,
  PRIMARY KEY (tenant, conversation, kind, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE instructions (
  tenant TEXT NOT NULL,
  name TEXT NOT NULL,
  version INTEGER NOT NULL,
  text TEXT NOT NULL,
  owner TEXT NOT NULL,
  created_ms INTEGER NOT NULL,
  PRIMARY KEY (tenant, name, version)
) STRICT, WITHOUT ROWID;
