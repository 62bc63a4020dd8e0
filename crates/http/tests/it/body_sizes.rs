//! Large and endless responses, large and incomplete requests.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use ichido_core::{Outcome, State};
use ichido_http::{Route, Rules};
use sha2::{Digest, Sha256};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;

use crate::support::{
    AnyBody, Cut, Gate, Instance, Received, Server, Store, Upstream, body, chunks, ms, on_embedded_ledgers,
    order, post, route, rules, until,
};

on_embedded_ledgers! {
    a_large_response_is_streamed_and_leaves_a_tombstone,
    a_large_response_of_known_length_is_streamed_immediately,
    a_streamed_response_of_known_length_arrives_whole_with_its_trailers,
    a_response_at_the_limit_is_stored_and_one_byte_more_is_not,
    a_streamed_response_that_is_cut_off_is_in_doubt,
    a_streamed_response_that_is_cut_off_is_cut_off_for_the_client,
    a_response_of_known_length_that_stalls_is_in_doubt,
    an_event_stream_is_streamed_immediately,
    an_endless_response_ends_after_its_client_disconnects,
    a_large_response_is_read_to_its_end_after_its_client_disconnects,
    a_slow_response_of_unknown_length_is_streamed_and_stored,
    a_panic_in_the_response_body_leaves_the_claim_in_doubt,
    a_spilled_body_has_the_same_fingerprint,
    a_body_over_the_limit_is_refused_and_claims_nothing,
    an_incomplete_upload_claims_nothing,
    an_incomplete_upload_over_a_socket_claims_nothing,
}

fn limited_rules(route: Route) -> Rules {
    Rules { answer_max_bytes: 1000, ..rules(route) }
}

async fn instance(store: &Store, upstream: &Upstream) -> Instance {
    Instance::of(store.ledger().await, limited_rules(route()), upstream)
}

/// A body whose chunks the test sends.
fn controlled_body() -> (mpsc::UnboundedSender<Result<Bytes, &'static str>>, AnyBody) {
    let (send, mut receive) = mpsc::unbounded_channel::<Result<Bytes, &'static str>>();
    let frames = futures_util::stream::poll_fn(move |cx| receive.poll_recv(cx));
    let frames = futures_util::StreamExt::map(frames, |part| part.map(Frame::data).map_err(Cut));
    (send, StreamBody::new(frames).boxed_unsync())
}

/// A service that responds to its only request with this body.
fn responding_once_with(content: AnyBody, content_type: &'static str) -> Upstream {
    let content = std::sync::Arc::new(std::sync::Mutex::new(Some(content)));
    Upstream::new(move |_| {
        let content = content.lock().unwrap().take().expect("one run");
        async move { Ok(Response::builder().header("content-type", content_type).body(content).unwrap()) }
    })
}

async fn is_tombstone(instance: &Instance, key: &str) -> bool {
    let record = instance.record(key).await;
    matches!(record, Some(record) if matches!(&record.state, State::Done(done) if matches!(done.outcome, Outcome::Tombstone(_))))
}

async fn a_large_response_is_streamed_and_leaves_a_tombstone(store: Store) {
    let upstream = Upstream::new(async |_| {
        Ok(Response::new(chunks((0..100).map(|_| Ok(vec![b'x'; 1000].into())).collect(), None)))
    });
    let instance = instance(&store, &upstream).await;
    let got = instance.send(order("k")).await;
    assert_eq!((got.status.as_u16(), got.body.len(), got.is_replay()), (200, 100_000, false));
    assert!(is_tombstone(&instance, "k").await, "the outcome is recorded before the response ends");
    instance.send(order("k")).await.assert_problem(409, "answer-not-kept");
    instance.send(post("/orders", "k", "else")).await.assert_problem(422, "key-reused");
    assert_eq!(upstream.runs(), 1);
}

