//! Rules of nftables: loaded by the host's own `nft`, which the guest was given, and
//! read back.

use std::fs;
use std::io;
use std::process::{Command, Stdio};

/// Where the guest has `nft`.
pub const NFT: &str = "/usr/sbin/nft";
const RULES: &str = "/tmp/rules.nft";
/// Of what `nft` says, this much is shown.
const TOLD_CHARACTERS: usize = 600;

/// Load a ruleset into this namespace, in place of any other; how many rules and set
/// elements it then has. `expected` is what that is to be.
pub(super) fn apply(text: &str, expected: Option<(usize, usize)>) -> io::Result<(usize, usize)> {
    fs::write(RULES, text)?;
    run(&["flush", "ruleset"])?;
    run(&["-f", RULES])?;
    fs::remove_file(RULES)?;
    let got = count(&run(&["-n", "-a", "list", "ruleset"])?);
    match expected {
        Some(expected) if expected != got => Err(io::Error::other(format!(
            "{} rules and {} elements of sets read back as {} and {}",
            expected.0, expected.1, got.0, got.1
        ))),
        _ => Ok(got),
    }
}

fn run(args: &[&str]) -> io::Result<String> {
    let output = Command::new(NFT)
        .args(args)
        .stdin(Stdio::null())
        .output()
        .map_err(|e| io::Error::new(e.kind(), format!("the guest can't run nft: {e}")))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said: String = String::from_utf8_lossy(&output.stderr)
        .chars()
        .filter(|c| !c.is_control() || *c == '\n')
        .take(TOLD_CHARACTERS)
        .collect();
    Err(io::Error::other(format!(
        "nft says: {}",
        said.replace(&format!("{RULES}:"), "line ").trim()
    )))
}

/// Rules and set elements of a listing with handles: what has a handle and opens no
/// block is a rule.
fn count(listing: &str) -> (usize, usize) {
    let mut rules = 0;
    let mut elements = 0;
    let mut within_elements = false;
    for line in listing.lines() {
        let line = line.trim();
        let list = match line.split_once("elements = {") {
            Some((_, list)) => {
                within_elements = true;
                list
            }
            None => line,
        };
        if within_elements {
            let (list, over) = match list.split_once('}') {
                Some((list, _)) => (list, true),
                None => (list, false),
            };
            elements += list.split(',').filter(|e| !e.trim().is_empty()).count();
            within_elements = !over;
        } else if let Some((rule, _)) = line.rsplit_once(" # handle ")
            && !rule.ends_with('{')
        {
            rules += 1;
        }
    }
    (rules, elements)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that rules and elements are counted in what `nft` lists, and that tables,
    /// chains and sets are no rules.
    #[test]
    fn a_listing_is_counted() {
        let listing = "table ip netplumb { # handle 1\n\
            \tset never { # handle 2\n\t\ttype ipv4_addr\n\
            \t\telements = { 240.0.0.1, 240.0.0.2,\n\t\t\t     240.0.0.3 }\n\t}\n\n\
            \tchain rules { # handle 3\n\
            \t\ttype filter hook output priority 0; policy accept;\n\
            \t\tip daddr @never drop # handle 4\n\
            \t\tip daddr { 1.2.3.4, 1.2.3.5 } drop # handle 5\n\t}\n}\n";
        assert_eq!(count(listing), (2, 3));
        assert_eq!(count(""), (0, 0));
    }
}
