use netplumb_model::class::{Context, Family, Link, Proto};
use netplumb_model::recording::{Arm, Block, Cost, Function, Ledger, LineCost, Node};

use netplumb_model::code::{FunctionCode, Instruction};

use super::*;
use crate::analysis::class;
use crate::page::{PageCell, PageTable};
use crate::together::CrossQuantity;
use crate::{callgrind, json};

/// A command, run twice: `main` calls `work`, which calls itself if `recursive`.
fn recording(recursive: bool) -> Recording {
    let function = |name: &str, source| Function {
        name: name.into(),
        module: Some("prog".into()),
        layer: Some("application".into()),
        address: 0x1000,
        size_bytes: 0x10,
        source,
    };
    let at = |file, line| SourceLine { file, line };
    let node = |parent, function| Node { parent, function, tail: false };
    let block = |index| Block {
        arm: 0,
        instrument: "exact".into(),
        index,
        ledger: Ledger { offered: 1, delivered: 1, ..Ledger::default() },
        totals: vec![netplumb_model::recording::Total { quantity: 0, kernel: 0, user: 60 }],
        duration_ns: 0,
        entered: 3,
        returned: 3,
    };
    let mut recording = Recording {
        arms: vec![Arm {
            name: "prog".into(),
            proto: Proto::Command,
            family: Family::V4,
            link: Link::Veth,
            forward: false,
            size_bytes: 0,
            knobs: Default::default(),
            made: None,
        }],
        blocks: vec![block(0), block(1)],
        functions: vec![
            function("main", Some(at(0, 10))),
            function("work", Some(at(0, 3))),
            function("strlen", None),
        ],
        source_files: vec!["/src/prog.c".into(), "/src/inline.h".into()],
        nodes: vec![node(None, 0), node(Some(0), 1), node(Some(1), if recursive { 1 } else { 2 })],
        complete: true,
        ..Recording::default()
    };
    for block in 0..2 {
        for (node, self_insns) in [(0, 10), (1, 40), (2, 10)] {
            recording.costs.push(Cost {
                quantity: 0,
                block,
                direction: Direction::Run,
                context: Context::Task,
                node,
                calls: 1,
                own: self_insns,
            });
        }
        for (function, source, own) in [
            (0, at(0, 11), 6),
            (0, at(0, 12), 4),
            (1, at(0, 4), 7),
            // Inlined there, and more without a line.
            (1, at(1, 2), 30),
        ] {
            recording.line_costs.push(LineCost { block, function, source, own });
        }
    }
    recording
}

/// Check a function's lines: its own by number, others by file, and code without a line.
#[test]
fn of_a_function() {
    let recording = recording(false);
    let class = class(&recording, 0, Direction::Run);
    let text = render(&class, 1, 80, true, false, None);
    let words: Vec<Vec<&str>> = text.lines().map(|l| l.split_whitespace().collect()).collect();
    assert_eq!(
        words,
        [
            &["command", "run", "work,", "/src/prog.c:3"][..],
            &["line", "self", "share"],
            &["4", "7", "17.5%"],
            &["/src/inline.h:2", "30", "75.0%"],
            &["3", "are", "of", "no", "line"],
        ]
    );
    assert!(render(&class, 2, 80, true, false, None).contains("debug information (-g)"));
    let focus = crate::tree::render_focus(&class, 1, 80);
    assert!(focus.starts_with("command run  defined at /src/prog.c:3\n"), "{focus}");
}

/// Check the reason for a function without lines: the kernel's, one that only calls, and one whose file
/// has no debug information.
#[test]
fn without_lines() {
    let mut recording = recording(false);
    recording.line_costs.clear();
    recording.functions[1].layer = None;
    let costs = recording.costs.iter_mut().filter(|c| c.node == 0);
    costs.for_each(|cost| cost.own = 0);
    let class = class(&recording, 0, Direction::Run);
    for (function, why) in
        [(0, "no cost of its own"), (1, "it is the kernel's code"), (2, "debug information (-g)")]
    {
        let text = render(&class, function, 80, true, false, None);
        assert!(text.contains(why), "{text}");
    }
}

