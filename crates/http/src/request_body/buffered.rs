//! Collects the body of a keyed request before anything is claimed: hashed as it arrives, on disk if it is large.
//!
//! Memory, disk and files are taken from the [`Budgets`] of the layer before the bytes that fill them are read: by
//! the length that the request declares, or step by step if it declares none. They are given back when the bytes are
//! dropped, however far they were handed on.

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

use super::budget::{Budgets, Share};
use crate::rules::Rules;
use crate::signature::Checking;

/// How long a client may pause within a body, and how long it may take before its rate counts.
pub(crate) const PAUSE: Duration = Duration::from_secs(30);
/// How much memory is taken at a time for a body of unknown length.
pub(super) const MEMORY_STEP: u64 = 64 * 1024;
/// How much disk is taken at a time for a body of unknown length.
pub(super) const DISK_STEP: u64 = 1024 * 1024;

/// A request body that arrived.
#[derive(Debug, Default)]
pub(crate) struct Collected {
    pub(crate) place: Place,
    pub(crate) len: u64,
    pub(crate) digest: [u8; 32],
    /// They go on with the body. Like the head, they are no part of the fingerprint.
    pub(crate) trailers: Option<Box<HeaderMap>>,
}

pub(crate) enum Place {
    Memory(Bytes),
    Disk(Spill),
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Memory(_) => "Memory",
            Self::Disk(_) => "Disk",
        })
    }
}

impl Default for Place {
    fn default() -> Self {
        Self::Memory(Bytes::new())
    }
}

/// A file without a name, which is gone when it is closed, and what it takes of the budgets.
#[derive(Debug)]
pub(crate) struct Spill {
    pub(crate) file: File,
    _bytes: Share,
    _descriptor: Share,
}

/// Bytes, and what they take of the memory.
struct Held {
    bytes: Bytes,
    _memory: Share,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Why a body was not taken. What was read and the rest can still be passed on.
#[derive(Debug)]
pub(crate) enum Refused<B> {
    /// Larger than allowed.
    TooLarge(Collected, B),
    /// A budget is used up.
    NoRoom(Collected, B),
    /// Slower than allowed.
    TooSlow(Collected, B),
    /// It did not arrive whole.
    Broken(BoxError),
    /// The disk did not take it.
    Disk(io::Error),
}

/// Reads a body. Its signature, if it has one, is checked on the way.
pub(crate) async fn collect<B>(
    mut body: B,
    rules: &Rules,
    budgets: &Budgets,
    mut checking: Option<&mut Checking>,
) -> Result<Collected, Refused<B>>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    let (declared, least) = (body.size_hint().exact(), body.size_hint().lower());
    if least > rules.body_max_bytes {
        return Err(Refused::TooLarge(Collected::default(), body));
    }
    let mut gather = Gather::new(rules, budgets);
    if !gather.reserve(declared.unwrap_or(least), 1, 1) {
        return Err(Refused::NoRoom(Collected::default(), body));
    }
    let started = Instant::now();
    loop {
        let allowed =
            PAUSE.saturating_add(Duration::from_secs(gather.len / rules.body_min_rate_bytes.max(1)));
        let left = PAUSE.min(allowed.saturating_sub(started.elapsed()));
        let Ok(next) = lazy_timeout(left, body.frame()).await else {
            return Err(Refused::TooSlow(gather.finish().map_err(Refused::Disk)?, body));
        };
        let Some(frame) = next else { break };
        let frame = frame.map_err(|error| Refused::Broken(error.into()))?;
        let data = match frame.into_data() {
            Ok(data) => data,
            Err(frame) => {
                gather.trailers = frame.into_trailers().ok().filter(|found| !found.is_empty()).map(Box::new);
                continue;
            }
        };
        if let Some(checking) = checking.as_mut() {
            checking.update(&data);
        }
        let len = gather.len + data.len() as u64;
        let has_room = gather.reserve(len, MEMORY_STEP, DISK_STEP);
        gather.push(data).await.map_err(Refused::Disk)?;
        if len > rules.body_max_bytes || !has_room {
            let collected = gather.finish().map_err(Refused::Disk)?;
            return Err(match has_room {
                true => Refused::TooLarge(collected, body),
                false => Refused::NoRoom(collected, body),
            });
        }
    }
    gather.finish().map_err(Refused::Disk)
}

struct Gather {
    /// The most that is held in memory.
    most: u64,
    first: Bytes,
    more: BytesMut,
    file: Option<File>,
    len: u64,
    hash: Sha256,
    trailers: Option<Box<HeaderMap>>,
    memory: Share,
    disk: Share,
    descriptor: Share,
}

