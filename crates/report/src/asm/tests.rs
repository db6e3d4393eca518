use netplumb_model::recording::Function;

use super::*;

/// `dec`, a jump back to it, a call and a return.
const LOOP: &[(u32, &[u8])] =
    &[(0, &[0xff, 0xcf]), (2, &[0x75, 0xfc]), (8, &[0xe8, 0xf3, 0x0f, 0x00, 0x00]), (13, &[0xc3])];

fn made(address: u64) -> (Recording, FunctionCode) {
    let function = |name: &str, address| Function {
        name: name.into(),
        module: None,
        layer: None,
        address,
        size_bytes: 16,
        source: None,
    };
    let recording = Recording {
        functions: vec![function("spin", address), function("rest", address + 0x1000)],
        ..Recording::default()
    };
    let insns = LOOP.iter();
    let code = FunctionCode {
        arm: 0,
        function: 0,
        address,
        insns: insns.map(|(offset, code)| Instruction::new(*offset, code, 3).unwrap()).collect(),
    };
    (recording, code)
}

/// Check that instructions are decoded as written, and that targets are named: an offset in the
/// function itself, or another function's name.
#[test]
fn names_of_targets() {
    for address in [0x1000, 0xffff_ffff_8100_0000] {
        let (recording, code) = made(address);
        let rows = decoded(&recording, &code);
        let texts: Vec<String> = rows
            .iter()
            .map(|row| row.text.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        assert_eq!(texts, ["dec %edi", "jne +0x0", "call rest", "ret"]);
        let targets: Vec<_> = rows.iter().map(|row| row.target).collect();
        assert_eq!(targets, [None, Some(0), None, None]);
    }
}

/// Check that operands relative to the instruction pointer are written as the GNU tools write them, with their
/// address, and the symbol there if it is known.
#[test]
fn relative_to_rip() {
    let (recording, mut code) = made(0x1000);
    let insns: [(u32, &[u8]); 3] = [
        (0, &[0x4c, 0x8d, 0x05, 0x39, 0x30, 0x00, 0x00]),
        (7, &[0x48, 0x8d, 0x3d, 0xf6, 0x0f, 0x00, 0x00]),
        (14, &[0xff, 0x25, 0xfc, 0xff, 0xff, 0xff]),
    ];
    let insns = insns.into_iter();
    code.insns = insns.map(|(offset, code)| Instruction::new(offset, code, 1).unwrap()).collect();
    let texts: Vec<String> = (decoded(&recording, &code).iter())
        .map(|row| row.text.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    assert_eq!(
        texts,
        [
            "lea 0x3039(%rip), %r8 # 0x4040",
            "lea 0xff6(%rip), %rdi # 0x2004 <rest+0x4>",
            "jmpq *-4(%rip) # 0x1010",
        ]
    );
}

/// Check that invalid machine code is shown as such.
#[test]
fn not_code() {
    let (recording, mut code) = made(0x1000);
    code.insns = vec![Instruction::new(0, &[0x06], 1).unwrap()];
    assert_eq!(decoded(&recording, &code)[0].text, "(bad)");
}
