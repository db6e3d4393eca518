//! Prototypes of functions, and their arguments by the registers at a call.
//!
//! The System V ABI for x86-64: the first six integers and pointers are in rdi, rsi, rdx, rcx, r8 and r9, a small
//! structure in one or two of them, and the rest on the stack. The result is in rax.
//!
//! The Procedure Call Standard for AArch64 (AAPCS64, 6.8): the first eight are in x0 to x7, a small structure in one or
//! two of them, a large one by its address, and the first that does not fit, with all after it, on the stack. A value
//! aligned to 16 bytes begins at a register with an even number. The result is in x0, or where x8 points to.

use std::sync::Arc;

use netplumb_model::arch::Arch;

/// The most registers of arguments, in their order: rdi, rsi, rdx, rcx, r8, r9; x0 to x7.
pub const REGISTERS: usize = 8;
/// Pointers from here on up are errors (`IS_ERR_VALUE`, include/linux/err.h).
const MAX_ERRNO: u64 = 4095;
/// Larger structures are in memory.
const MAX_IN_REGISTERS: u64 = 16;

/// Words in the names of parameters and types that are sets of bits or addresses.
const OF_BITS: [&str; 21] = [
    "flags", "gfp", "mask", "opf", "features", "mode", "fmode", "umode", "prot", "pgprot", "addr",
    "address", "vaddr", "paddr", "ip", "pc", "be16", "be32", "be64", "wsum", "sum16",
];
/// Addresses of kernels are in the upper half, and no count is.
const FIRST_OF_KERNEL: u64 = 1 << 63;

/// The kind of a value.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Shape {
    /// Not a value that is shown: a floating-point number, or a structure of two registers.
    #[default]
    Other,
    /// A signed integer.
    Signed,
    /// An unsigned integer that counts something: a size, a number.
    Unsigned,
    /// An unsigned integer as a set of bits: flags, a mask, an address.
    Bits,
    /// True or false.
    Bool,
    /// A pointer, unless it is [`Shape::Text`].
    Pointer,
    /// A pointer to text, which does not change (`const char *`).
    Text,
    /// A structure or union in a register.
    Struct,
    /// One of these names, or another number.
    Enum {
        /// Whether its numbers have a sign.
        signed: bool,
        /// Names, by their numbers.
        names: Arc<[(i64, String)]>,
    },
}

/// The type of an argument or of a return value.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Type {
    /// What it is.
    pub shape: Shape,
    /// Size of a value.
    pub bytes: u64,
    /// Registers that it takes, 0 on the stack; none if that is not known.
    pub registers: Option<u8>,
    /// Whether it is aligned to 16 bytes by its nature, or by a member's.
    pub is_wide: bool,
}

impl Type {
    /// A value in one register, or a number of 16 bytes in two.
    pub fn scalar(shape: Shape, bytes: u64) -> Type {
        let registers = match bytes {
            1..=8 => Some(1),
            16 => Some(2),
            _ => None,
        };
        Type {
            shape: registers.map_or(Shape::Other, |_| shape),
            bytes,
            registers,
            is_wide: bytes == 16,
        }
    }

    /// The type by the name of a parameter or a `typedef`, which may show that an unsigned integer is a set of bits:
    /// `clone_flags`, `gfp_t`.
    #[must_use]
    pub fn called(mut self, name: &str) -> Type {
        if self.shape == Shape::Unsigned && name.split('_').any(|word| OF_BITS.contains(&word)) {
            self.shape = Shape::Bits;
        }
        self
    }

    /// A structure or union without floating-point numbers, and whether a member is aligned to 16 bytes.
    pub fn aggregate(bytes: u64, is_wide: bool) -> Type {
        let registers = match bytes {
            1..=8 => 1,
            9..=MAX_IN_REGISTERS => 2,
            _ => 0,
        };
        Type {
            shape: if registers == 1 { Shape::Struct } else { Shape::Other },
            bytes,
            registers: Some(registers),
            is_wide,
        }
    }

