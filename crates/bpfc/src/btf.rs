//! The types of a compiled object, as far as plain structures are made of them
//! (Documentation/bpf/btf.rst).

use std::fmt::Write;

/// Before a macro's name in the enumeration that has its value.
pub(crate) const NUMBER: &str = "number_";

/// The kind of a type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Kind {
    Int {
        bits: u8,
        signed: bool,
    },
    Pointer,
    Array {
        of: u32,
        count: u32,
    },
    Struct {
        bytes: u32,
        fields: Vec<Field>,
    },
    Enum {
        values: Vec<(String, i64)>,
    },
    /// Another one by another name, or with a qualifier.
    Same(u32),
    Other,
}

/// A field of a structure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Field {
    name: String,
    of: u32,
    at_bits: u32,
}

/// All types of an object; number 0 is `void`.
#[derive(Debug, Default)]
pub(crate) struct Types(Vec<(String, Kind)>);

/// Why they can't be read.
type Wrong = String;

fn word(bytes: &[u8], at: usize) -> Result<u32, Wrong> {
    let word = bytes.get(at..at + 4).and_then(|b| b.try_into().ok());
    word.map(u32::from_le_bytes).ok_or_else(|| format!("ends before byte {at}"))
}

fn text(strings: &[u8], at: u32) -> String {
    let rest = strings.get(at as usize..).unwrap_or_default();
    let end = rest.iter().position(|b| *b == 0).unwrap_or(rest.len());
    String::from_utf8_lossy(&rest[..end]).into_owned()
}

/// A section of a 64-bit ELF file, little-endian as BPF's are.
fn section<'a>(elf: &'a [u8], wanted: &str) -> Result<&'a [u8], Wrong> {
    let half = |at: usize| Ok::<_, Wrong>(word(elf, at)? as usize & 0xffff);
    let (headers, size) = (word(elf, 0x28)? as usize, half(0x3a)?);
    let (count, names) = (half(0x3c)?, half(0x3e)?);
    let bounds = |n: usize| {
        let header = headers + n * size;
        let (at, bytes) = (word(elf, header + 0x18)?, word(elf, header + 0x20)?);
        elf.get(at as usize..at as usize + bytes as usize)
            .ok_or_else(|| "a section is not within the file".to_string())
    };
    let names = bounds(names)?;
    for n in 0..count {
        if text(names, word(elf, headers + n * size)?) == wanted {
            return bounds(n);
        }
    }
    Err(format!("has no section {wanted}"))
}

impl Types {
    /// Read the types of a compiled object.
    pub(crate) fn read(object: &[u8]) -> Result<Types, Wrong> {
        let btf = section(object, ".BTF")?;
        let part = |at: usize| -> Result<&[u8], Wrong> {
            let from = word(btf, 4)? as usize + word(btf, at)? as usize;
            let part = btf.get(from..from + word(btf, at + 4)? as usize);
            part.ok_or_else(|| "a part is not within the section".into())
        };
        let (types, strings) = (part(8)?, part(16)?);
        let mut all = vec![(String::new(), Kind::Other)];
        let mut at = 0;
        while at < types.len() {
            let (name, info, last) = (word(types, at)?, word(types, at + 4)?, word(types, at + 8)?);
            let (kind, count) = (info >> 24 & 0x1f, (info & 0xffff) as usize);
            at += 12;
            // A structure may have fields of bits, an enumeration is signed.
            let flag = info >> 31 != 0;
            let entry = |n: usize, size: usize, of: usize| word(types, at + n * size + 4 * of);
            let (what, bytes) = match kind {
                1 => {
                    let encoding = word(types, at)?;
                    // A `char` is signed too, and its sign means nothing here.
                    let bits = (encoding & 0xff) as u8;
                    let signed = bits > 8 && encoding >> 24 & 1 != 0;
                    (Kind::Int { bits, signed }, 4)
                }
                2 => (Kind::Pointer, 0),
                3 => {
                    let (of, count) = (word(types, at)?, word(types, at + 8)?);
                    (Kind::Array { of, count }, 12)
                }
                4 => {
                    let mut fields = Vec::new();
                    for n in 0..count {
                        let offset = entry(n, 12, 2)?;
                        if flag && offset >> 24 != 0 {
                            return Err("has fields of single bits".into());
                        }
                        fields.push(Field {
                            name: text(strings, entry(n, 12, 0)?),
                            of: entry(n, 12, 1)?,
                            at_bits: offset & 0xff_ffff,
                        });
                    }
                    let bytes = last;
                    (Kind::Struct { bytes, fields }, 12 * count)
                }
                5 => (Kind::Other, 12 * count),
                6 => {
                    let value = |n| {
                        let value = entry(n, 8, 1)?;
                        let value = match flag {
                            true => i64::from(value as i32),
                            false => i64::from(value),
                        };
                        Ok((text(strings, entry(n, 8, 0)?), value))
                    };
                    let values: Result<_, Wrong> = (0..count).map(value).collect();
                    (Kind::Enum { values: values? }, 8 * count)
                }
                8..=11 | 18 => (Kind::Same(last), 0),
                13 => (Kind::Other, 8 * count),
                14 | 17 => (Kind::Other, 4),
                15 | 19 => (Kind::Other, 12 * count),
                _ => (Kind::Other, 0),
            };
            all.push((text(strings, name), what));
            at += bytes;
        }
        Ok(Types(all))
    }

