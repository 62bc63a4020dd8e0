//! Reading bytes that may be damaged: every step checks what is left.

use bytes::Bytes;
use ichido_core::{Done, Doubt, DoubtReason, Metadata, Outcome, State, Timestamp};

use super::codec::VERSION;

/// Why bytes could not be read.
pub(super) type Flaw = &'static str;

/// Bytes that are left to read.
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn versioned(bytes: &'a [u8]) -> Result<Self, Flaw> {
        match bytes.split_first() {
            Some((&VERSION, rest)) => Ok(Self(rest)),
            Some(_) => Err("it was written by another version, or is damaged"),
            None => Err("it is empty"),
        }
    }

    pub(super) fn take(&mut self, count: usize) -> Result<&'a [u8], Flaw> {
        let (head, rest) = self.0.split_at_checked(count).ok_or("it is cut short")?;
        self.0 = rest;
        Ok(head)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], Flaw> {
        let (head, rest) = self.0.split_first_chunk().ok_or("it is cut short")?;
        self.0 = rest;
        Ok(*head)
    }

    pub(super) fn byte(&mut self) -> Result<u8, Flaw> {
        self.array::<1>().map(|[byte]| byte)
    }

    fn u16(&mut self) -> Result<u16, Flaw> {
        self.array().map(u16::from_be_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, Flaw> {
        self.array().map(u32::from_be_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, Flaw> {
        self.array().map(u64::from_be_bytes)
    }

    pub(super) fn text(&mut self) -> Result<&'a str, Flaw> {
        let length = usize::from(self.u16()?);
        std::str::from_utf8(self.take(length)?).map_err(|_| "a text is not UTF-8")
    }

    pub(super) fn metadata(&mut self) -> Result<Metadata, Flaw> {
        let count = usize::from(self.u16()?);
        if count == 0 {
            return Ok(Metadata::default());
        }
        let pairs = (0..count).map(|_| Ok((self.text()?.to_owned(), self.text()?.to_owned())));
        let pairs = pairs.collect::<Result<Vec<_>, Flaw>>()?;
        Metadata::new(pairs).map_err(|_| "its metadata is outside the limits")
    }

    /// The state of a claim, and the length of its outcome if that lies elsewhere.
    pub(super) fn state(&mut self) -> Result<(State, Option<usize>), Flaw> {
        match self.byte()? {
            0 => Ok((State::Running, None)),
            1 => {
                let since = Timestamp(self.u64()?);
                let reason = match self.byte()? {
                    0 => DoubtReason::LeaseLapsed,
                    1 => DoubtReason::HolderGone,
                    2 => DoubtReason::Declared(self.text()?.to_owned()),
                    _ => return Err("its doubt has an unknown reason"),
                };
                Ok((State::InDoubt(Doubt { since, reason }), None))
            }
            2 => {
                let completed_at = Timestamp(self.u64()?);
                let (outcome, bytes) = match self.byte()? {
                    0 => (Outcome::Kept(Bytes::new()), usize::try_from(self.u32()?).ok()),
                    1 => (Outcome::Tombstone(self.text()?.to_owned()), None),
                    2 => {
                        let length = usize::try_from(self.u32()?).map_err(|_| "it is cut short")?;
                        (Outcome::Kept(Bytes::copy_from_slice(self.take(length)?)), None)
                    }
                    _ => return Err("its outcome is of an unknown kind"),
                };
                Ok((State::Done(Done { outcome, completed_at }), bytes))
            }
            _ => Err("it is in an unknown state"),
        }
    }

    pub(super) fn end(&self) -> Result<(), Flaw> {
        if self.0.is_empty() { Ok(()) } else { Err("bytes follow its end") }
    }
}