async fn a_large_response_of_known_length_is_streamed_immediately(store: Store) {
    let (send, content) = controlled_body();
    let upstream = Upstream::new({
        let content = std::sync::Arc::new(std::sync::Mutex::new(Some(content)));
        move |_| {
            let content = content.lock().unwrap().take().expect("one run");
            async move { Ok(Response::builder().header("content-length", "2000").body(content).unwrap()) }
        }
    });
    let instance = instance(&store, &upstream).await;
    // The service has not sent any of the body yet.
    let response = instance.start(order("k")).await.unwrap();
    assert_eq!(response.headers()["content-length"], "2000");
    instance.send(order("k")).await.assert_problem(409, "in-flight");
    send.send(Ok(vec![b'x'; 2000].into())).unwrap();
    drop(send);
    assert_eq!(Received::read(response).await.unwrap().body.len(), 2000);
    instance.send(order("k")).await.assert_problem(409, "answer-not-kept");
}

/// The chunk that completes the body is held back until the outcome is recorded, and is then sent.
async fn a_streamed_response_of_known_length_arrives_whole_with_its_trailers(store: Store) {
    let checksum = || HeaderMap::from_iter([("x-checksum".parse().unwrap(), "abc".parse().unwrap())]);
    for trailers in [None, Some(checksum())] {
        let upstream = Upstream::new({
            let trailers = trailers.clone();
            move |_| {
                let parts = [1000, 0, 1000, 0, 0].map(|size| Ok(vec![b'x'; size].into())).into();
                let response = Response::builder().header("content-length", "2000");
                let response = response.body(chunks(parts, trailers.clone())).unwrap();
                async move { Ok(response) }
            }
        });
        let instance = instance(&store, &upstream).await;
        let key = format!("k{}", trailers.is_some());
        let got = instance.send(order(&key)).await;
        assert_eq!((got.body.len(), got.trailers), (2000, trailers));
        assert!(is_tombstone(&instance, &key).await, "the outcome is recorded before the response ends");
    }
}

async fn a_response_at_the_limit_is_stored_and_one_byte_more_is_not(store: Store) {
    for (size, is_stored) in [(999, true), (1000, true), (1001, false)] {
        for known in [true, false] {
            let upstream = Upstream::new(move |_| async move {
                let bytes = Bytes::from(vec![b'x'; size]);
                let parts = || vec![Ok(bytes.slice(..500)), Ok(bytes.slice(500..))];
                Ok(Response::new(if known { body(bytes) } else { chunks(parts(), None) }))
            });
            let instance = instance(&store, &upstream).await;
            let key = format!("k{size}{known}");
            assert_eq!(instance.send(order(&key)).await.body.len(), size);
            let again = instance.send(order(&key)).await;
            assert_eq!(again.is_replay(), is_stored, "{size} {known}");
            assert_eq!(upstream.runs(), 1);
        }
    }
}

async fn a_streamed_response_that_is_cut_off_is_in_doubt(store: Store) {
    let upstream = Upstream::new(async |_| {
        Ok(Response::new(chunks(vec![Ok(vec![b'x'; 5000].into()), Err("cut")], None)))
    });
    let instance = instance(&store, &upstream).await;
    let response = instance.start(order("k")).await.unwrap();
    assert!(Received::read(response).await.is_err(), "the client can see that the response was cut off");
    instance.send(order("k")).await.assert_problem(409, "in-doubt");
    assert_eq!(upstream.runs(), 1);
}

async fn a_streamed_response_that_is_cut_off_is_cut_off_for_the_client(store: Store) {
    let upstream = Upstream::new(async |_| {
        Ok(Response::new(chunks(vec![Ok(vec![b'x'; 5000].into()), Err("cut")], None)))
    });
    let instance = instance(&store, &upstream).await;
    let server = Server::start(&instance).await;
    // The server may not have sent the headers when the body is cut off.
    if let Ok(response) = server.connect().await.send_request(Server::order("k")).await {
        assert_eq!(response.status(), 200);
        assert!(Received::read(response).await.is_err());
    }
    let again = server.connect().await.send_request(Server::order("k")).await.unwrap();
    Received::read(again).await.unwrap().assert_problem(409, "in-doubt");
}