    fn at(&self, mut number: u32) -> &Kind {
        loop {
            match self.0.get(number as usize) {
                Some((_, Kind::Same(other))) => number = *other,
                Some((_, kind)) => return kind,
                None => return &Kind::Other,
            }
        }
    }

    fn name_of(&self, mut number: u32) -> &str {
        while let Some((_, Kind::Same(other))) = self.0.get(number as usize) {
            number = *other;
        }
        self.0.get(number as usize).map_or("", |(name, _)| name)
    }

    /// The bytes that a type takes, and at what multiple of them it begins.
    fn size(&self, number: u32) -> Result<(u32, u32), Wrong> {
        Ok(match self.at(number) {
            Kind::Int { bits, .. } => (u32::from(*bits) / 8, u32::from(*bits) / 8),
            Kind::Enum { .. } => (4, 4),
            Kind::Array { of, count } => {
                let (bytes, align) = self.size(*of)?;
                (bytes * count, align)
            }
            Kind::Struct { bytes, fields } => {
                let mut most = 1;
                for field in fields {
                    most = most.max(self.size(field.of)?.1);
                }
                (*bytes, most)
            }
            _ => return Err(format!("`{}` is no plain type", self.name_of(number))),
        })
    }

    /// A type in Rust; structures are called by what comes after `prefix`.
    fn rust(&self, number: u32, prefix: &str) -> Result<String, Wrong> {
        Ok(match self.at(number) {
            Kind::Int { bits, signed } => {
                format!("{}{bits}", if *signed { "i" } else { "u" })
            }
            Kind::Enum { .. } => "u32".into(),
            Kind::Array { of, count } => format!("[{}; {count}]", self.rust(*of, prefix)?),
            Kind::Struct { .. } => type_name(self.name_of(number), prefix),
            _ => return Err(format!("`{}` is no plain type", self.name_of(number))),
        })
    }

    /// Structures in Rust, if their names begin with `prefix`, and the values of enumerations as
    /// constants. Padding is made of fields, so that no implicit padding is left.
    pub(crate) fn emit(&self, prefix: &str) -> Result<String, Wrong> {
        let mut out = String::new();
        for (name, kind) in &self.0 {
            match kind {
                Kind::Struct { bytes, fields } if name.starts_with(prefix) => {
                    out += &self.structure((name, prefix), *bytes, fields)?;
                }
                Kind::Enum { values } => {
                    for (name, value) in values {
                        let name = name.strip_prefix(NUMBER).unwrap_or(name);
                        let Some(name) = name.strip_prefix(&prefix.to_uppercase()) else {
                            continue;
                        };
                        let kind = if *value < 0 { "i64" } else { "usize" };
                        let _ = writeln!(out, "pub(crate) const {name}: {kind} = {value};");
                    }
                }
                _ => {}
            }
        }
        Ok(out)
    }

