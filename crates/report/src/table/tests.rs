//! One small table in every backend.

use super::*;

/// A name, bytes, and part of all.
type NamedFigures = (&'static str, u64, f64);

fn rows() -> [NamedFigures; 3] {
    [("ip_rcv", 1_536, 0.25), ("=1+1|\x1b[2J<b>`", 12, f64::NAN), ("", 0, 0.0)]
}

fn table() -> Table<'static, NamedFigures> {
    let columns = vec![
        Column::code("function", |r: &NamedFigures| Value::Name(r.0.into(), None))
            .key("name")
            .people(0)
            .page("function"),
        Column::figure("bytes", |r: &NamedFigures| Value::Count(r.1))
            .hint("of code")
            .unit("bytes")
            .key("code_bytes")
            .people(2)
            .page("bytes"),
        Column::figure("share", |r: &NamedFigures| Value::Share(r.2))
            .key("share")
            .digits(3)
            .people(1)
            .from(80)
            .page("share"),
    ];
    Table::new(columns, rows())
}

/// Check that a column declared once is in every backend, in its place there.
#[test]
fn everywhere() {
    let wide = table().terminal(Room::new(80, 40));
    let heading = wide.lines().next().unwrap();
    let words: Vec<&str> = heading.split_whitespace().collect();
    assert_eq!(words, ["function", "share", "bytes"]);
    assert!(wide.contains("ip_rcv") && wide.contains("25.0%") && wide.contains("1,536"));
    let narrow = table().terminal(Room::new(79, 40));
    assert!(!narrow.contains("share") && narrow.contains("1,536"));

    let csv = table().csv();
    assert!(csv.starts_with("name,code_bytes,share\nip_rcv,1536,0.250\n"), "{csv}");

    let json = serde_json::to_value(table().json()).unwrap();
    assert_eq!(json[0]["code_bytes"], 1_536);
    assert_eq!(json[0]["share"], 0.25);
    assert!(json[1]["share"].is_null(), "what is no number is nothing");

    let mut markdown = String::new();
    table().markdown(&mut markdown);
    assert!(markdown.contains("| `ip_rcv`"), "{markdown}");
    assert!(markdown.contains("1,536 |"), "{markdown}");

    let columns = table().page_columns();
    let titles: Vec<&str> = columns.iter().map(|c| c.title.as_str()).collect();
    assert_eq!(titles, ["function", "share", "bytes"]);
    assert_eq!((&*columns[2].hint, &*columns[2].unit), ("of code", "bytes"));
    assert!(columns[0].words && !columns[2].words);
    assert_eq!(table().page_rows()[0][2].value, Some(1_536.0));
}

/// Check that names are harmless in each.
#[test]
fn names_are_harmless() {
    let mut markdown = String::new();
    table().markdown(&mut markdown);
    let page = serde_json::to_string(&table().page_rows()).unwrap();
    let texts = [table().terminal(Room::new(80, 40)), table().csv(), markdown.clone(), page];
    for text in texts {
        assert!(!text.contains('\x1b') && !text.contains("\\u001b"), "{text}");
    }
    assert!(table().csv().contains("'=1+1"));
    // Each line has as many cells as there are columns, with the pipe of a name escaped.
    for line in markdown.lines().filter(|line| !line.is_empty()) {
        let pipes = line.replace("\\|", "").matches('|').count();
        assert_eq!(pipes, 4, "{line}");
    }
}
