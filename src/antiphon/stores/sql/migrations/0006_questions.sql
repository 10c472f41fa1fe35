-- Questions beside the turn: a decision, a summary, a title. What was asked and what was answered
-- is content, named by its digest.
ALTER TABLE manifest ADD COLUMN question ANY;
ALTER TABLE attempt ADD COLUMN answer ANY;

CREATE INDEX manifest_question ON manifest (run) WHERE purpose <> 'turn';
CREATE INDEX attempt_question ON attempt (manifest)
  WHERE purpose <> 'turn' AND state NOT IN ('COMMITTED', 'CANCELED', 'CLOSED');
