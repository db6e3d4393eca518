//! From older schemas to this one. A recording on disk is never changed: it is
//! migrated in a copy in memory.

use rusqlite::Connection;

use crate::{TIMED, VERSION};

/// One step for each version there ever was: `STEPS[n]` makes n + 1 of n.
/// Version 0 was never released.
const STEPS: &[&str] = &["", LINES, TIMED];

/// 2 has lines of user code. None were kept before.
const LINES: &str = "
CREATE TABLE source_file (
  id   INTEGER NOT NULL PRIMARY KEY,
  path TEXT NOT NULL
) STRICT;
ALTER TABLE function ADD COLUMN file INTEGER REFERENCES source_file(id);
ALTER TABLE function ADD COLUMN line INTEGER;
CREATE TABLE line_cost (
  block    INTEGER NOT NULL REFERENCES block(id),
  function INTEGER NOT NULL REFERENCES function(id),
  file     INTEGER NOT NULL REFERENCES source_file(id),
  line     INTEGER NOT NULL,
  insns    INTEGER NOT NULL,
  PRIMARY KEY (block, function, file, line)
) STRICT, WITHOUT ROWID;
";

/// Bring a database in memory up to the present schema.
pub(crate) fn up(connection: &Connection, from: i32) -> rusqlite::Result<()> {
    for step in STEPS
        .iter()
        .take(VERSION as usize)
        .skip(from.max(0) as usize)
    {
        connection.execute_batch(step)?;
    }
    Ok(())
}
