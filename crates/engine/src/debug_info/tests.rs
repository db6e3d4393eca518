use netplumb_instruments::exact::RanCode;

use super::*;

/// Check that the cost of a line is the number of its executed instructions, that of an interrupted
/// block only those that ran, and that repetitions count for the last instruction.
#[test]
fn lines_of_blocks() {
    let symbol = FIRST_USER_SYMBOL;
    let code = BTreeMap::from([(
        7,
        UserCode {
            image: 1,
            insns: vec![
                (0x10, symbol),
                (0x14, symbol),
                (0x18, symbol),
                (0x1c, symbol),
            ],
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
    let mut translation = Translation::default();
    translation.set_user(vec![UserSymbol {
        name: "main".into(),
        module: "x".into(),
        address: 0x10,
        size_bytes: 0x10,
        image: Some(1),
    }]);
    let mut recording = Recording::default();
    translation.add_nodes(
        &mut recording,
        &mut crate::index::Index::default(),
        &netplumb_kernel::kallsyms::SymbolTable::default(),
        &netplumb_kernel::layers::LayerRules::built_in(),
        &[netplumb_instruments::exact::TreeNode {
            parent: None,
            symbol,
            tail: false,
        }],
    );
    let ran = |insns, times| RanCode {
        block: 7,
        insns,
        times,
    };
    let window = Window {
        user_code: vec![ran(1, 5), ran(4, 10), ran(104, 2)],
        ..Window::default()
    };
    let costs = line_costs(&window, &code, &sources, &translation);
    let expected = [
        ((0, line(3)), 5 + 10 * 2 + 2 * (2 + 100)),
        ((0, line(4)), 10 + 2),
    ];
    assert_eq!(costs, BTreeMap::from(expected));
}
