//! Comparisons below a function, as views of a page.

use netplumb_model::class::Proto;
use netplumb_model::experiment::Experiment;

use super::build::{Build, arm};
use crate::html::{comparisons, render_all};
use crate::page::Page;

const EXPERIMENT: &str = r#"
name = "review"
instruments = ["exact"]

[[arm]]
name = "before"
[[arm]]
name = "after"

[[claim]]
kind = "compare"
says = "Less below it"
classes = ["udp tx"]
below = "ip_output"
arm = "after"
against = "before"

[[claim]]
kind = "compare"
says = "The same comparison, expected to be something"
classes = ["udp tx"]
below = "ip_output"
arm = "after"
against = "before"
is = "less"

[[claim]]
kind = "compare"
says = "The whole is on the page of what was measured"
classes = ["udp tx"]
arm = "after"
against = "before"

[[claim]]
kind = "compare"
says = "What was never called"
classes = ["udp tx"]
below = "ip_local_out"
arm = "after"
against = "before"
"#;

/// Check that each comparison below a function is one view, of that function alone, with the
/// claim's arms; and that a file has all views by their names.
#[test]
fn what_claims_compare_is_a_view() {
    let arms = vec![arm("before", Proto::Udp), arm("after", Proto::Udp)];
    let mut build = Build::with("a", arms, 3);
    for (arm, gate) in [(0, 64), (1, 40)] {
        build.each(arm, "udp_sendmsg", 200 + u64::from(arm));
        build.each(arm, "udp_sendmsg/ip_output", 74);
        build.each(arm, "udp_sendmsg/ip_output/gate", gate);
    }
    let experiment = Experiment::parse(EXPERIMENT).unwrap();
    let found = comparisons(&build.0, &experiment, &[]);
    let names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["before → after, below ip_output"]);
    let page = &found[0].1;
    assert!(page.diff);
    assert_eq!(page.title, "before → after below ip_output");
    assert_eq!(page.classes.len(), 1);
    assert!(page.classes[0].sentence.contains("138 → 114"), "{page:?}");
    let shown: Vec<&str> = (page.functions.iter().map(|f| f.name.as_str())).collect();
    assert!(!shown.contains(&"udp_sendmsg"), "{shown:?}");

    let mut views = vec![("exact".to_string(), Page::default())];
    views.extend(found);
    let html = render_all(views);
    let (_, data) = html.split_once(r#"id="plumb-data">"#).unwrap();
    let (data, _) = data.split_once("</script>").unwrap();
    assert_eq!(data.lines().count(), 2, "a line for each view");
}
