//! Interfaces that are not touched: those that the machine's traffic, or this session, is
//! over.

use std::fs;
use std::io;
use std::net::IpAddr;

use netplumb_sys::links::DeviceState;
use netplumb_sys::netns::Namespace;

/// Kinds of devices that hand what they send to another one below them.
const ABOVE_OTHERS: &[&str] = &["vlan", "macvlan", "macvtap", "ipvlan", "ipvtap", "macsec"];
/// So many parents of this process are asked by what session it came.
const PARENTS: usize = 64;
/// In the environment of a session's processes: the peer's address and port, and ours.
const SESSION: &str = "SSH_CONNECTION=";

/// Interfaces that the machine, or this session, can't do without: each with why.
pub(super) fn guarded(
    namespace: &Namespace,
    states: &[DeviceState],
    sessions: &[(IpAddr, IpAddr)],
) -> io::Result<Vec<(u32, String)>> {
    let mut found: Vec<(u32, String)> = Vec::new();
    for index in namespace.default_route_devices()? {
        found.push((index, "it carries the default route".into()));
    }
    for (peer, _) in sessions {
        // Where there is no way to the peer, the session is not over this namespace.
        if let Ok(Some(index)) = namespace.device_to(*peer) {
            found.push((index, format!("it carries your session from {peer}")));
        }
    }
    Ok(with_those_below(found, states))
}

/// What is by a VLAN's device is by the one below, and so on.
fn with_those_below(mut found: Vec<(u32, String)>, states: &[DeviceState]) -> Vec<(u32, String)> {
    let mut at = 0;
    while let Some((index, why)) = found.get(at).cloned() {
        at += 1;
        let above = |s: &&DeviceState| {
            s.index == index && s.kind.as_deref().is_some_and(|k| ABOVE_OTHERS.contains(&k))
        };
        let Some(above) = states.iter().find(above) else {
            continue;
        };
        if let Some(lower) = above.lower
            && !found.iter().any(|(known, _)| *known == lower)
        {
            found.push((lower, format!("{why}, over {}", above.name)));
        }
    }
    found
}

/// The addresses of the sessions that this process came of, peer's and ours: `sudo` takes
/// the word of them from its own environment, but not from its parents'.
pub(super) fn sessions() -> Vec<(IpAddr, IpAddr)> {
    let mut found = Vec::new();
    let mut pid = "self".to_string();
    for _ in 0..PARENTS {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let variables = environment.split(|b| *b == 0);
        found.extend(variables.filter_map(|v| session(&String::from_utf8_lossy(v))));
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let parent = status.lines().find_map(|l| l.strip_prefix("PPid:"));
        match parent.map(str::trim) {
            None | Some("0") => break,
            Some(parent) => pid = parent.to_string(),
        }
    }
    found.dedup();
    found
}

fn session(variable: &str) -> Option<(IpAddr, IpAddr)> {
    let mut words = variable.strip_prefix(SESSION)?.split(' ');
    let (peer, _, own) = (words.next()?, words.next()?, words.next()?);
    // A link-local address has a zone: %eth0.
    let address = |word: &str| word.split('%').next().unwrap_or_default().parse().ok();
    Some((address(peer)?, address(own)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a session is read as sshd tells it, and nothing else is taken for one.
    #[test]
    fn sessions_of_ssh() {
        let told = session("SSH_CONNECTION=192.0.2.7 50000 192.0.2.1 22").unwrap();
        assert_eq!(told.0.to_string(), "192.0.2.7");
        assert_eq!(told.1.to_string(), "192.0.2.1");
        let told = session("SSH_CONNECTION=fe80::1%eth0 50000 fe80::2%eth0 22").unwrap();
        assert_eq!(told.0.to_string(), "fe80::1");
        for other in [
            "",
            "SSH_CONNECTION=",
            "SSH_CONNECTION=x 1 y 2",
            "TERM=1 2 3 4",
        ] {
            assert_eq!(session(other), None, "{other}");
        }
    }

    /// Check that what is by a VLAN is by its NIC too, and that what is by one end of a cable
    /// is not by the other.
    #[test]
    fn below_a_vlan() {
        let state = |index, name: &str, kind: Option<&str>, lower| DeviceState {
            index,
            name: name.into(),
            kind: kind.map(String::from),
            lower,
            ..DeviceState::default()
        };
        let states = [
            state(1, "eth0", None, None),
            state(2, "eth0.7", Some("vlan"), Some(1)),
            state(3, "mac0", Some("macvlan"), Some(2)),
            state(4, "v0", Some("veth"), Some(5)),
            state(5, "v1", Some("veth"), Some(4)),
        ];
        let guarded = |index| {
            let all = with_those_below(vec![(index, "by it".into())], &states);
            all.into_iter().map(|(index, _)| index).collect::<Vec<_>>()
        };
        assert_eq!(guarded(3), [3, 2, 1]);
        assert_eq!(guarded(1), [1]);
        assert_eq!(guarded(4), [4]);
        let told = with_those_below(vec![(2, "by it".into())], &states);
        assert_eq!(told[1].1, "by it, over eth0.7");
    }
}
