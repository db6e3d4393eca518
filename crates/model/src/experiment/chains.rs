//! The base chains of nftables rules, as far as their text shows them.

/// The families of tables.
const FAMILIES: [&str; 6] = ["ip", "ip6", "inet", "arp", "bridge", "netdev"];

/// A base chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BaseChain {
    /// Its family, its table and its own name: "inet filter output".
    pub(super) name: String,
    /// Its type: "filter", "nat", "route".
    pub(super) kind: String,
    /// Its hook: "output", "ingress".
    pub(super) hook: String,
}

impl BaseChain {
    /// The kernel functions that the hook calls to evaluate it: net/netfilter/nft_chain_filter.c, nft_chain_nat.c and
    /// nft_chain_route.c.
    pub(super) fn functions(&self) -> &'static [&'static str] {
        let family = self.name.split(' ').next().unwrap_or_default();
        match (self.kind.as_str(), family) {
            ("nat", _) => &["nft_nat_do_chain"],
            ("route", _) => {
                &["nf_route_table_hook4", "nf_route_table_hook6", "nf_route_table_inet"]
            }
            ("filter", "ip") => &["nft_do_chain_ipv4"],
            ("filter", "ip6") => &["nft_do_chain_ipv6"],
            ("filter", "inet") => &["nft_do_chain_inet", "nft_do_chain_inet_ingress"],
            ("filter", "arp") => &["nft_do_chain_arp"],
            ("filter", "bridge") => &["nft_do_chain_bridge"],
            ("filter", "netdev") => &["nft_do_chain_netdev"],
            _ => &[],
        }
    }
}

/// Words, and marks that end or nest statements, without comments and texts in quotes.
fn tokens(rules: &str) -> Vec<&str> {
    const MARKS: [char; 4] = ['{', '}', ';', '\n'];
    let mut all = Vec::new();
    let mut rest = rules;
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '#' => rest.find('\n').unwrap_or(rest.len()),
            '"' => rest[1..].find('"').map_or(rest.len(), |end| end + 2),
            c if MARKS.contains(&c) => {
                all.push(&rest[..1]);
                1
            }
            c if c.is_whitespace() || c == ',' => c.len_utf8(),
            _ => {
                let ends = |c: char| c.is_whitespace() || MARKS.contains(&c) || ",\"#".contains(c);
                let length = rest.find(ends).unwrap_or(rest.len());
                all.push(&rest[..length]);
                length
            }
        };
        rest = &rest[length..];
    }
    all
}

/// Whether rules have a word outside of comments and texts in quotes.
pub(super) fn has_word(rules: &str, word: &str) -> bool {
    tokens(rules).contains(&word)
}

/// All of some rules.
pub(super) fn base_chains(rules: &str) -> Vec<BaseChain> {
    let mut chains = Vec::new();
    // The open blocks: the names of tables and chains, nothing of others.
    let mut open: Vec<Option<String>> = Vec::new();
    let mut statement: Vec<&str> = Vec::new();
    for token in tokens(rules) {
        match token {
            "{" => {
                open.push(opened(&statement, open.last().and_then(Option::as_deref)));
                statement.clear();
            }
            "}" => {
                open.pop();
                statement.clear();
            }
            ";" | "\n" => statement.clear(),
            word => {
                statement.push(word);
                if let (["type", kind, "hook", hook], Some(Some(name))) =
                    (&statement[..], open.last())
                {
                    chains.push(BaseChain {
                        name: name.clone(),
                        kind: (*kind).into(),
                        hook: (*hook).into(),
                    });
                }
            }
        }
    }
    chains
}

/// The whole name of the table or chain that a statement begins, inside of another one.
fn opened(statement: &[&str], outside: Option<&str>) -> Option<String> {
    let statement = match statement {
        ["add" | "create", rest @ ..] => rest,
        all => all,
    };
    let with_family = |names: &[&str]| match names {
        [family, ..] if FAMILIES.contains(family) && names.len() > 1 => names.join(" "),
        _ => format!("ip {}", names.join(" ")),
    };
    match (statement, outside) {
        (["chain", name], Some(table)) => Some(format!("{table} {name}")),
        (["table" | "chain", names @ ..], None) if !names.is_empty() => Some(with_family(names)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain_lines(rules: &str) -> Vec<String> {
        let chains = base_chains(rules).into_iter();
        let lines = chains.map(|chain| format!("{}: {} {}", chain.name, chain.kind, chain.hook));
        lines.collect()
    }

    /// Check that base chains are found in both forms, and nothing in comments, texts, sets or other chains.
    #[test]
    fn chains_of_rules() {
        let rules = "#!/usr/sbin/nft -f\nflush ruleset\n\
            table inet filter { # type filter hook forward\n\
            \tset s { type ipv4_addr; elements = { 10.0.0.1, 10.0.0.2 }\n\t}\n\
            \tchain other { log prefix \"{ type nat hook input\"; ip saddr { 1.2.3.4 } drop\n\t}\n\
            \tchain out {\n\t\ttype filter hook output priority filter; policy drop;\n\
            \t\tct state { established, related } accept\n\t}\n}\n\
            table nat { chain post { type nat hook postrouting priority 100; } }\n\
            add chain netdev t in { type filter hook ingress device \"tx0\" priority 0; }\n";
        let expected = [
            "inet filter out: filter output",
            "ip nat post: nat postrouting",
            "netdev t in: filter ingress",
        ];
        assert_eq!(chain_lines(rules), expected);
        assert!(has_word(rules, "established") && !has_word(rules, "forward"));
        for wrong in ["}}}{{{", "\"", "chain {", "type filter hook output", "table é { chain ü {"]
        {
            assert!(chain_lines(wrong).is_empty(), "{wrong}");
        }
    }

    /// Check that each kind of chain has its function.
    #[test]
    fn functions_of_chains() {
        let of = |rules: &str| base_chains(rules)[0].functions().to_vec();
        let chain = |family: &str, kind: &str| {
            of(&format!("table {family} t {{ chain c {{ type {kind} hook output priority 0; }} }}"))
        };
        assert_eq!(chain("ip", "filter"), ["nft_do_chain_ipv4"]);
        assert_eq!(chain("inet", "nat"), ["nft_nat_do_chain"]);
        assert_eq!(chain("bridge", "filter"), ["nft_do_chain_bridge"]);
        assert!(chain("ip", "new").is_empty());
    }
}