/// One response is short enough to be stored, the other is streamed.
async fn a_response_of_known_length_that_stalls_is_in_doubt(store: Store) {
    for len in [500, 2000] {
        let (send, content) = controlled_body();
        let content = std::sync::Arc::new(std::sync::Mutex::new(Some(content)));
        let upstream = Upstream::new(move |_| {
            let content = content.lock().unwrap().take().expect("one run");
            async move { Ok(Response::builder().header("content-length", len).body(content).unwrap()) }
        });
        let limited = limited_rules(Route { timeout: Some(ms(300)), ..route() });
        let instance = Instance::of(store.ledger().await, limited, &upstream);
        let key = format!("k{len}");
        send.send(Ok(vec![b'x'; 100].into())).unwrap();
        let got = Received::read(instance.start(order(&key)).await.unwrap()).await;
        if len < 1000 {
            got.unwrap().assert_problem(504, "upstream-timeout");
        } else {
            assert!(got.is_err(), "the client can see that the response was cut off");
        }
        instance.layer.drain().await;
        let State::InDoubt(doubt) = instance.record(&key).await.unwrap().state else {
            panic!("not in doubt")
        };
        assert!(doubt.reason.to_string().contains("the response body stalled"), "{doubt:?}");
        instance.send(order(&key)).await.assert_problem(409, "in-doubt");
        assert_eq!(upstream.runs(), 1);
    }
}

/// It neither reads nor disconnects. It does not hold its slot forever, and what it reads later is visibly cut off.
#[tokio::test(start_paused = true)]
async fn a_client_that_stops_reading_counts_as_disconnected() {
    let upstream = Upstream::new(async |_| {
        Ok(Response::new(chunks((0..100).map(|_| Ok(vec![b'x'; 1000].into())).collect(), None)))
    });
    let instance = instance(&Store::memory(), &upstream).await;
    let response = instance.start(order("k")).await.unwrap();
    instance.layer.drain().await;
    assert!(is_tombstone(&instance, "k").await, "the service had responded");
    assert!(Received::read(response).await.is_err());
}

async fn an_event_stream_is_streamed_immediately(store: Store) {
    let (send, content) = controlled_body();
    let upstream = responding_once_with(content, "text/event-stream; charset=utf-8");
    let instance = instance(&store, &upstream).await;
    let server = Server::start(&instance).await;
    let mut response = server.connect().await.send_request(Server::order("k")).await.unwrap();
    for number in 0..3 {
        let event = Bytes::from(format!("data: {number}\n\n"));
        send.send(Ok(event.clone())).unwrap();
        // It arrives while the response is still open.
        let frame = tokio::time::timeout(crate::support::TIMEOUT, response.frame()).await.unwrap();
        assert_eq!(frame.unwrap().unwrap().into_data().unwrap(), event);
    }
    instance.send(order("k")).await.assert_problem(409, "in-flight");
    drop(send);
    assert!(response.frame().await.is_none(), "the response ends normally");
    // The response was small enough to be stored.
    instance.send(order("k")).await.assert_replay(200, "data: 0\n\ndata: 1\n\ndata: 2\n\n");
    assert_eq!(upstream.runs(), 1);
}

