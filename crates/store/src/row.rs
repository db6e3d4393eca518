//! Rows of tables; errors have the table, row and column.

use std::fmt::Display;
use std::str::FromStr;

use netplumb_model::recording::MAX_NAME_BYTES;
use rusqlite::types::{FromSql, Type};
use rusqlite::{Connection, Row};

/// Maximum length of texts other than names: values of the environment, levels of knobs, the
/// experiment.
const MAX_TEXT_BYTES: usize = 4 << 20;
/// Maximum number of rows in a table.
const MAX_ROWS: usize = 1 << 26;

/// Why a table can't be read.
#[derive(Debug)]
pub(crate) enum Wrong {
    /// An error of SQLite.
    Sqlite(rusqlite::Error),
    /// Its contents are invalid.
    Found(String),
}

impl From<rusqlite::Error> for Wrong {
    fn from(error: rusqlite::Error) -> Wrong {
        Wrong::Sqlite(error)
    }
}

/// Process the rows of a table in a given order, with their numbers.
pub(crate) fn each(
    connection: &Connection,
    table: &str,
    columns: &str,
    order: &str,
    mut take: impl FnMut(usize, &Row<'_>) -> Result<(), Wrong>,
) -> Result<(), Wrong> {
    let sql = format!("SELECT {columns} FROM {table} ORDER BY {order}");
    let mut statement = connection.prepare(&sql)?;
    let mut rows = statement.query([])?;
    let mut number = 0;
    while let Some(row) = rows.next()? {
        if number == MAX_ROWS {
            return Err(Wrong::Found(format!("table {table} has more than {MAX_ROWS} rows")));
        }
        take(number, row).map_err(|wrong| match wrong {
            Wrong::Found(why) => Wrong::Found(format!("table {table}, row {number}: {why}")),
            Wrong::Sqlite(error) => wrong_row(table, number, row, error),
        })?;
        number += 1;
    }
    Ok(())
}

/// All rows of a table, in a given order.
pub(crate) fn rows<T>(
    connection: &Connection,
    table: &str,
    columns: &str,
    order: &str,
    row: impl Fn(&Row<'_>) -> Result<T, Wrong>,
) -> Result<Vec<T>, Wrong> {
    let mut all = Vec::new();
    each(connection, table, columns, order, |_, r| {
        all.push(row(r)?);
        Ok(())
    })?;
    Ok(all)
}

/// All rows of a table whose first column is its id: they are dense, and start at 0.
pub(crate) fn numbered<T>(
    connection: &Connection,
    table: &str,
    columns: &str,
    row: impl Fn(&Row<'_>) -> Result<T, Wrong>,
) -> Result<Vec<T>, Wrong> {
    let mut all = Vec::new();
    each(connection, table, &format!("id, {columns}"), "id", |n, r| {
        let id: i64 = r.get(0)?;
        if usize::try_from(id) != Ok(n) {
            return Err(Wrong::Found(format!("id {id}, expected {n}")));
        }
        all.push(row(r)?);
        Ok(())
    })?;
    Ok(all)
}

fn wrong_row(table: &str, number: usize, row: &Row<'_>, error: rusqlite::Error) -> Wrong {
    let (column, why) = match &error {
        rusqlite::Error::FromSqlConversionFailure(column, _, why) => (*column, why.to_string()),
        rusqlite::Error::IntegralValueOutOfRange(column, value) => {
            (*column, format!("{value} is out of range"))
        }
        rusqlite::Error::InvalidColumnType(column, _, kind) => (*column, format!("{kind}")),
        _ => return Wrong::Sqlite(error),
    };
    let column = row.as_ref().column_name(column).unwrap_or("?");
    Wrong::Found(format!("table {table}, row {number}, {column}: {why}"))
}

fn refused<T>(column: usize, kind: Type, why: String) -> Result<T, Wrong> {
    Err(rusqlite::Error::FromSqlConversionFailure(column, kind, why.into()).into())
}

/// The value of a column; an error if it has another type.
pub(crate) fn get<T: FromSql>(row: &Row<'_>, column: usize) -> Result<T, Wrong> {
    Ok(row.get(column)?)
}

/// A column with a word of an enum.
pub(crate) fn word<T>(row: &Row<'_>, column: usize) -> Result<T, Wrong>
where
    T: FromStr,
    T::Err: Display,
{
    let text: String = name(row, column)?;
    match text.parse() {
        Ok(word) => Ok(word),
        Err(error) => refused(column, Type::Text, error.to_string()),
    }
}

/// A count, which is never negative.
pub(crate) fn count(row: &Row<'_>, column: usize) -> Result<u64, Wrong> {
    let n: i64 = row.get(column)?;
    match u64::try_from(n) {
        Ok(n) => Ok(n),
        Err(_) => refused(column, Type::Integer, format!("negative count {n}")),
    }
}

/// A finite number.
pub(crate) fn finite(row: &Row<'_>, column: usize) -> Result<f64, Wrong> {
    let n: f64 = row.get(column)?;
    match n.is_finite() {
        true => Ok(n),
        false => refused(column, Type::Real, format!("number {n} is not finite")),
    }
}

/// The same; NULL is an unknown number.
pub(crate) fn known(row: &Row<'_>, column: usize) -> Result<f64, Wrong> {
    match row.get_ref(column)? {
        rusqlite::types::ValueRef::Null => Ok(f64::NAN),
        _ => finite(row, column),
    }
}

/// The name of something.
pub(crate) fn name(row: &Row<'_>, column: usize) -> Result<String, Wrong> {
    bounded(row, column, MAX_NAME_BYTES)
}

/// The name of something that may have none.
pub(crate) fn name_if_any(row: &Row<'_>, column: usize) -> Result<Option<String>, Wrong> {
    match row.get_ref(column)? {
        rusqlite::types::ValueRef::Null => Ok(None),
        _ => name(row, column).map(Some),
    }
}

/// The same for a text by a user.
pub(crate) fn text_if_any(row: &Row<'_>, column: usize) -> Result<Option<String>, Wrong> {
    match row.get_ref(column)? {
        rusqlite::types::ValueRef::Null => Ok(None),
        _ => text(row, column).map(Some),
    }
}

/// A text by a user.
pub(crate) fn text(row: &Row<'_>, column: usize) -> Result<String, Wrong> {
    bounded(row, column, MAX_TEXT_BYTES)
}

fn bounded(row: &Row<'_>, column: usize, most: usize) -> Result<String, Wrong> {
    let text = match row.get_ref(column)?.as_str() {
        Ok(text) => text,
        Err(error) => return refused(column, Type::Text, error.to_string()),
    };
    if text.len() > most {
        let why = format!("{} bytes, expected at most {most}", text.len());
        return refused(column, Type::Text, why);
    }
    Ok(text.to_string())
}

/// The element that a row refers to, by id.
pub(crate) fn element<'a, T>(all: &'a mut [T], id: i64, what: &str) -> Result<&'a mut T, Wrong> {
    usize::try_from(id)
        .ok()
        .and_then(|id| all.get_mut(id))
        .ok_or_else(|| Wrong::Found(format!("dangling reference to {what} {id}")))
}
