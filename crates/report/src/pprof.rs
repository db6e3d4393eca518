//! pprof's format (profile.proto), gzipped, for `go tool pprof` and other readers.
//!
//! A sample is a stack in one class and context; its values are the leaf's own
//! instructions and the times it was entered. Class, context, arm and the leaf's
//! layer are labels, so that `-tagfocus`, `-tagroot` and `-tags` distinguish them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::Write;

use flate2::{Compression, GzBuilder};
use netplumb_model::recording::{FunctionId, Recording, env};
use prost::Message;

use crate::analysis::{ClassView, NO_LAYER, quantity};
use crate::number::printable;
use crate::profile::{ELIDED, conditions, parts, tame};
use crate::source::PATH_LETTERS;

/// The messages of google/pprof's proto/profile.proto, without the fields that
/// are not written here.
pub(crate) mod proto {
    #![allow(missing_docs)]

    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct Profile {
        #[prost(message, repeated, tag = "1")]
        pub(crate) sample_type: Vec<ValueType>,
        #[prost(message, repeated, tag = "2")]
        pub(crate) sample: Vec<Sample>,
        #[prost(message, repeated, tag = "3")]
        pub(crate) mapping: Vec<Mapping>,
        #[prost(message, repeated, tag = "4")]
        pub(crate) location: Vec<Location>,
        #[prost(message, repeated, tag = "5")]
        pub(crate) function: Vec<Function>,
        #[prost(string, repeated, tag = "6")]
        pub(crate) string_table: Vec<String>,
        #[prost(int64, tag = "9")]
        pub(crate) time_nanos: i64,
        #[prost(message, optional, tag = "11")]
        pub(crate) period_type: Option<ValueType>,
        #[prost(int64, tag = "12")]
        pub(crate) period: i64,
        #[prost(int64, repeated, tag = "13")]
        pub(crate) comment: Vec<i64>,
        #[prost(int64, tag = "14")]
        pub(crate) default_sample_type: i64,
    }

    #[derive(Clone, Copy, PartialEq, prost::Message)]
    pub(crate) struct ValueType {
        #[prost(int64, tag = "1")]
        pub(crate) r#type: i64,
        #[prost(int64, tag = "2")]
        pub(crate) unit: i64,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct Sample {
        #[prost(uint64, repeated, tag = "1")]
        pub(crate) location_id: Vec<u64>,
        #[prost(int64, repeated, tag = "2")]
        pub(crate) value: Vec<i64>,
        #[prost(message, repeated, tag = "3")]
        pub(crate) label: Vec<Label>,
    }

    #[derive(Clone, Copy, PartialEq, prost::Message)]
    pub(crate) struct Label {
        #[prost(int64, tag = "1")]
        pub(crate) key: i64,
        #[prost(int64, tag = "2")]
        pub(crate) str: i64,
    }

    #[derive(Clone, Copy, PartialEq, prost::Message)]
    pub(crate) struct Mapping {
        #[prost(uint64, tag = "1")]
        pub(crate) id: u64,
        #[prost(uint64, tag = "2")]
        pub(crate) memory_start: u64,
        #[prost(uint64, tag = "3")]
        pub(crate) memory_limit: u64,
        #[prost(int64, tag = "5")]
        pub(crate) filename: i64,
        #[prost(bool, tag = "7")]
        pub(crate) has_functions: bool,
        #[prost(bool, tag = "8")]
        pub(crate) has_filenames: bool,
        #[prost(bool, tag = "9")]
        pub(crate) has_line_numbers: bool,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct Location {
        #[prost(uint64, tag = "1")]
        pub(crate) id: u64,
        #[prost(uint64, tag = "2")]
        pub(crate) mapping_id: u64,
        #[prost(uint64, tag = "3")]
        pub(crate) address: u64,
        #[prost(message, repeated, tag = "4")]
        pub(crate) line: Vec<Line>,
    }

    #[derive(Clone, Copy, PartialEq, prost::Message)]
    pub(crate) struct Line {
        #[prost(uint64, tag = "1")]
        pub(crate) function_id: u64,
        #[prost(int64, tag = "2")]
        pub(crate) line: i64,
    }

