//! An authority of a test's own, and the certificates that it signs.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use super::{TempDir, temp_dir};

/// An authority for TLS, made by `openssl`, which has to be installed. Its files go with it.
#[derive(Debug)]
pub struct Authority(TempDir);

/// The files of a certificate and of its key, in PEM.
#[derive(Clone, Debug)]
pub struct Certificate {
    /// The certificate.
    pub cert: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

impl Authority {
    /// Makes an authority that no system trusts.
    pub fn create() -> Self {
        Self::create_with(CONFIG)
    }

    /// Makes one whose certificates are good for `localhost` alone, by name.
    pub fn by_name() -> Self {
        Self::create_with(&CONFIG.replace(", IP:127.0.0.1", ""))
    }

    fn create_with(config: &str) -> Self {
        let authority = Self(temp_dir());
        fs::write(authority.file("config"), config).expect("a file in our own directory");
        authority.openssl(&format!("req -x509 {KEY} -keyout ca.key -out ca.crt {NAME}authority"));
        authority
    }

    /// The file of its certificate, in PEM.
    pub fn ca(&self) -> PathBuf {
        self.file("ca.crt")
    }

    /// Makes a certificate that is good for a client, and for a server as `localhost` and 127.0.0.1.
    pub fn certify(&self, name: &str) -> Certificate {
        let [cert, key] = ["crt", "key"].map(|end| self.file(&format!("{name}.{end}")));
        if !cert.exists() {
            self.openssl(&format!("req {KEY} -keyout {name}.key -out {name}.csr {NAME}{name}"));
            let signed =
                "-CA ca.crt -CAkey ca.key -CAcreateserial -extfile config -extensions leaf";
            self.openssl(&format!("x509 -req -in {name}.csr -out {name}.crt {signed}"));
        }
        Certificate { cert, key }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn openssl(&self, words: &str) {
        let mut command = Command::new("openssl");
        let done = command.args(words.split_whitespace()).current_dir(self.0.path()).output();
        let done = done.expect("openssl, which a package of this name has");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }
}

const KEY: &str = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";

const NAME: &str = "-config config -subj /CN=";

const CONFIG: &str = "[req]
distinguished_name = name
x509_extensions = authority
[name]
[authority]
basicConstraints = critical, CA:TRUE
[leaf]
basicConstraints = CA:FALSE
subjectAltName = DNS:localhost, IP:127.0.0.1
";
