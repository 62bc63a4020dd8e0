//! Starts, measures and stops the processes of a benchmark.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tokio::time::Instant;

use crate::options::ROLE;

const TIMEOUT: Duration = Duration::from_secs(20);

/// A directory on the disk that is measured.
pub fn scratch() -> tempfile::TempDir {
    let base = std::env::var_os("ICHIDO_BENCH_DIR").map_or_else(|| PathBuf::from("."), PathBuf::from);
    tempfile::Builder::new().prefix("gateway-bench-").tempdir_in(base.canonicalize().unwrap()).unwrap()
}

/// A process that listens.
pub struct Process {
    child: Child,
    pub address: SocketAddr,
    /// The admin address, if it is a gateway.
    pub admin: Option<SocketAddr>,
    _scratch: Option<tempfile::TempDir>,
}

impl Process {
    /// Starts this program in another role.
    pub fn role(arguments: &[&str]) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.arg(ROLE).args(arguments);
        Self::reporting(command)
    }

    /// Starts a program that prints its port on a line once it listens, and exits when its standard input closes.
    pub fn reporting(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = ([127, 0, 0, 1], line.trim().parse().expect("the process did not start")).into();
        Self { child, address, admin: None, _scratch: None }
    }

    pub fn service() -> Self {
        Self::role(&["service"])
    }

    /// A service that responds with this many bytes of JSON.
    pub fn service_of(bytes: u64) -> Self {
        Self::role(&["service", &bytes.to_string()])
    }

    pub fn proxy(service: &Self) -> Self {
        Self::role(&["proxy", &service.address.to_string()])
    }

    /// A proxy that also writes what each request would leave on disk: a claim and an outcome.
    pub fn proxy_with_log(service: &Self, dir: &Path) -> Self {
        let log = dir.join("log").display().to_string();
        Self::role(&["proxy", &service.address.to_string(), &log])
    }

    /// nginx as a proxy with persistent connections and two workers, one per core.
    pub fn nginx(service: &Self) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (home, address) = (dir.path().display(), free_address());
        let settings = format!(
            "daemon off; pid {home}/pid; error_log stderr crit; worker_processes 2;
            events {{ worker_connections 4096; }}
            http {{
                access_log off; keepalive_requests 1000000000;
                client_body_temp_path {home}/b; proxy_temp_path {home}/p; fastcgi_temp_path {home}/f;
                uwsgi_temp_path {home}/u; scgi_temp_path {home}/s;
                upstream service {{ server {}; keepalive 512; keepalive_requests 1000000000; }}
                server {{
                    listen {address};
                    location / {{
                        proxy_pass http://service; proxy_http_version 1.1; proxy_set_header Connection \"\";
                    }}
                }}
            }}",
            service.address
        );
        let file = dir.path().join("nginx.conf");
        std::fs::write(&file, settings).unwrap();
        let mut command = Command::new("nginx");
        command.arg("-e").arg("stderr").arg("-c").arg(&file);
        let child = command.spawn().expect("nginx");
        Self::wait_until_listening(child, address, Some(dir))
    }

    /// The gateway on a ledger, with default settings except for its ports.
    pub fn gateway(service: &Self, ledger: &str, more: &Settings<'_>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (child, address, admin) = spawn_gateway(service, ledger, more, dir.path());
        let mut process = Self::wait_until_listening(child, address, Some(dir));
        process.admin = Some(admin);
        process
    }

    /// The daemon with the settings in a directory, addressed by its admin port.
    pub fn daemon(dir: &Path, environment: &[(&str, &str)]) -> Self {
        let (child, address) = spawn_daemon(dir, environment);
        let process = Self { child, address, admin: None, _scratch: None };
        process.wait_until_ready();
        process
    }

    /// Waits until it reports that it is ready.
    fn wait_until_ready(&self) {
        let started = Instant::now();
        while get(self.address, "/readyz").is_none_or(|page| page.status != 200) {
            assert!(started.elapsed() < TIMEOUT, "daemon is not ready");
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    /// The claim API on a ledger, with default settings except for its port.
    pub fn claims(ledger: &str, log_level: Option<&str>) -> Self {
        let address = free_address();
        let mut command = Command::new(std::env::current_exe().unwrap().with_file_name("ichido"));
        command
            .args(["claims", "--ledger", ledger, "--listen", &address.to_string()])
            .env_clear()
            .envs(log_level.map(|level| ("LOG_LEVEL", level)))
            .current_dir(std::env::temp_dir())
            .stderr(Stdio::null());
        Self::wait_until_listening(command.spawn().unwrap(), address, None)
    }

    /// The meter on a database, with default settings except for its port.
    pub fn meter(db: &str) -> Self {
        let address = free_address();
        let mut command = Command::new(std::env::current_exe().unwrap().with_file_name("ichido"));
        command
            .args(["meter", "--db", db, "--listen", &address.to_string(), "--admin", "127.0.0.1:0"])
            .env_clear()
            .current_dir(std::env::temp_dir())
            .stderr(Stdio::null());
        Self::wait_until_listening(command.spawn().unwrap(), address, None)
    }

    /// Starts a program and waits until it listens. Its files are removed after it.
    pub fn listening(mut command: Command, address: SocketAddr, files: tempfile::TempDir) -> Self {
        Self::wait_until_listening(command.spawn().unwrap(), address, Some(files))
    }

    fn wait_until_listening(child: Child, address: SocketAddr, scratch: Option<tempfile::TempDir>) -> Self {
        let started = Instant::now();
        while TcpStream::connect(address).is_err() {
            assert!(started.elapsed() < TIMEOUT, "nothing listens on {address}");
            std::thread::sleep(Duration::from_millis(5));
        }
        Self { child, address, admin: None, _scratch: scratch }
    }

    /// The processor time it has used, in seconds.
    pub fn cpu(&self) -> f64 {
        processor_time(self.child.id()).unwrap()
    }

    /// Its resident memory.
    pub fn resident_mb(&self) -> f64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        resident.trim().trim_end_matches(" kB").parse::<f64>().unwrap() / 1024.0
    }
}

