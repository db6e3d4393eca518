//! Output without the parts that vary: times, rates, and the bars drawn of them.

/// A text in which every number is `#`, with its sign and unit, and lines have no bars and
/// no blanks to align columns.
pub(crate) fn shape_of(text: &str) -> String {
    text.lines()
        .map(|line| {
            let words = line.split_whitespace().filter(|word| !is_bar(word));
            let mut shape: Vec<String> = Vec::new();
            for word in words.map(without_numbers) {
                let of_number = shape.last().is_some_and(|last| last.ends_with('#'));
                if !(of_number && RATES.contains(&word.as_str())) {
                    shape.push(word);
                }
            }
            shape.join(" ") + "\n"
        })
        .collect()
}

fn is_bar(word: &str) -> bool {
    word.chars().all(|c| ('\u{2580}'..='\u{259f}').contains(&c))
}

/// Unit prefixes that stand apart behind a rate.
const RATES: &[&str] = &["k", "M", "G"];

/// Units of what differs, as they stand behind a number.
const UNITS: &[&str] = &["ns", "us", "ms", "s", "min", "%", "k", "M", "G", "K", "kB", "MB"];

fn without_numbers(word: &str) -> String {
    // No figure: nothing went there.
    if word == "-" {
        return "#".into();
    }
    let mut out = String::new();
    let mut rest = word;
    while let Some(first) = rest.chars().next() {
        let within_name = out.ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == '.');
        if !first.is_ascii_digit() || within_name {
            out.push(first);
            rest = &rest[first.len_utf8()..];
            continue;
        }
        let number = |c: char| c.is_ascii_digit() || [',', '.'].contains(&c);
        let after = rest.trim_start_matches(number);
        // A full stop or comma at the end is the sentence's.
        let digits = rest[..rest.len() - after.len()].trim_end_matches(['.', ',']);
        rest = &rest[digits.len()..];
        let unit_ends = rest.find(|c: char| !c.is_alphanumeric() && c != '%').unwrap_or(rest.len());
        if UNITS.contains(&&rest[..unit_ends]) {
            rest = &rest[unit_ends..];
        }
        // A figure that is doubted is one.
        rest = rest.strip_prefix('?').unwrap_or(rest);
        while out.ends_with(['+', '-']) {
            out.pop();
        }
        out.push('#');
    }
    out
}

/// Check that numbers, units and bars are taken away and names and words stay.
#[test]
fn what_differs_is_left_out() {
    for (line, shape) in [
        ("   ip_output  network  1,202  5.8%  ▋", "ip_output network # #"),
        ("p50  p99.9  ipv4  e1000  6.1.0-56-amd64", "p50 p99.9 ipv4 e1000 ##-amd64"),
        ("20.5us of 3 (work 1,410 + wait 0).", "# of # (work # + wait #)."),
        ("faster by 20.0% (+18.1% to -21.9%), most", "faster by # (# to #), most"),
        ("qdisc wait   wait   0   -   653us", "qdisc wait wait # # #"),
        ("xdp  1.96 M  560.5 k to 2.74 M  518  2.00?  ██", "xdp # # to # # #"),
    ] {
        assert_eq!(shape_of(line), format!("{shape}\n"), "{line}");
    }
}
