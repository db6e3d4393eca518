//! Well-formed traces at random, with what they cost by the generator's own count.

use std::collections::BTreeMap;

use netplumb_model::class::{Context, Direction, Softirq};

use super::super::{Losses, Mark};
use super::machine::{Machine, symbols};

/// A linear congruential generator (Knuth's MMIX): the same trace every time.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % n
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// Whose the instructions are that are being generated.
#[derive(Clone, Copy)]
struct Whose(Direction, Context);

/// Where a generated function is: its path as the tests write it, the functions
/// of the chain of jumps that it is in, and its name.
#[derive(Clone)]
struct Place {
    path: String,
    chain: Vec<String>,
    name: String,
}

impl Place {
    fn root(name: &str) -> Place {
        Place { path: name.to_string(), chain: vec![name.to_string()], name: name.to_string() }
    }

    /// Whether it is in the entry code, which nothing interrupts.
    fn is_stub(&self) -> bool {
        self.name.starts_with("asm_") || self.name.starts_with("entry_")
    }

    fn called(&self, name: &str) -> Place {
        Place { path: format!("{} > {name}", self.path), ..Place::root(name) }
    }

    fn jumped(&self, name: &str) -> Place {
        let mut chain = self.chain.clone();
        chain.push(name.to_string());
        Place { path: format!("{} ~ {name}", self.path), chain, name: name.to_string() }
    }
}

/// Calls and instructions, by direction and context and then by path.
pub(super) type Costs = BTreeMap<(String, String), (u64, u64)>;

struct Generator<'m, 'a> {
    machine: &'m mut Machine<'a>,
    random: Random,
    costs: Costs,
    depth: u32,
    /// Interrupts that have not ended.
    within: u32,
    sp: u64,
}

impl Generator<'_, '_> {
    fn count(&mut self, whose: Whose, place: &Place, calls: u64, insns: u32) {
        let cost =
            self.costs.entry((format!("{} {}", whose.0, whose.1), place.path.clone())).or_default();
        cost.0 += calls;
        cost.1 += u64::from(insns);
    }

    fn offset(&mut self) -> u64 {
        4 * (1 + self.random.below(20))
    }

    fn insns(&mut self) -> u32 {
        1 + self.random.below(12) as u32
    }

    /// Something of a place that falls through, perhaps with a fault in it, and
    /// perhaps with an interrupt before.
    fn straight(&mut self, whose: Whose, place: &Place) {
        self.maybe_interrupt(place);
        let (offset, insns) = (self.offset(), self.insns());
        self.machine.jump(&place.name, offset, insns);
        if !place.is_stub() && self.random.chance(5) {
            let ran = 1 + self.random.below(u64::from(insns)) as u32;
            if ran < insns {
                self.machine.partial(ran);
            }
            self.count(whose, place, 0, ran.min(insns));
            self.fault(whose, place);
            let again = insns - ran + 1;
            self.machine.jump(&place.name, offset + 4 * u64::from(ran - 1), again);
            self.count(whose, place, 0, again);
        } else if self.random.chance(5) {
            // A string instruction that repeats.
            let ran = insns + self.random.below(200) as u32 + 1;
            self.machine.partial(ran);
            self.count(whose, place, 0, ran);
        } else {
            self.count(whose, place, 0, insns);
        }
    }

    /// A page fault, which is what it interrupted.
    fn fault(&mut self, whose: Whose, place: &Place) {
        let handler = place.called("asm_exc_page_fault");
        self.machine.jump("asm_exc_page_fault", 0, 2);
        self.count(whose, &handler, 1, 2);
        self.body(whose, &handler);
        self.machine.iret("asm_exc_page_fault", 0x50, 1);
        self.count(whose, &handler, 0, 1);
    }

    /// An interrupt now and then, but none where the kernel keeps them out.
    fn maybe_interrupt(&mut self, place: &Place) {
        if !place.is_stub() {
            self.interrupts();
        }
    }

    /// Of the timer or of a device.
    fn interrupts(&mut self) {
        while self.within < 2 && self.random.chance(4) {
            self.interrupt();
        }
    }

