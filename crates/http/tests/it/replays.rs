//! A replay equals the first response.

use bytes::Bytes;
use http::{HeaderMap, Response};
use ichido_http::{NoStore, Route, SetCookie};

use crate::support::{
    AnyBody, Instance, Received, Server, Store, Upstream, body, chunks, on_embedded_ledgers, order, route,
};

on_embedded_ledgers! {
    a_replay_has_the_status_headers_and_body_of_the_first_response,
    cookies_are_replayed_only_if_the_route_says_so,
    binary_bodies_are_replayed,
    responses_without_a_body_are_replayed,
    trailers_are_replayed,
    trailers_reach_http1_and_http2_clients,
    the_content_length_of_a_replay_matches_its_body,
    a_no_store_response_is_stored_or_leaves_a_tombstone,
    a_response_can_be_replayed_many_times,
}

fn rich(status: u16, content: AnyBody) -> Response<AnyBody> {
    Response::builder()
        .status(status)
        .header("location", "/orders/17")
        .header("etag", "\"v1\"")
        .header("x-step", "one")
        .header("content-type", "application/json")
        .header("x-step", "two")
        .header("x-step", "one")
        .header("x-odd", http::HeaderValue::from_bytes(b"caf\xe9").unwrap())
        .header("set-cookie", "sid=1; HttpOnly")
        .header("set-cookie", "theme=dark")
        .header("date", "Sun, 06 Nov 1994 08:49:37 GMT")
        .header("connection", "keep-alive, x-hop")
        .header("keep-alive", "timeout=5")
        .header("x-hop", "1")
        .header("upgrade", "h2c")
        .body(content)
        .unwrap()
}

async fn a_replay_has_the_status_headers_and_body_of_the_first_response(store: Store) {
    let upstream = Upstream::new(async |_| Ok(rich(202, body("{\"id\": 17}\n"))));
    let instance = Instance::new(&store, route(), &upstream).await;
    let first = instance.send(order("k")).await;
    let again = instance.send(order("k")).await;
    first.assert_first(202, "{\"id\": 17}\n");
    again.assert_replay(202, "{\"id\": 17}\n");
    assert_eq!(again.header("location"), Some("/orders/17"));
    assert_eq!(again.header("etag"), Some("\"v1\""));
    let steps: Vec<_> = again.headers.get_all("x-step").iter().collect();
    assert_eq!(steps, ["one", "two", "one"]);
    assert_eq!(again.headers["x-odd"].as_bytes(), b"caf\xe9");
    for gone in ["date", "connection", "keep-alive", "x-hop", "upgrade", "set-cookie"] {
        assert!(!again.headers.contains_key(gone), "{gone}");
    }
    assert_eq!(first.headers.get_all("set-cookie").iter().count(), 2, "the first response has its cookies");
    // Except for the date and cookies, the replay equals the first response plus the replay header.
    let mut expected = first.headers.clone();
    for name in ["date", "set-cookie"] {
        expected.remove(name);
    }
    expected.insert("idempotency-replayed", "true".parse().unwrap());
    assert_eq!(again.headers, expected);
}

async fn cookies_are_replayed_only_if_the_route_says_so(store: Store) {
    for (set_cookie, count) in [(SetCookie::Drop, 0), (SetCookie::Keep, 2)] {
        let upstream = Upstream::new(async |_| Ok(rich(200, body("x"))));
        let instance = Instance::new(&store, Route { set_cookie, ..route() }, &upstream).await;
        let key = set_cookie.as_str();
        assert_eq!(instance.send(order(key)).await.headers.get_all("set-cookie").iter().count(), 2);
        let again = instance.send(order(key)).await;
        assert_eq!(again.headers.get_all("set-cookie").iter().count(), count);
    }
}

async fn binary_bodies_are_replayed(store: Store) {
    let bytes: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    let content = Bytes::from(bytes);
    let upstream = Upstream::new({
        let content = content.clone();
        move |_| {
            let content = content.clone();
            async move {
                // Chunks of uneven size, some of them empty.
                let cuts = [0, 0, 1, 1, 4_096, 70_000, 70_000, 100_000];
                let parts = cuts.windows(2).map(|cut| Ok(content.slice(cut[0]..cut[1]))).collect();
                Ok(Response::new(chunks(parts, None)))
            }
        }
    });
    let instance = Instance::new(&store, route(), &upstream).await;
    for replay in [false, true, true] {
        let got = instance.send(order("k")).await;
        assert_eq!((got.is_replay(), got.body == content), (replay, true));
    }
}

