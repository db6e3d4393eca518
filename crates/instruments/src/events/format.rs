//! Fields of tracepoints' records, as tracefs describes them.

/// A field of a tracepoint's record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Field {
    /// Its name, without the brackets of an array.
    pub(crate) name: String,
    /// Where it begins.
    pub(crate) at: u32,
    /// Its length in the record itself.
    pub(crate) bytes: u32,
    /// Whether it only has the place and length of its text or array, elsewhere in the record.
    pub(crate) elsewhere: bool,
}

/// Before the type of what is elsewhere in a record (include/trace/stages/stage2_data_offsets.h).
const ELSEWHERE: &[&str] = &["__data_loc ", "__rel_loc "];

/// The fields of a tracepoint's record, without the common ones (Documentation/trace/events.rst).
pub(crate) fn fields(format: &str) -> Vec<Field> {
    let field = |line: &str| {
        let mut parts = line.trim().split(';').map(str::trim);
        let declared = parts.next()?.strip_prefix("field:")?;
        let mut value = |key: &str| {
            let text = parts.next()?.strip_prefix(key)?;
            text.trim().parse::<u32>().ok()
        };
        let (at, bytes) = (value("offset:")?, value("size:")?);
        let name = declared.rsplit([' ', '*']).next()?;
        let name = name.split('[').next()?;
        (!name.starts_with("common_")).then(|| Field {
            name: name.into(),
            at,
            bytes,
            elsewhere: ELSEWHERE.iter().any(|word| declared.starts_with(word)),
        })
    };
    format.lines().filter_map(field).collect()
}

/// A tracepoint's format, as tracefs has it.
#[cfg(test)]
pub(crate) const FORMAT: &str = "name: block_rq_issue\nID: 1247\nformat:\n\
    \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
    \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
    \tfield:dev_t dev;\toffset:8;\tsize:4;\tsigned:0;\n\
    \tfield:sector_t sector;\toffset:16;\tsize:8;\tsigned:0;\n\
    \tfield:char rwbs[10];\toffset:34;\tsize:10;\tsigned:0;\n\
    \tfield:const char * name;\toffset:48;\tsize:8;\tsigned:0;\n\
    \tfield:__data_loc char[] cmd;\toffset:56;\tsize:4;\tsigned:0;\n\
    \tfield:__rel_loc char[] text;\toffset:60;\tsize:4;\tsigned:0;\n\n\
    print fmt: \"%d\", REC->dev\n";

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that fields are found with their places, and common ones left out.
    #[test]
    fn records() {
        let found = fields(FORMAT);
        let all: Vec<(&str, u32, u32)> =
            found.iter().map(|f| (f.name.as_str(), f.at, f.bytes)).collect();
        let wanted = [
            ("dev", 8, 4),
            ("sector", 16, 8),
            ("rwbs", 34, 10),
            ("name", 48, 8),
            ("cmd", 56, 4),
            ("text", 60, 4),
        ];
        assert_eq!(all, wanted);
        let elsewhere = found.iter().filter(|f| f.elsewhere).map(|f| f.name.as_str());
        assert_eq!(elsewhere.collect::<Vec<_>>(), ["cmd", "text"]);
        assert!(fields("nothing of the kind\n\tfield:x;").is_empty());
    }
}
