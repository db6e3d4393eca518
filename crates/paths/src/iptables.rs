//! A rule of iptables that drops, in the table `raw`.

use std::collections::BTreeMap;

use netplumb_model::bench::{FrameKind, Handled};

use crate::changes::Changes;
use crate::error::{Doing, PathError};
use crate::nft::LINK_BYTES;
use crate::tool::Tool;
use crate::{Site, Standing};

/// Timeout of the lock that another process may hold.
const PATIENCE_SECONDS: &str = "5";

/// The programs: legacy iptables, or iptables with nftables.
#[derive(Debug)]
struct Tools {
    rules: Tool,
    save: Tool,
    engine: &'static str,
}

fn tools(kind: &str, v6: bool) -> Result<(Tool, Tool), PathError> {
    let name = if v6 { "ip6tables" } else { "iptables" };
    Ok((
        Tool::find(&format!("{name}-{kind}"), "iptables")?,
        Tool::find(&format!("{name}-{kind}-save"), "iptables")?,
    ))
}

/// Whether any iptables is installed.
pub(crate) fn installed() -> Result<(), PathError> {
    tools("legacy", false).or_else(|_| tools("nft", false)).map(drop)
}

/// Drops by a rule.
#[derive(Debug)]
pub(crate) struct Iptables {
    changes: Changes,
    tools: Tools,
    site: Matched,
}

/// The device and the destination that identify the rule.
#[derive(Debug)]
struct Matched {
    device: String,
    to: String,
}

fn rule(site: &Site) -> Vec<String> {
    let v6 = site.destination.is_ipv6();
    let port = site.port.to_string();
    let matched: Vec<&str> = match (site.kind, v6) {
        (FrameKind::Udp, _) => vec!["-p", "udp", "--dport", &port],
        (FrameKind::TcpSyn, _) => vec!["-p", "tcp", "--dport", &port],
        (FrameKind::Icmp, false) => vec!["-p", "icmp", "--icmp-type", "echo-request"],
        (FrameKind::Icmp, true) => vec!["-p", "ipv6-icmp", "--icmpv6-type", "echo-request"],
    };
    let to = site.destination.to_string();
    let mut rule = vec!["PREROUTING", "-i", &site.ingress.name, "-d", &to];
    rule.extend(matched);
    rule.extend(["-j", "DROP"]);
    rule.into_iter().map(String::from).collect()
}

impl Iptables {
    pub(crate) fn set_up(site: &Site) -> Result<Iptables, PathError> {
        let v6 = site.destination.is_ipv6();
        let mut changes = Changes::at(site)?;
        let raw = ["-w", PATIENCE_SECONDS, "-t", "raw"];
        let list = [&raw[..], &["-S", "PREROUTING"]].concat();
        let mut refused = None;
        let mut found = None;
        for (kind, engine) in [
            ("legacy", "iptables (ip_tables)"),
            (
                "nft",
                "nftables: this kernel, or this system, has no ip_tables, so it is the same \
                 engine as for the path nft-raw",
            ),
        ] {
            let tried = tools(kind, v6).and_then(|(rules, save)| {
                rules
                    .run(&changes.namespace, &list, "")
                    .doing(|| "list the rules of iptables' table `raw`".into())?;
                Ok(Tools { rules, save, engine })
            });
            match tried {
                Ok(tools) => {
                    found = Some(tools);
                    break;
                }
                Err(error) => refused = Some(error),
            }
        }
        let Some(tools) = found else {
            return Err(match refused {
                Some(PathError::System { source, .. }) => PathError::cannot(
                    format!("iptables' table `raw` is not supported by this kernel ({source})"),
                    "load the module `iptable_raw`, or use the path `nft-raw`",
                ),
                Some(other) => other,
                None => PathError::Asked("no iptables".into()),
            });
        };
        changes.gro(&site.ingress)?;
        let rule = rule(site);
        let words = |what| -> Vec<String> {
            let raw = raw.iter().map(|word| (*word).to_string());
            let all = raw.chain([String::from(what)]);
            all.chain(rule.iter().cloned()).collect()
        };
        let run = |tool: &Tool, namespace: &_, words: &[String]| {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            tool.run(namespace, &words, "").map(drop)
        };
        run(&tools.rules, &changes.namespace, &words("-A"))
            .doing(|| "add a rule of iptables".into())?;
        let (undo, tool) = (words("-D"), tools.rules.clone());
        changes.later(move |namespace| run(&tool, namespace, &undo));
        let version = tools.rules.version(&changes.namespace)?;
        changes.note("path.iptables", version);
        let iptables = Iptables {
            changes,
            tools,
            site: Matched { device: site.ingress.name.clone(), to: site.destination.to_string() },
        };
        let (line, ..) = iptables.counted()?;
        let mut iptables = iptables;
        iptables.changes.note("path.ruleset", line);
        Ok(iptables)
    }

