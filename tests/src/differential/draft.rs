//! A draft: a request before it is bytes. Mutations change a draft, and a draft becomes a line of a
//! script.
//!
//! `verbgate-guest replay` says what a line means. The addresses are those of its memory, so that
//! whole requests, pointers included, are known before anything runs.

use std::fmt::Write as _;

use verbgate_abi::encode::attr_bytes;
use verbgate_abi::encode::hdr_bytes;
use verbgate_abi::wire::ATTR_LEN;
use verbgate_abi::wire::Attr;
use verbgate_abi::wire::HDR_LEN;
use verbgate_abi::wire::INLINE_LEN;
use verbgate_abi::wire::IoctlHdr;

/// Where requests are, with what they point to.
pub const IMAGE: u64 = 0x1000_0000_0000;
/// Where outputs go.
pub const OUT: u64 = IMAGE + 0x1_0000;
/// Memory to register.
pub const MEM: u64 = IMAGE + 0x2_0000;
/// Memory that can only be read.
pub const READ_ONLY: u64 = IMAGE + 0x3_0000;
/// How long each of these is; what follows is not mapped.
pub const REGION: u64 = 0x4000;
/// An address that nobody maps.
pub const NOWHERE: u64 = IMAGE + 0x8000;

/// A number that only the run knows: a handle or a descriptor that an earlier request made.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SlotId(pub usize);

/// A slot's number belongs at this place of the bytes.
#[derive(Clone, Copy, Debug)]
pub struct Put {
    /// Bytes from the start.
    pub offset: usize,
    /// Whose number.
    pub slot: SlotId,
    /// How many bytes of it.
    pub width: usize,
}

/// Bytes, and the numbers in them that only the run knows.
#[derive(Clone, Debug, Default)]
pub struct Bytes {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// What is put over them.
    pub puts: Vec<Put>,
}

impl Bytes {
    /// Writes over them as far as they reach.
    pub fn set(&mut self, offset: usize, value: &[u8]) {
        for (to, from) in self.bytes.iter_mut().skip(offset).zip(value) {
            *to = *from;
        }
        let end = offset + value.len();
        self.puts.retain(|put| put.offset >= end || put.offset + put.width <= offset);
    }

    /// Cuts them off, or makes them longer with `fill`.
    pub fn resize(&mut self, len: usize, fill: u8) {
        self.bytes.resize(len, fill);
        self.puts.retain(|put| put.offset + put.width <= len);
    }
}

/// An attribute's value.
#[derive(Clone, Debug)]
pub enum Value {
    /// As it stands: a constant, an address.
    Word(u64),
    /// A handle or a descriptor.
    Slot(SlotId),
    /// An input: inline up to 8 bytes, else behind a pointer.
    Input(Bytes),
}

/// An attribute.
#[derive(Clone, Debug)]
pub struct Part {
    /// The kernel's name, for people and for the list of values.
    pub name: &'static str,
    /// Its head; `data` comes from the value.
    pub attr: Attr,
    /// Its value.
    pub value: Value,
}

/// Who takes the number of what a request makes.
#[derive(Clone, Copy, Debug)]
pub enum Made {
    /// It is in the `data` of the attribute with this id.
    Attr(u16, SlotId),
    /// It is at this address.
    At(u64, SlotId),
}

/// How a request is made.
#[derive(Clone, Debug)]
pub enum Form {
    /// `ioctl`.
    Ioctl(IoctlHdr, Vec<Part>),
    /// `write(2)` of this.
    Write(Bytes),
}

/// The descriptor that a request is made on.
#[derive(Clone, Copy, Debug)]
pub enum On {
    /// A ucontext of the script.
    Ucontext(usize),
    /// A descriptor that an earlier request made.
    Slot(SlotId),
    /// None.
    Nothing,
}

/// A field of a legacy command.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// The kernel's name.
    pub name: &'static str,
    /// Bytes from the start of the command's structure.
    pub offset: usize,
    /// Bytes.
    pub size: usize,
}

/// A request.
#[derive(Clone, Debug)]
pub struct Draft {
    /// What it is, and what was done to it.
    pub name: String,
    /// Where it is made.
    pub on: On,
    /// Header and attributes, or bytes.
    pub form: Form,
    /// What it makes.
    pub made: Vec<Made>,
    /// The fields of a legacy command.
    pub fields: Vec<Field>,
    /// Where its structure starts in what `write` is given.
    pub core_at: usize,
    /// The header's lengths are not made right.
    pub raw_lengths: bool,
    /// Bits of the request that are flipped when it is bytes.
    pub flips: Vec<usize>,
    /// How many of its bytes lie before the end of the mapped memory, if not all.
    pub straddle: Option<usize>,
    /// Added to the address that the call is given.
    pub shift: u64,
    /// The call is given this address.
    pub arg: Option<u64>,
    /// Added to the length that `write` is given.
    pub longer: i64,
}

impl Draft {
    /// A request on the script's first ucontext.
    pub fn new(name: String, form: Form) -> Self {
        Self {
            name,
            on: On::Ucontext(0),
            form,
            made: Vec::new(),
            fields: Vec::new(),
            core_at: 0,
            raw_lengths: false,
            flips: Vec::new(),
            straddle: None,
            shift: 0,
            arg: None,
            longer: 0,
        }
    }

