use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody};

use std::time::Duration;

use tokio::time::Instant;

use super::buffered::{DISK_STEP, MEMORY_STEP, PAUSE_MAX};
use super::*;
use crate::rules::Rules;

fn chunks(count: usize, size: usize) -> impl Body<Data = Bytes, Error = BoxError> + Unpin {
    let chunks =
        (0..count).map(move |at| Ok(Frame::data(Bytes::from(vec![u8::try_from(at % 251).unwrap(); size]))));
    StreamBody::new(futures_util::stream::iter(chunks))
}

fn rules(memory: u64, max: u64) -> Rules {
    Rules { body_memory_bytes: memory, body_max_bytes: max, ..Rules::default() }
}

async fn read<B>(body: B, rules: Rules) -> Result<BufferedBody, BufferError<B>>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    buffer(body, &rules, &Budgets::new(&rules), None).await
}

async fn whole(body: BufferedBody) -> Bytes {
    let body = RequestBody::<Full<Bytes>>::buffered(body);
    assert!(body.size_hint().exact().is_some());
    body.collect().await.unwrap().to_bytes()
}

#[tokio::test]
async fn a_spilled_body_is_unchanged() {
    let small = read(chunks(40, 1000), rules(1 << 20, 1 << 30)).await.ok().unwrap();
    let spilled = read(chunks(40, 1000), rules(5_500, 1 << 30)).await.ok().unwrap();
    assert!(matches!(small.storage, Storage::Memory(_)) && matches!(spilled.storage, Storage::Disk(_)));
    assert_eq!((small.digest, small.len), (spilled.digest, spilled.len));
    assert_eq!(whole(small).await, whole(spilled).await);
    let large = read(chunks(3, 200_000), rules(1000, 1 << 30)).await.ok().unwrap();
    assert_eq!(whole(large).await.len(), 600_000);
}

#[tokio::test]
async fn a_body_in_one_chunk_is_not_copied() {
    let chunk = Bytes::from_static(b"{\"a\":1}");
    let collected = read(Full::new(chunk.clone()), rules(100, 100)).await.unwrap();
    let Storage::Memory(kept) = &collected.storage else { panic!("not in memory") };
    assert_eq!(kept.as_ptr(), chunk.as_ptr());
}

#[tokio::test]
async fn reading_the_prefix_of_a_spilled_body_leaves_the_body_whole() {
    let text = "0123456789".repeat(500);
    let rules = rules(10, 10_000);
    let budgets = Budgets::new(&rules);
    let mut collected = buffer(Full::new(Bytes::from(text.clone())), &rules, &budgets, None).await.unwrap();
    for (max, is_whole) in [(7, false), (4_999, false), (5_000, true), (9_000, true)] {
        let prefix = collected.prefix(max, &budgets).await.unwrap();
        let expected = &text[..usize::try_from(max).unwrap().min(5000)];
        assert_eq!((&prefix.bytes[..], prefix.is_whole), (expected.as_bytes(), is_whole));
    }
    assert_eq!(whole(collected).await, text);
}

#[tokio::test]
async fn a_body_that_is_too_large_is_refused_as_soon_as_that_is_known() {
    let known = read(Full::new(Bytes::from(vec![0; 101])), rules(10, 100)).await;
    assert!(matches!(known, Err(BufferError::TooLarge(BufferedBody { len: 0, .. }, _))));
    let Err(BufferError::TooLarge(read, rest)) = read(chunks(20, 10), rules(30, 100)).await else {
        panic!("not refused")
    };
    assert_eq!(read.len, 110);
    let rejoined = RequestBody::rejoined(read, rest).collect().await.unwrap().to_bytes();
    assert_eq!(rejoined, chunks(20, 10).collect().await.unwrap().to_bytes());
}

#[tokio::test]
async fn a_body_that_ends_early_is_refused() {
    let cut = [Ok(Frame::data(Bytes::from_static(b"abc"))), Err(BoxError::from("cut"))];
    let body = StreamBody::new(futures_util::stream::iter(cut));
    assert!(matches!(read(body, rules(100, 100)).await, Err(BufferError::Broken(_))));
}

/// A body that sends one byte after each pause.
fn dripping(pause: Duration, count: usize) -> impl Body<Data = Bytes, Error = BoxError> + Unpin {
    let stream = futures_util::stream::unfold(0, move |at| async move {
        tokio::time::sleep(pause).await;
        (at < count).then(|| (Ok::<_, BoxError>(Frame::data(Bytes::from_static(b"x"))), at + 1))
    });
    StreamBody::new(Box::pin(stream))
}

