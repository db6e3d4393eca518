//! CSV (RFC 4180) that may be opened by a spreadsheet, or seen in a terminal.
//!
//! A spreadsheet takes a cell for a formula if it begins like one, and names are up to the
//! recording's author: such a cell gets an apostrophe, which marks it as text. Numbers are
//! left as they are. Control characters would reach a terminal.

use crate::number::printable;

/// Letters of a cell: names are shorter, and a command line, which may be longer, is in each row.
const LETTERS: usize = 16 << 10;
/// The first characters of formulas; tabs and line breaks, which may begin one too, are in no cell.
const FORMULA: [char; 4] = ['=', '+', '-', '@'];

/// A table that is written line by line.
pub(crate) struct Sheet(csv::Writer<Vec<u8>>);

impl Sheet {
    /// With a heading.
    pub(crate) fn new<T: AsRef<str>>(heading: impl IntoIterator<Item = T>) -> Sheet {
        let mut sheet = Sheet(csv::Writer::from_writer(Vec::new()));
        sheet.row(heading);
        sheet
    }

    /// Add a line.
    pub(crate) fn row<T: AsRef<str>>(&mut self, cells: impl IntoIterator<Item = T>) {
        let cells = cells.into_iter().map(|text| cell(text.as_ref()));
        // Writing to memory does not fail, and a line too short or long can't be seen here.
        let _ = self.0.write_record(cells.collect::<Vec<_>>());
    }

    /// The finished text.
    pub(crate) fn finish(self) -> String {
        let bytes = self.0.into_inner().unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

fn cell(text: &str) -> String {
    let number = |text: &str| text.strip_suffix('%').unwrap_or(text).parse::<f64>().is_ok();
    let mut out = printable(text, LETTERS);
    if out.starts_with(FORMULA) && !number(&out) {
        out.insert(0, '\'');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that no cell is a formula, that numbers stay numbers, and that nothing in a
    /// cell moves a cursor or turns text around.
    #[test]
    fn cells() {
        for (text, wanted) in [
            ("udp_sendmsg", "udp_sendmsg"),
            ("=1+1", "'=1+1"),
            ("@SUM(A1)", "'@SUM(A1)"),
            ("+cmd|' /C calc'!A0", "'+cmd|' /C calc'!A0"),
            ("-2+3", "'-2+3"),
            ("\t=1+1", "?=1+1"),
            ("\r=1+1", "?=1+1"),
            ("-12", "-12"),
            ("-12.5000", "-12.5000"),
            ("+0.3%", "+0.3%"),
            ("-1e-9", "-1e-9"),
            ("-", "'-"),
            ("a\x1b]0;title\x07b", "a?]0;title?b"),
            ("\u{9b}2J\u{202e}gnp\u{2066}", "?2J?gnp?"),
        ] {
            assert_eq!(cell(text), wanted, "{text:?}");
        }
        let mut sheet = Sheet::new(["name", "n"]);
        sheet.row(["=\"a\",b", "7"]);
        assert_eq!(sheet.finish(), "name,n\n\"'=\"\"a\"\",b\",7\n");
    }
}
