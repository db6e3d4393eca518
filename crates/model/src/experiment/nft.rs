//! nftables rules: a text, a file, or a number of generated rules.

use std::collections::BTreeMap;
use std::fmt::{self, Write};

use serde::{Deserialize, Deserializer, Serialize};

use super::within::Within;
use crate::class::{Family, Proto, words};
use crate::recording::Arm;

/// Maximum size of a ruleset, bytes.
pub const MAX_RULESET_BYTES: u64 = 4 << 20;
/// `nft` holds some kilobytes for each rule while it loads them; the guest has 256 MiB.
const MAX_RULES: u32 = 10_000;
/// As many as there are ports below those that the workload uses.
const MAX_SET_ELEMENTS: u32 = 30_000;
/// Longer rules are truncated in the names of arms.
const MAX_TITLE_CHARACTERS: usize = 46;
/// The table of generated rules.
pub const TABLE: &str = "netplumb";

words! {
    /// The hook of generated rules.
    Hook, "hook",
    /// Packets that this host sends.
    Output = "output",
    /// Packets for this host.
    Input = "input",
    /// Packets that are forwarded.
    Forward = "forward",
    /// All received packets, before routing.
    Prerouting = "prerouting",
    /// All packets to be sent, after routing.
    Postrouting = "postrouting",
}

words! {
    /// The field that generated rules match.
    Looks, "field to match",
    /// The destination address.
    Address = "address",
    /// The destination port of the arm's protocol; not for `raw`.
    Port = "port",
}

/// Rules that match no packet of the workload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NeverMatching {
    /// Number of rules; with `set`, number of elements of the set.
    pub count: u32,
    /// Whether there is one rule with a set.
    pub set: bool,
    /// Where in the kernel packets meet the rules.
    pub hook: Hook,
    /// The field to match.
    pub looks: Looks,
}

/// The source of a ruleset.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Nft {
    /// Text for `nft -f`.
    Text {
        /// The rules in the syntax of nft(8).
        rules: String,
        /// The file that they were read from.
        file: Option<String>,
    },
    /// A file that was not read yet, relative to the experiment's.
    File(String),
    /// Generated.
    NeverMatching(NeverMatching),
}

/// A ruleset and where it is applied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ruleset {
    /// Where the rules are from.
    pub nft: Nft,
    /// The hosts that it is applied on.
    pub within: Within,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    file: Option<String>,
    rules: Option<u32>,
    set: Option<u32>,
    hook: Option<Hook>,
    #[serde(rename = "match")]
    looks: Option<Looks>,
}

/// Rules in an experiment file: a string, or a table.
pub(super) struct TomlNft(pub(super) Nft);

impl<'de> Deserialize<'de> for TomlNft {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = TomlNft;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("rules for `nft`, or { file = ... }, { rules = ... } or { set = ... }")
            }
            fn visit_str<E: serde::de::Error>(self, rules: &str) -> Result<TomlNft, E> {
                Ok(TomlNft(Nft::Text { rules: rules.to_string(), file: None }))
            }
            fn visit_map<A: serde::de::MapAccess<'de>>(self, map: A) -> Result<TomlNft, A::Error> {
                let table = Table::deserialize(serde::de::value::MapAccessDeserializer::new(map))?;
                from_table(table).map(TomlNft).map_err(serde::de::Error::custom)
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

fn from_table(table: Table) -> Result<Nft, String> {
    let (hook, looks) = (table.hook, table.looks);
    let (count, set) = match (table.file, table.rules, table.set) {
        (Some(file), None, None) if hook.is_none() && looks.is_none() => {
            return Ok(Nft::File(file));
        }
        (Some(_), None, None) => return Err("hook and match can't be used with file".into()),
        (None, Some(count), None) if count <= MAX_RULES => (count, false),
        (None, None, Some(count)) if (1..=MAX_SET_ELEMENTS).contains(&count) => (count, true),
        (None, Some(n), None) => {
            return Err(format!("invalid rules `{n}`; expected 0 to {MAX_RULES}"));
        }
        (None, None, Some(n)) => {
            return Err(format!("invalid set `{n}`; expected 1 to {MAX_SET_ELEMENTS}"));
        }
        _ => return Err("nft needs exactly one of file, rules and set".into()),
    };
    Ok(Nft::NeverMatching(NeverMatching {
        count,
        set,
        hook: hook.unwrap_or(Hook::Output),
        looks: looks.unwrap_or(Looks::Address),
    }))
}

