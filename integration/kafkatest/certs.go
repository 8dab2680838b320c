package kafkatest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// ClientName is the common name in the client certificate, and so the user on the [MTLS] listener.
const ClientName = "client"

// certificates are the paths of a cluster's PEM files.
type certificates struct {
	ca         string
	otherCA    string
	server     string // key and chain in one file, as Kafka wants it
	clientCert string
	clientKey  string
	// These were valid once.
	expiredServer     string
	expiredClientCert string
	expiredClientKey  string
}

// An authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// writeCertificates makes an authority, a server and a client certificate signed by it, and an
// authority that signed nothing, for tests of distrust.
func writeCertificates(dir string) (*certificates, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	ca, err := newAuthority("kafkatest CA")
	if err != nil {
		return nil, err
	}
	other, err := newAuthority("kafkatest other CA")
	if err != nil {
		return nil, err
	}
	const week = 7 * 24 * time.Hour
	server, err := ca.issue("server", x509.ExtKeyUsageServerAuth, week)
	if err != nil {
		return nil, err
	}
	client, err := ca.issue(ClientName, x509.ExtKeyUsageClientAuth, week)
	if err != nil {
		return nil, err
	}
	oldServer, err := ca.issue("server", x509.ExtKeyUsageServerAuth, -time.Minute)
	if err != nil {
		return nil, err
	}
	oldClient, err := ca.issue(ClientName, x509.ExtKeyUsageClientAuth, -time.Minute)
	if err != nil {
		return nil, err
	}
	c := &certificates{
		ca:         filepath.Join(dir, "ca.pem"),
		otherCA:    filepath.Join(dir, "other-ca.pem"),
		server:     filepath.Join(dir, "server.pem"),
		clientCert: filepath.Join(dir, "client-cert.pem"),
		clientKey:  filepath.Join(dir, "client-key.pem"),

		expiredServer:     filepath.Join(dir, "expired-server.pem"),
		expiredClientCert: filepath.Join(dir, "expired-client-cert.pem"),
		expiredClientKey:  filepath.Join(dir, "expired-client-key.pem"),
	}
	for path, content := range map[string][]byte{
		c.ca:         ca.pem(),
		c.otherCA:    other.pem(),
		c.server:     slices.Concat(server.key, server.cert, ca.pem()),
		c.clientCert: client.cert,
		c.clientKey:  client.key,

		c.expiredServer:     slices.Concat(oldServer.key, oldServer.cert, ca.pem()),
		c.expiredClientCert: oldClient.cert,
		c.expiredClientKey:  oldClient.key,
	} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func newAuthority(name string) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := certificateTemplate(name)
	template.IsCA = true
	template.BasicConstraintsValid = true
	template.KeyUsage = x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	return &authority{cert, key}, err
}

// issued is a certificate and its key as PEM.
type issued struct{ cert, key []byte }

// issue signs a certificate for this machine that ends that long from now.
func (a *authority) issue(name string, usage x509.ExtKeyUsage, valid time.Duration) (issued, error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return issued{}, err
	}
	template := certificateTemplate(name)
	template.NotAfter = time.Now().Add(valid)
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{usage}
	template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	template.DNSNames = []string{"localhost"}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, private.Public(), a.key)
	if err != nil {
		return issued{}, err
	}
	// Kafka reads PKCS#8 keys only.
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return issued{}, err
	}
	return issued{pemBlock("CERTIFICATE", der), pemBlock("PRIVATE KEY", pkcs8)}, nil
}

func (a *authority) pem() []byte { return pemBlock("CERTIFICATE", a.cert.Raw) }

func certificateTemplate(name string) *x509.Certificate {
	serial, _ := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: name},
		// An hour back, for clocks that disagree.
		NotBefore: time.Now().Add(-time.Hour),
		NotAfter:  time.Now().Add(7 * 24 * time.Hour),
	}
}

func pemBlock(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// CA returns the path of the PEM file of the authority that signed the brokers' certificates. Like
// the other files it exists whether or not a TLS listener is open, but not for running brokers that
// were named in GAPLESS_TEST_BROKERS.
func (c *Cluster) CA() string { return c.certs.ca }

// OtherCA returns the path of the PEM file of an authority that signed no broker's certificate.
func (c *Cluster) OtherCA() string { return c.certs.otherCA }

// ClientCert returns the paths of the PEM files of a certificate, and its key, that [MTLS] accepts.
func (c *Cluster) ClientCert() (certFile, keyFile string) {
	return c.certs.clientCert, c.certs.clientKey
}

// ExpiredClientCert is like ClientCert, of a certificate that was valid until a minute before the start.
func (c *Cluster) ExpiredClientCert() (certFile, keyFile string) {
	return c.certs.expiredClientCert, c.certs.expiredClientKey
}

// TLSConfig returns a client's configuration for the [TLS] and [SASLTLS] listeners.
func (c *Cluster) TLSConfig() (*tls.Config, error) {
	ca, err := os.ReadFile(c.CA())
	if err != nil {
		return nil, fmt.Errorf("kafkatest: %w", err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	return &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, nil
}

// MutualTLSConfig returns a client's configuration for the [MTLS] listener.
func (c *Cluster) MutualTLSConfig() (*tls.Config, error) {
	config, err := c.TLSConfig()
	if err != nil {
		return nil, err
	}
	pair, err := tls.LoadX509KeyPair(c.ClientCert())
	if err != nil {
		return nil, fmt.Errorf("kafkatest: %w", err)
	}
	config.Certificates = []tls.Certificate{pair}
	return config, nil
}
