-- Where several processes work in one database, each is held for alive until its lease ends, by the
-- database's own clock; 0 for those that hold none. Whoever knows a node's secret may ask it for
-- previews; it is in nobody's hands but of those who can read this table.
ALTER TABLE node ADD COLUMN lease_until_ms INTEGER NOT NULL DEFAULT 0;
ALTER TABLE node ADD COLUMN secret TEXT;

-- Databases of the first releases have it in words of SQLite's alone, which its questions do not use.
DROP INDEX response_unstored;
CREATE INDEX response_unstored ON response (place) WHERE stored = 0;