impl Nft {
    /// Its title: the name of the file, or the text, truncated and with a hash if it is long.
    pub fn title(&self) -> String {
        let rules = match self {
            Nft::Text { file: Some(file), .. } | Nft::File(file) => return file.clone(),
            Nft::NeverMatching(_) => return self.describe(),
            Nft::Text { rules, file: None } => rules,
        };
        let lines = rules.lines().filter(|l| !l.trim_start().starts_with('#'));
        let words: Vec<&str> = lines.flat_map(str::split_whitespace).collect();
        let text = words.join(" ");
        if text.is_empty() {
            return "empty".into();
        }
        if text.chars().count() <= MAX_TITLE_CHARACTERS {
            return text;
        }
        let begin: String = text.chars().take(MAX_TITLE_CHARACTERS - 6).collect();
        format!("{}… #{:04x}", begin.trim_end(), fnv(text.as_bytes()) as u16)
    }

    /// Its part of the name of an arm.
    pub(super) fn describe(&self) -> String {
        match self {
            Nft::Text { .. } | Nft::File(_) => format!("nft={}", self.title()),
            Nft::NeverMatching(n) => {
                let mut words = format!("{}={}", if n.set { "set" } else { "rules" }, n.count);
                if n.hook != Hook::Output {
                    let _ = write!(words, " hook={}", n.hook);
                }
                if n.looks != Looks::Address {
                    let _ = write!(words, " match={}", n.looks);
                }
                words
            }
        }
    }

    /// As written in a file.
    pub(super) fn as_toml(&self) -> toml::Value {
        let one =
            |key: &str, value: toml::Value| toml::Table::from_iter([(key.to_string(), value)]);
        match self {
            Nft::Text { rules, file: None } => rules.as_str().into(),
            Nft::Text { file: Some(file), .. } | Nft::File(file) => {
                one("file", file.as_str().into()).into()
            }
            Nft::NeverMatching(n) => {
                let mut table = one(if n.set { "set" } else { "rules" }, n.count.into());
                table.insert("hook".into(), n.hook.as_str().into());
                table.insert("match".into(), n.looks.as_str().into());
                table.into()
            }
        }
    }

    /// Set the knobs of an arm.
    pub(super) fn set_knobs(&self, knobs: &mut BTreeMap<String, String>) {
        let mut set = |key: &str, value: String| knobs.insert(key.into(), value);
        match self {
            Nft::Text { rules, file } => {
                set("nft", rules.clone());
                if let Some(file) = file {
                    set("nft.file", file.clone());
                }
            }
            // Not read: an experiment that is only looked at.
            Nft::File(file) => drop(set("nft.file", file.clone())),
            Nft::NeverMatching(n) => {
                let key = if n.set { "nft.set" } else { "nft.rules" };
                set(key, n.count.to_string());
                set("nft.hook", n.hook.to_string());
                set("nft.match", n.looks.to_string());
            }
        }
    }
}

/// Whether rules have nft read other files (nft(8), "Include files").
pub(super) fn has_include(rules: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || "_-./".contains(c);
    rules.match_indices("include").any(|(at, word)| {
        let after = rules[at + word.len()..].trim_start();
        !rules[..at].ends_with(is_part) && after.starts_with(['"', '\''])
    })
}

