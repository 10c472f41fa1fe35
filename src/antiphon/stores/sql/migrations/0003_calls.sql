-- What a call may do twice, who has to agree to it, how much of its result the model is shown, and
-- whose result it was given. Calls of earlier releases were none of that.
ALTER TABLE call ADD COLUMN repeatable INTEGER NOT NULL DEFAULT 0;
ALTER TABLE call ADD COLUMN approval TEXT
  CONSTRAINT call_approval CHECK (approval IN ('needed', 'given'));
ALTER TABLE call ADD COLUMN changed_arguments TEXT
  CONSTRAINT call_changed CHECK (changed_arguments IS NULL OR approval = 'given');
ALTER TABLE call ADD COLUMN max_result_chars INTEGER NOT NULL DEFAULT 0;
ALTER TABLE call ADD COLUMN reused_from TEXT
  CONSTRAINT call_reused CHECK (reused_from IS NULL OR state = 'SUCCESS');