    /// The number in a register, by its type; an error in a pointer is negative. A value of 16 bytes needs the `next`
    /// register, too.
    fn number(&self, register: u64, next: Option<u64>) -> Option<i128> {
        let bits = 8 * self.bytes.clamp(1, 8) as u32;
        let low = register & (u64::MAX >> (64 - bits));
        let signed = i128::from((low << (64 - bits)) as i64 >> (64 - bits));
        let unsigned = i128::from(low);
        if self.bytes == 16 {
            let whole = u128::from(next?) << 64 | u128::from(low);
            return match &self.shape {
                Shape::Signed => Some(whole as i128),
                Shape::Unsigned | Shape::Bits => whole.try_into().ok(),
                _ => None,
            };
        }
        Some(match &self.shape {
            Shape::Other => return None,
            Shape::Signed | Shape::Enum { signed: true, .. } => signed,
            Shape::Pointer | Shape::Text if low >= MAX_ERRNO.wrapping_neg() => signed,
            Shape::Bool => unsigned & 0xff,
            _ => unsigned,
        })
    }

    /// The value in a register, for people.
    fn text(&self, register: u64, next: Option<u64>) -> Option<String> {
        let number = self.number(register, next)?;
        Some(match &self.shape {
            Shape::Bool if number < 2 => (number == 1).to_string(),
            Shape::Enum { names, .. } => {
                let known = names.iter().find(|(n, _)| i128::from(*n) == number);
                known.map_or_else(|| number.to_string(), |(_, name)| name.clone())
            }
            Shape::Signed => number.to_string(),
            Shape::Unsigned if number < i128::from(FIRST_OF_KERNEL) => number.to_string(),
            _ if number < 0 => number.to_string(),
            Shape::Struct => format!("{{{number:#x}}}"),
            _ => format!("{number:#x}"),
        })
    }
}

/// Where an argument is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Place {
    /// By the ABI, from its type and the types before it.
    #[default]
    ByAbi,
    /// In this register, by debug information.
    Register(u8),
    /// In no register as a whole.
    Nowhere,
}

/// A parameter of a function's prototype.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Parameter {
    /// Its name; empty if it has none.
    pub name: String,
    /// The type in the prototype.
    pub of: Type,
    /// Where it is when the function begins.
    pub place: Place,
}

/// The prototype of a function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prototype {
    /// The parameters, in order.
    pub parameters: Vec<Parameter>,
    /// Its return type; none for `void`.
    pub returns: Option<Type>,
    /// Whose calls these are.
    pub arch: Arch,
}

/// Why a value can't be read at a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unread {
    /// The function has no such argument, or returns nothing.
    Missing,
    /// It is not a number: floating point, or a structure of more than one register.
    NoNumber,
    /// It is on the stack, or the compiler put it elsewhere.
    NoRegister,
}

/// Registers of arguments of an architecture.
pub fn registers(arch: Arch) -> usize {
    match arch {
        Arch::X86_64 => 6,
        Arch::Arm64 => REGISTERS,
    }
}

impl Prototype {
    /// The register of each parameter, if it is in one. Compilers leave out arguments that are always
    /// the same: where one is not in the register of the ABI, only those are known whose register is.
    fn places(&self) -> impl Iterator<Item = (&Parameter, Option<usize>)> {
        let changed = self.by_abi().any(|(parameter, by_abi)| match parameter.place {
            Place::ByAbi | Place::Nowhere => false,
            Place::Register(at) => by_abi.is_some_and(|by_abi| by_abi != usize::from(at)),
        });
        self.by_abi().map(move |(parameter, by_abi)| {
            let place = match parameter.place {
                Place::ByAbi => by_abi.filter(|_| !changed),
                Place::Register(at) => {
                    Some(usize::from(at)).filter(|at| *at < registers(self.arch))
                }
                Place::Nowhere => None,
            };
            (parameter, place)
        })
    }

