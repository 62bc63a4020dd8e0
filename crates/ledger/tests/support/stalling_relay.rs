//! A relay whose connections can stall: they stay open, swallow all bytes, and never answer. Unlike a fault of the
//! proxy, this does not end: a stalled connection stays stalled.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

pub(crate) struct StallingRelay {
    pub(crate) address: SocketAddr,
    /// One flag per generation of connections. Once it is set, all connections of that generation are stalled.
    current: Arc<std::sync::Mutex<Arc<AtomicBool>>>,
}

impl StallingRelay {
    pub(crate) async fn start(upstream: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let current: Arc<std::sync::Mutex<Arc<AtomicBool>>> = Arc::default();
        let flags = current.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let stalled = flags.lock().unwrap().clone();
                tokio::spawn(relay(client, upstream, stalled));
            }
        });
        Self { address, current }
    }

    /// Stalls all current connections; new ones work.
    pub(crate) fn stall(&self) {
        let current = std::mem::take(&mut *self.current.lock().unwrap());
        current.store(true, Ordering::SeqCst);
    }
}

async fn relay(client: TcpStream, upstream: SocketAddr, stalled: Arc<AtomicBool>) {
    let server = TcpStream::connect(upstream).await.unwrap();
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    tokio::spawn({
        let stalled = stalled.clone();
        async move {
            let mut buffer = vec![0; 65_536];
            while let Ok(count @ 1..) = from_server.read(&mut buffer).await {
                if !stalled.load(Ordering::SeqCst) && to_client.write_all(&buffer[..count]).await.is_err() {
                    break;
                }
            }
        }
    });
    let mut buffer = vec![0; 65_536];
    while let Ok(count @ 1..) = from_client.read(&mut buffer).await {
        if !stalled.load(Ordering::SeqCst) && to_server.write_all(&buffer[..count]).await.is_err() {
            break;
        }
    }
}
