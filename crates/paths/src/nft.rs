//! nftables rules that drop.

use std::collections::BTreeMap;
use std::io;

use netplumb_knobs::{PRESENT, Setting};
use netplumb_model::bench::{DataPath, FrameKind, Handled};
use netplumb_sys::netns::Namespace;
use serde_json::Value;

use crate::changes::Changes;
use crate::error::{Doing, PathError};
use crate::tool::Tool;
use crate::{Site, Standing};

/// The name of plumb's table.
pub(crate) const TABLE: &str = "netplumb_bench";
/// The link header, which netfilter's counters exclude.
pub(crate) const LINK_BYTES: u64 = 14;

/// Find `nft`.
pub(crate) fn tool() -> Result<Tool, PathError> {
    Tool::find("nft", "nftables")
}

/// The family of tables for a site's packets.
pub(crate) fn family(site: &Site) -> &'static str {
    if site.destination.is_ipv6() { "ip6" } else { "ip" }
}

/// The match of a rule for the generator's packets.
pub(crate) fn matches(site: &Site) -> String {
    let (family, to, port) = (family(site), site.destination, site.port);
    match (site.kind, site.destination.is_ipv6()) {
        (FrameKind::Udp, _) => format!("{family} daddr {to} udp dport {port}"),
        (FrameKind::TcpSyn, _) => format!("{family} daddr {to} tcp dport {port}"),
        (FrameKind::Icmp, false) => format!("{family} daddr {to} icmp type echo-request"),
        (FrameKind::Icmp, true) => format!("{family} daddr {to} icmpv6 type echo-request"),
    }
}

/// Drops by a rule.
#[derive(Debug)]
pub(crate) struct Nft {
    changes: Changes,
    nft: Tool,
    family: &'static str,
    table: String,
}

impl Nft {
    pub(crate) fn set_up(path: DataPath, site: &Site) -> Result<Nft, PathError> {
        let nft = tool()?;
        let family = family(site);
        let mut changes = Changes::at(site)?;
        changes.gro(&site.ingress)?;
        let (hook, verdict) = match path {
            DataPath::NftConntrack => {
                // Only packets for this machine reach the hook `input`.
                changes.address(&site.ingress, site.destination)?;
                changes.any_source(&site.ingress, site)?;
                ("input priority filter", "ct state new counter drop")
            }
            _ => ("prerouting priority raw", "counter drop"),
        };
        let table = changes.own_name(TABLE);
        let rules = format!(
            "table {family} {table} {{\n\
             \tchain drops {{\n\
             \t\ttype filter hook {hook}; policy accept;\n\
             \t\t{} {verdict}\n\
             \t}}\n}}\n",
            matches(site)
        );
        load(&nft, &mut changes, family, &table, &rules)?;
        Ok(Nft { changes, nft, family, table })
    }
}

/// Load a table, to be deleted at the end; it is read back into the facts.
pub(crate) fn load(
    nft: &Tool,
    changes: &mut Changes,
    family: &str,
    table: &str,
    rules: &str,
) -> Result<(), PathError> {
    let namespace = changes.namespace.try_clone();
    let namespace = Namespace::from(namespace.doing(|| "open a network namespace".into())?);
    let made = changes.make(table_setting(family, table), PRESENT, || {
        nft.run(&namespace, &["-f", "-"], rules).map(drop).doing(|| "load rules of nftables".into())
    })?;
    if !made {
        return Err(PathError::cannot(
            format!("an nftables table {table} exists already"),
            format!("remove it: nft delete table {family} {table}"),
        ));
    }
    let back = nft
        .run(&changes.namespace, &["-s", "list", "table", family, table], "")
        .doing(|| "read the rules of nftables".into())?;
    changes.note("path.ruleset", back.trim());
    let version = nft.version(&changes.namespace)?;
    changes.note("path.nft", version);
    Ok(())
}

/// The table, as a setting.
pub(crate) fn table_setting(family: &str, table: &str) -> Setting {
    Setting::Table { family: family.into(), name: table.into() }
}

/// Packets and bytes of the counters of a table's rules.
pub(crate) fn counted(
    nft: &Tool,
    changes: &Changes,
    family: &str,
    table: &str,
) -> Result<(u64, u64), PathError> {
    let doing = || "read the counters of nftables".to_string();
    let json =
        nft.run(&changes.namespace, &["-j", "list", "table", family, table], "").doing(doing)?;
    in_json(&json).doing(doing)
}

fn in_json(json: &str) -> io::Result<(u64, u64)> {
    let listing: Value = serde_json::from_str(json)?;
    let mut counted = None;
    for item in listing["nftables"].as_array().into_iter().flatten() {
        for expression in item["rule"]["expr"].as_array().into_iter().flatten() {
            let counter = &expression["counter"];
            if let (Some(packets), Some(bytes)) =
                (counter["packets"].as_u64(), counter["bytes"].as_u64())
            {
                let (p, b) = counted.unwrap_or((0, 0));
                counted = Some((p + packets, b + bytes));
            }
        }
    }
    counted.ok_or_else(|| io::Error::other("the rule is gone, or has no counter"))
}

impl Standing for Nft {
    fn handled(&mut self) -> Result<Handled, PathError> {
        let (packets, bytes) = counted(&self.nft, &self.changes, self.family, &self.table)?;
        Ok(Handled {
            cpu_unknown: packets,
            bytes: bytes + LINK_BYTES * packets,
            ..Handled::default()
        })
    }

    fn facts(&self) -> BTreeMap<String, String> {
        let mut facts = self.changes.facts.clone();
        facts.insert("path.attached".into(), "nftables".into());
        facts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the counters of rules are found in the output of `nft -j` (1.0.6), and that
    /// missing rules don't count as 0.
    #[test]
    fn counters_of_rules() {
        let json = r#"{"nftables": [{"metainfo": {"version": "1.0.6", "json_schema_version": 1}},
            {"table": {"family": "ip", "name": "netplumb_bench", "handle": 1}},
            {"chain": {"family": "ip", "table": "netplumb_bench", "name": "drops", "handle": 1,
             "type": "filter", "hook": "prerouting", "prio": -300, "policy": "accept"}},
            {"rule": {"family": "ip", "table": "netplumb_bench", "chain": "drops", "handle": 2,
             "expr": [{"match": {"op": "==", "left": {"payload": {"protocol": "udp",
             "field": "dport"}}, "right": 9}}, {"counter": {"packets": 5, "bytes": 230}},
             {"drop": null}]}}]}"#;
        assert_eq!(in_json(json).unwrap(), (5, 230));
        assert!(in_json(r#"{"nftables": []}"#).is_err());
        assert!(in_json("").is_err());
    }
}
