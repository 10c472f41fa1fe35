-- Sessions that follow one another. `previous` is the place of the session before; what one leaves
-- and the next begins with stand in their rows.
ALTER TABLE session ADD COLUMN previous INTEGER;
ALTER TABLE session ADD COLUMN cause TEXT;
ALTER TABLE session ADD COLUMN precis TEXT;
ALTER TABLE session ADD COLUMN handover BLOB;
ALTER TABLE session ADD COLUMN archived_ms INTEGER;

ALTER TABLE conversation ADD COLUMN scheduling INTEGER;

ALTER TABLE run ADD COLUMN decision TEXT;
ALTER TABLE run ADD COLUMN wish TEXT;
ALTER TABLE run ADD COLUMN switched INTEGER NOT NULL DEFAULT 0;