    fn structure(
        &self,
        (name, prefix): (&str, &str),
        bytes: u32,
        fields: &[Field],
    ) -> Result<String, Wrong> {
        let rust_name = type_name(name, prefix);
        let (mut body, mut checks) = (String::new(), String::new());
        let (mut at, mut most) = (0, 1);
        let pad = |body: &mut String, at: u32, to: u32| {
            if to > at {
                let _ = writeln!(body, "    pub(crate) padding_{at}: [u8; {}],", to - at);
            }
        };
        for field in fields {
            let (size, align) = self.size(field.of)?;
            pad(&mut body, at, field.at_bits / 8);
            at = field.at_bits / 8 + size;
            most = most.max(align);
            let rust = self.rust(field.of, prefix)?;
            let name = field_name(&field.name);
            let _ = writeln!(body, "    pub(crate) {name}: {rust},");
            let _ = writeln!(
                checks,
                "const _: () = assert!(std::mem::offset_of!({rust_name}, {name}) == {});",
                field.at_bits / 8
            );
        }
        pad(&mut body, at, bytes);
        if most > 8 || !bytes.is_multiple_of(most) {
            return Err(format!("`{name}` can't be had in Rust"));
        }
        Ok(format!(
            "/// `struct {name}`.\n#[repr(C)]\n#[derive(Debug, Clone, Copy, PartialEq, Eq)]\n\
             pub(crate) struct {rust_name} {{\n{body}}}\n\
             const _: () = assert!(size_of::<{rust_name}>() == {bytes});\n{checks}\
             // SAFETY: whole numbers alone, each where it is in C, and padding is fields.\n\
             unsafe impl Plain for {rust_name} {{}}\n\
             impl Default for {rust_name} {{\n    fn default() -> Self {{\n        \
             Self::zeroed()\n    }}\n}}\n"
        ))
    }
}

/// A field's name, though Rust may have another use for it.
fn field_name(name: &str) -> String {
    const TAKEN: [&str; 8] = ["where", "type", "match", "in", "loop", "mod", "move", "use"];
    match TAKEN.contains(&name) {
        true => format!("r#{name}"),
        false => name.to_string(),
    }
}

/// `frames_slot` as `Slot`.
fn type_name(name: &str, prefix: &str) -> String {
    let rest = name.strip_prefix(prefix).unwrap_or(name);
    let words = rest.split('_').filter(|word| !word.is_empty());
    words.map(|word| word[..1].to_uppercase() + &word[1..]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str, kind: Kind) -> (String, Kind) {
        (name.into(), kind)
    }

    fn field(name: &str, of: u32, at_bits: u32) -> Field {
        Field { name: name.into(), of, at_bits }
    }

    /// Check that a structure is as it is in C: its fields' types by their names of C or
    /// not, holes and its end as fields; and that enumerations are constants.
    #[test]
    fn structures() {
        let bits = |bits, signed| Kind::Int { bits, signed };
        let fields = vec![field("where", 2, 0), field("names", 4, 64), field("sum", 3, 128)];
        let values = vec![("number_X_MOST".into(), 7), ("Y_OTHER".into(), 1)];
        let types = Types(vec![
            named("", Kind::Other),
            named("unsigned char", bits(8, false)),
            named("__u32", Kind::Same(5)),
            named("long", bits(64, true)),
            named("", Kind::Array { of: 1, count: 3 }),
            named("unsigned int", bits(32, false)),
            named("x_big_slot", Kind::Struct { bytes: 32, fields }),
            named("twins", Kind::Enum { values }),
        ]);
        let rust = types.emit("x_").unwrap();
        for line in [
            "pub(crate) struct BigSlot {",
            "    pub(crate) r#where: u32,\n    pub(crate) padding_4: [u8; 4],\n",
            "    pub(crate) names: [u8; 3],\n    pub(crate) padding_11: [u8; 5],\n",
            "    pub(crate) sum: i64,\n    pub(crate) padding_24: [u8; 8],\n}",
            "assert!(size_of::<BigSlot>() == 32);",
            "assert!(std::mem::offset_of!(BigSlot, sum) == 16);",
            "pub(crate) const MOST: usize = 7;",
        ] {
            assert!(rust.contains(line), "{line}:\n{rust}");
        }
        assert!(!rust.contains("OTHER"));
    }

    /// Check that what points to memory has no twin.
    #[test]
    fn pointers() {
        let fields = vec![field("to", 1, 0)];
        let types = Types(vec![
            named("", Kind::Other),
            named("", Kind::Pointer),
            named("x_one", Kind::Struct { bytes: 8, fields }),
        ]);
        assert!(types.emit("x_").unwrap_err().contains("no plain type"));
    }

    /// Check that a file that is not a BPF object is refused as such.
    #[test]
    fn no_object() {
        assert!(Types::read(b"").is_err());
        assert!(Types::read(&[0; 64]).is_err());
    }
}
