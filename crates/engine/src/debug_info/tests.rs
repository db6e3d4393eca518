use netplumb_instruments::exact::{CountedCost, RanCode};
use netplumb_model::class::{Context, Direction};

use super::*;
use crate::collect::Executed;

/// Check that the cost of a line is the number of its executed instructions, that an interrupted
/// block has only the ones that ran, and that repetitions count for the last instruction.
#[test]
fn lines_of_blocks() {
    let symbol = FIRST_USER_SYMBOL;
    let code = BTreeMap::from([(
        7,
        UserCode {
            image: 1,
            insns: vec![(0x10, symbol), (0x14, symbol), (0x18, symbol), (0x1c, symbol)],
        },
    )]);
    let line = |line| SourceLine { file: 0, line };
    // The second has no line.
    let sources = HashMap::from([
        ((1, 0x10), line(3)),
        ((1, 0x18), line(4)),
        ((1, 0x1c), line(3)),
        ((2, 0x14), line(9)),
    ]);
    let executed = Executed {
        symbols: &netplumb_kernel::kallsyms::SymbolTable::default(),
        user: &[UserSymbol {
            name: "main".into(),
            module: "x".into(),
            address: 0x10,
            size_bytes: 0x10,
            image: Some(1),
        }],
        nodes: &[netplumb_instruments::exact::TreeNode { parent: None, symbol, tail: false }],
    };
    let ran = |insns, times| RanCode { block: 7, insns, times };
    let window = Window {
        costs: vec![CountedCost {
            direction: Direction::Other,
            context: Context::Task,
            node: 0,
            calls: 1,
            insns: 1,
        }],
        user_code: vec![ran(1, 5), ran(4, 10), ran(104, 2)],
        ..Window::default()
    };
    let translation = Translation::add(
        &mut Recording::default(),
        &mut crate::index::Index::default(),
        &executed,
        &netplumb_kernel::layers::LayerRules::built_in(),
        [&window],
    );
    let costs = line_costs(&window, &code, &sources, &translation);
    let expected = [((0, line(3)), 5 + 10 * 2 + 2 * (2 + 100)), ((0, line(4)), 10 + 2)];
    assert_eq!(costs, BTreeMap::from(expected));
}
