//! Of x86-64, as the GNU tools write it.

use std::rc::Rc;

use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Formatter, GasFormatter, Instruction, SymbolResolver,
    SymbolResult,
};

use super::{Disassemble, Names};

pub(super) struct Disassembler {
    formatter: GasFormatter,
    names: Rc<Names>,
}

impl Disassembler {
    pub(super) fn new(names: Names) -> Self {
        let names = Rc::new(names);
        let branches = Branches(Rc::clone(&names));
        let mut formatter = GasFormatter::with_options(Some(Box::new(branches)), None);
        let options = formatter.options_mut();
        options.set_space_after_operand_separator(true);
        options.set_first_operand_char_index(8);
        options.set_uppercase_hex(false);
        options.set_rip_relative_addresses(true);
        Disassembler { formatter, names }
    }
}

impl Disassemble for Disassembler {
    fn one(&mut self, code: &[u8], at: u64) -> (String, Option<u64>) {
        let decoded = Decoder::with_ip(64, code, at, DecoderOptions::NONE).decode();
        let mut text = String::new();
        self.formatter.format(&decoded, &mut text);
        if decoded.is_ip_rel_memory_operand() {
            let address = decoded.ip_rel_memory_address();
            text += &format!("  # {address:#x}");
            if let Some(name) = self.names.name(address, false) {
                text += &format!(" <{name}>");
            }
        }
        let jump = match decoded.flow_control() {
            FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch => {
                Some(decoded.near_branch_target())
            }
            _ => None,
        };
        (text, jump)
    }
}

/// Names what calls and jumps go to. What is relative to the instruction pointer stays as it is encoded, with
/// its address behind it, as objdump has it.
struct Branches(Rc<Names>);

impl SymbolResolver for Branches {
    fn symbol(
        &mut self,
        insn: &Instruction,
        _operand: u32,
        _insn_operand: Option<u32>,
        address: u64,
        _size: u32,
    ) -> Option<SymbolResult<'_>> {
        let branches = !matches!(insn.flow_control(), FlowControl::Next)
            && insn.near_branch_target() == address;
        if !branches {
            return None;
        }
        let name = self.0.name(address, branches)?;
        Some(SymbolResult::with_string(address, name))
    }
}
