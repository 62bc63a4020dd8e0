//! E-mail, over SMTP with TLS.

use std::time::Duration;

use ichido_settings::Invalid;
use lettre::message::Mailbox;
use lettre::message::header::ContentType;
use lettre::transport::smtp::AsyncSmtpTransport;
use lettre::transport::smtp::authentication::Credentials;
use lettre::transport::smtp::client::{Certificate, Tls, TlsParameters};
use lettre::{AsyncTransport, Tokio1Executor};
use secrecy::ExposeSecret;

use super::channel::{Channel, Failure};
use super::message::Message;
use super::settings::{EmailSettings, Encryption};
use crate::invalid::invalid;
use crate::redact::Redactor;
use crate::tls_roots::TlsRoots;

/// The timeout of one SMTP command.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A mail server, and the mailboxes to write to.
#[derive(Debug)]
pub struct Email {
    transport: AsyncSmtpTransport<Tokio1Executor>,
    from: Mailbox,
    to: Vec<Mailbox>,
    redactor: Redactor,
}

impl Email {
    /// Creates a channel through the configured server.
    pub fn new(settings: &EmailSettings, roots: &TlsRoots) -> Result<Self, Invalid> {
        let refused = |_| invalid("smtp_url", "has a host for which TLS cannot be set up");
        let mut tls = TlsParameters::builder(settings.host.clone());
        for certificate in roots.extra() {
            tls = tls.add_root_certificate(Certificate::from_der(certificate.to_vec()).map_err(refused)?);
        }
        let tls = tls.build_rustls().map_err(refused)?;
        let mut transport = AsyncSmtpTransport::<Tokio1Executor>::builder_dangerous(&settings.host)
            .port(settings.port)
            .timeout(Some(TIMEOUT))
            .tls(match settings.encryption {
                Encryption::Tls => Tls::Wrapper(tls),
                Encryption::StartTls => Tls::Required(tls),
                Encryption::IfOffered => Tls::Opportunistic(tls),
            });
        let mut redactor = Redactor::default();
        if let Some((user, password)) = &settings.login {
            redactor.add(password.expose_secret());
            transport =
                transport.credentials(Credentials::new(user.clone(), password.expose_secret().to_owned()));
        }
        let (from, to) = (settings.from.clone(), settings.to.clone());
        Ok(Self { transport: transport.build(), from, to, redactor })
    }

    async fn send_to(&self, to: &[Mailbox], message: &Message) -> Result<(), Failure> {
        let mut mail = lettre::Message::builder()
            .from(self.from.clone())
            .subject(message.subject.clone())
            .header(ContentType::TEXT_PLAIN);
        for to in to {
            mail = mail.to(to.clone());
        }
        let mail = mail
            .body(message.text.clone())
            .map_err(|error| Failure::Refused { reason: self.redactor.text(&error.to_string()) })?;
        self.transport.send(mail).await.map(drop).map_err(|error| self.failure(&error))
    }

    fn failure(&self, error: &lettre::transport::smtp::Error) -> Failure {
        let reason = self.redactor.text(&ichido_core::error_chain(error));
        match error.is_permanent() || error.is_client() {
            true => Failure::Refused { reason },
            false => Failure::Retryable { reason, retry_after: None },
        }
    }
}

#[async_trait::async_trait]
impl Channel for Email {
    fn name(&self) -> &'static str {
        "email"
    }

    fn describe(&self) -> String {
        let others = self.to.len().saturating_sub(1);
        let to = self.to.first().map(|to| to.email.to_string()).unwrap_or_default();
        match others {
            0 => format!("e-mail to {to}"),
            others => format!("e-mail to {to} and {others} more"),
        }
    }

    async fn send(&self, message: &Message) -> Result<(), Failure> {
        let refused = match self.send_to(&self.to, message).await {
            Err(Failure::Refused { reason }) if self.to.len() > 1 => reason,
            other => return other,
        };
        // One invalid address must not keep the others from being notified.
        let mut last = Failure::Refused { reason: refused };
        let mut arrived = false;
        for to in &self.to {
            match self.send_to(std::slice::from_ref(to), message).await {
                Ok(()) => arrived = true,
                Err(failure) => {
                    tracing::warn!(error = %failure, "cannot reach an address in NOTIFY_EMAIL_TO");
                    last = failure;
                }
            }
        }
        if arrived { Ok(()) } else { Err(last) }
    }
}
