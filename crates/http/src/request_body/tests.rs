use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody};

use std::time::Duration;

use tokio::time::Instant;

use super::buffered::{DISK_STEP, MEMORY_STEP, PAUSE};
use super::*;
use crate::rules::Rules;

fn pieces(count: usize, size: usize) -> impl Body<Data = Bytes, Error = BoxError> + Unpin {
    let pieces =
        (0..count).map(move |at| Ok(Frame::data(Bytes::from(vec![u8::try_from(at % 251).unwrap(); size]))));
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
    let mut collected = collect(Full::new(Bytes::from(text.clone())), &rules, &budgets, None).await.unwrap();
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
    assert_eq!(RequestBody::rejoined(read, rest).collect().await.unwrap().to_bytes().len(), 70 * 16 * 1024);
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

#[tokio::test]
async fn a_body_that_still_comes_tells_how_it_is_taken() {
    let pieces = ["a", "b"].map(|piece| Ok::<_, BoxError>(Frame::data(Bytes::from(piece))));
    let mut body = RequestBody::passed(StreamBody::new(futures_util::stream::iter(pieces)));
    let progress = body.progress().unwrap();
    assert!(!progress.moved());
    body.frame().await.unwrap().unwrap();
    assert!(progress.moved() && !progress.moved());
    let here = Collected::default();
    assert!(RequestBody::<Full<Bytes>>::collected(here).progress().is_none());
}