    fn interrupt(&mut self) {
        self.within += 1;
        let timer = self.random.chance(50);
        let softirq = self.within == 1 && self.random.chance(50);
        let kinds = self.kinds();
        let direction = match (timer, softirq) {
            (true, _) => Direction::Other,
            (false, true) => first(&kinds),
            (false, false) => Direction::Rx,
        };
        let whose = Whose(direction, Context::Hardirq);
        let name = if timer { "asm_sysvec_apic_timer_interrupt" } else { "asm_common_interrupt" };
        let place = Place::root(name);
        // A place of its own on the stack: an interrupt may come right after a
        // call has stored its address.
        self.sp -= 0x40;
        self.machine.jump(name, 0, 3);
        self.count(whose, &place, 1, 3);
        self.body(whose, &place);
        if softirq {
            self.called(whose, &place, |g, _| g.softirqs(&kinds));
        }
        self.machine.iret(name, 0x50, 2);
        self.count(whose, &place, 0, 2);
        self.sp += 0x40;
        self.within -= 1;
    }

    /// What the packets of a softirq run are to be.
    fn kinds(&mut self) -> Vec<Direction> {
        let all = [Direction::Rx, Direction::Forward, Direction::Echo, Direction::Ack];
        let n = self.random.below(4);
        (0..n).map(|_| all[self.random.below(4) as usize]).collect()
    }

    /// A run of softirqs: the NET_RX vector, with packets of these kinds. The
    /// return is the caller's.
    fn softirqs(&mut self, kinds: &[Direction]) {
        // Softirqs don't nest, but interrupts in them do.
        let outer = std::mem::replace(&mut self.within, 1);
        let context = Context::Softirq(Softirq::NetRx);
        let run = Whose(first(kinds), context);
        let place = Place::root("handle_softirqs");
        self.machine.jump("handle_softirqs", 0, 3);
        self.count(run, &place, 1, 3);
        self.straight(run, &place);
        self.called(run, &place, |g, _| {
            let vector = place.called("net_rx_action");
            g.machine.jump("net_rx_action", 0, 2);
            g.count(run, &vector, 1, 2);
            for kind in kinds {
                let whose = Whose(*kind, context);
                g.body(whose, &vector);
                g.called(whose, &vector, |g, sp| g.packet(whose, &vector, sp));
            }
            let last = Whose(kinds.last().copied().unwrap_or(Direction::Rx), context);
            g.body(last, &vector);
            g.finish(last, &vector)
        });
        self.within = outer;
        self.body(run, &place);
        self.finish(run, &place);
    }

    fn packet(&mut self, whose: Whose, vector: &Place, _sp: u64) {
        let place = vector.called("__netif_receive_skb_core");
        self.machine.jump("__netif_receive_skb_core", 0, 4);
        self.count(whose, &place, 1, 4);
        self.body(whose, &place);
        let reaches = match whose.0 {
            Direction::Forward => Some("ip_forward"),
            Direction::Echo => Some("icmp_echo"),
            Direction::Ack => Some("tcp_ack"),
            _ => None,
        };
        if let Some(name) = reaches {
            self.called(whose, &place, |g, _| {
                let place = place.called(name);
                g.machine.jump(name, 0, 1);
                g.count(whose, &place, 1, 1);
                g.body(whose, &place);
                g.finish(whose, &place);
            });
        }
        self.body(whose, &place);
        self.finish(whose, &place);
    }

    /// A call at a place; what is called ends with [`Self::finish`].
    fn called(&mut self, whose: Whose, place: &Place, run: impl FnOnce(&mut Self, u64)) {
        self.maybe_interrupt(place);
        let (offset, insns) = (self.offset(), self.insns());
        self.sp -= 8;
        let sp = self.sp;
        self.machine.call(&place.name, offset, insns, sp);
        self.count(whose, place, 0, insns);
        // Between the call and the first instruction of what is called.
        self.maybe_interrupt(place);
        run(self, sp);
        self.sp += 8;
    }

    /// The return of the function that was called last.
    fn finish(&mut self, whose: Whose, place: &Place) {
        self.maybe_interrupt(place);
        let insns = self.insns();
        self.machine.ret(&place.name, 0x60, insns, self.sp);
        self.count(whose, place, 0, insns);
    }