    #[derive(Clone, Copy, PartialEq, prost::Message)]
    pub(crate) struct Function {
        #[prost(uint64, tag = "1")]
        pub(crate) id: u64,
        #[prost(int64, tag = "2")]
        pub(crate) name: i64,
        #[prost(int64, tag = "3")]
        pub(crate) system_name: i64,
        #[prost(int64, tag = "4")]
        pub(crate) filename: i64,
        #[prost(int64, tag = "5")]
        pub(crate) start_line: i64,
    }
}

#[cfg(test)]
pub(crate) use proto::Profile;

/// The strings of a profile, each once; the first is empty.
struct Strings {
    all: Vec<String>,
    numbers: HashMap<String, i64>,
}

impl Strings {
    fn number(&mut self, text: impl Into<String>) -> i64 {
        let text = text.into();
        if let Some(number) = self.numbers.get(&text) {
            return *number;
        }
        let number = self.all.len() as i64;
        self.all.push(text.clone());
        self.numbers.insert(text, number);
        number
    }
}

/// The profile of some classes of a recording, gzipped.
pub fn render(recording: &Recording, classes: &[ClassView<'_>]) -> Vec<u8> {
    let bytes = profile(recording, classes).encode_to_vec();
    // Without a name or a time: the same costs are the same bytes.
    let mut gzip = GzBuilder::new().write(Vec::new(), Compression::default());
    // Writing to memory does not fail.
    let _ = gzip.write_all(&bytes);
    gzip.finish().unwrap_or_default()
}

fn profile(recording: &Recording, classes: &[ClassView<'_>]) -> proto::Profile {
    let mut strings =
        Strings { all: vec![String::new()], numbers: HashMap::from([(String::new(), 0)]) };
    let count = strings.number("count");
    let quantity = quantity(recording);
    let cost = match quantity.unit.as_str() {
        "ns" => {
            proto::ValueType { r#type: strings.number("time"), unit: strings.number("nanoseconds") }
        }
        unit => proto::ValueType { r#type: strings.number(tame(unit)), unit: count },
    };
    let calls = proto::ValueType { r#type: strings.number(quantity.calls.title()), unit: count };
    let mut out = proto::Profile {
        sample_type: vec![calls, cost],
        default_sample_type: cost.r#type,
        period_type: Some(cost),
        period: 1,
        time_nanos: started_ns(recording),
        ..Default::default()
    };
    for line in conditions(recording, classes) {
        out.comment.push(strings.number(line));
    }
    let mut places = Places::new(recording, &mut strings);
    let keys = ["arm", "class", "context", "layer"].map(|key| strings.number(key));
    for part in parts(classes) {
        let arm = strings.number(tame(&part.class.arm().name));
        let class = strings.number(part.class.class.to_string());
        let context = strings.number(part.context.to_string());
        for (n, row) in part.rows.iter().enumerate() {
            if row.self_insns == 0 && row.calls == 0 {
                continue;
            }
            let layer = recording.functions[row.function as usize].layer.as_deref();
            let layer = strings.number(tame(layer.unwrap_or(NO_LAYER)));
            let values = [arm, class, context, layer];
            out.sample.push(proto::Sample {
                location_id: part
                    .stack(n)
                    .into_iter()
                    .map(|f| places.location(f, &mut strings))
                    .collect(),
                value: vec![signed(row.calls), signed(row.self_insns)],
                label: keys
                    .iter()
                    .zip(values)
                    .map(|(key, str)| proto::Label { key: *key, str })
                    .collect(),
            });
        }
    }
    out.mapping = places.mappings;
    out.location = places.locations;
    out.function = places.functions;
    out.string_table = strings.all;
    out
}

/// Where functions are, as far as samples name them.
struct Places<'a> {
    recording: &'a Recording,
    mappings: Vec<proto::Mapping>,
    /// By module.
    mapping_ids: BTreeMap<Option<&'a str>, u64>,
    locations: Vec<proto::Location>,
    functions: Vec<proto::Function>,
    ids: HashMap<Option<FunctionId>, u64>,
}

impl<'a> Places<'a> {
    fn new(recording: &'a Recording, strings: &mut Strings) -> Self {
        // From the first function to the last; the kernel itself comes first.
        let mut ranges: BTreeMap<Option<&str>, (u64, u64)> =
            BTreeMap::from([(None, (u64::MAX, 0))]);
        for f in &recording.functions {
            let range = ranges.entry(f.module.as_deref()).or_insert((u64::MAX, 0));
            range.0 = range.0.min(f.address);
            range.1 = range.1.max(f.address.saturating_add(f.size_bytes.max(1)));
        }
        let with_lines: BTreeSet<Option<&str>> = recording
            .functions
            .iter()
            .filter(|f| f.source.is_some())
            .map(|f| f.module.as_deref())
            .collect();
        let mut mappings = Vec::new();
        let mut mapping_ids = BTreeMap::new();
        for (n, (module, (start, end))) in ranges.into_iter().enumerate() {
            let id = n as u64 + 1;
            mapping_ids.insert(module, id);
            mappings.push(proto::Mapping {
                id,
                memory_start: start.min(end),
                memory_limit: end,
                filename: strings.number(module.map_or_else(|| "vmlinux".into(), tame)),
                // No file is needed to name them.
                has_functions: true,
                has_filenames: with_lines.contains(&module),
                has_line_numbers: with_lines.contains(&module),
            });
        }
        Places {
            recording,
            mappings,
            mapping_ids,
            locations: Vec::new(),
            functions: Vec::new(),
            ids: HashMap::new(),
        }
    }

    fn location(&mut self, function: Option<FunctionId>, strings: &mut Strings) -> u64 {
        if let Some(id) = self.ids.get(&function) {
            return *id;
        }
        let id = self.locations.len() as u64 + 1;
        let data = function.map(|f| &self.recording.functions[f as usize]);
        let name = strings.number(data.map_or_else(|| ELIDED.into(), |f| tame(&f.name)));
        // The current line of a stack is not kept: the function's line stands for it.
        let source = function.and_then(|f| self.recording.source_of(f));
        let (filename, line) = match source {
            Some((file, line)) => (strings.number(printable(file, PATH_LETTERS)), line.into()),
            None => (0, 0),
        };
        self.functions.push(proto::Function {
            id,
            name,
            system_name: name,
            filename,
            start_line: line,
        });
        self.locations.push(proto::Location {
            id,
            mapping_id: data.map_or(0, |f| self.mapping_ids[&f.module.as_deref()]),
            address: data.map_or(0, |f| f.address),
            line: vec![proto::Line { function_id: id, line }],
        });
        self.ids.insert(function, id);
        id
    }
}

fn started_ns(recording: &Recording) -> i64 {
    let started = recording.environment.get(env::STARTED);
    let seconds: i64 = started.and_then(|s| s.parse().ok()).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000)
}

/// The format's numbers have a sign.
fn signed(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}
