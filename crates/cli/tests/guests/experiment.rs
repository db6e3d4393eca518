//! The experiment that comes with the program, from its file to its verdicts.

use std::path::Path;

use crate::common::{Place, tell};
use netplumb_model::experiment::Experiment;

/// Check that the figures, the published numbers, the call graph, the verdicts and
/// the footer are all there, and that the recording prints the same again.
#[test]
fn ip_layer() {
    if !crate::common::has_guests() {
        return;
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments/ip-layer.toml");
    let experiment = Experiment::parse(&std::fs::read_to_string(&file).unwrap()).unwrap();
    let place = Place::new();
    let mut command = place.plumb("run");
    command.arg(&file);
    let ran = crate::common::Running::start(&mut command).finish();
    ran.code(0).says(&["recorded in ip-layer.plumb"]);
    tell(&format!("{} from a cold start: {:.1} s", experiment.name, ran.took.as_secs_f64()));
    let has = |words: &str| assert!(ran.stdout.contains(words), "no `{words}` in:\n{}", ran.stdout);

    has(&experiment.title);
    assert_eq!(experiment.published.len(), 6);
    for published in &experiment.published {
        has(&format!("Figure {}  {}", published.figure, published.class));
        has(&format!("{:.3} us", published.total_us));
        has(&published.top_function);
        has(&format!("Call graph of the network layer, {}", published.class));
    }
    // A claim's statement may be broken into lines.
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let output = words(&ran.stdout);
    assert_eq!(experiment.claims.len(), 5);
    for claim in &experiment.claims {
        let verdict = ["holds:", "fails:", "answer:"]
            .iter()
            .find(|mark| output.contains(&words(&format!("{mark} {}", claim.says()))));
        assert!(verdict.is_some(), "no verdict on: {}", claim.says());
    }
    for line in ["clock", "kernel", "machine", "packets", "blocks", "layers", "loss"] {
        assert!(
            ran.stdout.lines().any(|l| l.starts_with(line)),
            "no `{line}` in the footer:\n{}",
            ran.stdout
        );
    }
    has("loss      none");

    let again = place.run("report ip-layer.plumb");
    again.code(0);
    assert_eq!(again.stdout, ran.stdout);
    assert_eq!(place.files(), ["ip-layer.plumb"]);
}