impl Gather {
    fn new(rules: &Rules, budgets: &Budgets) -> Self {
        Self {
            most: rules.body_memory_bytes,
            first: Bytes::new(),
            more: BytesMut::new(),
            file: None,
            len: 0,
            hash: Sha256::new(),
            trailers: None,
            memory: budgets.memory.share(),
            disk: budgets.disk.share(),
            descriptor: budgets.files.share(),
        }
    }

    /// Takes room for a body of at least this length; `false` if there is none.
    fn reserve(&mut self, len: u64, memory_step: u64, disk_step: u64) -> bool {
        match len <= self.most {
            true => self.memory.reach(len, memory_step),
            false => self.descriptor.reach(1, 1) && self.disk.reach(len, disk_step),
        }
    }

    async fn push(&mut self, data: Bytes) -> io::Result<()> {
        self.hash.update(&data);
        self.len += data.len() as u64;
        // A file was reserved for a body that is known to be large: it goes there from the beginning.
        if self.descriptor.is_empty() {
            // Most bodies come in one piece, and that piece is then the body.
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
        let held = [std::mem::take(&mut self.first), std::mem::take(&mut self.more).freeze(), data];
        let file = self.file.take();
        let written = spawn_blocking(move || {
            let mut file = match file {
                Some(file) => file,
                None => tempfile::tempfile()?,
            };
            held.iter().try_for_each(|piece| file.write_all(piece))?;
            Ok::<_, io::Error>(file)
        });
        self.file = Some(written.await.map_err(io::Error::other)??);
        self.memory.clear();
        Ok(())
    }

    fn finish(self) -> io::Result<Collected> {
        let place = match self.file {
            Some(mut file) => {
                file.rewind()?;
                Place::Disk(Spill { file, _bytes: self.disk, _descriptor: self.descriptor })
            }
            None => {
                let bytes = if self.more.is_empty() { self.first } else { self.more.freeze() };
                Place::Memory(match bytes.is_empty() {
                    true => bytes,
                    false => Bytes::from_owner(Held { bytes, _memory: self.memory }),
                })
            }
        };
        let digest = self.hash.finalize().into();
        Ok(Collected { place, len: self.len, digest, trailers: self.trailers })
    }
}

/// The beginning of a body, as far as it is read for its content.
pub(crate) struct Beginning {
    pub(crate) bytes: Bytes,
    /// Nothing follows.
    pub(crate) is_whole: bool,
    _memory: Option<Share>,
}

/// Why the beginning of a body was not read.
#[derive(Debug)]
pub(crate) enum Unread {
    NoRoom,
    Disk(io::Error),
}

impl Collected {
    /// Makes the head of a request fit for trailers: framed by chunks, and with the names that HTTP/1.1 sends on.
    pub(crate) fn announce_trailers(&self, head: &mut HeaderMap) {
        let Some(trailers) = &self.trailers else { return };
        head.remove(CONTENT_LENGTH);
        let names: Vec<_> = trailers.keys().map(HeaderName::as_str).collect();
        if let Ok(names) = HeaderValue::try_from(names.join(", ")) {
            head.insert(TRAILER, names);
        }
    }

    /// The body itself, and an empty one in its place.
    pub(crate) fn take(&mut self) -> Self {
        std::mem::take(self)
    }

    /// At most this many bytes from the beginning.
    pub(crate) async fn beginning(&mut self, most: u64, budgets: &Budgets) -> Result<Beginning, Unread> {
        let (len, is_whole) = (self.len.min(most), self.len <= most);
        match &mut self.place {
            Place::Memory(bytes) => {
                let len = usize::try_from(len).unwrap_or(usize::MAX).min(bytes.len());
                Ok(Beginning { bytes: bytes.slice(..len), is_whole, _memory: None })
            }
            Place::Disk(spill) => {
                let mut memory = budgets.memory.share();
                if !memory.reach(len, 1) {
                    return Err(Unread::NoRoom);
                }
                let mut file = spill.file.try_clone().map_err(Unread::Disk)?;
                let read = spawn_blocking(move || {
                    let mut bytes = Vec::with_capacity(usize::try_from(len).unwrap_or_default());
                    (&mut file).take(len).read_to_end(&mut bytes)?;
                    file.rewind()?;
                    Ok(bytes)
                });
                let read = read.await.unwrap_or_else(|error| Err(io::Error::other(error)));
                let bytes = read.map_err(Unread::Disk)?.into();
                Ok(Beginning { bytes, is_whole, _memory: Some(memory) })
            }
        }
    }
}
