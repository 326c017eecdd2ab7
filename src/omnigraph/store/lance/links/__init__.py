"""Takes the rows of another branch of a dataset over by its files, without reading a row.

1. Which rows are meant is known from row ids: the source comes from the base, so a row id below the
   next one of the base is the row of the base, and every other one is new. The target has the rows
   of the base.
2. A fragment of the source that the target lacks becomes a fragment of the target with a number of
   its own. Where both have the rows of a fragment and the source has deleted some, the target takes
   the list of deleted rows. Files get second names in the target's directory, so they stay
   when the source goes.
3. Rows that the source has replaced keep their row ids. New rows get the next ids of the target:
   the library numbers the rows of a fragment that names no ids, in the order of the fragments, so
   the numbers are known beforehand. The transaction can only be committed on its exact base.
4. A file keeps its name only where its rows have the row ids of the source: files of one name hold
   the same rows under the same ids, and what is derived from rows relies on it.
5. A name that is taken in the target's directory is not given again. A version that was put back
   may have it: a cleanup that removes this version takes no lock, and removes its files, also when
   a newer version begins to name them meanwhile.
6. Versions of rows are derived by the commit: replaced rows keep the version that made them. It
   would also give the new version to rows that the source only moved, so fragments with such rows
   are not taken.
"""
