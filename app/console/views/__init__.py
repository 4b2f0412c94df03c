"""Pure: from rows to words, points and the lines of a drawing. Tested by tables, without a database."""