    /// The register of each parameter by the ABI.
    fn by_abi(&self) -> impl Iterator<Item = (&Parameter, Option<usize>)> {
        let all = registers(self.arch);
        let is_arm = self.arch == Arch::Arm64;
        let is_large = |of: &Type| of.registers == Some(0) && of.bytes > MAX_IN_REGISTERS;
        // The address of a result in memory is in the first register, and on arm64 in a separate one.
        let in_memory = !is_arm && self.returns.as_ref().is_some_and(is_large);
        let unknown = (self.returns.as_ref()).is_some_and(|of| of.registers.is_none());
        let mut next = match unknown {
            true => None,
            false => Some(usize::from(in_memory)),
        };
        self.parameters.iter().map(move |parameter| {
            let (Some(at), Some(takes)) = (next, parameter.of.registers) else {
                next = None;
                return (parameter, None);
            };
            let takes = match is_arm && is_large(&parameter.of) {
                // By its address.
                true => 1,
                false => usize::from(takes),
            };
            let odd = is_arm && takes == 2 && parameter.of.is_wide && at % 2 == 1;
            let at = at + usize::from(odd);
            if takes == 0 || at + takes > all {
                if is_arm && takes > 0 {
                    next = Some(all);
                }
                return (parameter, None);
            }
            next = Some(at + takes);
            (parameter, Some(at))
        })
    }

    /// The names of parameters, in order; `arg1` and so on for unnamed ones.
    pub fn names(&self) -> impl Iterator<Item = String> {
        (self.parameters.iter().enumerate()).map(|(at, parameter)| named(at, parameter))
    }

    /// The registers that point to texts, a bit for each.
    pub fn texts(&self) -> u8 {
        let texts = self.places().filter(|(parameter, _)| parameter.of.shape == Shape::Text);
        texts.filter_map(|(_, place)| place).fold(0, |all, place| all | 1 << place)
    }

    /// The arguments, for people; `?` for the ones outside of registers. `text` has what a register points to, if it is
    /// known.
    pub fn arguments<'t>(
        &self,
        registers: &[u64; REGISTERS],
        text: impl Fn(usize) -> Option<&'t str>,
    ) -> String {
        let all = self.places().enumerate().map(|(at, (parameter, place))| {
            let known = place.filter(|_| parameter.of.shape == Shape::Text);
            let text = match known.and_then(&text) {
                Some(text) => Some(format!("\"{}\"", text.escape_debug())),
                None => place.and_then(|place| {
                    let next = registers.get(place + 1).copied();
                    parameter.of.text(registers[place], next)
                }),
            };
            let text = text.unwrap_or_else(|| "?".into());
            format!("{}={text}", named(at, parameter))
        });
        all.collect::<Vec<_>>().join(", ")
    }

    /// The parameter of a name, and its register.
    fn place(&self, name: &str) -> Option<(&Parameter, Option<usize>)> {
        let mut all = self.places().enumerate();
        all.find_map(|(at, found)| (named(at, found.0) == name).then_some(found))
    }

    /// An argument as a number, if it is one.
    pub fn argument(&self, name: &str, registers: &[u64; REGISTERS]) -> Option<i128> {
        let (parameter, place) = self.place(name)?;
        let place = place?;
        let next = registers.get(place + 1).copied();
        parameter.of.number(registers[place], next)
    }

    /// Whether an argument, or without a name the return value, can be read as a number.
    ///
    /// # Errors
    /// Why it can't.
    pub fn check(&self, name: Option<&str>) -> Result<(), Unread> {
        let (of, number) = match name {
            Some(name) => {
                let (parameter, _) = self.place(name).ok_or(Unread::Missing)?;
                (&parameter.of, self.argument(name, &[0; REGISTERS]))
            }
            None => {
                let of = self.returns.as_ref().ok_or(Unread::Missing)?;
                (of, self.return_value(0))
            }
        };
        match (number, &of.shape) {
            (Some(_), _) => Ok(()),
            (None, Shape::Other) => Err(Unread::NoNumber),
            (None, _) => Err(Unread::NoRegister),
        }
    }

    /// The return value, for people; none for `void`.
    pub fn returned(&self, register: u64) -> Option<String> {
        self.returns.as_ref()?.text(register, None)
    }

    /// The return value as a number, if it is one.
    pub fn return_value(&self, register: u64) -> Option<i128> {
        self.returns.as_ref()?.number(register, None)
    }
}

