//! The `stages` instrument: where a packet's time goes between tracepoints.
//!
//! A kernel that lets nobody hook its functions still has tracepoints. The programs
//! (stages/stages.bpf.c) note at each when a packet came by, and at the end of its
//! way they add the stages between to histograms, one for each protocol, version of
//! IP, direction and stage. A packet's stages add up to its total, since each begins
//! where the one before it ended; what none explains is the stage `unaccounted`.
//!
//! docs/guide/stages.md says what each stage is.

mod assemble;
mod filter;
mod layout;
mod reasons;
mod steps;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::{Duration, Instant};

use libbpf_rs::btf::{Btf, types};
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, Object, ObjectBuilder, RingBufferBuilder};
use netplumb_model::recording::Loss;
use netplumb_model::timing::{Attached, Mechanism, Times, TimingSpec, Window};

use self::layout::{Cpu, FAMILIES, PROTOS, ROWS, StepEvent, TOLD_BYTES, WindowState};
use self::reasons::Reasons;
use crate::live::{Live, LiveError};
use crate::own::Programs;

/// The programs, compiled from stages/stages.bpf.c.
static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/stages.bpf.o"));

/// What programs are called before the tracepoint's name.
const PREFIX: &str = "stages_";
/// Without these there is no way of any packet.
const NEEDED: &[&str] = &["net_dev_start_xmit", "net_dev_xmit", "netif_receive_skb"];
/// Longer than any program runs: what began in a window has ended after it.
const SETTLE: Duration = Duration::from_millis(1);

/// What is lost where a tracepoint is missing.
fn meaning(tracepoint: &str) -> &'static str {
    match tracepoint {
        "sys_enter" | "sys_exit" => "system calls are not told apart",
        "net_dev_queue" => "the way out can't be seen",
        "qdisc_enqueue" | "qdisc_dequeue" => "`qdisc wait` is in `device`",
        "netif_rx" => "`backlog` can't be seen",
        "sk_data_ready" => {
            "a packet is in its socket's queue when its reader is woken; where it isn't, \
             `protocol` is in `socket queue`"
        }
        "sock_recv_length" => "from 6.18 on, UDP packets are not seen to be read",
        "tcp_probe" => "`socket lock` is in `unaccounted`",
        "sched_switch" => "`wake-up` is in `read`",
        "consume_skb" => "UDP and raw packets are not seen to be read",
        "skb_copy_datagram_iovec" => "TCP packets are not seen to be read",
        "kfree_skb" => "drops can't be seen",
        _ => "`gro` can't be seen",
    }
}

fn system(doing: &str) -> impl FnOnce(libbpf_rs::Error) -> LiveError + '_ {
    move |source| LiveError::System {
        doing: doing.to_string(),
        source: Box::new(source),
    }
}

/// The instrument, attached for as long as it lives.
#[derive(Debug)]
pub struct Stages {
    attached: Attached,
    reasons: Reasons,
    // Links go first: no program runs when its maps are gone.
    _links: Vec<Link>,
    maps: Maps,
    programs: Programs,
    opened: Option<Opened>,
    /// Entries of `times` that are not all zero.
    dirty: BTreeSet<usize>,
    one_packet: bool,
    _object: Object,
}

#[derive(Debug)]
struct Opened {
    at: Instant,
    run_ns: u64,
    misses: u64,
}

#[derive(Debug)]
struct Maps {
    window: MapHandle,
    cpus: MapHandle,
    times: MapHandle,
    drops: MapHandle,
    told: MapHandle,
    ring: MapHandle,
}

impl Maps {
    fn of(object: &Object) -> Result<Maps, libbpf_rs::Error> {
        let map = |name: &str| {
            let found = object
                .maps()
                .find(|m| m.name().to_string_lossy().ends_with(name));
            let map = found.ok_or_else(|| {
                let error = format!("the compiled programs have no `{name}`");
                libbpf_rs::Error::from(std::io::Error::other(error))
            })?;
            MapHandle::try_from(&map)
        };
        Ok(Maps {
            window: map(".data.window")?,
            cpus: map("cpus")?,
            times: map("times")?,
            drops: map("drops")?,
            told: map("told")?,
            ring: map("ring")?,
        })
    }
}

