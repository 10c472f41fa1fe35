-- What of a run's tokens was read from a cache, written to one, or thought; and what all of them
-- cost, in millionths of a dollar. NULL is: nobody knows. Runs of earlier releases were not priced.
ALTER TABLE run ADD COLUMN cached_tokens INTEGER NOT NULL DEFAULT 0;
ALTER TABLE run ADD COLUMN cache_write_tokens INTEGER NOT NULL DEFAULT 0;
ALTER TABLE run ADD COLUMN reasoning_tokens INTEGER NOT NULL DEFAULT 0;
ALTER TABLE run ADD COLUMN cost_micros INTEGER;
ALTER TABLE run ADD COLUMN prices_of TEXT;

-- The same of one answer, as JSON. NULL where it was not had whole, or in an earlier release.
ALTER TABLE attempt ADD COLUMN used BLOB;