/// Nobody reads, and the stream never ends. It is abandoned at the lease ceiling, and its slot is released.
async fn an_endless_response_ends_after_its_client_disconnects(store: Store) {
    for ticking in [true, false] {
        let upstream = Upstream::new(move |_| async move {
            let ticks = futures_util::stream::unfold((), move |()| async move {
                tokio::time::sleep(if ticking { ms(10) } else { Duration::from_secs(3600) }).await;
                Some((Ok::<_, Cut>(Frame::data(Bytes::from_static(b": tick\n\n"))), ()))
            });
            let content = StreamBody::new(Box::pin(ticks)).boxed_unsync();
            Ok(Response::builder().header("content-type", "text/event-stream").body(content).unwrap())
        });
        let settings = ichido_ledger::Settings { lease_ceiling: ms(300), ..crate::support::short_timeouts() };
        let ledger = ichido_ledger::Ledger::new(store.backend().await, settings);
        let instance = Instance::of(ledger, limited_rules(route()), &upstream);
        let key = format!("k{ticking}");
        let response = instance.start(order(&key)).await.unwrap();
        assert_eq!(instance.layer.in_flight(), 1);
        drop(response);
        until("the stream is abandoned", async || instance.layer.in_flight() == 0).await;
        instance.send(order(&key)).await.assert_problem(409, "in-doubt");
        assert_eq!(upstream.runs(), 1);
    }
}

async fn a_large_response_is_read_to_its_end_after_its_client_disconnects(store: Store) {
    let (send, content) = controlled_body();
    let upstream = responding_once_with(content, "text/plain");
    let instance = instance(&store, &upstream).await;
    send.send(Ok(vec![b'x'; 2000].into())).unwrap();
    drop(instance.start(order("k")).await.unwrap());
    for _ in 0..100 {
        send.send(Ok(vec![b'x'; 2000].into())).unwrap();
    }
    instance.send(order("k")).await.assert_problem(409, "in-flight");
    drop(send);
    instance.layer.drain().await;
    instance.send(order("k")).await.assert_problem(409, "answer-not-kept");
    assert_eq!(upstream.runs(), 1);
}

/// A response of unknown length may be endless, so it is streamed after a while.
async fn a_slow_response_of_unknown_length_is_streamed_and_stored(store: Store) {
    let (send, content) = controlled_body();
    let upstream = responding_once_with(content, "text/plain");
    let instance = instance(&store, &upstream).await;
    send.send(Ok("one ".into())).unwrap();
    let mut response = instance.start(order("k")).await.unwrap();
    let frame = response.frame().await.unwrap().unwrap();
    assert_eq!(frame.into_data().unwrap(), "one ");
    instance.send(order("k")).await.assert_problem(409, "in-flight");
    send.send(Ok("two".into())).unwrap();
    drop(send);
    assert_eq!(Received::read(response).await.unwrap().text(), "two");
    instance.send(order("k")).await.assert_replay(200, "one two");
}

async fn a_panic_in_the_response_body_leaves_the_claim_in_doubt(store: Store) {
    for size in [10, 5_000] {
        let upstream = Upstream::new(move |_| async move {
            let frames = futures_util::stream::iter(0..2).then_panic(size);
            Ok(Response::new(StreamBody::new(frames).boxed_unsync()))
        });
        let instance = instance(&store, &upstream).await;
        let key = format!("k{size}");
        let response = instance.start(order(&key)).await.unwrap();
        let got = Received::read(response).await;
        if size < 1000 {
            got.unwrap().assert_problem(502, "answer-lost");
        } else {
            assert!(got.is_err());
        }
        instance.layer.drain().await;
        instance.send(order(&key)).await.assert_problem(409, "in-doubt");
        assert_eq!(upstream.runs(), 1);
    }
}

trait ThenPanic: futures_util::Stream<Item = i32> + Sized + Send + Unpin + 'static {
    fn then_panic(
        self,
        size: usize,
    ) -> impl futures_util::Stream<Item = Result<Frame<Bytes>, Cut>> + Send + 'static {
        futures_util::StreamExt::map(self, move |at| match at {
            0 => Ok(Frame::data(Bytes::from(vec![b'x'; size]))),
            _ => panic!("intended: panic in the response body"),
        })
    }
}

impl<S: futures_util::Stream<Item = i32> + Sized + Send + Unpin + 'static> ThenPanic for S {}

fn upload(key: &str, parts: Vec<Result<Bytes, &'static str>>) -> Request<AnyBody> {
    Request::post("/orders")
        .header("idempotency-key", format!("\"{key}\""))
        .body(chunks(parts, None))
        .unwrap()
}

