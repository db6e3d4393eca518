//! nftables rules: loaded by the host's `nft`, which is copied into the guest, and read back.

use std::fs::File;
use std::io::{self, Seek};
use std::process::Command;

use netplumb_sys::memory::memfd;
use netplumb_sys::netlink::Netlink;

/// The path of `nft` in a guest.
pub const NFT: &str = "/usr/sbin/nft";
/// The name by which `nft` reports its standard input.
const RULES: &str = "/dev/stdin";
/// Maximum number of lines of an error, and of characters of each.
const SAID_LINES: usize = 40;
const LINE_CHARACTERS: usize = 240;

/// Load rulesets into this namespace, one after the other, replacing any other; returns the number of rules and set
/// elements. `expected` is what these must be.
pub(super) fn apply(
    texts: &[&str],
    expected: Option<(usize, usize)>,
) -> io::Result<(usize, usize)> {
    run(&["flush", "ruleset"], "")?;
    for text in texts.iter().filter(|text| !text.is_empty()) {
        run(&["-f", "-"], text)?;
    }
    let got = count(&run(&["-n", "-a", "list", "ruleset"], "")?);
    match expected {
        Some(expected) if expected != got => Err(io::Error::other(format!(
            "{} rules and {} elements of sets read back as {} and {}",
            expected.0, expected.1, got.0, got.1
        ))),
        _ => Ok(got),
    }
}

fn run(args: &[&str], rules: &str) -> io::Result<String> {
    let cant = |e: io::Error| io::Error::new(e.kind(), format!("can't run {NFT}: {e}"));
    let mut input = File::from(memfd("netplumb-rules", rules.as_bytes()).map_err(cant)?);
    input.rewind().map_err(cant)?;
    let output = Command::new(NFT).args(args).stdin(input).output().map_err(cant)?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(match complaints(&said, rules) {
        text if text.is_empty() => format!("nft says nothing, and ends with {}", output.status),
        text if text.contains("Interface does not exist") => {
            format!("nft says: {text}\nthe namespace has {}", devices().join(", "))
        }
        text => format!("nft says: {text}"),
    }))
}

/// The names of this namespace's devices.
fn devices() -> Vec<String> {
    let devices = Netlink::open().and_then(|mut netlink| netlink.devices());
    devices.unwrap_or_default().into_iter().map(|device| device.name).collect()
}

/// All messages of `nft`, with line numbers, and below each the line of the rules that it is about. Quotes by `nft` are
/// left out, since the reader of the message may not be allowed to read a file that the rules include.
fn complaints(said: &str, rules: &str) -> String {
    let mut lines = Vec::new();
    let mut quotes = false;
    for line in said.lines().map(str::trim_end).filter(|line| !line.is_empty()) {
        let has_place = line.split_once(": Error: ").or_else(|| line.split_once(": Warning: "));
        let Some((place, what)) = has_place else {
            // A quoted line, then marks below the part that is wrong.
            let are_marks = line.chars().all(|c| " \t^~".contains(c));
            match (quotes, are_marks) {
                (true, marks) => quotes = !marks,
                (false, true) => {}
                (false, false) => lines.push(line.to_string()),
            }
            continue;
        };
        quotes = place.contains(':');
        let Some(at) = place.strip_prefix(RULES).and_then(|place| place.strip_prefix(':')) else {
            // In an included file, or in what nft sends to the kernel.
            lines.push(line.to_string());
            continue;
        };
        lines.push(format!("line {at}: {what}"));
        let number = at.split(':').next().and_then(|number| number.parse::<usize>().ok());
        let own = number.and_then(|number| rules.lines().nth(number.checked_sub(1)?));
        lines.extend(own.map(|line| format!("    {}", line.trim())));
    }
    let left = lines.len().saturating_sub(SAID_LINES);
    lines.truncate(SAID_LINES);
    if left > 0 {
        lines.push(format!("and {left} more lines"));
    }
    let clean = |line: &String| -> String {
        let shown = line.chars().filter(|c| !c.is_control());
        let mut text: String = shown.take(LINE_CHARACTERS).collect();
        if line.chars().count() > LINE_CHARACTERS {
            text.push('…');
        }
        text
    };
    lines.iter().map(clean).collect::<Vec<_>>().join("\n")
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

    /// Check that every error has its place, and its line of the rules, but no line of a file that these include
    /// (nft 1.0.6).
    #[test]
    fn errors_are_whole() {
        let rules = "include \"/etc/shadow\"\ntable ip t {\n\tchain c {\n\t\tlog frob\n\t}\n}\n";
        let said = "In file included from /dev/stdin:1:1-22:\n\
                    /etc/shadow:1:1-4: Error: syntax error, unexpected string\n\
                    root:$y$secret:20415:0:99999:7:::\n^^^^\n\
                    /dev/stdin:4:7-10: Error: syntax error, unexpected string\n\
                    \t\tlog frob\n\t\t    ^^^^\n\
                    netlink: Error: Could not process rule: No such file or directory\n\
                    BUG: unknown expression type meta\n";
        assert_eq!(
            complaints(said, rules),
            "In file included from /dev/stdin:1:1-22:\n\
             /etc/shadow:1:1-4: Error: syntax error, unexpected string\n\
             line 4:7-10: syntax error, unexpected string\n    log frob\n\
             netlink: Error: Could not process rule: No such file or directory\n\
             BUG: unknown expression type meta"
        );
        assert_eq!(complaints("BUG: unknown\n", rules), "BUG: unknown");
        assert_eq!(complaints("", rules), "");
        let many = "/dev/stdin:4:7-10: Error: no\nx\n^\n".repeat(30);
        let text = complaints(&many, rules);
        assert_eq!(text.lines().count(), SAID_LINES + 1);
        assert!(text.ends_with("and 20 more lines"), "{text}");
    }

    /// Check that rules and elements are counted in the output of `nft list`, and tables, chains and sets are not.
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
