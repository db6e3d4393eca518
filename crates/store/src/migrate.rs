//! From older schemas to this one. A recording on disk is never changed: it is
//! migrated in a copy in memory.

use rusqlite::Connection;

use crate::{TIMED, VERSION};

/// One step for each version there ever was: `STEPS[n]` makes n + 1 of n.
/// Version 0 was never released.
const STEPS: &[&str] = &["", TIMED];

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
