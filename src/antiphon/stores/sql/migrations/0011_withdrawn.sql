-- Runs that ended before their input had a place in the tree: who repeats such an input repeats
-- the run, and does not start another.
CREATE INDEX run_withdrawn ON run (input)
  WHERE input_waiting IS NOT NULL AND ended_ms IS NOT NULL;
