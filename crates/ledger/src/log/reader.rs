//! Reads bytes that may be damaged. Every step checks what is left.

use ichido_core::Metadata;

/// The version of everything that starts with one.
pub(crate) const VERSION: u8 = 1;

/// Why bytes could not be read.
pub(crate) type Flaw = &'static str;

/// Bytes that are left to read.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn versioned(bytes: &'a [u8]) -> Result<Self, Flaw> {
        match bytes.split_first() {
            Some((&VERSION, rest)) => Ok(Self(rest)),
            Some(_) => Err("it was written by another version, or is damaged"),
            None => Err("it is empty"),
        }
    }

    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8], Flaw> {
        let (head, rest) = self.0.split_at_checked(count).ok_or("it is cut short")?;
        self.0 = rest;
        Ok(head)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Flaw> {
        let (head, rest) = self.0.split_first_chunk().ok_or("it is cut short")?;
        self.0 = rest;
        Ok(*head)
    }

    pub(crate) fn byte(&mut self) -> Result<u8, Flaw> {
        self.array::<1>().map(|[byte]| byte)
    }

    /// A number of at most 64 bits, 7 bits in each byte.
    pub(crate) fn number(&mut self) -> Result<u64, Flaw> {
        let mut number: u64 = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                break;
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err("a number is too large")
    }

    /// A number of at most 32 bits.
    pub(crate) fn small_number(&mut self) -> Result<u32, Flaw> {
        u32::try_from(self.number()?).map_err(|_| "a number is too large")
    }

    pub(crate) fn length(&mut self) -> Result<usize, Flaw> {
        usize::try_from(self.number()?).map_err(|_| "a length is too large")
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Flaw> {
        self.array().map(u32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Flaw> {
        self.array().map(u64::from_be_bytes)
    }

    pub(crate) fn text(&mut self) -> Result<&'a str, Flaw> {
        let length = self.length()?;
        std::str::from_utf8(self.take(length)?).map_err(|_| "a text is not UTF-8")
    }

    pub(crate) fn metadata(&mut self) -> Result<Metadata, Flaw> {
        let count = self.length()?;
        if count == 0 {
            return Ok(Metadata::default());
        }
        let pairs = (0..count).map(|_| Ok((self.text()?.to_owned(), self.text()?.to_owned())));
        let pairs = pairs.collect::<Result<Vec<_>, Flaw>>()?;
        Metadata::new(pairs).map_err(|_| "its metadata is outside the limits")
    }

    pub(crate) fn end(&self) -> Result<(), Flaw> {
        if self.0.is_empty() { Ok(()) } else { Err("bytes follow its end") }
    }
}
