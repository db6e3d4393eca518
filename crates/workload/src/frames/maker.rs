//! Frames made in user space, by the same rules as in frames.bpf.c: for packet sockets, and to
//! check the kernel's.

use super::error::GeneratorError;
use super::headers::{self, Varying};
use super::layout::{BEHIND_NS, Config, MIX, Slot};
use super::plan::GeneratorPlan;
use netplumb_model::bench::Stamp;

/// The initial state of a CPU, the `index`th sender.
pub(super) fn slot(plan: &GeneratorPlan, index: u32) -> Slot {
    let (first, flows) = plan.share(index);
    let ports = plan.ports();
    let (first_port_step, first_address_step) = (first % ports, first / ports);
    // Not zero, and different for each.
    let random = (u64::from(index) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    Slot {
        gap: plan.pps_each().map_or(0, gap),
        random,
        flows,
        first_port_step,
        first_address_step,
        port_step: first_port_step,
        address_step: first_address_step,
        ..Slot::default()
    }
}

/// The mean gap between frames, in 1/65536 ns. Never zero: an excessive rate is the maximum.
fn gap(pps: f64) -> u64 {
    ((1e9 * 65_536.0 / pps).round() as u64).max(1)
}

/// Makes frames in sequence.
#[derive(Debug)]
pub(super) struct Maker {
    config: Config,
    slot: Slot,
    /// Offsets within frames; template frames of each size.
    frames: Vec<Vec<u8>>,
}

impl Maker {
    pub(super) fn new(plan: &GeneratorPlan, index: u32) -> Result<Maker, GeneratorError> {
        let config = headers::config(plan)?;
        let varying = |size_bytes| Varying {
            address: config.first_address,
            port: plan.exit.source_port,
            size_bytes,
            stamp: plan.stamped.then_some(Stamp { sequence: 0, due_ns: 0 }),
        };
        let frames = headers::sizes(plan)
            .into_iter()
            .map(|size| headers::frame(plan, &varying(size)))
            .collect::<Result<_, _>>()?;
        Ok(Maker { config, slot: slot(plan, index), frames })
    }

    /// Bytes of the longest frame.
    pub(super) fn size_bytes_most(&self) -> usize {
        self.config.size_bytes as usize
    }

    /// Whether frames have timestamps.
    pub(super) fn is_stamped(&self) -> bool {
        self.config.stamped != 0
    }

    /// When the next frame is due, if there is a rate. `now_ns` is called only if necessary.
    pub(super) fn due(&mut self, now_ns: impl Fn() -> u64) -> Option<u64> {
        if self.config.paced == 0 {
            return None;
        }
        let slot = &mut self.slot;
        if slot.due_ns != 0 && slot.due_ns <= slot.now_ns {
            return Some(slot.due_ns);
        }
        let now = now_ns();
        slot.now_ns = now;
        if slot.due_ns == 0 {
            slot.due_ns = now;
            draw_next(slot);
        }
        if now > slot.due_ns + BEHIND_NS {
            slot.behind += (now - slot.due_ns) * 65_536 / slot.gap;
            slot.due_ns = now;
        }
        Some(slot.due_ns)
    }

    /// The last reading of the clock.
    pub(super) fn seen_ns(&self) -> u64 {
        self.slot.now_ns
    }

    /// Overdue frames that were dropped from the schedule.
    pub(super) fn behind(&self) -> u64 {
        self.slot.behind
    }

    /// The next frame, which was due at this time.
    pub(super) fn next(&mut self, due_ns: u64) -> Varying {
        let (config, slot) = (&self.config, &mut self.slot);
        if config.paced != 0 {
            draw_next(slot);
        }
        let place = if config.many_sizes != 0 {
            let turn = slot.turn;
            slot.turn = (turn + 1) % MIX as u32;
            config.mix[turn as usize]
        } else {
            0
        };
        let varying = Varying {
            address: config.first_address.wrapping_add(slot.address_step),
            port: (config.first_port + slot.port_step) as u16,
            size_bytes: config.templates[place as usize].size_bytes,
            stamp: (config.stamped != 0).then_some(Stamp { sequence: slot.frames as u32, due_ns }),
        };
        if config.many_flows != 0 {
            next_flow(config, slot);
        }
        slot.frames += 1;
        varying
    }

    /// Write a frame; returns its length. There has to be room for the longest.
    pub(super) fn write(&self, varying: &Varying, to: &mut [u8]) -> usize {
        let config = &self.config;
        let templates = &config.templates;
        let place = templates.iter().position(|t| t.size_bytes == varying.size_bytes).unwrap_or(0);
        let (frame, template) = (&self.frames[place], &templates[place]);
        let bytes = frame.len();
        to[..bytes].copy_from_slice(frame);
        let mut put = |at: u32, what: &[u8]| {
            to[at as usize..at as usize + what.len()].copy_from_slice(what);
        };
        let (mut ip_sum, mut l4_sum) = (u64::from(template.ip_sum), u64::from(template.l4_sum));
        if config.many_flows != 0 {
            let port = varying.port.to_be();
            put(config.port_at, &port.to_ne_bytes());
            l4_sum += u64::from(port);
        }
        if config.many_addresses != 0 {
            let address = varying.address.to_be();
            put(config.address_at, &address.to_ne_bytes());
            ip_sum += u64::from(address);
            if config.address_in_l4_check != 0 {
                l4_sum += u64::from(address);
            }
            if config.ip_check_at != 0 {
                put(config.ip_check_at, &fold(ip_sum).to_ne_bytes());
            }
        }
        if let Some(stamp) = varying.stamp {
            put(config.header_bytes, &stamp.bytes());
            l4_sum += u64::from(stamp.sequence);
            l4_sum += (stamp.due_ns & 0xffff_ffff) + (stamp.due_ns >> 32);
        }
        let check = match fold(l4_sum) {
            0 if config.is_udp != 0 => 0xffff,
            check => check,
        };
        if config.many_flows != 0 || varying.stamp.is_some() {
            put(config.l4_check_at, &check.to_ne_bytes());
        }
        bytes
    }
}

/// The complement of a 16-bit sum (RFC 1071), to which wider words may have been added.
fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

fn draw_next(slot: &mut Slot) {
    let mut random = slot.random;
    random ^= random << 13;
    random ^= random >> 7;
    random ^= random << 17;
    slot.random = random;
    let part = slot.due_part + (slot.gap >> 1) + ((slot.gap * (random >> 48)) >> 16);
    slot.due_ns += part >> 16;
    slot.due_part = part & 0xffff;
}

fn next_flow(config: &Config, slot: &mut Slot) {
    slot.port_step += 1;
    if slot.port_step == config.ports {
        slot.port_step = 0;
        slot.address_step += 1;
    }
    slot.flow += 1;
    if slot.flow < slot.flows {
        return;
    }
    slot.flow = 0;
    slot.port_step = slot.first_port_step;
    slot.address_step = slot.first_address_step;
    if config.many_sizes != 0 {
        slot.first_turn = (slot.first_turn + 1) % MIX as u32;
        slot.turn = slot.first_turn;
    }
}
