//! Replays use an encoding that the client accepts.

use std::io::Write;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::{HeaderMap, Request, Response};

use crate::support::{
    AnyBody, Instance, Store, Upstream, body, chunks, on_embedded_ledgers, order, route, text,
};

on_embedded_ledgers! {
    a_stored_gzip_response_is_decompressed_for_clients_without_gzip,
    the_service_is_offered_only_enencodings_that_can_be_undone,
    a_response_in_an_unknown_encoding_is_replayed_unchanged,
    request_trailers_reach_the_service,
}

/// Long enough to be decompressed in several chunks.
fn content() -> String {
    "{\"id\":17}\n".repeat(20_000)
}

fn gzip(content: &str) -> Bytes {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(content.as_bytes()).unwrap();
    encoder.finish().unwrap().into()
}

fn accepting(key: &str, encodings: Option<&str>) -> Request<AnyBody> {
    let mut request = order(key);
    if let Some(encodings) = encodings {
        request.headers_mut().insert("accept-encoding", encodings.parse().unwrap());
    }
    request
}

async fn a_stored_gzip_response_is_decompressed_for_clients_without_gzip(store: Store) {
    let upstream = Upstream::new(async |_| {
        let response =
            Response::builder().status(201).header("content-encoding", "gzip").header("etag", "\"v1\"");
        Ok(response.header("content-md5", "digest").body(body(gzip(&content()))).unwrap())
    });
    let instance = Instance::new(&store, route(), &upstream).await;
    let first = instance.send(accepting("k", Some("gzip, br"))).await;
    assert_eq!((first.header("content-encoding"), &first.body), (Some("gzip"), &gzip(&content())));
    for encodings in [None, Some("br"), Some("gzip;q=0, identity")] {
        let again = instance.send(accepting("k", encodings)).await;
        again.assert_replay(201, &content());
        assert_eq!((again.header("content-encoding"), again.header("content-md5")), (None, None));
        assert_eq!((again.header("etag"), again.header("vary")), (Some("W/\"v1\""), Some("accept-encoding")));
    }
    let again = instance.send(accepting("k", Some("gzip"))).await;
    assert!(again.is_replay());
    assert_eq!((again.header("content-encoding"), &again.body), (Some("gzip"), &gzip(&content())));
    assert_eq!(upstream.runs(), 1);
}

async fn the_service_is_offered_only_enencodings_that_can_be_undone(store: Store) {
    let upstream = Upstream::counting();
    let instance = Instance::new(&store, route(), &upstream).await;
    for (key, encodings) in [("a", Some("gzip, deflate, br, zstd")), ("b", Some("br")), ("c", None)] {
        instance.send(accepting(key, encodings)).await.assert_first(201, &format!("run {}", upstream.runs()));
    }
    let offered: Vec<_> =
        upstream.calls().iter().map(|call| call.parts.headers.get("accept-encoding").cloned()).collect();
    assert_eq!(offered, [Some("gzip".parse().unwrap()), Some("identity".parse().unwrap()), None]);
}

async fn a_response_in_an_unknown_encoding_is_replayed_unchanged(store: Store) {
    let upstream = Upstream::new(async |_| {
        let mut response = text(201, "encoded");
        response.headers_mut().insert("content-encoding", "br".parse().unwrap());
        Ok(response)
    });
    let instance = Instance::new(&store, route(), &upstream).await;
    instance.send(order("k")).await.assert_first(201, "encoded");
    let again = instance.send(order("k")).await;
    again.assert_replay(201, "encoded");
    assert_eq!(again.header("content-encoding"), Some("br"));
}

async fn request_trailers_reach_the_service(store: Store) {
    let upstream = Upstream::counting();
    let instance = Instance::new(&store, route(), &upstream).await;
    let send = |checksum: &str| {
        let trailers = HeaderMap::from_iter([("x-checksum".parse().unwrap(), checksum.parse().unwrap())]);
        let request =
            Request::post("/orders").header("idempotency-key", "\"k\"").header("content-length", "3");
        let content = chunks(vec![Ok(Bytes::from_static(b"abc"))], Some(trailers));
        instance.send(request.body(content).unwrap())
    };
    send("1").await.assert_first(201, "run 1");
    send("2").await.assert_replay(201, "run 1");
    let call = &upstream.calls()[0];
    assert_eq!(
        (&call.body[..], &call.trailers.as_ref().unwrap()["x-checksum"]),
        (&b"abc"[..], &"1".parse().unwrap())
    );
    assert_eq!(call.parts.headers["trailer"], "x-checksum");
    assert!(!call.parts.headers.contains_key("content-length"), "trailers need a body of unknown length");
}
