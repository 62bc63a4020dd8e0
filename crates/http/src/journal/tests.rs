use ichido_core::{Claim, SystemClock};
use ichido_ledger::Settings;
use ichido_ledger::memory::Memory;

use super::*;

fn ledger() -> Ledger {
    Ledger::new(Arc::new(Memory::new(Arc::new(SystemClock::default()), 100)), Settings::default())
}

async fn granted(ledger: &Ledger, key: &str) -> (Key, Grant) {
    let request = ledger.request(Key::unscoped(key).unwrap());
    let Claim::Granted(grant) = ledger.claim(&request).await.unwrap().claim else { panic!("granted") };
    (request.key, grant)
}

fn identity(key: &Key) -> RequestIdentity {
    let caller = Some(Caller::from_bytes([1; 32]));
    RequestIdentity { key: key.clone(), fingerprint: Fingerprint::of(["x"]), caller }
}

fn entry(key: &Key, grant: &Grant, settle: Settle) -> Entry {
    Entry { request: identity(key), token: grant.token, settle }
}

#[tokio::test]
async fn an_entry_survives_a_restart_and_reaches_the_ledger() {
    let (dir, ledger) = (tempfile::tempdir().unwrap(), ledger());
    let (key, grant) = granted(&ledger, "k").await;
    let (other, other_grant) = granted(&ledger, "other").await;
    let outcome = Outcome::kept(&b"line\nanother\0"[..]);
    let journal = Journal::open(dir.path()).unwrap();
    journal
        .append(&ledger, entry(&key, &grant, Settle::Complete(outcome.clone())), Some(&grant))
        .await
        .unwrap();
    journal.append(&ledger, entry(&other, &other_grant, Settle::Release), None).await.unwrap();
    assert_eq!(journal.outcome(&key), Some((identity(&key), outcome.clone())));
    assert_eq!(journal.outcome(&other), None);
    assert!(Journal::open(dir.path()).unwrap_err().to_string().contains("in use by another process"));
    drop(journal);

    let journal = Journal::open(dir.path()).unwrap();
    assert_eq!(journal.len(), 2);
    assert_eq!(journal.outcome(&key), Some((identity(&key), outcome.clone())));
    assert_eq!(journal.drain(&ledger).await, 0);
    assert_eq!(ledger.claim(&ledger.request(key)).await.unwrap().claim, Claim::Done(outcome));
    assert!(matches!(ledger.claim(&ledger.request(other)).await.unwrap().claim, Claim::Granted(_)));
    drop(journal);
    assert!(Journal::open(dir.path()).unwrap().is_empty());
}

#[tokio::test]
async fn a_damaged_entry_is_renamed_and_a_partial_one_removed() {
    let (dir, ledger) = (tempfile::tempdir().unwrap(), ledger());
    let (key, grant) = granted(&ledger, "k").await;
    let journal = Journal::open(dir.path()).unwrap();
    let entry = entry(&key, &grant, Settle::Complete(Outcome::Tombstone("large".to_owned())));
    journal.append(&ledger, entry, None).await.unwrap();
    let path = journal.lock().values().flatten().next().unwrap().path.clone();
    drop(journal);
    let mut bytes = fs::read(&path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&path, bytes).unwrap();
    fs::write(dir.path().join("x.half"), "torn").unwrap();

    assert!(Journal::open(dir.path()).unwrap().is_empty());
    let names: Vec<_> = fs::read_dir(dir.path())
        .unwrap()
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .collect();
    assert!(names.iter().any(|name| name.ends_with(UNREADABLE)), "{names:?}");
    assert!(!names.iter().any(|name| name.ends_with(TEMPORARY)), "{names:?}");
}

#[tokio::test]
async fn the_log_does_not_show_the_stored_response() {
    let (dir, ledger) = (tempfile::tempdir().unwrap(), ledger());
    let (key, grant) = granted(&ledger, "k").await;
    let journal = Journal::open(dir.path()).unwrap();
    // A different token: the claim was taken over and completed by its new holder while this entry waited.
    let late = Entry {
        token: Token::from_bytes([7; 16]),
        ..entry(&key, &grant, Settle::Complete(Outcome::kept("late")))
    };
    journal.append(&ledger, late, None).await.unwrap();
    assert_eq!(
        ledger.complete(&key, grant.token, Outcome::kept("secret-response")).await.unwrap(),
        Settled::Applied
    );
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt().with_writer({
        let log = log.clone();
        move || log.clone()
    });
    let guard = tracing::subscriber::set_default(subscriber.finish());
    assert_eq!(journal.drain(&ledger).await, 0);
    drop(guard);
    let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert!(text.contains("claim already settled differently"), "{text}");
    // Neither as text nor as a list of bytes.
    assert!(!text.contains("secret") && !text.contains("115, 101, 99"), "{text}");
    assert!(!format!("{journal:?}").contains("secret"));
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
