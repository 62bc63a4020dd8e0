//! A mail server that records what it receives, with TLS from the first byte, with STARTTLS, or without TLS.

use std::sync::{Arc, Mutex};

use rustls::ServerConfig;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

/// The login that it accepts.
pub const USER: &str = "ops@example.com";
/// The password of [`USER`].
pub const PASSWORD: &str = "p@ss/w:rd";

/// [`USER`] and [`PASSWORD`] as AUTH PLAIN encodes them.
const LOGIN: &str = "AG9wc0BleGFtcGxlLmNvbQBwQHNzL3c6cmQ=";

/// How the connection is encrypted.
#[derive(Clone, Debug)]
pub enum Encryption {
    /// TLS from the first byte.
    Tls(Arc<ServerConfig>),
    /// TLS after STARTTLS.
    StartTls(Arc<ServerConfig>),
    /// No TLS.
    None,
}

/// What the server rejects.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rejects {
    /// Rejects every login, and echoes the password as no server should.
    pub logins: bool,
    /// Rejects this recipient.
    pub recipient: Option<&'static str>,
    /// Is busy for this many first messages.
    pub first: usize,
}

/// An accepted mail.
#[derive(Clone, Debug, Default)]
pub struct Mail {
    /// Its recipients.
    pub to: Vec<String>,
    /// Its headers and text.
    pub data: String,
    /// Whether the connection was encrypted.
    pub encrypted: bool,
    /// Whether the client had logged in.
    pub logged_in: bool,
}

/// A running mail server. It stops with the runtime that started it.
#[derive(Debug)]
pub struct MailServer {
    /// The port on which it listens.
    pub port: u16,
    state: Arc<State>,
}

#[derive(Debug)]
struct State {
    encryption: Encryption,
    rejects: Rejects,
    mails: Mutex<Vec<Mail>>,
    lines: Mutex<Vec<String>>,
    busy: Mutex<usize>,
}

impl MailServer {
    /// Starts a server on a free port.
    pub async fn start(encryption: Encryption, rejects: Rejects) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (mails, lines, busy) = (Mutex::default(), Mutex::default(), Mutex::new(rejects.first));
        let state = Arc::new(State { encryption, rejects, mails, lines, busy });
        let serving = state.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, serving.clone()));
            }
        });
        Self { port, state }
    }

    /// The mails it accepted.
    pub fn mails(&self) -> Vec<Mail> {
        self.state.mails.lock().unwrap().clone()
    }

    /// Every line that clients sent.
    pub fn lines(&self) -> String {
        self.state.lines.lock().unwrap().join("\n")
    }
}

async fn serve(stream: TcpStream, state: Arc<State>) -> Option<()> {
    match state.encryption.clone() {
        Encryption::Tls(config) => {
            talk(TlsAcceptor::from(config).accept(stream).await.ok()?, &state, Hello::First, true)
                .await
                .map(drop)
        }
        Encryption::None => talk(stream, &state, Hello::First, false).await.map(drop),
        Encryption::StartTls(config) => {
            let stream = talk(stream, &state, Hello::First, false).await?;
            talk(TlsAcceptor::from(config).accept(stream).await.ok()?, &state, Hello::Again, true)
                .await
                .map(drop)
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
    state.lines.lock().unwrap().push(line.clone());
    Some(line)
}
