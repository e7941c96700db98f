//! One `redis-server` process, killed on drop.

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, TcpListener};
use std::process::{Child, Command, Stdio};

pub(crate) struct Server {
    process: Child,
    pub(crate) address: String,
}

impl Server {
    pub(crate) fn start() -> Self {
        let program =
            std::env::var("QUORATE_REDIS_SERVER").unwrap_or_else(|_| "redis-server".to_owned());
        for _ in 0..20 {
            // Another process may take the port: then the server ends, and another is tried.
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            let port = listener.local_addr().unwrap().port().to_string();
            drop(listener);
            let arguments = ["--port", &port, "--bind", "127.0.0.1", "--save", ""];
            let mut process = Command::new(&program)
                .args(arguments)
                .args(["--daemonize", "no", "--logfile", ""])
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let output = BufReader::new(process.stdout.take().unwrap());
            let mut lines = output.lines().map_while(Result::ok);
            if lines.any(|line| line.to_lowercase().contains("ready to accept connections")) {
                std::thread::spawn(move || lines.for_each(drop));
                return Self { process, address: format!("127.0.0.1:{port}") };
            }
            process.wait().unwrap();
        }
        panic!("redis-server does not start");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
