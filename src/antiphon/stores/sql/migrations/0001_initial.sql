-- A *place* is one integer that begins with the conversation: its number in the upper 32 bits,
-- the row's own number within it in the lower. Rows of one conversation lie together, in the
-- order in which they came. Ordinary (rowid) tables keep a row in its leaf up to the size of a
-- page; WITHOUT ROWID tables spill it to another page at a quarter of that, so they hold only
-- short rows. Digests are 32 bytes, times are milliseconds since 1970, JSON is UTF-8 in a BLOB.

CREATE TABLE tenant (
  id TEXT NOT NULL PRIMARY KEY,
  digest_key BLOB NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE node (
  id TEXT NOT NULL PRIMARY KEY,
  epoch INTEGER NOT NULL,
  address TEXT,
  joined_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- The only row that a compare-and-swap looks at beside the attempt's own.
CREATE TABLE conversation (
  number INTEGER PRIMARY KEY,
  id TEXT NOT NULL CONSTRAINT conversation_id UNIQUE,
  tenant TEXT NOT NULL CONSTRAINT conversation_tenant REFERENCES tenant (id),
  session INTEGER NOT NULL,
  head TEXT,
  revision INTEGER NOT NULL DEFAULT 0,
  cancel_generation INTEGER NOT NULL DEFAULT 0,
  attempt_generation INTEGER NOT NULL DEFAULT 0,
  active_operation TEXT,
  slot TEXT,
  title TEXT,
  metadata BLOB,
  created_ms INTEGER NOT NULL,
  updated_ms INTEGER NOT NULL,
  last_event INTEGER NOT NULL DEFAULT 0
) STRICT;

-- `updated_ms` moves with what people do, not with every step of an answer.
CREATE INDEX conversation_by_change ON conversation (tenant, updated_ms, number);

-- The active session's head stands in the conversation's row; an archived one keeps its own.
CREATE TABLE session (
  place INTEGER PRIMARY KEY,
  id TEXT NOT NULL,
  goal TEXT,
  active INTEGER NOT NULL,
  head TEXT,
  created_ms INTEGER NOT NULL
) STRICT;

CREATE UNIQUE INDEX session_one_active ON session (place >> 32) WHERE active = 1;

-- A parent always came before its child and in the same conversation, so no circle can be
-- written. `kind` is role, origin and trust in one word each; `extra` holds name, copied_from and
-- metadata where there are any: a path has thousands of rows, and each column costs time.
-- `base_revision` is set on canonical assistant messages only.
CREATE TABLE message (
  place INTEGER PRIMARY KEY,
  parent INTEGER
    CONSTRAINT message_parent REFERENCES message (place)
    CONSTRAINT message_parent_before CHECK (parent < place)
    CONSTRAINT message_parent_here CHECK (parent >> 32 = place >> 32),
  depth INTEGER NOT NULL,
  id TEXT NOT NULL,
  kind TEXT NOT NULL,
  status TEXT NOT NULL,
  session INTEGER NOT NULL,
  run TEXT,
  created_ms INTEGER NOT NULL,
  blocks BLOB,
  error_code TEXT,
  extra BLOB,
  digest BLOB NOT NULL,
  path_digest BLOB NOT NULL,
  base_revision INTEGER
) STRICT;

CREATE UNIQUE INDEX message_id ON message (place >> 32, id);
CREATE INDEX message_children ON message (place >> 32, parent);
-- An operation has one base revision, so this is one canonical answer per operation too.
CREATE UNIQUE INDEX message_one_canonical ON message (place >> 32, base_revision)
  WHERE base_revision IS NOT NULL;

CREATE TABLE deletion (
  message INTEGER NOT NULL PRIMARY KEY
    CONSTRAINT deletion_message REFERENCES message (place),
  revision INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- `input_waiting` holds the whole input until it is placed; from then on the tree has it.
-- `operation` and `first_operation` are places in `manifest`: at most one is unfinished, and it
-- is the newest.
CREATE TABLE run (
  place INTEGER PRIMARY KEY,
  id TEXT NOT NULL,
  kind TEXT NOT NULL,
  status TEXT NOT NULL,
  options BLOB NOT NULL,
  input TEXT,
  input_waiting BLOB,
  asked_parent TEXT,
  at_root INTEGER NOT NULL,
  seq INTEGER NOT NULL,
  session TEXT,
  leaf TEXT,
  head_left TEXT,
  answer TEXT,
  partial TEXT,
  committed INTEGER NOT NULL DEFAULT 0,
  first_operation INTEGER,
  operation INTEGER,
  node TEXT,
  epoch INTEGER NOT NULL DEFAULT 0,
  error_code TEXT,
  end_code TEXT,
  input_tokens INTEGER NOT NULL DEFAULT 0,
  output_tokens INTEGER NOT NULL DEFAULT 0,
  created_ms INTEGER NOT NULL,
  started_ms INTEGER,
  ended_ms INTEGER,
  CONSTRAINT run_ended CHECK (
    (ended_ms IS NULL) = (status IN ('queued', 'pending', 'waiting', 'unknown'))
  )
) STRICT;

CREATE UNIQUE INDEX run_id ON run (id);
CREATE INDEX run_open ON run (place) WHERE ended_ms IS NULL;

CREATE TABLE start_key (
  scope TEXT NOT NULL,
  key TEXT NOT NULL,
  run INTEGER NOT NULL CONSTRAINT start_key_run REFERENCES run (place),
  body_digest ANY NOT NULL,
  expires_ms INTEGER NOT NULL,
  PRIMARY KEY (scope, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE manifest (
  place INTEGER PRIMARY KEY,
  operation TEXT NOT NULL,
  run INTEGER NOT NULL CONSTRAINT manifest_run REFERENCES run (place),
  base_leaf INTEGER NOT NULL CONSTRAINT manifest_base_leaf REFERENCES message (place),
  session INTEGER NOT NULL CONSTRAINT manifest_session REFERENCES session (place),
  purpose TEXT NOT NULL,
  base_revision INTEGER NOT NULL,
  base_cancel_generation INTEGER NOT NULL,
  sequence_digest ANY NOT NULL,
  adapter TEXT NOT NULL,
  adapter_version INTEGER NOT NULL,
  adapter_digest ANY NOT NULL,
  provider TEXT NOT NULL,
  model_revision TEXT NOT NULL,
  toolset_digest ANY NOT NULL,
  policy_digest ANY NOT NULL,
  request_digest ANY NOT NULL,
  mappings BLOB,
  max_output_tokens INTEGER,
  idempotency_key TEXT,
  linked_to TEXT,
  schema INTEGER NOT NULL,
  digest ANY NOT NULL
) STRICT;

CREATE UNIQUE INDEX manifest_operation ON manifest (operation);

CREATE TABLE attempt (
  manifest INTEGER NOT NULL CONSTRAINT attempt_manifest REFERENCES manifest (place),
  number INTEGER NOT NULL,
  purpose TEXT NOT NULL,
  generation INTEGER NOT NULL DEFAULT 0,
  state TEXT NOT NULL,
  handle TEXT,
  node TEXT,
  epoch INTEGER NOT NULL DEFAULT 0,
  deadline_ms INTEGER NOT NULL DEFAULT 0,
  sent_again INTEGER NOT NULL DEFAULT 0,
  proof TEXT,
  error_code TEXT,
  prepared_ms INTEGER NOT NULL,
  accepted_ms INTEGER,
  written_ms INTEGER,
  opened_ms INTEGER,
  ended_ms INTEGER,
  PRIMARY KEY (manifest, number)
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX attempt_one_active ON attempt (manifest >> 32)
  WHERE purpose = 'turn' AND state IN ('DISPATCHING', 'SENT', 'STREAMING', 'UNKNOWN');
CREATE UNIQUE INDEX attempt_generation ON attempt (manifest >> 32, generation)
  WHERE generation > 0;

CREATE TABLE call (
  place INTEGER PRIMARY KEY,
  run INTEGER NOT NULL CONSTRAINT call_run REFERENCES run (place),
  message INTEGER NOT NULL CONSTRAINT call_message REFERENCES message (place),
  call_id TEXT NOT NULL,
  position INTEGER NOT NULL,
  name TEXT NOT NULL,
  arguments TEXT NOT NULL,
  arguments_digest ANY NOT NULL,
  generation INTEGER NOT NULL,
  runner TEXT NOT NULL,
  read_only INTEGER NOT NULL,
  idempotent INTEGER NOT NULL,
  state TEXT NOT NULL,
  attempt INTEGER NOT NULL DEFAULT 0,
  node TEXT,
  epoch INTEGER NOT NULL DEFAULT 0,
  deadline_ms INTEGER NOT NULL DEFAULT 0,
  idempotency_key TEXT NOT NULL,
  code TEXT,
  content BLOB,
  ended_ms INTEGER,
  CONSTRAINT call_ended CHECK (
    (ended_ms IS NULL) = (state IN ('PENDING', 'EXECUTING', 'UNKNOWN'))
  )
) STRICT;

CREATE UNIQUE INDEX call_id ON call (run, call_id);

CREATE TABLE event (
  place INTEGER PRIMARY KEY,
  at_ms INTEGER NOT NULL,
  data BLOB NOT NULL
) STRICT;

CREATE TABLE quarantine (
  place INTEGER PRIMARY KEY,
  operation TEXT,
  generation INTEGER NOT NULL,
  reason TEXT NOT NULL,
  data TEXT NOT NULL,
  at_ms INTEGER NOT NULL
) STRICT;

CREATE TABLE content (
  tenant TEXT NOT NULL CONSTRAINT content_tenant REFERENCES tenant (id),
  digest ANY NOT NULL,
  data BLOB NOT NULL,
  PRIMARY KEY (tenant, digest)
) STRICT, WITHOUT ROWID;
