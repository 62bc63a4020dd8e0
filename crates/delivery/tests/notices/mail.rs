//! A mail server that records what it receives, with TLS from the first byte, with STARTTLS, or without TLS.

use std::sync::{Arc, Mutex};

use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

/// `\0ops@example.com\0p@ss/w:rd`
const LOGIN: &str = "AG9wc0BleGFtcGxlLmNvbQBwQHNzL3c6cmQ=";

#[derive(Clone)]
pub(crate) enum Encryption {
    Tls(TlsAcceptor),
    StartTls(TlsAcceptor),
    None,
}

/// What the server rejects.
#[derive(Clone, Copy, Default)]
pub(crate) struct Rejects {
    /// Rejects every login, and echoes the password as no server should.
    pub(crate) logins: bool,
    /// Rejects this recipient.
    pub(crate) recipient: Option<&'static str>,
    /// Is busy for this many first messages.
    pub(crate) first: usize,
}

/// An accepted mail.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mail {
    pub(crate) to: Vec<String>,
    pub(crate) data: String,
    pub(crate) encrypted: bool,
    pub(crate) logged_in: bool,
}

pub(crate) struct Server {
    pub(crate) port: u16,
    state: Arc<State>,
}

struct State {
    encryption: Encryption,
    rejects: Rejects,
    mails: Mutex<Vec<Mail>>,
    said: Mutex<Vec<String>>,
    busy: Mutex<usize>,
}

impl Server {
    pub(crate) async fn start(encryption: Encryption, rejects: Rejects) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (mails, said, busy) = (Mutex::default(), Mutex::default(), Mutex::new(rejects.first));
        let state = Arc::new(State { encryption, rejects, mails, said, busy });
        let serving = state.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, serving.clone()));
            }
        });
        Self { port, state }
    }

    pub(crate) fn mails(&self) -> Vec<Mail> {
        self.state.mails.lock().unwrap().clone()
    }

    /// Every line that the client sent.
    pub(crate) fn said(&self) -> String {
        self.state.said.lock().unwrap().join("\n")
    }
}

async fn serve(stream: TcpStream, state: Arc<State>) -> Option<()> {
    match state.encryption.clone() {
        Encryption::Tls(tls) => {
            talk(tls.accept(stream).await.ok()?, &state, Hello::First, true).await.map(drop)
        }
        Encryption::None => talk(stream, &state, Hello::First, false).await.map(drop),
        Encryption::StartTls(tls) => {
            let stream = talk(stream, &state, Hello::First, false).await?;
            talk(tls.accept(stream).await.ok()?, &state, Hello::Again, true).await.map(drop)
        }
    }
}

#[derive(PartialEq)]
enum Hello {
    First,
    Again,
}

/// Serves until the end of the session, or until STARTTLS returns the stream.
async fn talk<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    state: &State,
    hello: Hello,
    encrypted: bool,
) -> Option<S> {
    let mut stream = BufReader::new(stream);
    if hello == Hello::First {
        stream.write_all(b"220 localhost\r\n").await.ok()?;
    }
    let mut mail = Mail { encrypted, ..Mail::default() };
    loop {
        let line = line(&mut stream, state).await?;
        let word = line.split([' ', ':']).next().unwrap_or_default().to_ascii_uppercase();
        let answer = match word.as_str() {
            "EHLO" => match (&state.encryption, encrypted) {
                (Encryption::StartTls(_), false) => "250-localhost\r\n250 STARTTLS".to_owned(),
                _ => "250-localhost\r\n250 AUTH PLAIN".to_owned(),
            },
            "STARTTLS" => {
                stream.write_all(b"220 go ahead\r\n").await.ok()?;
                return Some(stream.into_inner());
            }
            "AUTH" if state.rejects.logins => "535 p@ss/w:rd is wrong for ops@example.com".to_owned(),
            "AUTH" if line.ends_with(LOGIN) => {
                mail.logged_in = true;
                "235 welcome".to_owned()
            }
            "AUTH" => "535 no".to_owned(),
            "MAIL" if is_busy(state) => "451 busy".to_owned(),
            "RCPT" if state.rejects.recipient.is_some_and(|bad| line.contains(bad)) => {
                "550 nobody".to_owned()
            }
            "RCPT" => {
                mail.to.push(line[8..].trim_matches(['<', '>']).to_owned());
                "250 ok".to_owned()
            }
            "DATA" => {
                stream.write_all(b"354 go ahead\r\n").await.ok()?;
                loop {
                    match self::line(&mut stream, state).await?.as_str() {
                        "." => break,
                        text => mail.data.push_str(&format!("{text}\n")),
                    }
                }
                state.mails.lock().unwrap().push(mail.clone());
                "250 taken".to_owned()
            }
            "QUIT" => {
                stream.write_all(b"221 bye\r\n").await.ok()?;
                return None;
            }
            _ => "250 ok".to_owned(),
        };
        stream.write_all(format!("{answer}\r\n").as_bytes()).await.ok()?;
    }
}

fn is_busy(state: &State) -> bool {
    let mut busy = state.busy.lock().unwrap();
    let is_busy = *busy > 0;
    *busy = busy.saturating_sub(1);
    is_busy
}

async fn line<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut BufReader<S>, state: &State) -> Option<String> {
    let mut line = String::new();
    if stream.read_line(&mut line).await.ok()? == 0 {
        return None;
    }
    let line = line.trim_end_matches(['\r', '\n']).to_owned();
    state.said.lock().unwrap().push(line.clone());
    Some(line)
}