fn named(at: usize, parameter: &Parameter) -> String {
    match parameter.name.as_str() {
        "" => format!("arg{}", at + 1),
        name => name.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameter(name: &str, of: Type) -> Parameter {
        Parameter { name: name.into(), of, place: Place::ByAbi }
    }

    /// Check that values are shown by their types, and are only as wide as these.
    #[test]
    fn values() {
        let text = |shape: Shape, bytes, register| Type::scalar(shape, bytes).text(register, None);
        let shown = |shape, bytes, register| text(shape, bytes, register).unwrap();
        assert_eq!(shown(Shape::Signed, 4, 0xdead_ffff_fffe), "-2");
        assert_eq!(shown(Shape::Unsigned, 4, 0xdead_ffff_fffe), "4294967294");
        assert_eq!(shown(Shape::Unsigned, 8, 0x200), "512");
        assert_eq!(shown(Shape::Unsigned, 8, 0xffff_8880_05e6_cd00), "0xffff888005e6cd00");
        assert_eq!(shown(Shape::Bits, 4, 0xdead_ffff_fffe), "0xfffffffe");
        assert_eq!(shown(Shape::Signed, 8, u64::MAX), "-1");
        assert_eq!(shown(Shape::Unsigned, 2, 0x1_0200), "512");
        assert_eq!(shown(Shape::Bool, 1, 0xff01), "true");
        assert_eq!(shown(Shape::Bool, 1, 0xff00), "false");
        assert_eq!(shown(Shape::Pointer, 8, 0), "0x0");
        assert_eq!(shown(Shape::Pointer, 8, (-2_i64) as u64), "-2");
        let names: Arc<[(i64, String)]> = [(0, "READ".to_string()), (-1, "NONE".into())].into();
        let of = |signed| Shape::Enum { signed, names: names.clone() };
        assert_eq!(shown(of(true), 4, 0), "READ");
        assert_eq!(shown(of(true), 4, 0xffff_ffff), "NONE");
        assert_eq!(shown(of(false), 4, 7), "7");
        let of_two = |shape, next| Type::scalar(shape, 16).text(5, next);
        assert_eq!(of_two(Shape::Signed, None), None);
        assert_eq!(
            of_two(Shape::Signed, Some(u64::MAX)).unwrap(),
            (5 - (1_i128 << 64)).to_string()
        );
        assert_eq!(of_two(Shape::Unsigned, Some(1)).unwrap(), "0x10000000000000005");
    }

    /// Check that unsigned integers are bits by names of flags, masks and addresses, and others by none.
    #[test]
    fn names_of_bits() {
        for (name, shape, wanted) in [
            ("nr_to_read", Shape::Unsigned, Shape::Unsigned),
            ("index", Shape::Unsigned, Shape::Unsigned),
            ("sflags", Shape::Unsigned, Shape::Unsigned),
            ("clone_flags", Shape::Unsigned, Shape::Bits),
            ("gfp_t", Shape::Unsigned, Shape::Bits),
            ("__be32", Shape::Unsigned, Shape::Bits),
            ("addr", Shape::Unsigned, Shape::Bits),
            ("flags", Shape::Signed, Shape::Signed),
        ] {
            assert_eq!(Type::scalar(shape, 4).called(name).shape, wanted, "{name}");
        }
    }

    /// Check which registers arguments are in: of structures two, one or none, with a result in memory, and beyond the
    /// sixth.
    #[test]
    fn registers() {
        let long = || Type::scalar(Shape::Signed, 8);
        let registers = [1, 2, 3, 4, 5, 6, 7, 8];
        let mut prototype = Prototype {
            parameters: vec![
                parameter("a", Type::aggregate(16, false)),
                parameter("b", Type::aggregate(24, false)),
                parameter("", Type::aggregate(4, false)),
                parameter("d", long()),
                parameter("e", long()),
                parameter("f", Type::aggregate(16, false)),
                parameter("g", long()),
                parameter("h", long()),
            ],
            returns: None,
            arch: Arch::X86_64,
        };
        assert_eq!(
            prototype.arguments(&registers, |_| None),
            "a=?, b=?, arg3={0x3}, d=4, e=5, f=?, g=6, h=?"
        );
        assert_eq!(prototype.argument("g", &registers), Some(6));
        assert_eq!(prototype.argument("h", &registers), None);
        assert_eq!(prototype.argument("arg3", &registers), Some(3));
        for (name, wanted) in [
            ("g", Ok(())),
            ("arg3", Ok(())),
            ("h", Err(Unread::NoRegister)),
            ("a", Err(Unread::NoNumber)),
            ("b", Err(Unread::NoNumber)),
            ("x", Err(Unread::Missing)),
        ] {
            assert_eq!(prototype.check(Some(name)), wanted, "{name}");
        }
        assert_eq!(prototype.check(None), Err(Unread::Missing));
        for (returns, wanted) in [
            (long(), Ok(())),
            (Type::default(), Err(Unread::NoNumber)),
            (Type::scalar(Shape::Signed, 16), Err(Unread::NoRegister)),
        ] {
            prototype.returns = Some(returns);
            assert_eq!(prototype.check(None), wanted);
        }
        prototype.returns = Some(Type::aggregate(24, false));
        assert!(prototype.arguments(&registers, |_| None).contains("d=5"));
        prototype.parameters.insert(0, parameter("x", Type::default()));
        assert!(prototype.arguments(&registers, |_| None).contains("d=?"));
        assert_eq!(prototype.returned(3), None);
        let mut changed = Prototype {
            parameters: vec![
                parameter("a", long()),
                parameter("b", long()),
                parameter("c", long()),
            ],
            returns: None,
            arch: Arch::X86_64,
        };
        (changed.parameters[0].place, changed.parameters[1].place) =
            (Place::Nowhere, Place::Register(1));
        assert_eq!(changed.arguments(&registers, |_| None), "a=?, b=2, c=3");
        changed.parameters[1].place = Place::Register(0);
        assert_eq!(changed.arguments(&registers, |_| None), "a=?, b=1, c=?");
        let texts = Prototype {
            parameters: vec![
                parameter("n", long()),
                parameter("name", Type::scalar(Shape::Text, 8)),
            ],
            returns: None,
            arch: Arch::X86_64,
        };
        assert_eq!(texts.texts(), 2);
        assert_eq!(texts.arguments(&registers, |_| None), "n=1, name=0x2");
        let arguments = texts.arguments(&registers, |at| (at == 1).then_some("a\"\n"));
        assert_eq!(arguments, r#"n=1, name="a\"\n""#);
    }

    /// Check which registers arguments are in on arm64: eight, a large structure by its address, and all on the stack
    /// after one that does not fit.
    #[test]
    fn registers_of_arm64() {
        let long = || Type::scalar(Shape::Signed, 8);
        let values = [1, 2, 3, 4, 5, 6, 7, 8];
        let mut eight = Prototype {
            parameters: (0..9).map(|_| parameter("", long())).collect(),
            returns: Some(Type::aggregate(24, false)),
            arch: Arch::Arm64,
        };
        let expected = "arg1=1, arg2=2, arg3=3, arg4=4, arg5=5, arg6=6, arg7=7, arg8=8, arg9=?";
        assert_eq!(eight.arguments(&values, |_| None), expected);
        eight.parameters = vec![
            parameter("large", Type::aggregate(24, false)),
            parameter("z", long()),
            parameter("pair", Type::aggregate(16, false)),
            parameter("w", long()),
        ];
        let expected = "large=?, z=2, pair=?, w=5";
        assert_eq!(eight.arguments(&values, |_| None), expected);
        let int128 = || Type::scalar(Shape::Unsigned, 16);
        eight.parameters = vec![
            parameter("a", long()),
            parameter("wide", int128()),
            parameter("b", long()),
            parameter("pair", Type::aggregate(16, true)),
            parameter("c", long()),
        ];
        let expected = "a=1, wide=0x40000000000000003, b=5, pair=?, c=?";
        assert_eq!(eight.arguments(&values, |_| None), expected);
        assert_eq!(eight.argument("wide", &values), Some((4 << 64) + 3));
        (eight.arch, eight.returns) = (Arch::X86_64, None);
        let expected = "a=1, wide=0x30000000000000002, b=4, pair=?, c=?";
        assert_eq!(eight.arguments(&values, |_| None), expected);
        eight.arch = Arch::Arm64;
        eight.parameters = (0..7).map(|_| parameter("", long())).collect();
        eight.parameters.push(parameter("pair", Type::aggregate(16, false)));
        eight.parameters.push(parameter("last", long()));
        let arguments = eight.arguments(&values, |_| None);
        assert!(arguments.ends_with("arg7=7, pair=?, last=?"), "{arguments}");
    }
}
