-- Which conversations came by a stateless door and were kept: they are looked for by their age,
-- and what is erased is not known again.
CREATE INDEX known_prefix_conversation ON known_prefix (conversation);
