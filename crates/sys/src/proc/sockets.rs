//! Tables of sockets: /proc/net/tcp, tcp6, udp and udp6.

use std::fs;

/// Tables, and the state of a socket that can receive from any sender, by the numbers of
/// `include/net/tcp_states.h`: TCP_LISTEN, and TCP_CLOSE for a UDP socket that is not connected.
const OPEN: [(&str, &str); 4] = [("tcp", "0A"), ("tcp6", "0A"), ("udp", "07"), ("udp6", "07")];

/// Whether a TCP socket of this thread's network namespace listens, or a UDP socket receives from
/// any sender.
pub fn any_open() -> bool {
    OPEN.iter().any(|(table, state)| {
        let text = fs::read_to_string(format!("/proc/thread-self/net/{table}"));
        has_state(&text.unwrap_or_default(), state)
    })
}

/// Whether one of the sockets is in a state: the fourth field of its line.
fn has_state(table: &str, state: &str) -> bool {
    let mut lines = table.lines().skip(1);
    lines.any(|line| line.split_whitespace().nth(3) == Some(state))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a listening socket is found by its state, and that other fields and lines are
    /// ignored.
    #[test]
    fn states() {
        let head = "  sl  local_address rem_address   st tx_queue 0A\n";
        let line = |state: &str| {
            format!("{head}   0: 00000000:0A0A 00000000:0000 {state} 00000000:00000000 00:0A\n")
        };
        assert!(has_state(&line("0A"), "0A"));
        assert!(!has_state(&line("01"), "0A"));
        assert!(!has_state(head, "0A"));
        assert!(!has_state("", "0A"));
    }
}
