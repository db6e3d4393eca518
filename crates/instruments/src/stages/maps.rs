//! The programs' maps.

use std::collections::BTreeMap;
use std::time::Duration;

use libbpf_rs::{MapCore, MapFlags, MapHandle, Object};
use netplumb_model::class::{Direction, Proto};
use netplumb_model::span::Times;
use netplumb_model::timing::WAYS;
use netplumb_sys::plain::Plain;

use super::assemble;
use super::layout::{
    self, CLASSES, Cpu, FAMILIES, Own as Taken, PROTOS, Packet, ROWS, TRACED_BYTES, WindowState,
};
use super::own::Own;

#[derive(Debug)]
pub(super) struct Maps {
    window: MapHandle,
    half: MapHandle,
    cpus: MapHandle,
    times: MapHandle,
    drops: MapHandle,
    traced: MapHandle,
    tx: MapHandle,
    rx: MapHandle,
    own: MapHandle,
    pub(super) ring: MapHandle,
}

/// Entries of a half of the table of stages.
const KEYS: usize = ROWS.len() * CLASSES * FAMILIES;

/// A half of the table of stages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Half {
    #[default]
    First,
    Second,
}

impl Half {
    /// The other one.
    pub(super) fn other(self) -> Half {
        match self {
            Half::First => Half::Second,
            Half::Second => Half::First,
        }
    }
}

/// Longer than most programs run, and how often to look whether all have ended: a virtual
/// CPU may be descheduled in the middle of one.
const SETTLE: Duration = Duration::from_micros(200);
const SETTLE_TRIES: usize = 5_000;

/// The key of the only entry.
const ONLY: [u8; 4] = 0_u32.to_ne_bytes();

impl Maps {
    pub(super) fn from_object(object: &Object) -> Result<Maps, libbpf_rs::Error> {
        let map = |name: &str| {
            let found = object.maps().find(|m| m.name().to_string_lossy().ends_with(name));
            let map = found.ok_or_else(|| {
                let error = format!("the compiled programs have no `{name}`");
                libbpf_rs::Error::from(std::io::Error::other(error))
            })?;
            MapHandle::try_from(&map)
        };
        Ok(Maps {
            window: map(".data.window")?,
            half: map(".data.half")?,
            cpus: map("cpus")?,
            times: map("times")?,
            drops: map("drops")?,
            traced: map("traced")?,
            tx: map("tx")?,
            rx: map("rx")?,
            own: map("own")?,
            ring: map("ring")?,
        })
    }

    pub(super) fn set_window(&self, state: WindowState) -> Result<(), libbpf_rs::Error> {
        let mut value = vec![0; self.window.value_size() as usize];
        let bytes = state.bytes();
        value[..bytes.len()].copy_from_slice(bytes);
        self.window.update(&ONLY, &value, MapFlags::ANY)
    }

    /// Write times to this half from now on.
    pub(super) fn set_half(&self, half: Half) -> Result<(), libbpf_rs::Error> {
        let mut value = vec![0; self.half.value_size() as usize];
        value[..8].copy_from_slice(&(half as u64).to_ne_bytes());
        self.half.update(&ONLY, &value, MapFlags::ANY)
    }

    /// Wait until all programs have ended that were running when this was called.
    pub(super) fn settle(&self) -> Result<(), libbpf_rs::Error> {
        let running = self.cpus()?;
        for _ in 0..SETTLE_TRIES {
            std::thread::sleep(SETTLE);
            let now = self.cpus()?;
            let mut pairs = running.iter().zip(&now);
            if pairs.all(|(was, is)| is.ended >= was.hits) {
                break;
            }
        }
        Ok(())
    }

    /// Reset all counts, while no program runs; times are reset when they are taken.
    pub(super) fn clear(&self) -> Result<(), libbpf_rs::Error> {
        // A block of runs must not be taken for another one with the same number.
        let cleared = self.cpus()?.into_iter().map(|cpu| {
            let kept = Cpu {
                hits: cpu.hits,
                ended: cpu.ended,
                block: cpu.block,
                samples: cpu.samples,
                ..Cpu::zeroed()
            };
            kept.bytes().to_vec()
        });
        let cleared: Vec<_> = cleared.collect();
        self.cpus.update_percpu(&ONLY, &cleared, MapFlags::ANY)?;
        let reasons: Vec<_> = self.drops.keys().collect();
        for reason in reasons {
            self.drops.delete(&reason)?;
        }
        let none = [0; TRACED_BYTES];
        self.traced.update(&ONLY, &none, MapFlags::ANY)
    }

