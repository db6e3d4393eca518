//! What is below a function in the calling-context tree, or below a chain of functions.

use crate::recording::Recording;
use crate::symbol::base_name;

/// What separates the functions of a chain.
const BETWEEN: char = ';';

/// Of each node, whether it is the last function of a chain or below it: names from the outermost
/// inwards, which need not call each other directly.
pub fn below(recording: &Recording, chain: &str) -> Vec<bool> {
    let chain: Vec<&str> = names(chain).map(base_name).collect();
    let mut met: Vec<usize> = Vec::with_capacity(recording.nodes.len());
    for node in &recording.nodes {
        // A parent's number is below its children's.
        let above = node.parent.map_or(0, |parent| met[parent as usize]);
        let name = base_name(&recording.functions[node.function as usize].name);
        let meets = chain.get(above).is_some_and(|wanted| *wanted == name);
        met.push(above + usize::from(meets));
    }
    met.into_iter().map(|n| n == chain.len()).collect()
}

/// The functions of a chain, the outermost first.
pub fn names(chain: &str) -> impl DoubleEndedIterator<Item = &str> {
    chain.split(BETWEEN)
}

/// A chain in a sentence: "skb_dequeue below usbnet_bh".
pub fn told(chain: &str) -> String {
    let names: Vec<&str> = names(chain).rev().collect();
    names.join(" below ")
}

#[cfg(test)]
mod tests {
    use crate::recording::{Function, Node};

    use super::*;

    /// Check that a chain is met from the outermost function inwards, with others between, and
    /// that what is below its last is below it; clones are their function.
    #[test]
    fn chains() {
        let mut recording = Recording::default();
        for (id, (name, parent)) in (0..).zip([
            ("a", None),
            ("x", Some(0)),
            ("b.isra.0", Some(1)),
            ("c", Some(2)),
            ("b", None),
            ("a", Some(4)),
        ]) {
            recording.functions.push(Function {
                name: name.into(),
                module: None,
                layer: None,
                address: 0,
                size_bytes: 0,
                source: None,
            });
            recording.nodes.push(Node {
                parent,
                function: id,
                tail: false,
            });
        }
        let found = |chain: &str| -> Vec<usize> {
            let below = below(&recording, chain);
            (0..below.len()).filter(|n| below[*n]).collect()
        };
        assert_eq!(found("a"), [0, 1, 2, 3, 5]);
        assert_eq!(found("a;b"), [2, 3]);
        assert_eq!(found("b"), [2, 3, 4, 5]);
        assert_eq!(found("a;b.part.0"), [2, 3]);
        assert_eq!(found("c;a"), [0; 0]);
        assert_eq!(told("a;b"), "b below a");
    }
}