impl Stages {
    /// Attach to the kernel's tracepoints.
    ///
    /// # Errors
    /// The kernel has no type information, or this user may not load programs; or
    /// the filter asks for what can't be had.
    pub fn attach(spec: &TimingSpec) -> Result<Stages, LiveError> {
        let begun = Instant::now();
        if let Some(other) = spec.mechanism
            && other != Mechanism::TpBtf
        {
            return Err(LiveError::Asked(format!(
                "`stages` is attached by {}, not by {other}",
                Mechanism::TpBtf
            )));
        }
        let btf = Btf::from_vmlinux().map_err(|error| LiveError::CannotRun {
            reason: format!("the kernel has no type information ({error})"),
            remedy: "use a kernel with CONFIG_DEBUG_INFO_BTF=y, as distributions have it".into(),
        })?;
        let has = |tracepoint: &str| {
            let name = format!("btf_trace_{tracepoint}");
            btf.type_by_name::<types::Typedef<'_>>(&name).is_some()
        };
        let config = filter::config(spec, has("sk_data_ready"))?;
        let mut attached = Attached::default();
        // libelf wants it aligned, as the allocator has it.
        let image = OBJECT.to_vec();
        let mut open = ObjectBuilder::default()
            .open_memory(&image)
            .map_err(system("read the programs of `stages`"))?;
        for mut program in open.progs_mut() {
            let name = program.name().to_string_lossy().into_owned();
            let tracepoint = name.strip_prefix(PREFIX).unwrap_or(&name);
            let wanted = match tracepoint {
                "sched_waking" => !has("sk_data_ready"),
                "softirq_entry" => spec.one_packet > 0,
                _ => true,
            };
            if wanted && !has(tracepoint) {
                if NEEDED.contains(&tracepoint) {
                    return Err(LiveError::CannotRun {
                        reason: format!("the kernel has no tracepoint `{tracepoint}`"),
                        remedy: "use a kernel with CONFIG_TRACEPOINTS and CONFIG_NET".into(),
                    });
                }
                let why = format!(
                    "this kernel has no such tracepoint: {}",
                    meaning(tracepoint)
                );
                attached.refused.insert(tracepoint.to_string(), why);
            }
            program.set_autoload(wanted && has(tracepoint));
        }
        let mut settings = open
            .maps_mut()
            .find(|m| m.name().to_string_lossy().ends_with(".rodata"));
        let values = settings.as_mut().and_then(|m| m.initial_value_mut());
        match values {
            Some(values) if values.len() == size_of_val(&config) => {
                values.copy_from_slice(layout::bytes(&config));
            }
            _ => {
                return Err(LiveError::System {
                    doing: "set the programs of `stages`".into(),
                    source: "their settings are not where they should be".into(),
                });
            }
        }
        let object = open.load().map_err(refused)?;
        let maps = Maps::of(&object).map_err(system("find the maps of `stages`"))?;
        let mut links = Vec::new();
        for program in object.progs_mut() {
            let name = program.name().to_string_lossy().into_owned();
            let tracepoint = name.strip_prefix(PREFIX).unwrap_or(&name);
            if !program.autoload() {
                continue;
            }
            match program.attach_trace() {
                Ok(link) => links.push(link),
                Err(source) if NEEDED.contains(&tracepoint) => {
                    return Err(system("attach `stages`")(source));
                }
                Err(source) => {
                    let why = format!("{source:#}: {}", meaning(tracepoint));
                    attached.refused.insert(tracepoint.to_string(), why);
                }
            }
        }
        attached.facts.insert(
            "stages.tracepoints".into(),
            format!("{} by {}", links.len(), Mechanism::TpBtf),
        );
        attached.attach_ns = nanoseconds(begun.elapsed());
        Ok(Stages {
            attached,
            reasons: Reasons::of(&btf),
            _links: links,
            programs: Programs::of(&object),
            maps,
            opened: None,
            dirty: BTreeSet::new(),
            one_packet: spec.one_packet > 0,
            _object: object,
        })
    }

    fn set_window(&self, state: WindowState) -> Result<(), libbpf_rs::Error> {
        let mut value = vec![0; self.maps.window.value_size() as usize];
        let bytes = layout::bytes(&state);
        value[..bytes.len()].copy_from_slice(bytes);
        let zero = 0_u32.to_ne_bytes();
        self.maps.window.update(&zero, &value, MapFlags::ANY)
    }

    /// Everything that belongs to a window, to nothing.
    fn clear(&mut self) -> Result<(), libbpf_rs::Error> {
        let cpus = libbpf_rs::num_possible_cpus()?;
        let zero = 0_u32.to_ne_bytes();
        let empty = vec![vec![0; size_of::<Cpu>()]; cpus];
        self.maps.cpus.update_percpu(&zero, &empty, MapFlags::ANY)?;
        let empty = vec![vec![0; layout::TIMES_WORDS * 8]; cpus];
        for key in std::mem::take(&mut self.dirty) {
            // A table of a few hundred.
            let key = (key as u32).to_ne_bytes();
            self.maps.times.update_percpu(&key, &empty, MapFlags::ANY)?;
        }
        let reasons: Vec<_> = self.maps.drops.keys().collect();
        for reason in reasons {
            self.maps.drops.delete(&reason)?;
        }
        let none = [0; TOLD_BYTES];
        self.maps.told.update(&zero, &none, MapFlags::ANY)?;
        self.events().map(drop)
    }

    /// What lies in the ring.
    fn events(&self) -> Result<Vec<StepEvent>, libbpf_rs::Error> {
        if !self.one_packet {
            return Ok(Vec::new());
        }
        let events = Rc::new(RefCell::new(Vec::new()));
        let into = Rc::clone(&events);
        let mut builder = RingBufferBuilder::new();
        builder.add(&self.maps.ring, move |bytes| {
            into.borrow_mut().extend(layout::value::<StepEvent>(bytes));
            0
        })?;
        builder.build()?.consume()?;
        Ok(events.take())
    }