    /// The state of each CPU.
    pub(super) fn cpus(&self) -> Result<Vec<Cpu>, libbpf_rs::Error> {
        let cpus = self.cpus.lookup_percpu(&ONLY, MapFlags::ANY)?;
        let cpus = cpus.unwrap_or_default();
        Ok(cpus.iter().filter_map(|cpu| Cpu::read(cpu)).collect())
    }

    /// Take the times of all CPUs out of a half that is not written to, by place in the
    /// table.
    pub(super) fn take_times(
        &self,
        half: Half,
    ) -> Result<BTreeMap<usize, Times>, libbpf_rs::Error> {
        let mut seen: BTreeMap<usize, Times> = BTreeMap::new();
        let empty = vec![vec![0; layout::TIMES_WORDS * 8]; libbpf_rs::num_possible_cpus()?];
        for key in 0..KEYS {
            // A table of a few hundred.
            let bytes = (key as u32 + half as u32 * KEYS as u32).to_ne_bytes();
            let cpus = self.times.lookup_percpu(&bytes, MapFlags::ANY)?;
            for cpu in cpus.unwrap_or_default() {
                let words = assemble::words(&cpu);
                if words.first().is_some_and(|count| *count > 0) {
                    assemble::add(seen.entry(key).or_default(), &words);
                }
            }
            if seen.contains_key(&key) {
                self.times.update_percpu(&bytes, &empty, MapFlags::ANY)?;
            }
        }
        Ok(seen)
    }

    /// The programs' own time, of all CPUs.
    pub(super) fn own(&self, run_ns: f64) -> Result<Own, libbpf_rs::Error> {
        let mut own = Own { run_ns, ..Own::default() };
        for key in 0..KEYS {
            let cpus = self.own.lookup_percpu(&(key as u32).to_ne_bytes(), MapFlags::ANY)?;
            for taken in cpus.iter().flatten().filter_map(|cpu| Taken::read(cpu)) {
                if taken.count > 0 {
                    let sum = own.rows.entry(key).or_default();
                    sum.count += taken.count;
                    sum.own_ns += taken.own_ns;
                    sum.hits += taken.hits;
                }
            }
        }
        Ok(own)
    }

    /// Packets under way that began at a time or later, by protocol and the place of
    /// [`WAYS`] that has them. For a closed window: nothing changes.
    pub(super) fn under_way(
        &self,
        since_ns: u64,
    ) -> Result<BTreeMap<String, u64>, libbpf_rs::Error> {
        const BATCH: u32 = 4_096;
        let mut found = BTreeMap::new();
        for map in [&self.tx, &self.rx] {
            for (_, slot) in map.lookup_batch(BATCH, MapFlags::ANY, MapFlags::ANY)? {
                let packet = Packet::read(&slot);
                let Some((proto, direction, segments)) =
                    packet.and_then(|packet| packet.under_way(since_ns))
                else {
                    continue;
                };
                let way = match direction {
                    Direction::Tx => WAYS[0],
                    Direction::Forward => WAYS[1],
                    _ => WAYS[2],
                };
                // TCP's queues merge packets: received ones can't be separated.
                if let Some(proto) = PROTOS.get(proto)
                    && (way.of_tcp || *proto != Proto::Tcp)
                {
                    let place = format!("{proto} {}", way.under_way);
                    *found.entry(place).or_default() += segments;
                }
            }
        }
        Ok(found)
    }

    /// Drops by their protocol's place in [`PROTOS`] and the number of their reason.
    pub(super) fn drops(&self) -> Result<BTreeMap<(u32, u32), u64>, libbpf_rs::Error> {
        let mut drops = BTreeMap::new();
        for key in self.drops.keys() {
            if let Some(count) = self.drops.lookup(&key, MapFlags::ANY)? {
                let key = u64::from_ne_bytes(key.try_into().unwrap_or_default());
                drops.insert(
                    ((key >> 32) as u32, key as u32),
                    u64::from_ne_bytes(count.try_into().unwrap_or_default()),
                );
            }
        }
        Ok(drops)
    }
}