async fn a_spilled_body_has_the_same_fingerprint(store: Store) {
    let upstream = Upstream::counting();
    let spilling = Rules { body_memory_bytes: 1000, ..rules(route()) };
    let spilling = Instance::of(store.ledger().await, spilling, &upstream);
    let in_memory = Instance::new(&store, route(), &upstream).await;
    let bytes: Bytes = (0..300_000_u32).map(|at| u8::try_from(at % 251).unwrap()).collect::<Vec<_>>().into();
    let in_chunks = || bytes.chunks(7_001).map(|piece| Ok(bytes.slice_ref(piece))).collect::<Vec<_>>();
    spilling.send(upload("k", in_chunks())).await.assert_first(201, "run 1");
    in_memory.send(upload("k", in_chunks())).await.assert_replay(201, "run 1");
    in_memory.send(post("/orders", "k", bytes.clone())).await.assert_replay(201, "run 1");
    spilling.send(post("/orders", "k", bytes.clone())).await.assert_replay(201, "run 1");
    let mut other = bytes.to_vec();
    other[299_999] ^= 1;
    spilling.send(post("/orders", "k", other)).await.assert_problem(422, "key-reused");
    let seen = upstream.calls().remove(0).body;
    assert_eq!(Sha256::digest(&seen), Sha256::digest(&bytes));
    assert_eq!(upstream.runs(), 1);
}

async fn a_body_over_the_limit_is_refused_and_claims_nothing(store: Store) {
    let upstream = Upstream::counting();
    let rules = Rules { body_max_bytes: 5000, body_memory_bytes: 1000, ..rules(route()) };
    let instance = Instance::of(store.ledger().await, rules, &upstream);
    instance.send(post("/orders", "k", vec![0; 5001])).await.assert_problem(413, "body-too-large");
    let parts = (0..6).map(|_| Ok(vec![0; 1000].into())).collect();
    instance.send(upload("k", parts)).await.assert_problem(413, "body-too-large");
    assert_eq!((upstream.runs(), instance.claims().await.len()), (0, 0));
    instance.send(post("/orders", "k", vec![0; 5000])).await.assert_first(201, "run 1");
    assert_eq!(upstream.calls()[0].body.len(), 5000);
}

async fn an_incomplete_upload_claims_nothing(store: Store) {
    let upstream = Upstream::counting();
    let instance = instance(&store, &upstream).await;
    let cut = upload("k", vec![Ok("{\"item\"".into()), Err("reset")]);
    instance.send(cut).await.assert_problem(400, "body-broken");
    assert_eq!((upstream.runs(), instance.claims().await.len()), (0, 0));
    instance.send(order("k")).await.assert_first(201, "run 1");
}

async fn an_incomplete_upload_over_a_socket_claims_nothing(store: Store) {
    let (gate, upstream) = (Gate::closed(), Upstream::counting());
    let instance = instance(&store, &upstream).await;
    let server = Server::start(&instance).await;
    let head =
        "POST /orders HTTP/1.1\r\nhost: here\r\nidempotency-key: \"k\"\r\ncontent-length: 10\r\n\r\n{\"it";
    let mut stream = server.connect_raw().await;
    stream.write_all(head.as_bytes()).await.unwrap();
    tokio::time::sleep(ms(50)).await;
    drop(stream);
    // A half-closed connection, whose client still reads.
    let mut stream = server.connect_raw().await;
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut received = Vec::new();
    let _ = stream.read_to_end(&mut received).await;
    assert!(
        received.is_empty() || received.starts_with(b"HTTP/1.1 400"),
        "{}",
        String::from_utf8_lossy(&received)
    );
    gate.open();
    assert_eq!((upstream.runs(), instance.claims().await.len()), (0, 0));
    instance.send(order("k")).await.assert_first(201, "run 1");
}
