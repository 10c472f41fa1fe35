-- Which plan a dispatch was made by. Those of earlier releases were made of the whole line.
ALTER TABLE manifest ADD COLUMN plan BLOB;
