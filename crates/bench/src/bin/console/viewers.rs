//! Viewers of the console while a gateway works.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use ichido_bench::processes::get;

/// Pages that are open and update live.
const LIVE: usize = 8;
const PAGES: [&str; 3] = ["/", "/claims", "/claims?state=in-doubt"];
/// The pause between two page loads.
const PAUSE: Duration = Duration::from_millis(250);

pub(crate) struct Viewers {
    over: Arc<AtomicBool>,
    /// Pages and updates that were received.
    seen: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
}

impl Viewers {
    pub(crate) fn watch(admin: SocketAddr) -> Self {
        let (over, seen) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let live = (0..LIVE).map(|_| {
            let (over, seen) = (over.clone(), seen.clone());
            std::thread::spawn(move || follow(admin, &over, &seen))
        });
        let mut threads: Vec<_> = live.collect();
        let (ended, loaded) = (over.clone(), seen.clone());
        threads.push(std::thread::spawn(move || {
            for page in PAGES.iter().cycle() {
                if ended.load(Ordering::Relaxed) {
                    return;
                }
                assert_eq!(get(admin, page).unwrap().status, 200);
                loaded.fetch_add(1, Ordering::Relaxed);
                std::thread::sleep(PAUSE);
            }
        }));
        Self { over, seen, threads }
    }

    /// Stops the viewers. Returns how many pages and updates they received.
    pub(crate) fn end(self) -> u64 {
        self.over.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().unwrap();
        }
        self.seen.load(Ordering::Relaxed)
    }
}

/// Follows one stream of updates.
fn follow(admin: SocketAddr, over: &AtomicBool, seen: &AtomicU64) {
    let mut stream = TcpStream::connect(admin).unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    write!(stream, "GET /live HTTP/1.1\r\nhost: {admin}\r\naccept: text/event-stream\r\n\r\n").unwrap();
    let mut chunk = [0; 16 * 1024];
    while !over.load(Ordering::Relaxed) {
        match stream.read(&mut chunk) {
            Ok(0) => panic!("the console closed a stream"),
            Ok(_) => drop(seen.fetch_add(1, Ordering::Relaxed)),
            Err(_) => {}
        }
    }
}
