//! A survey of the machine leaves nothing behind. In a file of its own, so that no other test's
//! descriptors are counted.

use std::fs;

use netplumb_instruments::capability::survey;

/// Check that a survey leaves no descriptor and no interface behind.
#[test]
fn a_survey_leaves_nothing() {
    let count = |path: &str| fs::read_dir(path).map_or(0, Iterator::count);
    let links = count("/sys/class/net");
    survey();
    let descriptors = count("/proc/self/fd");
    survey();
    assert_eq!(count("/proc/self/fd"), descriptors);
    assert_eq!(count("/sys/class/net"), links);
}