/// The processor time that a process has used, in seconds, or `None` if it has exited.
pub fn processor_time(pid: u32) -> Option<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(") ")?;
    let ticks: f64 = fields.split(' ').skip(11).take(2).filter_map(|ticks| ticks.parse::<f64>().ok()).sum();
    Some(ticks / 100.0)
}

/// Stops the process and waits for it.
impl Drop for Process {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = Command::new("kill").arg(self.child.id().to_string()).status();
        let _ = self.child.wait();
    }
}

/// Deviations from the default settings.
#[derive(Clone, Copy, Debug, Default)]
pub struct Settings<'a> {
    pub log_level: Option<&'a str>,
    pub optional_key: bool,
    pub no_history: bool,
}

/// Starts a gateway in a directory, where it may create a journal. Gateways cannot share one.
fn spawn_gateway(
    service: &Process,
    ledger: &str,
    more: &Settings<'_>,
    dir: &Path,
) -> (Child, SocketAddr, SocketAddr) {
    let (address, admin) = (free_address(), free_address());
    let program = std::env::current_exe().unwrap().with_file_name("ichido");
    let mut command = Command::new(program);
    command
        .args(["gateway", "--upstream", &format!("http://{}", service.address), "--ledger", ledger])
        .args(["--listen", &address.to_string(), "--admin", &admin.to_string()])
        .args(more.optional_key.then_some("--optional-key"))
        .env_clear()
        .envs(more.log_level.map(|level| ("LOG_LEVEL", level)))
        .envs(more.no_history.then_some(("ICHIDO_HISTORY_DIR", "off")))
        .current_dir(dir)
        .stderr(Stdio::null());
    (command.spawn().unwrap(), address, admin)
}

fn spawn_daemon(dir: &Path, environment: &[(&str, &str)]) -> (Child, SocketAddr) {
    let admin = free_address();
    let mut command = Command::new(std::env::current_exe().unwrap().with_file_name("ichido"));
    command
        .args(["run", "--admin", &admin.to_string()])
        .env_clear()
        .envs(environment.iter().copied())
        .current_dir(dir)
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    (command.spawn().unwrap(), admin)
}

/// Returns the time from the start of a daemon until it reports that it is ready.
pub fn time_to_ready(dir: &Path, environment: &[(&str, &str)]) -> Duration {
    let started = Instant::now();
    let (child, address) = spawn_daemon(dir, environment);
    let process = Process { child, address, admin: None, _scratch: None };
    process.wait_until_ready();
    let took = started.elapsed();
    drop(process);
    took
}

/// A page, and how long its complete response took.
#[derive(Debug)]
pub struct Page {
    pub status: u16,
    pub took: Duration,
    pub text: String,
}

/// Requests a page on a new connection.
pub fn get(address: SocketAddr, path: &str) -> Option<Page> {
    let started = Instant::now();
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(TIMEOUT)).ok()?;
    let request =
        format!("GET {path} HTTP/1.1\r\nhost: {address}\r\naccept: text/html\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut response = Vec::new();
    stream.read_to_end(&mut response).ok()?;
    let status = std::str::from_utf8(response.get(9..12)?).ok()?.parse().ok()?;
    let took = started.elapsed();
    Some(Page { status, took, text: String::from_utf8_lossy(&response).into_owned() })
}

/// Returns the time from the start of a gateway to its first response from the upstream.
pub fn time_to_first_response(service: &Process, ledger: &str) -> Duration {
    let started = Instant::now();
    let (child, address, _) = spawn_gateway(service, ledger, &Settings::default(), &std::env::temp_dir());
    let mut stream = loop {
        match TcpStream::connect(address) {
            Ok(stream) => break stream,
            Err(_) => std::thread::sleep(Duration::from_micros(200)),
        }
        assert!(started.elapsed() < TIMEOUT, "gateway does not listen");
    };
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream.write_all(b"GET /orders HTTP/1.1\r\nhost: bench\r\nconnection: close\r\n\r\n").unwrap();
    let mut response = [0; 12];
    stream.read_exact(&mut response).unwrap();
    let took = started.elapsed();
    assert_eq!(&response, b"HTTP/1.1 200");
    drop(Process { child, address, admin: None, _scratch: None });
    took
}

/// The median of appending a record to a file and syncing it.
pub fn sync_ms(dir: &Path) -> f64 {
    let mut file = File::create(dir.join("synced")).unwrap();
    let took = (0..200).map(|_| {
        let started = Instant::now();
        file.write_all(&[7; 400]).unwrap();
        file.sync_data().unwrap();
        started.elapsed().as_secs_f64() * 1000.0
    });
    crate::median::median(took.collect())
}

/// An address that nothing listens on.
pub fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}