    /// The line of a script.
    pub fn line(&self) -> String {
        let mut image = match &self.form {
            Form::Ioctl(..) => Bytes::default(),
            Form::Write(bytes) => bytes.clone(),
        };
        let mut addr = IMAGE + self.shift;
        let mut takes = Vec::new();
        if let Form::Ioctl(hdr, parts) = &self.form {
            let array = HDR_LEN + ATTR_LEN * parts.len();
            let inputs = parts.iter().map(|part| match &part.value {
                Value::Input(bytes) if bytes.bytes.len() > INLINE_LEN => {
                    bytes.bytes.len().next_multiple_of(8)
                }
                _ => 0,
            });
            let total = array + inputs.sum::<usize>();
            self.place(&mut addr, total, array);
            image = assemble(hdr, parts, addr, self.raw_lengths);
            for made in &self.made {
                match made {
                    Made::At(at, slot) => takes.push((*at, *slot)),
                    Made::Attr(id, slot) => {
                        let index = parts.iter().position(|part| part.attr.attr_id == *id);
                        let at = index.map(|index| HDR_LEN + ATTR_LEN * index + 8);
                        takes.extend(at.map(|at| (addr + wide(at), *slot)));
                    }
                }
            }
        } else {
            self.place(&mut addr, image.bytes.len(), image.bytes.len());
            takes.extend(self.made.iter().filter_map(|made| match made {
                Made::At(at, slot) => Some((*at, *slot)),
                Made::Attr(..) => None,
            }));
        }
        for bit in &self.flips {
            if let Some(byte) = image.bytes.get_mut(bit / 8) {
                *byte ^= 1 << (bit % 8);
            }
        }
        self.text(&image, addr, &takes)
    }

    /// Moves a request to the end of its memory, if only a part of it shall be there.
    fn place(&self, addr: &mut u64, total: usize, array: usize) {
        if let Some(before) = self.straddle {
            // The payloads are behind the array, and so out of reach as well, unless all of the
            // array is there.
            *addr = IMAGE + REGION - wide(before.min(total.max(array)));
        }
    }

    fn text(&self, image: &Bytes, addr: u64, takes: &[(u64, SlotId)]) -> String {
        let mut line = match self.form {
            Form::Ioctl(..) => "ioctl".to_owned(),
            Form::Write(_) => {
                let len = i64::try_from(image.bytes.len()).unwrap_or_default() + self.longer;
                format!("write:{:x}", len.max(0))
            }
        };
        let on = match self.on {
            On::Ucontext(index) => index.to_string(),
            On::Slot(SlotId(slot)) => format!("s{slot}"),
            On::Nothing => "-1".to_owned(),
        };
        let name = self.name.replace(' ', "+");
        let arg = self.arg.unwrap_or(addr);
        // Writing to a string cannot fail.
        let _ = write!(line, " {name} {on} {addr:x} {arg:x} ");
        if image.bytes.is_empty() {
            line.push('-');
        }
        for byte in &image.bytes {
            let _ = write!(line, "{byte:02x}");
        }
        for Put { offset, slot, width } in &image.puts {
            let _ = write!(line, " <{}:{:x}:{width}", slot.0, addr + wide(*offset));
        }
        for (at, slot) in takes {
            let _ = write!(line, " >{}:{at:x}", slot.0);
        }
        line
    }
}

fn assemble(hdr: &IoctlHdr, parts: &[Part], addr: u64, raw_lengths: bool) -> Bytes {
    let mut image = Bytes::default();
    let sized = verbgate_abi::encode::sized(hdr, parts.len());
    let hdr = if raw_lengths { hdr } else { &sized };
    image.bytes.extend_from_slice(&hdr_bytes(hdr));
    let mut payload = Bytes::default();
    let behind = HDR_LEN + ATTR_LEN * parts.len();
    for (index, part) in parts.iter().enumerate() {
        let at = HDR_LEN + ATTR_LEN * index + 8;
        let data = match &part.value {
            Value::Word(word) => *word,
            Value::Slot(slot) => {
                image.puts.push(Put { offset: at, slot: *slot, width: 8 });
                0
            }
            Value::Input(input) if input.bytes.len() <= INLINE_LEN => {
                let inline = input.puts.iter().map(|put| Put { offset: at + put.offset, ..*put });
                image.puts.extend(inline);
                let mut word = [0; INLINE_LEN];
                word.iter_mut().zip(&input.bytes).for_each(|(to, from)| *to = *from);
                u64::from_ne_bytes(word)
            }
            Value::Input(input) => {
                let start = behind + payload.bytes.len();
                payload.bytes.extend_from_slice(&input.bytes);
                payload.bytes.resize(payload.bytes.len().next_multiple_of(8), 0);
                let puts = input.puts.iter().map(|put| Put { offset: start + put.offset, ..*put });
                payload.puts.extend(puts);
                addr + wide(start)
            }
        };
        image.bytes.extend_from_slice(&attr_bytes(&Attr { data, ..part.attr }));
    }
    image.bytes.extend_from_slice(&payload.bytes);
    image.puts.extend(payload.puts);
    image
}

fn wide(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}