#[tokio::test(start_paused = true)]
async fn a_body_may_pause_but_must_keep_the_minimum_rate() {
    let collected = read(dripping(PAUSE_MAX / 4, 3), rules(100, 100)).await.ok().unwrap();
    assert_eq!(whole(collected).await, "xxx");
    for (pause, count) in [(PAUSE_MAX * 2, 1), (Duration::from_secs(25), 1000)] {
        let started = Instant::now();
        let Err(BufferError::TooSlow(read, rest)) = read(dripping(pause, count), rules(0, 1000)).await else {
            panic!("not refused")
        };
        assert!(started.elapsed() < PAUSE_MAX * 2, "{:?}", started.elapsed());
        // A request that passes through loses nothing of its body.
        assert_eq!(RequestBody::rejoined(read, rest).collect().await.unwrap().to_bytes().len(), count);
    }
    // A slow network that keeps the minimum rate is served for as long as it takes.
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
async fn a_body_holds_its_budget_from_before_it_is_read_until_its_bytes_are_dropped() {
    let rules = Rules { body_memory_total_bytes: 100, body_disk_total_bytes: 1000, ..rules(60, 900) };
    let budgets = Budgets::new(&rules);
    let get = |len: usize| buffer(Full::new(Bytes::from(vec![b'x'; len])), &rules, &budgets, None);
    let left = || (budgets.memory.left(), budgets.disk.left());
    let small = get(60).await.unwrap();
    assert_eq!(left(), (40, 1000));
    assert!(matches!(get(41).await, Err(BufferError::OverBudget(BufferedBody { len: 0, .. }, _))));
    let large = get(900).await.unwrap();
    assert_eq!(left(), (40, 100), "a body that is known to be large is never held in memory");
    assert!(matches!(get(101).await, Err(BufferError::OverBudget(BufferedBody { len: 0, .. }, _))));
    // The bytes are still in use after the body has been read to its end.
    let bytes = RequestBody::<Full<Bytes>>::buffered(small).frame().await.unwrap().unwrap();
    assert_eq!(left(), (40, 100));
    drop((bytes, large));
    assert_eq!(left(), (100, 1000));
}

#[tokio::test]
async fn a_body_counts_towards_the_budgets_of_rules_that_come_later() {
    let rules = |total| Rules { body_memory_total_bytes: total, ..rules(60, 900) };
    let before = Budgets::new(&rules(100));
    let get = |budgets| async move {
        buffer(Full::new(Bytes::from(vec![b'x'; 60])), &rules(0), budgets, None).await
    };
    let body = get(&before).await.unwrap();
    let (smaller, larger) = (before.with_rules(&rules(50)), before.with_rules(&rules(130)));
    assert!(get(&smaller).await.is_err(), "less is left than nothing");
    assert_eq!(larger.memory.left(), 70);
    drop(body);
    assert_eq!((smaller.memory.left(), larger.memory.left()), (50, 130));
}

#[tokio::test]
async fn a_body_of_unknown_length_reserves_its_budget_as_it_grows() {
    let rules = Rules {
        body_memory_total_bytes: 4 * MEMORY_STEP,
        body_disk_total_bytes: 2 * DISK_STEP,
        ..rules(2 * MEMORY_STEP, 64 * DISK_STEP)
    };
    let budgets = Budgets::new(&rules);
    let left = || (budgets.memory.left(), budgets.disk.left());
    let get = |count| buffer(chunks(count, 16 * 1024), &rules, &budgets, None);
    let small = get(5).await.ok().unwrap();
    assert_eq!(left(), (2 * MEMORY_STEP, 2 * DISK_STEP));
    let large = get(64).await.ok().unwrap();
    assert_eq!(left(), (2 * MEMORY_STEP, DISK_STEP), "a spilled body leaves nothing in memory");
    let Err(BufferError::OverBudget(read, rest)) = get(70).await else { panic!("not refused") };
    assert_eq!(RequestBody::rejoined(read, rest).collect().await.unwrap().to_bytes().len(), 70 * 16 * 1024);
    drop((small, large));
    assert_eq!(left(), (4 * MEMORY_STEP, 2 * DISK_STEP));
}

#[tokio::test]
async fn spilled_bodies_do_not_use_up_all_file_descriptors() {
    let rules = Rules { body_files_max: 1, ..rules(10, 100) };
    let budgets = Budgets::new(&rules);
    let get = |count| buffer(chunks(count, 10), &rules, &budgets, None);
    let one = get(3).await.ok().unwrap();
    assert!(matches!(get(3).await, Err(BufferError::OverBudget(..))));
    assert!(get(1).await.is_ok());
    drop(one);
    assert!(get(3).await.is_ok());
}

#[tokio::test]
async fn progress_shows_whether_a_streaming_body_is_read() {
    let chunks = ["a", "b"].map(|chunk| Ok::<_, BoxError>(Frame::data(Bytes::from(chunk))));
    let mut body = RequestBody::passed(StreamBody::new(futures_util::stream::iter(chunks)));
    let progress = body.progress().unwrap();
    assert!(!progress.moved());
    body.frame().await.unwrap().unwrap();
    assert!(progress.moved() && !progress.moved());
    let buffered = BufferedBody::default();
    assert!(RequestBody::<Full<Bytes>>::buffered(buffered).progress().is_none());
}
