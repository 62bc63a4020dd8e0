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
use http_body::Body;
use http_body_util::BodyExt;
use ichido_ledger::{BoxError, within};
use sha2::{Digest, Sha256};
use tokio::task::spawn_blocking;
use tokio::time::Instant;

use crate::budget::{Budgets, Share};
use crate::rules::Rules;
use crate::signature::Checking;

/// How long a client may pause within a body, and how long it may take before its rate counts.
pub(crate) const PAUSE: Duration = Duration::from_secs(30);
/// How much memory is taken at a time for a body of unknown length.
const MEMORY_STEP: u64 = 64 * 1024;
/// How much disk is taken at a time for a body of unknown length.
const DISK_STEP: u64 = 1024 * 1024;

/// A request body that arrived.
#[derive(Debug, Default)]
pub(crate) struct Collected {
    pub(crate) place: Place,
    pub(crate) len: u64,
    pub(crate) digest: [u8; 32],
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
        let Ok(next) = within(left, body.frame()).await else {
            return Err(Refused::TooSlow(gather.finish().map_err(Refused::Disk)?, body));
        };
        let Some(frame) = next else { break };
        let frame = frame.map_err(|error| Refused::Broken(error.into()))?;
        // Trailers of a request are not kept: nothing that they could say is part of the effect's name.
        let Ok(data) = frame.into_data() else { continue };
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
        Ok(Collected { place, len: self.len, digest: self.hash.finalize().into() })
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

#[cfg(test)]
mod tests {
    use http_body::Frame;
    use http_body_util::{Full, StreamBody};

    use super::*;
    use crate::request::RequestBody;

    fn pieces(count: usize, size: usize) -> impl Body<Data = Bytes, Error = BoxError> + Unpin {
        let pieces = (0..count)
            .map(move |at| Ok(Frame::data(Bytes::from(vec![u8::try_from(at % 251).unwrap(); size]))));
        StreamBody::new(futures_util::stream::iter(pieces))
    }

    fn rules(memory: u64, most: u64) -> Rules {
        Rules { body_memory_bytes: memory, body_max_bytes: most, ..Rules::default() }
    }

    async fn read<B>(body: B, rules: Rules) -> Result<Collected, Refused<B>>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: Into<BoxError>,
    {
        collect(body, &rules, &Budgets::new(&rules), None).await
    }

    async fn whole(collected: Collected) -> Bytes {
        let body = RequestBody::<Full<Bytes>>::collected(collected);
        assert!(body.size_hint().exact().is_some());
        body.collect().await.unwrap().to_bytes()
    }

    #[tokio::test]
    async fn a_spilled_body_is_the_same_body() {
        let small = read(pieces(40, 1000), rules(1 << 20, 1 << 30)).await.ok().unwrap();
        let spilled = read(pieces(40, 1000), rules(5_500, 1 << 30)).await.ok().unwrap();
        assert!(matches!(small.place, Place::Memory(_)) && matches!(spilled.place, Place::Disk(_)));
        assert_eq!((small.digest, small.len), (spilled.digest, spilled.len));
        assert_eq!(whole(small).await, whole(spilled).await);
        let large = read(pieces(3, 200_000), rules(1000, 1 << 30)).await.ok().unwrap();
        assert_eq!(whole(large).await.len(), 600_000);
    }

    #[tokio::test]
    async fn one_piece_is_not_copied() {
        let piece = Bytes::from_static(b"{\"a\":1}");
        let collected = read(Full::new(piece.clone()), rules(100, 100)).await.unwrap();
        let Place::Memory(kept) = &collected.place else { panic!("in memory") };
        assert_eq!(kept.as_ptr(), piece.as_ptr());
    }

    #[tokio::test]
    async fn the_beginning_is_read_from_disk_and_the_body_is_whole_afterwards() {
        let text = "0123456789".repeat(500);
        let rules = rules(10, 10_000);
        let budgets = Budgets::new(&rules);
        let mut collected =
            collect(Full::new(Bytes::from(text.clone())), &rules, &budgets, None).await.unwrap();
        for (most, is_whole) in [(7, false), (4_999, false), (5_000, true), (9_000, true)] {
            let beginning = collected.beginning(most, &budgets).await.unwrap();
            let expected = &text[..usize::try_from(most).unwrap().min(5000)];
            assert_eq!((&beginning.bytes[..], beginning.is_whole), (expected.as_bytes(), is_whole));
        }
        assert_eq!(whole(collected).await, text);
    }

    #[tokio::test]
    async fn too_large_is_refused_before_it_is_read_or_as_soon_as_it_shows() {
        let known = read(Full::new(Bytes::from(vec![0; 101])), rules(10, 100)).await;
        assert!(matches!(known, Err(Refused::TooLarge(Collected { len: 0, .. }, _))));
        let Err(Refused::TooLarge(read, rest)) = read(pieces(20, 10), rules(30, 100)).await else {
            panic!("too large")
        };
        assert_eq!(read.len, 110);
        let rejoined = RequestBody::rejoined(read, rest).collect().await.unwrap().to_bytes();
        assert_eq!(rejoined, pieces(20, 10).collect().await.unwrap().to_bytes());
    }

