"""SQL that changes the index, one file per table family. The only writes in the project."""