    /// The rule as saved, its packets and its bytes.
    fn counted(&self) -> Result<(String, u64, u64), PathError> {
        let saved = self
            .tools
            .save
            .run(&self.changes.namespace, &["-c", "-t", "raw"], "")
            .doing(|| "read the counters of iptables".into())?;
        find(&saved, &self.site).ok_or_else(|| PathError::System {
            doing: "read the counters of iptables".into(),
            source: "the rule is gone".into(),
        })
    }
}

/// Find plumb's rule in the output of `iptables-save -c`.
fn find(saved: &str, site: &Matched) -> Option<(String, u64, u64)> {
    let ours = |rule: &str| {
        let words: Vec<&str> = rule.split_whitespace().collect();
        let has = |option: &str, value: &str| {
            words.windows(2).any(|pair| {
                pair[0] == option && pair[1].split('/').next() == value.split('/').next()
            })
        };
        rule.starts_with("-A PREROUTING ")
            && has("-i", &site.device)
            && has("-d", &site.to)
            && has("-j", "DROP")
    };
    saved.lines().find_map(|line| {
        let (counters, rule) = line.strip_prefix('[')?.split_once("] ")?;
        let (packets, bytes) = counters.split_once(':')?;
        ours(rule).then_some(())?;
        Some((rule.to_string(), packets.parse().ok()?, bytes.parse().ok()?))
    })
}

impl Standing for Iptables {
    fn handled(&mut self) -> Result<Handled, PathError> {
        let (_, packets, bytes) = self.counted()?;
        Ok(Handled {
            cpu_unknown: packets,
            bytes: bytes + LINK_BYTES * packets,
            ..Handled::default()
        })
    }

    fn facts(&self) -> BTreeMap<String, String> {
        let mut facts = self.changes.facts.clone();
        facts.insert("path.attached".into(), self.tools.engine.into());
        facts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that plumb's rule is found among others, with its counters, and that no other is taken
    /// for it.
    #[test]
    fn a_saved_rule() {
        let site = Matched { device: "rx0".into(), to: "198.18.2.1".into() };
        let saved = "# Generated by iptables-save v1.8.9\n*raw\n\
            :PREROUTING ACCEPT [12:34]\n\
            [1:2] -A PREROUTING -i rx1 -d 198.18.2.1/32 -j DROP\n\
            [3:4] -A PREROUTING -d 198.18.2.10/32 -i rx0 -p udp -j DROP\n\
            [5:230] -A PREROUTING -d 198.18.2.1/32 -i rx0 -p udp -m udp --dport 9 -j DROP\n\
            COMMIT\n";
        let (rule, packets, bytes) = find(saved, &site).unwrap();
        assert_eq!((packets, bytes), (5, 230));
        assert!(rule.ends_with("--dport 9 -j DROP"), "{rule}");
        assert!(find("*raw\nCOMMIT\n", &site).is_none());
    }
}
