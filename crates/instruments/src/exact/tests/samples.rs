//! Samples, and where a timer would have taken them.

use std::collections::BTreeMap;

use super::super::{Change, Mark, Sampling, Window};
use super::machine::{Machine, symbols};
use super::{IDLE, OWN, switch};

/// Of each function, samples that fell there, and those that a timer would have taken there.
type Seen = BTreeMap<String, (u64, u64)>;

/// Every instruction is sampled once, on average.
fn often(seeds: &[u64]) -> Sampling {
    Sampling { period: 1, seeds: seeds.to_vec() }
}

/// Run some code in a window, and sample it.
fn sampled(run: impl FnOnce(&mut Machine<'_>)) -> (Seen, u64) {
    let symbols = symbols();
    let mut machine = Machine::new(&symbols).sampling(&often(&[9]));
    machine.user();
    machine.mark(Mark::WindowBegin);
    machine.mark(Mark::TxBegin);
    run(&mut machine);
    machine.user();
    machine.mark(Mark::WindowEnd);
    let window = machine.window();
    machine.check_sums(&window);
    check(&window, 1);
    (machine.sampled(&window, 0), window.sampled[0].user.values().sum())
}

/// Check that no sample is lost or taken twice, and that functions are sampled by what they ran.
#[track_caller]
fn check(window: &Window, period: u64) {
    for sampled in &window.sampled {
        let fell: u64 = sampled.costs.iter().map(|c| c.fell).sum();
        let deferred: u64 = sampled.costs.iter().map(|c| c.deferred).sum();
        assert_eq!(fell, deferred + sampled.user.values().sum::<u64>());
        for one in &sampled.costs {
            let of = |c: &&_| {
                let c: &super::super::CountedCost = c;
                (c.direction, c.context, c.node) == (one.direction, one.context, one.node)
            };
            let cost = window.costs.iter().find(of);
            let expected = cost.map_or(0, |c| c.insns) as f64 / period as f64;
            // Six standard errors of a Poisson count.
            let off = one.fell as f64 - expected;
            assert!(off.abs() < 6.0 * expected.sqrt().max(1.0), "{one:?}, not {expected}");
        }
    }
}

/// Check that a system call begins with interrupts off, that what fell there is taken behind the
/// instruction after `sti`, and what falls after the last `cli` in user mode.
#[test]
fn system_calls() {
    let (seen, user) = sampled(|m| {
        m.call("entry_SYSCALL_64", 0, 40, 0xf00);
        m.changes("udp_sendmsg", 0, 50, (0, Change::On));
        m.call("udp_sendmsg", 196, 1, 0xe00);
        m.ret("ip_output", 0, 30, 0xe00);
        m.changes("udp_sendmsg", 204, 1, (0, Change::Off));
        m.ret("udp_sendmsg", 208, 1, 0xf00);
        m.jump("entry_SYSCALL_64", 160, 20);
    });
    let (fell, deferred) = seen["entry_SYSCALL_64"];
    assert!(fell > 30);
    assert_eq!(deferred, 0);
    let (fell, deferred) = seen["ip_output"];
    assert_eq!(fell, deferred);
    let (fell, deferred) = seen["udp_sendmsg"];
    assert!(deferred > fell + 15, "{seen:?}");
    assert!(user > 5);
}

/// Check that what falls on an interrupt is taken where it returns to, if they came there, and
/// that it stays pending if they did not.
#[test]
fn interrupts() {
    let (seen, user) = sampled(|m| {
        m.changes("entry_SYSCALL_64", 0, 4, (0, Change::On));
        m.call("entry_SYSCALL_64", 16, 1, 0xf00);
        m.jump("udp_sendmsg", 0, 10);
        m.jump("asm_common_interrupt", 0, 60);
        m.iret("asm_common_interrupt", 240, 1);
        m.jump("udp_sendmsg", 40, 10);
        // With interrupts off, a fault that turns them on for itself.
        m.changes("udp_sendmsg", 80, 1, (0, Change::Off));
        m.jump("asm_exc_page_fault", 0, 50);
        m.iret("asm_exc_page_fault", 100, 1);
        m.call("udp_sendmsg", 84, 1, 0xe00);
        m.changes("ip_output", 0, 1, (0, Change::On));
        m.jump("ip_output", 4, 1);
        m.ret("ip_output", 8, 10, 0xe00);
        m.ret("udp_sendmsg", 88, 1, 0xf00);
        m.jump("entry_SYSCALL_64", 20, 3);
    });
    let taken = |name: &str| seen[name].1;
    assert_eq!(taken("asm_common_interrupt"), 0);
    assert_eq!(taken("asm_exc_page_fault"), 0);
    assert!(taken("udp_sendmsg") > 50, "{seen:?}");
    assert!(taken("ip_output") > 40, "{seen:?}");
    assert_eq!(user, 0);
}

/// Check that where an interrupt follows at once on the instruction behind `sti`, what waits is
/// taken before it, in the function that it interrupts, and not in its handler.
#[test]
fn pending_at_once() {
    let (seen, _) = sampled(|m| {
        m.call("entry_SYSCALL_64", 0, 30, 0xf00);
        m.changes("udp_sendmsg", 0, 1, (0, Change::On));
        m.jump("udp_sendmsg", 4, 1);
        m.jump("asm_common_interrupt", 0, 1);
        m.changes("asm_common_interrupt", 4, 1, (0, Change::On));
        m.jump("asm_common_interrupt", 8, 50);
        m.iret("asm_common_interrupt", 240, 1);
        m.ret("udp_sendmsg", 8, 1, 0xf00);
        // The same, where it has returned already.
        m.changes("entry_SYSCALL_64", 124, 1, (0, Change::Off));
        m.call("entry_SYSCALL_64", 128, 30, 0xf00);
        m.changes("ip_output", 0, 1, (0, Change::On));
        m.jump("ip_output", 4, 1);
        m.ret("ip_output", 8, 1, 0xf00);
        m.jump("asm_common_interrupt", 0, 1);
        m.iret("asm_common_interrupt", 240, 1);
        m.jump("entry_SYSCALL_64", 252, 1);
    });
    let (fell, deferred) = seen["asm_common_interrupt"];
    assert!(fell > 30 && deferred <= fell, "{seen:?}");
    assert!(seen["udp_sendmsg"].1 > 15, "{seen:?}");
    assert!(seen["ip_output"].1 > 15, "{seen:?}");
}

/// Check that what waits when a function returns, and an interrupt follows at once, is its
/// caller's.
#[test]
fn pending_at_a_return() {
    let (seen, _) = sampled(|m| {
        m.call("entry_SYSCALL_64", 0, 30, 0xf00);
        m.changes("ip_output", 0, 1, (0, Change::On));
        m.ret("ip_output", 4, 1, 0xf00);
        m.jump("asm_common_interrupt", 0, 30);
        m.iret("asm_common_interrupt", 240, 1);
        m.jump("entry_SYSCALL_64", 124, 1);
    });
    assert_eq!(seen["ip_output"].1, 0);
    assert!(seen["entry_SYSCALL_64"].1 > 30, "{seen:?}");
}

/// Check that `popf` turns on what its own `cli` turned off, and no more.
#[test]
fn nested_sections() {
    let (seen, _) = sampled(|m| {
        m.changes("entry_SYSCALL_64", 0, 2, (0, Change::On));
        m.jump("udp_sendmsg", 0, 1);
        m.changes("udp_sendmsg", 4, 1, (0, Change::Off));
        m.jump("ip_output", 0, 30);
        m.changes("ip_output", 120, 1, (0, Change::Off));
        m.jump("helper", 0, 30);
        m.changes("helper", 120, 1, (0, Change::Restore));
        m.jump("f0", 0, 30);
        m.changes("f0", 120, 1, (0, Change::Restore));
        m.jump("f1", 0, 30);
    });
    for name in ["ip_output", "helper", "f0"] {
        assert_eq!(seen[name].1, 0, "{name}");
    }
    assert!(seen["f1"].1 > 90, "{seen:?}");
}

/// Check that an instruction that a block did not get to does nothing, and that a sample on the
/// last one of a block counts.
#[test]
fn blocks_cut_short() {
    let (seen, user) = sampled(|m| {
        m.changes("entry_SYSCALL_64", 0, 2, (0, Change::On));
        m.jump("entry_SYSCALL_64", 8, 1);
        m.changes("udp_sendmsg", 0, 50, (40, Change::Off));
        m.partial(40);
        m.jump("asm_exc_page_fault", 0, 20);
        m.iret("asm_exc_page_fault", 100, 1);
        m.jump("ip_output", 0, 50);
    });
    assert_eq!(seen["udp_sendmsg"].0, seen["udp_sendmsg"].1);
    assert!(seen["ip_output"].1 > seen["ip_output"].0);
    assert_eq!(user, 0);
    // One instruction a block, each the last one.
    let (seen, _) = sampled(|m| {
        m.changes("entry_SYSCALL_64", 0, 2, (0, Change::On));
        for n in 0..50 {
            m.jump("udp_sendmsg", 4 * n, 1);
        }
    });
    assert!(seen["udp_sendmsg"].0 > 20);
}

/// Check that the flag is the CPU's: what one task turned off, another turns on.
#[test]
fn task_switches() {
    let (seen, _) = sampled(|m| {
        m.changes("entry_SYSCALL_64", 0, 2, (0, Change::On));
        m.call("entry_SYSCALL_64", 8, 1, OWN + 8);
        m.changes("schedule", 0, 1, (0, Change::Off));
        switch(m, OWN, IDLE);
        m.jump("schedule", 12, 40);
        m.changes("schedule", 180, 1, (0, Change::On));
        m.ret("schedule", 184, 2, IDLE + 8);
        m.jump("cpu_idle", 0, 20);
    });
    assert_eq!(seen["__switch_to"].1, 0);
    assert_eq!(seen["__switch_to_asm"].1, 0);
    assert!(seen["schedule"].1 > 30, "{seen:?}");
}

/// Check that a gap goes on from block to block, that each window is sampled anew and nothing
/// between, that a seed gives the same samples again, and that each seed has its own.
#[test]
fn gaps_and_windows() {
    let symbols = symbols();
    let run = |seeds: &[u64]| {
        let mut m =
            Machine::new(&symbols).sampling(&Sampling { period: 700, seeds: seeds.to_vec() });
        m.user();
        let mut all = Vec::new();
        for _ in 0..20 {
            m.mark(Mark::WindowBegin);
            m.changes("entry_SYSCALL_64", 0, 2, (0, Change::On));
            for _ in 0..100 {
                m.jump("udp_sendmsg", 0, 60);
            }
            m.user();
            m.mark(Mark::WindowEnd);
            all.push(m.window());
            m.jump("entry_SYSCALL_64", 0, 5_000);
            m.user();
        }
        all
    };
    let both = run(&[1, 2]);
    assert_eq!(both, run(&[1, 2]));
    let of = |windows: &[Window], seed: usize| -> Vec<u64> {
        let fell = |w: &Window| w.sampled[seed].costs.iter().map(|c| c.fell).sum();
        windows.iter().map(fell).collect()
    };
    assert_ne!(of(&both, 0), of(&both, 1));
    assert_eq!(of(&both, 1), of(&run(&[2]), 0));
    // 120,040 instructions: 171 samples, give or take 13.
    let all: u64 = of(&both, 0).iter().sum();
    assert!((120..225).contains(&all), "{all}");
    both.iter().for_each(|window| check(window, 700));
}

/// Check that samples of a softirq are charged to its packet, as its instructions are, and
/// that the instructions with interrupts off are counted by direction.
#[test]
fn softirqs() {
    let symbols = symbols();
    let mut m = Machine::new(&symbols).sampling(&often(&[4]));
    m.user();
    m.mark(Mark::WindowBegin);
    m.mark(Mark::TxBegin);
    m.changes("entry_SYSCALL_64", 0, 4, (3, Change::On));
    m.call("entry_SYSCALL_64", 16, 1, 0xf00);
    m.call("__local_bh_enable_ip", 0, 10, 0xe00);
    m.call("handle_softirqs", 0, 10, 0xd00);
    m.call("net_rx_action", 0, 100, 0xc00);
    m.changes("__netif_receive_skb_core", 0, 100, (50, Change::Off));
    m.changes("__netif_receive_skb_core", 0x80, 2, (0, Change::On));
    m.ret("__netif_receive_skb_core", 0xa0, 1, 0xc00);
    m.ret("net_rx_action", 0xc0, 1, 0xd00);
    m.ret("handle_softirqs", 0xc0, 1, 0xe00);
    m.ret("__local_bh_enable_ip", 0xc0, 1, 0xf00);
    m.jump("entry_SYSCALL_64", 20, 3);
    m.user();
    m.mark(Mark::WindowEnd);
    let window = m.window();
    m.check_sums(&window);
    check(&window, 1);
    let ran: u64 = window.interrupts.values().map(|insns| insns.all).sum();
    assert_eq!(ran, window.kernel_insns);
    let off: Vec<(String, u64)> = (window.interrupts.iter())
        .map(|(direction, insns)| (direction.to_string(), insns.off))
        .collect();
    assert_eq!(off, [("tx".to_string(), 4), ("forward".to_string(), 50)]);
}

/// Check that samples change nothing of what is counted, whatever runs.
#[test]
fn counts_are_the_same() {
    let symbols = symbols();
    let run = |sampling: Option<Sampling>| {
        let mut m = Machine::new(&symbols);
        if let Some(sampling) = &sampling {
            m = m.sampling(sampling);
        }
        m.user();
        m.mark(Mark::WindowBegin);
        m.call("entry_SYSCALL_64", 0, 40, 0xf00);
        m.jump("asm_common_interrupt", 0, 100);
        m.call("asm_common_interrupt", 40, 1, 0xb00);
        m.ret("handle_softirqs", 0, 30, 0xb00);
        m.iret("asm_common_interrupt", 100, 1);
        m.ret("udp_sendmsg", 0, 10, 0xf00);
        m.user();
        m.mark(Mark::WindowEnd);
        m.window()
    };
    let with = run(Some(often(&[1])));
    assert!(!with.sampled[0].costs.is_empty());
    let bare = Window { sampled: Vec::new(), interrupts: BTreeMap::new(), ..with };
    assert_eq!(bare, run(None));
}
