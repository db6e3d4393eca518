//! nftables rules: loaded by the host's `nft`, which is copied into the guest, and read back.

use std::fs;
use std::io;
use std::process::{Command, Stdio};

/// The path of `nft` in a guest.
pub const NFT: &str = "/usr/sbin/nft";
const RULES: &str = "/tmp/rules.nft";
/// Maximum length of messages of `nft`.
const TOLD_CHARACTERS: usize = 600;

/// Load a ruleset into this namespace, replacing any other; returns the number of rules and set
/// elements. `expected` is what these must be.
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
    let said = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!("nft says: {}", complaints(&said))))
}

/// Errors of `nft`, with line numbers and without the lines that it quotes: the reader of the
/// message may not be allowed to read the file.
fn complaints(said: &str) -> String {
    let of_rules = format!("{RULES}:");
    let told = said.lines().filter_map(|line| {
        let (_, what) = line.split_once("Error: ")?;
        // The place, then the message; some have no place.
        let place = line
            .strip_prefix(&of_rules)
            .and_then(|l| l.split_once(": "));
        Some(match place {
            Some((place, _)) => format!("line {place}: {what}"),
            None => what.to_string(),
        })
    });
    let told: Vec<String> = told.collect();
    let text = match told.is_empty() {
        true => "no error message".into(),
        false => told.join("; "),
    };
    text.chars()
        .filter(|c| !c.is_control())
        .take(TOLD_CHARACTERS)
        .collect()
}

/// The number of rules and set elements in a listing with handles: a line with a handle that opens
/// no block is a rule.
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

    /// Check that errors have a place and no line of the file (nft 1.0.6).
    #[test]
    fn no_line_is_quoted() {
        let said = "/tmp/rules.nft:1:1-4: Error: syntax error, unexpected string\n\
                    root:$y$secret:20415:0:99999:7:::\n^^^^\n\
                    /tmp/rules.nft:3:9-9: Error: syntax error, unexpected colon\n\
                    daemon:*:19405\n      ^\n";
        assert_eq!(
            complaints(said),
            "line 1:1-4: syntax error, unexpected string; \
             line 3:9-9: syntax error, unexpected colon"
        );
        assert!(!complaints("root:$y$secret\n").contains("secret"));
    }

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
