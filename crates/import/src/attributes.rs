//! The attributes of a file's events, and which of them a record is of.

use linux_perf_data::linux_perf_event_reader::{
    AttrFlags, ClockId, Endianness, PerfClock, RawData, RawEventRecord, RecordParseInfo, RecordType,
};
use linux_perf_data::{AttributeDescription, Error, PerfFileReader};
use rustc_hash::FxHashMap;

use crate::Wrong;
use crate::bytes::u64_at;
use crate::header::{HEADER, PIPE_HEADER, parts};
use crate::sample::Layout;

/// The attributes that a file begins with.
#[derive(Debug)]
pub(crate) struct Attributes {
    all: Vec<AttributeDescription>,
    infos: Vec<RecordParseInfo>,
    /// Fields of samples, by event.
    layouts: Vec<Layout>,
    by_id: FxHashMap<u64, usize>,
    /// Whether all events have the ID of a record in the same place; or else, whether records other than samples have
    /// one at all (PERF_SAMPLE_IDENTIFIER).
    same_place: bool,
    sample_id_all: bool,
}

impl Attributes {
    /// Parse the attributes of a stream that has nothing else.
    pub(crate) fn parse(stream: &[u8]) -> Result<Attributes, Wrong> {
        let read = PerfFileReader::parse_pipe(stream).map_err(|error| wrong(&error))?;
        let all = read.perf_file.event_attributes().to_vec();
        let info =
            |of: &AttributeDescription| RecordParseInfo::new(&of.attr, Endianness::LittleEndian);
        let infos: Vec<RecordParseInfo> = all.iter().map(info).collect();
        let mut places = infos.iter().map(|info| info.id_parse_info);
        let first = places.next();
        let ids = (0..).zip(&all);
        let ids = ids.flat_map(|(n, of)| of.event_ids.iter().map(move |id| (*id, n)));
        Ok(Attributes {
            layouts: layouts(stream),
            by_id: ids.collect(),
            same_place: places.all(|place| Some(place) == first),
            sample_id_all: (all.first())
                .is_some_and(|of| of.attr.flags.contains(AttrFlags::SAMPLE_ID_ALL)),
            infos,
            all,
        })
    }

    /// All of them.
    pub(crate) fn all(&self) -> &[AttributeDescription] {
        &self.all
    }

    /// Fields of an event's samples.
    pub(crate) fn layout(&self, number: usize) -> Option<&Layout> {
        self.layouts.get(number)
    }

    /// The number of the event with an ID; of a file with one event, that one.
    pub(crate) fn by_id(&self, id: u64) -> Option<usize> {
        let only = (self.all.len() == 1).then_some(0);
        self.by_id.get(&id).copied().or(only)
    }

    /// Whether times are from CLOCK_MONOTONIC (`perf record -k mono`).
    pub(crate) fn are_monotonic(&self) -> bool {
        let clock = self.all.first().map(|of| of.attr.clock);
        matches!(clock, Some(PerfClock::ClockId(ClockId::Monotonic)))
    }

    /// A record, and the number of its attribute.
    pub(crate) fn record<'a>(
        &self,
        kind: u32,
        misc: u16,
        body: &'a [u8],
    ) -> Option<(usize, RawEventRecord<'a>)> {
        let kind = RecordType(kind);
        let of = |info| RawEventRecord::new(kind, misc, RawData::from(body), info);
        let first = of(*self.infos.first()?);
        if self.infos.len() == 1 {
            return Some((0, first));
        }
        let id = match (self.same_place, kind == RecordType::SAMPLE) {
            (true, _) => first.id(),
            (false, true) => Some(u64_at(body, 0)),
            (false, false) => (self.sample_id_all)
                .then(|| body.len().checked_sub(8))
                .flatten()
                .map(|at| u64_at(body, at)),
        };
        let number = id.and_then(|id| self.by_id.get(&id).copied());
        let number = number.unwrap_or_default();
        Some((number, of(*self.infos.get(number)?)))
    }
}

/// What samples have, of each attribute of a stream that has nothing else.
fn layouts(stream: &[u8]) -> Vec<Layout> {
    let mut rest = stream.get(PIPE_HEADER as usize..).unwrap_or_default();
    let mut layouts = Vec::new();
    while let Some((header, after)) = rest.split_at_checked(HEADER) {
        let (_, _, size) = parts(header);
        let Some((body, next)) = after.split_at_checked(size.saturating_sub(HEADER)) else {
            break;
        };
        layouts.push(Layout::from_attr(body));
        rest = next;
    }
    layouts
}

fn wrong(error: &Error) -> Wrong {
    match error {
        Error::NoIdentifierDespiteMultiEvent(_)
        | Error::InconsistentSampleIdAllWithMultiEvent(_) => Wrong::Unsupported(
            "several events, and samples that don't say which one they are of".into(),
            "record them with `perf record --sample-identifier`",
        ),
        other => Wrong::Damaged(other.to_string()),
    }
}