async fn responses_without_a_body_are_replayed(store: Store) {
    for status in [200, 201, 204, 205, 304, 404] {
        let upstream = Upstream::new(move |_| async move {
            Ok(Response::builder().status(status).header("etag", "\"x\"").body(body("")).unwrap())
        });
        let instance = Instance::new(&store, route(), &upstream).await;
        let server = Server::start(&instance).await;
        let key = format!("k{status}");
        let mut client = server.connect().await;
        // All on one connection: a wrong length would corrupt the next response.
        for replay in [false, true, true] {
            client.ready().await.unwrap();
            let response = client.send_request(Server::order(&key)).await.unwrap();
            let got = Received::read(response).await.unwrap();
            assert_eq!((got.status.as_u16(), got.text(), got.is_replay()), (status, "", replay));
            assert_eq!(got.header("etag"), Some("\"x\""));
            if status == 204 {
                assert_eq!(got.header("content-length"), None);
            }
        }
        assert_eq!(upstream.runs(), 1);
    }
}

fn checksum() -> HeaderMap {
    HeaderMap::from_iter([("x-checksum".parse().unwrap(), "abc".parse().unwrap())])
}

fn with_trailers() -> Upstream {
    Upstream::new(async |_| {
        let mut response = Response::new(chunks(vec![Ok("hello".into())], Some(checksum())));
        response.headers_mut().insert("trailer", "x-checksum".parse().unwrap());
        Ok(response)
    })
}

async fn trailers_are_replayed(store: Store) {
    let instance = Instance::new(&store, route(), &with_trailers()).await;
    for replay in [false, true] {
        let got = instance.send(order("k")).await;
        assert_eq!((got.text(), got.is_replay()), ("hello", replay));
        assert_eq!(got.trailers, Some(checksum()));
    }
}

async fn trailers_reach_http1_and_http2_clients(store: Store) {
    let instance = Instance::new(&store, route(), &with_trailers()).await;
    let server = Server::start(&instance).await;
    let (mut one, mut two) = (server.connect().await, server.connect_h2().await);
    for replay in [false, true] {
        let mut request = Server::order("k1");
        request.headers_mut().insert("te", "trailers".parse().unwrap());
        one.ready().await.unwrap();
        let got = Received::read(one.send_request(request).await.unwrap()).await.unwrap();
        assert_eq!((got.text(), got.is_replay()), ("hello", replay));
        assert_eq!(got.trailers, Some(checksum()));
        let mut request = Server::order("k2");
        *request.uri_mut() = "http://here/orders".parse().unwrap();
        request.headers_mut().remove("host");
        let got = Received::read(two.send_request(request).await.unwrap()).await.unwrap();
        assert_eq!((got.text(), got.is_replay()), ("hello", replay));
        assert_eq!(got.trailers, Some(checksum()));
    }
}

async fn the_content_length_of_a_replay_matches_its_body(store: Store) {
    let upstream = Upstream::new(async |_| {
        let mut response = Response::new(body("hello"));
        response.headers_mut().insert("content-length", 5.into());
        Ok(response)
    });
    let instance = Instance::new(&store, route(), &upstream).await;
    let server = Server::start(&instance).await;
    let mut client = server.connect().await;
    for replay in [false, true, true] {
        client.ready().await.unwrap();
        let response = client.send_request(Server::order("k")).await.unwrap();
        let lengths: Vec<_> = response.headers().get_all("content-length").iter().cloned().collect();
        assert_eq!(lengths, ["5"]);
        assert!(!response.headers().contains_key("transfer-encoding"));
        let got = Received::read(response).await.unwrap();
        assert_eq!((got.text(), got.is_replay()), ("hello", replay));
    }
}

async fn a_no_store_response_is_stored_or_leaves_a_tombstone(store: Store) {
    for no_store in [NoStore::Keep, NoStore::Tombstone] {
        let upstream = Upstream::new(async |_| {
            let response = Response::builder().header("cache-control", "private, No-Store");
            Ok(response.body(body("secret")).unwrap())
        });
        let instance = Instance::new(&store, Route { no_store, ..route() }, &upstream).await;
        let key = no_store.as_str();
        instance.send(order(key)).await.assert_first(200, "secret");
        let again = instance.send(order(key)).await;
        match no_store {
            NoStore::Keep => again.assert_replay(200, "secret"),
            NoStore::Tombstone => {
                again.assert_problem(409, "answer-not-kept");
                let record = instance.record(key).await.unwrap();
                assert!(!format!("{record:?}").contains("secret"));
            }
        }
        assert_eq!(upstream.runs(), 1);
    }
}

async fn a_response_can_be_replayed_many_times(store: Store) {
    let instance = Instance::new(&store, route(), &Upstream::counting()).await;
    instance.send(order("k")).await.assert_first(201, "run 1");
    let before = instance.record("k").await.unwrap();
    let readers: Vec<_> = (0..50).map(|_| instance.spawn(order("k"))).collect();
    for reader in readers {
        reader.await.unwrap().assert_replay(201, "run 1");
    }
    assert_eq!(instance.record("k").await.unwrap(), before);
}