/// FNV-1a, 64 bits: stable across versions, unlike the hash of the standard library.
fn fnv(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

impl Ruleset {
    /// Whether a knob of rules is at its default.
    pub fn is_default(key: &str, level: &str) -> bool {
        match key {
            "nft.hook" => level == Hook::Output.as_str(),
            "nft.match" => level == Looks::Address.as_str(),
            "nft_in" => level == Within::DEFAULT,
            _ => false,
        }
    }

    /// The ruleset of an arm, if it has one.
    pub fn from_arm(arm: &Arm) -> Option<Ruleset> {
        let knob = |key: &str| arm.knobs.get(key).map(String::as_str);
        let number = |key: &str| knob(key).and_then(|n| n.parse::<u32>().ok());
        let never = |count, set| {
            Nft::NeverMatching(NeverMatching {
                count,
                set,
                hook: word(knob("nft.hook")).unwrap_or(Hook::Output),
                looks: word(knob("nft.match")).unwrap_or(Looks::Address),
            })
        };
        let nft = if let Some(rules) = knob("nft") {
            Nft::Text { rules: rules.to_string(), file: knob("nft.file").map(String::from) }
        } else if let Some(count) = number("nft.rules") {
            never(count, false)
        } else {
            never(number("nft.set")?, true)
        };
        Some(Ruleset { nft, within: word(knob("nft_in")).unwrap_or(Within::Tx) })
    }

    /// Check that it fits the arm.
    pub(super) fn check(&self, arm: &Arm) -> Result<(), String> {
        match &self.nft {
            Nft::NeverMatching(n) if n.looks == Looks::Port && arm.proto == Proto::Raw => {
                Err("match = \"port\" is not supported by protocol raw, which has no ports".into())
            }
            Nft::Text { rules, .. } if rules.len() as u64 > MAX_RULESET_BYTES => Err(format!(
                "nft rules are too long ({} bytes); expected at most {MAX_RULESET_BYTES}",
                rules.len()
            )),
            Nft::Text { rules, .. } if has_include(rules) => Err(
                "nft rules can't include other files, which could be any; write them into one file"
                    .into(),
            ),
            _ => Ok(()),
        }
    }

    /// The text for `nft -f`.
    pub fn text(&self, family: Family, proto: Proto) -> String {
        match &self.nft {
            Nft::Text { rules, .. } => rules.clone(),
            Nft::File(_) => String::new(),
            Nft::NeverMatching(n) => n.text(family, proto),
        }
    }

    /// The expected number of rules and of set elements in a namespace; none if only the
    /// kernel knows.
    pub fn expected(&self) -> Option<(usize, usize)> {
        match &self.nft {
            Nft::NeverMatching(n) if n.set => Some((1, n.count as usize)),
            Nft::NeverMatching(n) => Some((n.count as usize, 0)),
            Nft::Text { .. } | Nft::File(_) => None,
        }
    }

    /// Whether its rules were generated.
    pub fn is_generated(&self) -> bool {
        matches!(self.nft, Nft::NeverMatching(_))
    }
}

fn word<T: std::str::FromStr>(text: Option<&str>) -> Option<T> {
    text.and_then(|t| t.parse().ok())
}

impl NeverMatching {
    fn text(&self, family: Family, proto: Proto) -> String {
        let (table, kind, field) = match (family, self.looks) {
            (Family::V4, Looks::Address) => ("ip", "ipv4_addr", "ip daddr".to_string()),
            (Family::V6, Looks::Address) => ("ip6", "ipv6_addr", "ip6 daddr".to_string()),
            (Family::V4, Looks::Port) => ("ip", "inet_service", format!("{proto} dport")),
            (Family::V6, Looks::Port) => ("ip6", "inet_service", format!("{proto} dport")),
        };
        let mut text = format!("table {table} {TABLE} {{\n");
        // A String takes all that is written to it.
        if self.set {
            let _ = write!(text, "  set never {{\n    type {kind}\n    elements = {{ ");
            for n in 0..self.count {
                let comma = if n == 0 { "" } else { ", " };
                let _ = write!(text, "{comma}{}", self.value(family, n));
            }
            text.push_str(" }\n  }\n");
        }
        let _ = write!(
            text,
            "  chain rules {{\n    type filter hook {} priority 0; policy accept;\n",
            self.hook
        );
        if self.set {
            let _ = writeln!(text, "    {field} @never drop");
        } else {
            for n in 0..self.count {
                let _ = writeln!(text, "    {field} {} drop", self.value(family, n));
            }
        }
        text.push_str("  }\n}\n");
        text
    }

    /// Values that no packet of the workload has: addresses of 240.0.0.0/4 (reserved, RFC 1112) or 2001:db8::/32
    /// (documentation, RFC 3849), ports below the workload's.
    fn value(&self, family: Family, n: u32) -> String {
        match (self.looks, family) {
            (Looks::Address, Family::V4) => {
                std::net::Ipv4Addr::from(0xf000_0000 + n + 1).to_string()
            }
            (Looks::Address, Family::V6) => {
                let base = u128::from(0x2001_0db8_u32) << 96;
                std::net::Ipv6Addr::from(base + u128::from(n) + 1).to_string()
            }
            (Looks::Port, _) => (n + 1).to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn never(count: u32, set: bool, looks: Looks) -> Ruleset {
        Ruleset {
            nft: Nft::NeverMatching(NeverMatching { count, set, hook: Hook::Output, looks }),
            within: Within::Tx,
        }
    }

    /// Check the text of generated rules, word by word.
    #[test]
    fn generated_rules() {
        assert_eq!(
            never(2, false, Looks::Address).text(Family::V4, Proto::Udp),
            "table ip netplumb {\n  chain rules {\n    \
             type filter hook output priority 0; policy accept;\n    \
             ip daddr 240.0.0.1 drop\n    ip daddr 240.0.0.2 drop\n  }\n}\n"
        );
        assert_eq!(
            never(2, true, Looks::Address).text(Family::V6, Proto::Udp),
            "table ip6 netplumb {\n  set never {\n    type ipv6_addr\n    \
             elements = { 2001:db8::1, 2001:db8::2 }\n  }\n  chain rules {\n    \
             type filter hook output priority 0; policy accept;\n    \
             ip6 daddr @never drop\n  }\n}\n"
        );
        assert!(
            never(1, false, Looks::Port)
                .text(Family::V4, Proto::Tcp)
                .contains("    tcp dport 1 drop\n")
        );
    }

    /// Check that zero rules still make a chain at the hook, and that the numbers to be read back
    /// are known.
    #[test]
    fn no_rules_is_a_chain() {
        let none = never(0, false, Looks::Address);
        assert!(none.text(Family::V4, Proto::Udp).contains("hook output"));
        assert_eq!(none.expected(), Some((0, 0)));
        assert_eq!(never(7, true, Looks::Port).expected(), Some((1, 7)));
    }

    /// Check that the title of a text of rules comes from its content, on one line, and that
    /// different texts have different titles.
    #[test]
    fn titles() {
        let title = |rules: &str| {
            let nft = Nft::Text { rules: rules.into(), file: None };
            assert_eq!(nft.describe(), format!("nft={}", nft.title()));
            nft.title()
        };
        assert_eq!(title(""), "empty");
        assert_eq!(title("# nothing\n \n"), "empty");
        assert_eq!(title("add table ip t\n"), "add table ip t");
        let long = |port: u32| {
            format!(
                "table inet f {{\n  chain c {{\n    type filter hook output priority 0;\n    \
                 udp dport {port} drop\n  }}\n}}\n"
            )
        };
        let (one, other) = (title(&long(1)), title(&long(2)));
        assert!(one.starts_with("table inet f { chain c { type filter hoo… #"), "{one}");
        assert_ne!(one, other);
        assert!(one.chars().all(|c| !c.is_control()) && one.chars().count() < 60);
        assert_eq!(Nft::File("a/b.nft".into()).title(), "a/b.nft");
    }

    /// Check that the largest rulesets don't reach the workload's ports or the size limit.
    #[test]
    fn the_largest() {
        for (ruleset, family) in [
            (never(MAX_RULES, false, Looks::Address), Family::V6),
            (never(MAX_SET_ELEMENTS, true, Looks::Address), Family::V6),
            (never(MAX_SET_ELEMENTS, true, Looks::Port), Family::V4),
        ] {
            let text = ruleset.text(family, Proto::Udp);
            assert!((text.len() as u64) < MAX_RULESET_BYTES);
            assert!(!text.contains("40001") && !text.contains("40002"));
        }
    }

    /// Check that rules which read other files are recognised.
    #[test]
    fn includes() {
        for text in
            ["include \"/etc/shadow\"", "table ip t {};include './x.nft'\n", "\tinclude\t\"x\""]
        {
            assert!(has_include(text), "{text}");
        }
        for text in ["table ip include { }", "table ip x_include\" { }", "# what rules include\n"] {
            assert!(!has_include(text), "{text}");
        }
    }
}
