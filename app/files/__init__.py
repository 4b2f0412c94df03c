"""Files: uploads and the output files of batches. Contents are in the object store, everything else in the database."""
