//! docs/reference/recording.md documents the schema that recordings have.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::path::Path;

use netplumb_model::recording::Recording;
use netplumb_store::Writer;
use rusqlite::Connection;

/// Check that the reference names the schema's version and all of its tables and views, and none
/// that was removed, and that SQLite accepts its queries.
#[test]
fn the_reference_is_of_this_schema() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/recording.md");
    let text = std::fs::read_to_string(path).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("x.plumb");
    let mut writer = Writer::create(&file).unwrap();
    writer.save(&Recording::default()).unwrap();
    drop(writer);
    let connection = Connection::open(&file).unwrap();
    let version: u32 =
        connection.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
    assert!(text.contains(&format!("the schema's version: {version} |")));

    let names = |kind: &str| -> BTreeSet<String> {
        let query = "SELECT name FROM sqlite_master WHERE type = ?1 AND name NOT LIKE 'sqlite_%'";
        let mut statement = connection.prepare(query).unwrap();
        let rows = statement.query_map([kind], |row| row.get(0)).unwrap();
        rows.map(Result::unwrap).collect()
    };
    let headings: BTreeSet<String> = text
        .lines()
        .filter_map(|line| line.strip_prefix("### "))
        .flat_map(|heading| heading.split(", ").map(str::to_string))
        .collect();
    assert_eq!(headings, names("table"));
    for view in names("view") {
        assert!(text.contains(&format!("`{view}`")), "no view {view}");
    }

    let queries: Vec<&str> = text.split("```sql\n").skip(1).collect();
    assert!(queries.len() >= 4);
    for query in queries {
        let query = query.split("```").next().unwrap();
        if let Err(error) = connection.prepare(query) {
            panic!("{error}:\n{query}");
        }
    }
}