/// Check that a function of the kernel has the lines of its instructions: in a command like any other
/// function, for packets once for each arm; and that the page has its lines and instructions.
#[test]
fn of_the_kernel() {
    let mut recording = recording(false);
    let kernel = &mut recording.functions[2];
    (kernel.layer, kernel.module) = (Some("network".into()), None);
    kernel.address = 0xffff_ffff_8100_0000;
    let address = kernel.address;
    let at = |line| Some(SourceLine { file: 2, line });
    recording.source_files.push("net/ipv4/ip_input.c".into());
    recording.source_texts.insert(2, "\n\treturn 1;\n".into());
    // A push and a return, in both blocks, and one without a line.
    let insns = [(0, 0x55, 8, at(2)), (1, 0x90, 6, at(7)), (2, 0xc3, 6, None)];
    recording.code.push(FunctionCode {
        arm: 0,
        function: 2,
        address,
        insns: insns
            .map(|(offset, byte, times, at)| {
                Instruction::new(offset, &[byte], times).unwrap().at(at)
            })
            .to_vec(),
    });
    let expected = [
        &["net/ipv4/ip_input.c:2", "4", "40.0%", "return", "1;"][..],
        &["net/ipv4/ip_input.c:7", "3", "30.0%"],
        &["3", "are", "of", "no", "line"],
    ];
    let words = |text: &str| -> Vec<String> {
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        text.lines().map(words).collect()
    };
    let expected = expected.map(|line| line.join(" "));
    let run = class(&recording, 0, Direction::Run);
    let text = words(&render(&run, 2, 80, true, true, None));
    assert_eq!(text[2..], expected);
    assert_eq!(of_class(&run)[&2].len(), 2);
    let [code] = &crate::asm::page::page(&[run])[..] else {
        panic!("one function has instructions");
    };
    assert_eq!((code.name.as_str(), code.function), ("strlen", 2));
    let lines = code.lines.as_ref().unwrap();
    let cells = |table: &PageTable| -> Vec<String> {
        let row = |row: &Vec<PageCell>| row.iter().map(|c| &*c.text).collect::<Vec<_>>().join("|");
        table.rows.iter().map(row).collect()
    };
    assert_eq!(cells(lines), ["ip_input.c:2|4|40.0%|    return 1;", "ip_input.c:7|3|30.0%|"]);
    assert_eq!(
        cells(&code.instructions),
        [
            "4|40.0%|+0x0|push %rbp|ip_input.c:2",
            "3|30.0%|+0x1|nop|ip_input.c:7",
            "3|30.0%|+0x2|ret|"
        ]
    );

    for cost in &mut recording.costs {
        cost.direction = Direction::Rx;
    }
    let received = class(&recording, 0, Direction::Rx);
    let text = words(&render(&received, 2, 80, true, true, None));
    assert_eq!(text[1], "of all packets of the arm, whatever their direction");
    assert_eq!(text[3..], expected);
    assert_eq!(render(&received, 2, 80, false, true, None), "");
}

/// Check that JSON has the definition of a function and the cost of its lines, where
/// known.
#[test]
fn in_json() {
    let recording = recording(false);
    let views = [class(&recording, 0, Direction::Run)];
    let document: serde_json::Value =
        serde_json::from_str(&json::render(&recording, &views, None, &CrossQuantity::default()))
            .unwrap();
    let functions = document["classes"][0]["functions"].as_array().unwrap();
    let of = |name: &str| functions.iter().find(|f| f["name"] == name).unwrap();
    let source = |file: &str, line: u32| serde_json::json!({"file": file, "line": line});
    assert_eq!(of("work")["source"], source("/src/prog.c", 3));
    assert_eq!(
        of("main")["lines"],
        serde_json::json!([
            {"file": "/src/prog.c", "line": 11, "self": 12},
            {"file": "/src/prog.c", "line": 12, "self": 8},
        ])
    );
    assert!(of("strlen").get("source").is_none() && of("strlen").get("lines").is_none());
}

