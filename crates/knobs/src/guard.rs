//! Protection of interfaces that carry the default route or this session.

use std::fs;
use std::io;
use std::net::IpAddr;

use netplumb_sys::links::DeviceState;
use netplumb_sys::netns::Namespace;

/// Kinds of devices that transmit by a lower device.
const ABOVE_OTHERS: &[&str] = &["vlan", "macvlan", "macvtap", "ipvlan", "ipvtap", "macsec"];
/// Maximum number of ancestor processes to check for a session.
const PARENTS: usize = 64;
/// The variable in the environment of a session's processes: the peer's address and port, and ours.
const SESSION: &str = "SSH_CONNECTION=";

/// Why these interfaces should not be changed, if one of them carries the default route or a session that
/// this process descends from: a sentence, with what to do about it.
///
/// # Errors
/// The routes can't be read.
pub fn refusal(
    namespace: &Namespace,
    states: &[DeviceState],
    indices: &[u32],
) -> io::Result<Option<String>> {
    let guarded = guarded(namespace, states, &sessions())?;
    let mut asked = indices.iter();
    let found = asked.find_map(|asked| guarded.iter().find(|(index, _)| index == asked));
    Ok(found.map(|(index, why)| {
        let state = states.iter().find(|state| state.index == *index);
        let name = state.map_or("", |state| state.name.as_str());
        format!(
            "refusing to change {name}: {why}. Use another interface, or add --even-default-route if losing \
             connectivity during the run is acceptable"
        )
    }))
}

/// The protected interfaces, with the reason.
fn guarded(
    namespace: &Namespace,
    states: &[DeviceState],
    sessions: &[(IpAddr, IpAddr)],
) -> io::Result<Vec<(u32, String)>> {
    let mut found: Vec<(u32, String)> = Vec::new();
    for index in namespace.default_route_devices()? {
        found.push((index, "it carries the default route".into()));
    }
    for (peer, _) in sessions {
        // Without a route to the peer, the session does not use this namespace.
        if let Ok(Some(index)) = namespace.device_to(*peer) {
            found.push((index, format!("it carries your session from {peer}")));
        }
    }
    Ok(with_those_below(found, states))
}

/// Traffic of a VLAN device also uses its lower device, and so on.
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

/// The addresses, peer's and ours, of the sessions that this process descends from: `sudo` removes
/// the variable from its own environment, but not from its parents'.
fn sessions() -> Vec<(IpAddr, IpAddr)> {
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

    /// Check the parsing of sshd's variable, and that nothing else is taken for a session.
    #[test]
    fn sessions_of_ssh() {
        let addresses = session("SSH_CONNECTION=192.0.2.7 50000 192.0.2.1 22").unwrap();
        assert_eq!(addresses.0.to_string(), "192.0.2.7");
        assert_eq!(addresses.1.to_string(), "192.0.2.1");
        let addresses = session("SSH_CONNECTION=fe80::1%eth0 50000 fe80::2%eth0 22").unwrap();
        assert_eq!(addresses.0.to_string(), "fe80::1");
        for other in ["", "SSH_CONNECTION=", "SSH_CONNECTION=x 1 y 2", "TERM=1 2 3 4"] {
            assert_eq!(session(other), None, "{other}");
        }
    }

    /// Check that a VLAN's traffic is attributed to its NIC too, but traffic of one end of a cable
    /// not to the other.
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
        let reasons = with_those_below(vec![(2, "by it".into())], &states);
        assert_eq!(reasons[1].1, "by it, over eth0.7");
    }
}
