//! Of x86-64, as the GNU tools write it.

use std::rc::Rc;

use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Formatter, GasFormatter, Instruction, Register,
    SymbolResolver, SymbolResult,
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

/// Where the kernel and its modules are, as instructions encode it: the last 2 GiB, sign-extended
/// (Documentation/arch/x86/x86_64/mm.rst). Small negative numbers are above.
const KERNEL: std::ops::Range<u64> = 0xffff_ffff_8000_0000..0xffff_ffff_ff00_0000;
/// Where addresses of the kernel begin.
const UPPER_HALF: u64 = 0xffff_8000_0000_0000;

/// An instruction without addresses of other places.
pub(super) fn without_addresses(code: &[u8], at: u64, own: &std::ops::Range<u64>) -> Vec<u8> {
    let mut decoder = Decoder::with_ip(64, code, at, DecoderOptions::NONE);
    let insn = decoder.decode();
    let places = decoder.get_constant_offsets(&insn);
    let mut out = code.to_vec();
    let mut clear = |offset: usize, size: usize| {
        if let Some(bytes) = out.get_mut(offset..offset + size) {
            bytes.fill(0);
        }
    };
    let sign_extended = |offset: usize| {
        let bytes = code.get(offset..offset + 4)?.try_into().ok()?;
        Some(i64::from(i32::from_le_bytes(bytes)) as u64)
    };
    let is_branch = !matches!(insn.flow_control(), FlowControl::Next);
    if places.has_displacement() {
        let (offset, size) = (places.displacement_offset(), places.displacement_size());
        let absolute =
            insn.memory_base() == Register::None && insn.memory_index() == Register::None;
        let in_kernel = size == 4 && sign_extended(offset).is_some_and(|to| KERNEL.contains(&to));
        if size >= 4 && (insn.is_ip_rel_memory_operand() || absolute || in_kernel) {
            clear(offset, size);
        }
    }
    if places.has_immediate() {
        let (offset, size) = (places.immediate_offset(), places.immediate_size());
        let to = insn.near_branch_target();
        let elsewhere = match size {
            _ if is_branch && to != 0 => !own.contains(&to),
            4 => sign_extended(offset).is_some_and(|to| KERNEL.contains(&to)),
            8 => insn.immediate64() >= UPPER_HALF && insn.immediate64() < KERNEL.end,
            _ => false,
        };
        if elsewhere {
            clear(offset, size);
        }
    }
    out
}

/// Names the targets of calls and jumps. Operands relative to the instruction pointer stay as encoded, with
/// their address behind them, as in objdump.
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