    fn read(&mut self, window: &mut Window) -> Result<(), libbpf_rs::Error> {
        let mut seen: BTreeMap<usize, Times> = BTreeMap::new();
        for key in 0..ROWS.len() * PROTOS.len() * FAMILIES {
            // A table of a few hundred.
            let bytes = (key as u32).to_ne_bytes();
            let cpus = self.maps.times.lookup_percpu(&bytes, MapFlags::ANY)?;
            for cpu in cpus.unwrap_or_default() {
                let words = assemble::words(&cpu);
                if words.first().is_some_and(|count| *count > 0) {
                    assemble::add(seen.entry(key).or_default(), &words);
                }
            }
        }
        self.dirty.extend(seen.keys());
        window.stages = assemble::stages(&seen);
        let zero = 0_u32.to_ne_bytes();
        let cpus: Vec<Cpu> = self
            .maps
            .cpus
            .lookup_percpu(&zero, MapFlags::ANY)?
            .unwrap_or_default()
            .iter()
            .filter_map(|cpu| layout::value(cpu))
            .collect();
        window.ledger = assemble::ledger(&cpus);
        window.losses.extend(assemble::losses(&cpus));
        for key in self.maps.drops.keys() {
            let Some(count) = self.maps.drops.lookup(&key, MapFlags::ANY)? else {
                continue;
            };
            let reason = u32::from_ne_bytes(key.try_into().unwrap_or_default());
            let count = u64::from_ne_bytes(count.try_into().unwrap_or_default());
            *window.drops.entry(self.reasons.name(reason)).or_default() += count;
        }
        window.steps = steps::steps(&self.events()?);
        Ok(())
    }
}

/// What the kernel's refusal to load the programs means.
fn refused(source: libbpf_rs::Error) -> LiveError {
    match source.kind() {
        libbpf_rs::ErrorKind::PermissionDenied => LiveError::CannotRun {
            reason: "the kernel doesn't let this user load BPF programs".into(),
            remedy: "be root, or have CAP_BPF and CAP_PERFMON (`plumb doctor` says more)".into(),
        },
        _ => system("load the programs of `stages`")(source),
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl Live for Stages {
    fn attached(&self) -> &Attached {
        &self.attached
    }

    fn open(&mut self) -> Result<(), LiveError> {
        self.set_window(WindowState::default())
            .and_then(|()| self.clear())
            .map_err(system("clear the maps of `stages`"))?;
        let (run_ns, misses) = self.programs.totals();
        self.opened = Some(Opened {
            at: Instant::now(),
            run_ns,
            misses,
        });
        self.set_window(WindowState {
            opened_ns: crate::own::monotonic_ns(),
            active: 1,
        })
        .map_err(system("open a window of `stages`"))
    }

    fn close(&mut self) -> Result<Window, LiveError> {
        let opened = self
            .opened
            .take()
            .ok_or_else(|| LiveError::Asked("the window of `stages` is not open".into()))?;
        self.set_window(WindowState::default())
            .map_err(system("close the window of `stages`"))?;
        let mut window = Window {
            duration_ns: nanoseconds(opened.at.elapsed()),
            ..Window::default()
        };
        let before_ns = crate::own::thread_ns();
        std::thread::sleep(SETTLE);
        self.read(&mut window)
            .map_err(system("read the maps of `stages`"))?;
        let (run_ns, misses) = self.programs.totals();
        let misses = misses.saturating_sub(opened.misses);
        if misses > 0 {
            window.losses.push(Loss {
                cause: "tracepoints hit while their program was at work on the same CPU".into(),
                count: misses,
                meaning: "these packets miss a moment: a stage is in the next one, or in \
                          `unaccounted`"
                    .into(),
            });
        }
        window.own_cpu_ns =
            run_ns.saturating_sub(opened.run_ns) + (crate::own::thread_ns() - before_ns);
        Ok(window)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the programs are carried, with the maps and settings as large as
    /// they are read and written, and a name that says its tracepoint.
    #[test]
    fn programs_are_carried() {
        let image = OBJECT.to_vec();
        let object = ObjectBuilder::default().open_memory(&image).unwrap();
        for program in object.progs() {
            let name = program.name().to_string_lossy().into_owned();
            let tracepoint = name.strip_prefix(PREFIX).unwrap();
            assert_eq!(
                program.section().to_string_lossy(),
                format!("tp_btf/{tracepoint}")
            );
        }
        let size = |name: &str| {
            let map = object
                .maps()
                .find(|m| m.name().to_string_lossy().ends_with(name))
                .unwrap();
            map.value_size() as usize
        };
        assert_eq!(size("times"), layout::TIMES_WORDS * 8);
        assert_eq!(size("cpus"), size_of::<Cpu>());
        assert_eq!(size("told"), TOLD_BYTES);
        assert_eq!(size(".rodata"), size_of::<layout::Config>());
        assert!(size(".data.window") == size_of::<WindowState>());
    }
}
