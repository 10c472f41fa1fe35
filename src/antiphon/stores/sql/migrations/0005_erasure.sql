-- What was erased says so: a conversation by the time of it, a message by having no blocks, a call
-- by a mark of its own, a response that was not to be stored by having no request any more.
ALTER TABLE conversation ADD COLUMN erased_ms INTEGER;
ALTER TABLE call ADD COLUMN erased INTEGER NOT NULL DEFAULT 0;

-- Content is stored once for a whole tenant. These are the conversations that need it: with the
-- last of them it goes. What is no content of anybody's (lists of rules and ids) is not listed.
CREATE TABLE content_use (
  conversation INTEGER NOT NULL,
  digest ANY NOT NULL,
  tenant TEXT NOT NULL,
  PRIMARY KEY (conversation, digest)
) STRICT, WITHOUT ROWID;

CREATE INDEX content_use_digest ON content_use (digest);

INSERT INTO content_use (conversation, tenant, digest)
SELECT c.number, c.tenant, k.digest FROM (
  SELECT place, policy_digest AS digest FROM manifest
  UNION SELECT place, toolset_digest FROM manifest
  UNION SELECT place, request FROM response WHERE request IS NOT NULL
) AS u JOIN conversation AS c ON c.number = u.place >> 32
JOIN content AS k ON k.tenant = c.tenant AND k.digest = u.digest
WHERE true ON CONFLICT DO NOTHING;
