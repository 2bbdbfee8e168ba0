"""A party's own files, read and prepared: CSV, Parquet, SQL, LIBSVM, numpy."""