/// Check that lines and instructions are in JSON as they are in text: of a command by its class, of packets
/// once for an arm, with a reason where no lines are known.
#[test]
fn of_a_function_in_json() {
    let mut recording = recording(false);
    recording.source_texts.insert(0, "a\nb\nc\n\tx += 1;\n".into());
    let insn = |offset, byte, times, line: Option<u32>| {
        let insn = Instruction::new(offset, &[byte], times).unwrap();
        insn.at(line.map(|line| SourceLine { file: 0, line }))
    };
    recording.code.push(FunctionCode {
        arm: 0,
        function: 1,
        address: 0x1000,
        insns: vec![insn(0, 0x55, 14, Some(4)), insn(1, 0xc3, 66, None)],
    });
    let asked = super::json::LinesRequest { asm: true, source: true, times: None };
    let of = |views: &[ClassView<'_>], functions: &[FunctionId]| -> serde_json::Value {
        serde_json::from_str(&super::json::render(views, functions, asked)).unwrap()
    };
    let run = [class(&recording, 0, Direction::Run)];
    let document = of(&run, &[1, 2]);
    assert_eq!(document["quantity"]["unit"], "instructions");
    let [work, strlen] = &document["lines"].as_array().unwrap()[..] else {
        panic!("{document}");
    };
    assert_eq!(
        (&work["class"], &work["function"], &work["self"], &work["per_count"]),
        (&"command run".into(), &"work".into(), &80.into(), &2.0.into())
    );
    assert_eq!(
        work["lines"],
        serde_json::json!([
            {"file": "/src/prog.c", "line": 4, "self": 14, "share": 0.175, "text": "    x += 1;"},
            {"file": "/src/inline.h", "line": 2, "self": 60, "share": 0.75},
        ])
    );
    assert_eq!(
        (&work["address"], &work["instructions"]),
        (
            &"0x1000".into(),
            &serde_json::json!([
                {"offset": 0, "times": 14, "code": "55", "text": "push %rbp", "file": "/src/prog.c", "line": 4},
                {"offset": 1, "times": 66, "code": "c3", "text": "ret"},
            ])
        )
    );
    assert!(strlen["no_lines"].as_str().unwrap().contains("-g"), "{strlen}");
    assert!(strlen.get("instructions").is_none());

    // The code of packets covers both received and sent ones.
    let mut packets = recording.clone();
    let half = packets.costs.len() / 2;
    for (i, cost) in packets.costs.iter_mut().enumerate() {
        cost.direction = [Direction::Tx, Direction::Rx][i / half];
    }
    let both = [Direction::Tx, Direction::Rx].map(|way| class(&packets, 0, way));
    let document = of(&both, &[1]);
    let lines = document["lines"].as_array().unwrap();
    assert_eq!(lines.len(), 1, "{document}");
    assert!(lines[0]["class"].is_null());
    assert_eq!((&lines[0]["self"], &lines[0]["lines"][0]["self"]), (&80.into(), &14.into()));
}

/// Check that callgrind gets the cost of each line, inlined code in its own file, and the
/// rest where the function is defined; and that levels of recursion share no lines.
#[test]
fn in_callgrind() {
    let flat = recording(false);
    let views = [class(&flat, 0, Direction::Run)];
    let text = callgrind::render(&flat, &views);
    let work = text
        .split("\n\n")
        .find(|part| part.contains("\nfn=") && part.contains("inline.h"))
        .unwrap();
    let lines: Vec<&str> = work.lines().filter(|l| !l.starts_with("ob=")).collect();
    assert!(lines[0].starts_with("fl=("), "{work}");
    assert!(lines[1].starts_with("fn=("), "{work}");
    assert_eq!(lines[2], "4 14");
    assert!(lines[3].starts_with("fi=(") && lines[3].ends_with(" /src/inline.h"));
    assert_eq!(lines[4], "2 60");
    assert!(lines[5].starts_with("fe=("), "{work}");
    assert_eq!(lines[6], "3 6");
    assert!(text.contains("\ncalls=2 3\n10 100\n"), "{text}");

    let recursive = recording(true);
    let views = [class(&recursive, 0, Direction::Run)];
    let text = callgrind::render(&recursive, &views);
    assert!(!text.contains("inline.h"), "{text}");
    assert!(text.contains("\n3 80\n"), "{text}");
}