    #[tokio::test]
    async fn a_cut_body_is_no_body() {
        let cut = [Ok(Frame::data(Bytes::from_static(b"abc"))), Err(BoxError::from("cut"))];
        let body = StreamBody::new(futures_util::stream::iter(cut));
        assert!(matches!(read(body, rules(100, 100)).await, Err(Refused::Broken(_))));
    }

    /// One byte after each pause.
    fn dripping(pause: Duration, count: usize) -> impl Body<Data = Bytes, Error = BoxError> + Unpin {
        let pieces = futures_util::stream::unfold(0, move |at| async move {
            tokio::time::sleep(pause).await;
            (at < count).then(|| (Ok::<_, BoxError>(Frame::data(Bytes::from_static(b"x"))), at + 1))
        });
        StreamBody::new(Box::pin(pieces))
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_may_pause_but_not_drip() {
        let collected = read(dripping(PAUSE / 4, 3), rules(100, 100)).await.ok().unwrap();
        assert_eq!(whole(collected).await, "xxx");
        for (pause, count) in [(PAUSE * 2, 1), (Duration::from_secs(25), 1000)] {
            let started = Instant::now();
            let Err(Refused::TooSlow(read, rest)) = read(dripping(pause, count), rules(0, 1000)).await else {
                panic!("too slow")
            };
            assert!(started.elapsed() < PAUSE * 2, "{:?}", started.elapsed());
            // What only passes loses nothing of it.
            assert_eq!(RequestBody::rejoined(read, rest).collect().await.unwrap().to_bytes().len(), count);
        }
        // A slow network that keeps the rate is served for as long as it takes.
        let slow = || dripping(Duration::from_secs(2), 300);
        assert!(read(slow(), Rules { body_min_rate_bytes: 1, ..rules(0, 1000) }).await.is_err());
        let chunks = futures_util::stream::unfold(0, |at| async move {
            tokio::time::sleep(Duration::from_secs(10)).await;
            let chunk = Frame::data(Bytes::from(vec![b'x'; 10_240]));
            (at < 60).then(|| (Ok::<_, BoxError>(chunk), at + 1))
        });
        let collected = read(StreamBody::new(Box::pin(chunks)), rules(0, 1 << 30)).await.ok().unwrap();
        assert_eq!(collected.len, 614_400);
    }

    #[tokio::test]
    async fn a_body_takes_its_room_before_it_is_read_and_gives_it_back_with_its_last_byte() {
        let rules = Rules { body_memory_total_bytes: 100, body_disk_total_bytes: 1000, ..rules(60, 900) };
        let budgets = Budgets::new(&rules);
        let get = |len: usize| collect(Full::new(Bytes::from(vec![b'x'; len])), &rules, &budgets, None);
        let left = || (budgets.memory.left(), budgets.disk.left());
        let small = get(60).await.unwrap();
        assert_eq!(left(), (40, 1000));
        assert!(matches!(get(41).await, Err(Refused::NoRoom(Collected { len: 0, .. }, _))));
        let large = get(900).await.unwrap();
        assert_eq!(left(), (40, 100), "what is known to be large is never held in memory");
        assert!(matches!(get(101).await, Err(Refused::NoRoom(Collected { len: 0, .. }, _))));
        // The bytes are still in someone's hands after the body was read to its end.
        let bytes = RequestBody::<Full<Bytes>>::collected(small).frame().await.unwrap().unwrap();
        assert_eq!(left(), (40, 100));
        drop((bytes, large));
        assert_eq!(left(), (100, 1000));
    }

    #[tokio::test]
    async fn a_body_of_unknown_length_takes_room_as_it_grows() {
        let rules = Rules {
            body_memory_total_bytes: 4 * MEMORY_STEP,
            body_disk_total_bytes: 2 * DISK_STEP,
            ..rules(2 * MEMORY_STEP, 64 * DISK_STEP)
        };
        let budgets = Budgets::new(&rules);
        let left = || (budgets.memory.left(), budgets.disk.left());
        let get = |count| collect(pieces(count, 16 * 1024), &rules, &budgets, None);
        let small = get(5).await.ok().unwrap();
        assert_eq!(left(), (2 * MEMORY_STEP, 2 * DISK_STEP));
        let large = get(64).await.ok().unwrap();
        assert_eq!(left(), (2 * MEMORY_STEP, DISK_STEP), "nothing of it is left in memory");
        let Err(Refused::NoRoom(read, rest)) = get(70).await else { panic!("no room") };
        assert_eq!(
            RequestBody::rejoined(read, rest).collect().await.unwrap().to_bytes().len(),
            70 * 16 * 1024
        );
        drop((small, large));
        assert_eq!(left(), (4 * MEMORY_STEP, 2 * DISK_STEP));
    }

    #[tokio::test]
    async fn spilled_bodies_leave_descriptors_to_others() {
        let rules = Rules { body_files_max: 1, ..rules(10, 100) };
        let budgets = Budgets::new(&rules);
        let get = |count| collect(pieces(count, 10), &rules, &budgets, None);
        let one = get(3).await.ok().unwrap();
        assert!(matches!(get(3).await, Err(Refused::NoRoom(..))));
        assert!(get(1).await.is_ok());
        drop(one);
        assert!(get(3).await.is_ok());
    }
}
