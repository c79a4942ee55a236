use std::{error::Error, sync::Arc};

use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use tokio::{net::TcpStream, sync::OnceCell, task::spawn_blocking};
use tokio_rustls::{TlsConnector, client::TlsStream};
use tower_dist_ratelimit::backend::toolkit::ConnectError;

use super::target::Address;

/// The root certificates that verify servers.
///
/// If no certificates are given, the system's certificates are read when they are first needed, on a thread for
/// blocking work.
#[derive(Clone)]
pub(super) struct Tls(Arc<OnceCell<TlsConnector>>);

impl Tls {
    /// Uses these certificates in PEM, or the certificates that the system trusts.
    pub(super) fn new(roots: Option<&[u8]>) -> Result<Self, ConnectError> {
        let given = roots.map(|pem| connector(parse(pem)?)).transpose()?;
        Ok(Self(Arc::new(OnceCell::new_with(given))))
    }

    pub(super) async fn connect(
        &self,
        address: &Address,
        stream: TcpStream,
    ) -> Result<TlsStream<TcpStream>, ConnectError> {
        let name = ServerName::try_from(address.host.clone()).map_err(|error| {
            ConnectError::because(address, "cannot be the name in a certificate", error)
        })?;
        let connector = self.0.get_or_try_init(system).await?;
        connector
            .connect(name, stream)
            .await
            .map_err(|error| ConnectError::because(address, "TLS failed", error))
    }
}

fn parse(pem: &[u8]) -> Result<RootCertStore, ConnectError> {
    let wrong = |problem, error: Box<dyn Error + Send + Sync>| {
        ConnectError::because("root_certificates", problem, error)
    };
    let mut store = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|error| wrong("is not PEM", error.into()))?;
        let added = store.add(certificate);
        added.map_err(|error| wrong("contains an invalid certificate", error.into()))?;
    }
    Ok(store)
}

async fn system() -> Result<TlsConnector, ConnectError> {
    fn unread(error: impl Into<Box<dyn Error + Send + Sync>>) -> ConnectError {
        ConnectError::because("TLS", "the system's certificates cannot be read", error)
    }
    let read = spawn_blocking(rustls_native_certs::load_native_certs).await;
    let mut read = read.map_err(unread)?;
    let mut store = RootCertStore::empty();
    store.add_parsable_certificates(read.certs);
    match read.errors.pop() {
        // Some sources of certificates can be unreadable. That is an error only if no source has a valid certificate.
        Some(error) if store.is_empty() => Err(unread(error)),
        _ => connector(store),
    }
}

fn connector(store: RootCertStore) -> Result<TlsConnector, ConnectError> {
    if store.is_empty() {
        return Err(ConnectError::new(
            "TLS",
            "there is no root certificate to trust",
        ));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| ConnectError::because("TLS", "cannot be set up", error))?
        .with_root_certificates(store)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(pem: &[u8]) -> String {
        Tls::new(Some(pem)).err().unwrap().to_string()
    }

    #[test]
    fn root_certificates_that_are_missing_or_broken_are_errors() {
        let none = "TLS: there is no root certificate to trust";
        assert_eq!(error(b""), none);
        assert_eq!(error(b"no certificate"), none);
        let broken = error(b"-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n");
        assert!(
            broken.starts_with("root_certificates: is not PEM: "),
            "{broken}"
        );
        // PEM of three bytes that are no certificate.
        let invalid = error(b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
        assert!(
            invalid.starts_with("root_certificates: contains an invalid certificate: "),
            "{invalid}"
        );
    }
}
