-- What a provider said in place of an answer, as JSON, in its own words: content, which erasure
-- takes. NULL where it said nothing, or in an earlier release.
ALTER TABLE attempt ADD COLUMN said BLOB;
