//! A stored answer suits the client that gets it, whoever asked first.

use std::io::Write;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::{HeaderMap, Request, Response};

use crate::support::{
    AnyBody, Instance, Store, Upstream, body, on_embedded_ledgers, order, pieces, route, text,
};

on_embedded_ledgers! {
    a_stored_gzip_answer_is_decoded_for_a_client_that_takes_none,
    the_service_is_asked_only_for_what_can_be_decoded_later,
    an_answer_in_an_unknown_coding_is_replayed_as_it_is,
    trailers_of_a_request_reach_the_service,
}

/// Long enough to be decoded in several pieces.
fn content() -> String {
    "{\"id\":17}\n".repeat(20_000)
}

fn gzip(content: &str) -> Bytes {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(content.as_bytes()).unwrap();
    encoder.finish().unwrap().into()
}

fn accepting(key: &str, codings: Option<&str>) -> Request<AnyBody> {
    let mut request = order(key);
    if let Some(codings) = codings {
        request.headers_mut().insert("accept-encoding", codings.parse().unwrap());
    }
    request
}

async fn a_stored_gzip_answer_is_decoded_for_a_client_that_takes_none(store: Store) {
    let upstream = Upstream::new(async |_| {
        let response =
            Response::builder().status(201).header("content-encoding", "gzip").header("etag", "\"v1\"");
        Ok(response.header("content-md5", "of the coded bytes").body(body(gzip(&content()))).unwrap())
    });
    let instance = Instance::new(&store, route(), &upstream).await;
    let first = instance.send(accepting("k", Some("gzip, br"))).await;
    assert_eq!((first.header("content-encoding"), &first.body), (Some("gzip"), &gzip(&content())));
    for codings in [None, Some("br"), Some("gzip;q=0, identity")] {
        let again = instance.send(accepting("k", codings)).await;
        again.is_again(201, &content());
        assert_eq!((again.header("content-encoding"), again.header("content-md5")), (None, None));
        assert_eq!((again.header("etag"), again.header("vary")), (Some("W/\"v1\""), Some("accept-encoding")));
    }
    let again = instance.send(accepting("k", Some("gzip"))).await;
    assert!(again.is_replay());
    assert_eq!((again.header("content-encoding"), &again.body), (Some("gzip"), &gzip(&content())));
    assert_eq!(upstream.runs(), 1);
}

async fn the_service_is_asked_only_for_what_can_be_decoded_later(store: Store) {
    let upstream = Upstream::counting();
    let instance = Instance::new(&store, route(), &upstream).await;
    for (key, codings) in [("a", Some("gzip, deflate, br, zstd")), ("b", Some("br")), ("c", None)] {
        instance.send(accepting(key, codings)).await.is_first(201, &format!("run {}", upstream.runs()));
    }
    let asked: Vec<_> =
        upstream.calls().iter().map(|call| call.parts.headers.get("accept-encoding").cloned()).collect();
    assert_eq!(asked, [Some("gzip".parse().unwrap()), Some("identity".parse().unwrap()), None]);
}

async fn an_answer_in_an_unknown_coding_is_replayed_as_it_is(store: Store) {
    let upstream = Upstream::new(async |_| {
        let mut response = text(201, "coded");
        response.headers_mut().insert("content-encoding", "br".parse().unwrap());
        Ok(response)
    });
    let instance = Instance::new(&store, route(), &upstream).await;
    instance.send(order("k")).await.is_first(201, "coded");
    let again = instance.send(order("k")).await;
    again.is_again(201, "coded");
    assert_eq!(again.header("content-encoding"), Some("br"));
}

async fn trailers_of_a_request_reach_the_service(store: Store) {
    let upstream = Upstream::counting();
    let instance = Instance::new(&store, route(), &upstream).await;
    let send = |checksum: &str| {
        let trailers = HeaderMap::from_iter([("x-checksum".parse().unwrap(), checksum.parse().unwrap())]);
        let request =
            Request::post("/orders").header("idempotency-key", "\"k\"").header("content-length", "3");
        let content = pieces(vec![Ok(Bytes::from_static(b"abc"))], Some(trailers));
        instance.send(request.body(content).unwrap())
    };
    send("1").await.is_first(201, "run 1");
    send("2").await.is_again(201, "run 1");
    let call = &upstream.calls()[0];
    assert_eq!(
        (&call.body[..], &call.trailers.as_ref().unwrap()["x-checksum"]),
        (&b"abc"[..], &"1".parse().unwrap())
    );
    assert_eq!(call.parts.headers["trailer"], "x-checksum");
    assert!(
        !call.parts.headers.contains_key("content-length"),
        "a known length would leave no room for trailers"
    );
}