    /// Something of everything at a place, which it comes back to.
    fn body(&mut self, whose: Whose, place: &Place) {
        if self.depth > 3 {
            return;
        }
        self.depth += 1;
        for _ in 0..self.random.below(4) {
            match self.random.below(5) {
                0 => self.straight(whose, place),
                1 if place.name.starts_with('f') && !place.name.ends_with(".cold") => {
                    let cold = place.jumped(&format!("{}.cold", place.name));
                    self.maybe_interrupt(place);
                    self.machine.jump(&cold.name, 0, 3);
                    self.count(whose, &cold, 1, 3);
                    self.body(whose, &cold);
                    self.straight(whose, place);
                }
                _ => self.function(whose, place),
            }
        }
        self.depth -= 1;
    }

    /// A call of a function, which may jump on to others.
    fn function(&mut self, whose: Whose, caller: &Place) {
        let name = format!("f{}", self.random.below(6));
        self.called(whose, caller, |g, _| {
            let mut place = caller.called(&name);
            let insns = g.insns();
            g.machine.jump(&name, 0, insns);
            g.count(whose, &place, 1, insns);
            g.body(whose, &place);
            while g.random.chance(30) {
                let next = format!("f{}", g.random.below(6));
                // A jump back up the chain is the return from a cold part.
                if place.chain.contains(&next) {
                    break;
                }
                g.maybe_interrupt(&place);
                place = place.jumped(&next);
                let insns = g.insns();
                g.machine.jump(&next, 0, insns);
                g.count(whose, &place, 1, insns);
                g.body(whose, &place);
            }
            g.finish(whose, &place);
        });
    }
}

/// Five system calls at random; what they cost.
pub(super) fn generate(machine: &mut Machine<'_>, seed: u64) -> Costs {
    let mut generator = Generator {
        machine,
        random: Random(seed),
        costs: Costs::new(),
        depth: 0,
        within: 0,
        sp: 0x3f00,
    };
    for _ in 0..5 {
        let (mark, direction) = match generator.random.below(3) {
            0 => (Mark::TxBegin, Direction::Tx),
            1 => (Mark::RxBegin, Direction::Rx),
            _ => (Mark::TxEnd, Direction::Other),
        };
        generator.machine.mark(mark);
        generator.interrupts();
        let whose = Whose(direction, Context::Task);
        let entry = Place::root("entry_SYSCALL_64");
        generator.machine.jump("entry_SYSCALL_64", 0, 4);
        generator.count(whose, &entry, 1, 4);
        generator.body(whose, &entry);
        if generator.random.chance(50) {
            let kinds = generator.kinds();
            generator.called(whose, &entry, |g, _| g.softirqs(&kinds));
        }
        generator.body(whose, &entry);
        generator.machine.jump("entry_SYSCALL_64", 0x60, 2);
        generator.count(whose, &entry, 0, 2);
        generator.machine.user();
    }
    generator.costs
}

/// Whose a softirq run is.
fn first(kinds: &[Direction]) -> Direction {
    kinds.first().copied().unwrap_or(Direction::Rx)
}

/// Traces have hundreds of lines: show those that differ.
#[track_caller]
fn assert_same(seed: u64, found: &[String], expected: &[String]) {
    let only = |of: &[String], in_other: &[String]| -> Vec<String> {
        let all = of.iter().filter(|line| !in_other.contains(line));
        all.take(10).cloned().collect()
    };
    if found != expected {
        panic!(
            "seed {seed}\n  only reported: {:#?}\n  only expected: {:#?}",
            only(found, expected),
            only(expected, found)
        );
    }
}

/// Check that whatever is nested in whatever, every instruction is charged where
/// it belongs: the tree is the generator's own, and the sums agree.
#[test]
fn random_traces() {
    let symbols = symbols();
    let mut insns = 0;
    for seed in 0..300 {
        let mut machine = Machine::new(&symbols);
        machine.user();
        machine.mark(Mark::WindowBegin);
        let costs = generate(&mut machine, seed);
        let mut expected: Vec<String> = costs
            .iter()
            .map(|((whose, path), (calls, insns))| format!("{whose}, {path}, {calls}, {insns}"))
            .collect();
        expected.sort_unstable();
        machine.mark(Mark::WindowEnd);
        let window = machine.window();
        machine.check_sums(&window);
        assert_same(seed, &machine.cost_lines(&window), &expected);
        assert_eq!(window.entered, window.returned, "seed {seed}");
        assert_eq!(machine.losses(), Losses::default(), "seed {seed}");
        insns += window.kernel_insns;
    }
    assert!(insns > 100_000, "only {insns} instructions: the traces are too short");
}
