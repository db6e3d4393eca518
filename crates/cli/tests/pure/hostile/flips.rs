//! Bits of a recording that flipped.

use std::fs;

use super::{FORMATS, Random, made, plumb};
use crate::common::Place;

const FLIPS: usize = 200;

/// Check that a recording with some flipped bits is read or refused, and whatever can be read
/// can be rendered.
#[test]
fn flipped_bits() {
    let place = Place::new();
    made::save(&place, "exact.plumb", &made::exact());
    made::save(&place, "timed.plumb", &made::timed());
    let wholes = ["exact.plumb", "timed.plumb"].map(|n| fs::read(place.path(n)).unwrap());
    let mut random = Random(1);
    let mut read = 0;
    for n in 0..FLIPS {
        let mut bytes = wholes[n % wholes.len()].clone();
        // Most are where the schema and the rows are, a quarter anywhere; one to eight bits.
        for _ in 0..1 + random.below(8) {
            let at = match random.below(4) {
                0 => random.below(bytes.len()),
                1 => random.below(200),
                _ => {
                    let full: Vec<usize> = (0..bytes.len()).filter(|i| bytes[*i] != 0).collect();
                    full[random.below(full.len())]
                }
            };
            bytes[at] ^= 1 << random.below(8);
        }
        place.write("flipped.plumb", &bytes);
        let format = FORMATS[n / 2 % FORMATS.len()];
        let what = format!("flip {n}");
        let ran = plumb(&place, &format!("report flipped.plumb {format}"), &what);
        read += u32::from(ran.status.success());
        if n.is_multiple_of(10) {
            plumb(&place, "diff exact.plumb flipped.plumb", &what);
        }
        // A file that is only read is not written to.
        assert_eq!(fs::read(place.path("flipped.plumb")).unwrap(), bytes, "{what}");
    }
    assert!(read > 0, "not one can be read: flips hit too much");
}
