//! Buffers the body of a keyed request before it is claimed. The body is hashed as it arrives; a large one goes to disk.
//!
//! Memory, disk space and files are reserved from the [`Budgets`] of the layer before the bytes are read: all at once if
//! the request declares its length, otherwise step by step. They are returned when the bytes are dropped, wherever those
//! have been passed on to.

use std::fmt;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http::header::{CONTENT_LENGTH, HeaderName, HeaderValue, TRAILER};
use http_body::Body;
use http_body_util::BodyExt;
use ichido_ledger::{BoxError, lazy_timeout};
use sha2::{Digest, Sha256};
use tokio::task::spawn_blocking;
use tokio::time::Instant;

use super::budget::{Budgets, Reservation};
use crate::rules::Rules;
use crate::signature::Verification;

/// How long a client may pause within a body, and how long it has before its rate counts.
pub(super) const PAUSE_MAX: Duration = Duration::from_secs(30);
/// The step in bytes by which a body of unknown length reserves memory.
pub(super) const MEMORY_STEP: u64 = 64 * 1024;
/// The step in bytes by which a body of unknown length reserves disk space.
pub(super) const DISK_STEP: u64 = 1024 * 1024;

/// A request body that has arrived, or the part of it that has been read.
#[derive(Debug, Default)]
pub(crate) struct BufferedBody {
    pub(crate) storage: Storage,
    pub(crate) len: u64,
    pub(crate) digest: [u8; 32],
    /// Passed on with the body. Like the headers, they are not part of the fingerprint.
    pub(crate) trailers: Option<Box<HeaderMap>>,
}

pub(crate) enum Storage {
    Memory(Bytes),
    Disk(SpillFile),
}

impl fmt::Debug for Storage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Memory(_) => "Memory",
            Self::Disk(_) => "Disk",
        })
    }
}

impl Default for Storage {
    fn default() -> Self {
        Self::Memory(Bytes::new())
    }
}

/// An unnamed temporary file, which disappears when it is closed, and what it uses of the budgets.
#[derive(Debug)]
pub(crate) struct SpillFile {
    pub(crate) file: File,
    _bytes: Reservation,
    _descriptor: Reservation,
}

/// Bytes together with the memory budget that they use.
struct ReservedBytes {
    bytes: Bytes,
    _memory: Reservation,
}

impl AsRef<[u8]> for ReservedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Why a body was not buffered. The part that was read can be rejoined with the rest and passed on.
#[derive(Debug)]
pub(crate) enum BufferError<B> {
    /// The body is larger than `body_max_bytes`.
    TooLarge(BufferedBody, B),
    /// A budget is used up.
    OverBudget(BufferedBody, B),
    /// The body arrives more slowly than `body_min_rate_bytes`.
    TooSlow(BufferedBody, B),
    /// The body ended early.
    Broken(BoxError),
    /// The spill file could not be written.
    Disk(io::Error),
}

/// Reads a body. A signature is verified along the way.
pub(crate) async fn buffer<B>(
    mut body: B,
    rules: &Rules,
    budgets: &Budgets,
    mut verification: Option<&mut Verification>,
) -> Result<BufferedBody, BufferError<B>>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    let (declared_len, min_len) = (body.size_hint().exact(), body.size_hint().lower());
    if min_len > rules.body_max_bytes {
        return Err(BufferError::TooLarge(BufferedBody::default(), body));
    }
    let mut buffering = Buffering::new(rules, budgets);
    if !buffering.reserve(declared_len.unwrap_or(min_len), 1, 1) {
        return Err(BufferError::OverBudget(BufferedBody::default(), body));
    }
    let started = Instant::now();
    loop {
        let allowed =
            PAUSE_MAX.saturating_add(Duration::from_secs(buffering.len / rules.body_min_rate_bytes.max(1)));
        let left = PAUSE_MAX.min(allowed.saturating_sub(started.elapsed()));
        let Ok(next) = lazy_timeout(left, body.frame()).await else {
            return Err(BufferError::TooSlow(buffering.finish().map_err(BufferError::Disk)?, body));
        };
        let Some(frame) = next else { break };
        let frame = frame.map_err(|error| BufferError::Broken(error.into()))?;
        let data = match frame.into_data() {
            Ok(data) => data,
            Err(frame) => {
                buffering.trailers =
                    frame.into_trailers().ok().filter(|found| !found.is_empty()).map(Box::new);
                continue;
            }
        };
        if let Some(verification) = verification.as_mut() {
            verification.update(&data);
        }
        let len = buffering.len + data.len() as u64;
        let is_reserved = buffering.reserve(len, MEMORY_STEP, DISK_STEP);
        buffering.push(data).await.map_err(BufferError::Disk)?;
        if len > rules.body_max_bytes || !is_reserved {
            let read = buffering.finish().map_err(BufferError::Disk)?;
            return Err(match is_reserved {
                true => BufferError::TooLarge(read, body),
                false => BufferError::OverBudget(read, body),
            });
        }
    }
    buffering.finish().map_err(BufferError::Disk)
}

