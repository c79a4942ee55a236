use std::sync::Arc;

use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, client::TlsStream};

use super::{ConnectError, target::Address};

/// Who is trusted to say who a server is.
#[derive(Clone)]
pub(super) struct Tls(TlsConnector);

impl Tls {
    /// These certificates, in PEM; or those that the system trusts.
    pub(super) fn new(roots: Option<&[u8]>) -> Result<Self, ConnectError> {
        let mut store = RootCertStore::empty();
        match roots {
            Some(pem) => {
                let wrong = |error| ConnectError::because("root_certificates", "is not PEM", error);
                for certificate in CertificateDer::pem_slice_iter(pem) {
                    let certificate = certificate.map_err(|error| {
                        wrong(Box::<dyn std::error::Error + Send + Sync>::from(error))
                    })?;
                    store
                        .add(certificate)
                        .map_err(|error| wrong(error.into()))?;
                }
            }
            None => {
                let system = rustls_native_certs::load_native_certs();
                store.add_parsable_certificates(system.certs);
            }
        }
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
        Ok(Self(TlsConnector::from(Arc::new(config))))
    }

    pub(super) async fn connect(
        &self,
        address: &Address,
        stream: TcpStream,
    ) -> Result<TlsStream<TcpStream>, ConnectError> {
        let name = ServerName::try_from(address.host.clone()).map_err(|error| {
            ConnectError::because(address, "cannot be the name in a certificate", error)
        })?;
        self.0
            .connect(name, stream)
            .await
            .map_err(|error| ConnectError::because(address, "TLS failed", error))
    }
}
