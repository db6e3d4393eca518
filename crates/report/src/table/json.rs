//! A table as JSON: an object for each row.

use serde::{Serialize, Serializer};

use super::{Table, Value};

impl<R> Table<'_, R> {
    /// The rows, each by the keys of its columns, in their order.
    pub(crate) fn json(&self) -> Vec<Value> {
        let row = |row: &R| {
            let columns = self.columns.iter();
            let cells = columns.filter_map(|c| Some((c.json.clone()?, (c.value)(row))));
            Value::Object(cells.collect())
        };
        self.rows.iter().map(row).collect()
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Value::Text(text) | Value::Name(text, _) => serializer.serialize_str(text),
            Value::Sum(word) => serializer.serialize_str(word),
            Value::Flag(flag) => serializer.serialize_bool(*flag),
            Value::Count(count) => serializer.serialize_u64(*count),
            Value::List(all) => serializer.collect_seq(all),
            Value::Object(all) => {
                let there = all.iter().filter(|(_, value)| *value != Value::Absent);
                serializer.collect_map(there.map(|(key, value)| (key, value)))
            }
            Value::NsRange(low, high) => serializer.collect_seq([low, high]),
            value => value.figure().serialize(serializer),
        }
    }
}