struct Buffering {
    /// Larger bodies go to disk.
    memory_max: u64,
    /// The body, as long as it is a single chunk.
    first: Bytes,
    more: BytesMut,
    file: Option<File>,
    len: u64,
    hash: Sha256,
    trailers: Option<Box<HeaderMap>>,
    memory: Reservation,
    disk: Reservation,
    descriptor: Reservation,
}

impl Buffering {
    fn new(rules: &Rules, budgets: &Budgets) -> Self {
        Self {
            memory_max: rules.body_memory_bytes,
            first: Bytes::new(),
            more: BytesMut::new(),
            file: None,
            len: 0,
            hash: Sha256::new(),
            trailers: None,
            memory: budgets.memory.reservation(),
            disk: budgets.disk.reservation(),
            descriptor: budgets.files.reservation(),
        }
    }

    /// Reserves what a body of at least this length needs. Returns `false` if the budget is used up.
    fn reserve(&mut self, len: u64, memory_step: u64, disk_step: u64) -> bool {
        match len <= self.memory_max {
            true => self.memory.grow_to(len, memory_step),
            false => self.descriptor.grow_to(1, 1) && self.disk.grow_to(len, disk_step),
        }
    }

    async fn push(&mut self, data: Bytes) -> io::Result<()> {
        self.hash.update(&data);
        self.len += data.len() as u64;
        // A body that is known to be large has reserved a file, and goes there from the start.
        if self.descriptor.is_empty() {
            // Most bodies arrive in one chunk, which is used without copying it.
            if self.first.is_empty() && self.more.is_empty() {
                self.first = data;
            } else {
                if self.more.is_empty() {
                    self.more.extend_from_slice(&std::mem::take(&mut self.first));
                }
                self.more.extend_from_slice(&data);
            }
            return Ok(());
        }
        let chunks = [std::mem::take(&mut self.first), std::mem::take(&mut self.more).freeze(), data];
        let file = self.file.take();
        let written = spawn_blocking(move || {
            let mut file = match file {
                Some(file) => file,
                None => tempfile::tempfile()?,
            };
            chunks.iter().try_for_each(|chunk| file.write_all(chunk))?;
            Ok::<_, io::Error>(file)
        });
        self.file = Some(written.await.map_err(io::Error::other)??);
        self.memory.release();
        Ok(())
    }

    fn finish(self) -> io::Result<BufferedBody> {
        let storage = match self.file {
            Some(mut file) => {
                file.rewind()?;
                Storage::Disk(SpillFile { file, _bytes: self.disk, _descriptor: self.descriptor })
            }
            None => {
                let bytes = if self.more.is_empty() { self.first } else { self.more.freeze() };
                Storage::Memory(match bytes.is_empty() {
                    true => bytes,
                    false => Bytes::from_owner(ReservedBytes { bytes, _memory: self.memory }),
                })
            }
        };
        let digest = self.hash.finalize().into();
        Ok(BufferedBody { storage, len: self.len, digest, trailers: self.trailers })
    }
}

/// The first bytes of a body, which are parsed.
pub(crate) struct Prefix {
    pub(crate) bytes: Bytes,
    /// Whether this is the whole body.
    pub(crate) is_whole: bool,
    _memory: Option<Reservation>,
}

/// Why the prefix of a body could not be read.
#[derive(Debug)]
pub(crate) enum PrefixError {
    OverBudget,
    Disk(io::Error),
}

impl BufferedBody {
    /// Prepares the request headers for trailers: chunked encoding, and the trailer names, without which HTTP/1.1 drops
    /// the trailers.
    pub(crate) fn announce_trailers(&self, headers: &mut HeaderMap) {
        let Some(trailers) = &self.trailers else { return };
        headers.remove(CONTENT_LENGTH);
        let names: Vec<_> = trailers.keys().map(HeaderName::as_str).collect();
        if let Ok(names) = HeaderValue::try_from(names.join(", ")) {
            headers.insert(TRAILER, names);
        }
    }

    /// Takes the body and leaves an empty one.
    pub(crate) fn take(&mut self) -> Self {
        std::mem::take(self)
    }

    /// Reads at most `max` bytes from the start of the body.
    pub(crate) async fn prefix(&mut self, max: u64, budgets: &Budgets) -> Result<Prefix, PrefixError> {
        let (len, is_whole) = (self.len.min(max), self.len <= max);
        match &mut self.storage {
            Storage::Memory(bytes) => {
                let len = usize::try_from(len).unwrap_or(usize::MAX).min(bytes.len());
                Ok(Prefix { bytes: bytes.slice(..len), is_whole, _memory: None })
            }
            Storage::Disk(spill) => {
                let mut memory = budgets.memory.reservation();
                if !memory.grow_to(len, 1) {
                    return Err(PrefixError::OverBudget);
                }
                let mut file = spill.file.try_clone().map_err(PrefixError::Disk)?;
                let read = spawn_blocking(move || {
                    let mut bytes = Vec::with_capacity(usize::try_from(len).unwrap_or_default());
                    (&mut file).take(len).read_to_end(&mut bytes)?;
                    file.rewind()?;
                    Ok(bytes)
                });
                let read = read.await.unwrap_or_else(|error| Err(io::Error::other(error)));
                let bytes = read.map_err(PrefixError::Disk)?.into();
                Ok(Prefix { bytes, is_whole, _memory: Some(memory) })
            }
        }
    }
}
