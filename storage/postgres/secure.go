package postgres

import (
	"crypto/tls"
	"net"
)

// insecurity returns for Describe the defect of a connection to another machine, "" for none. settings
// are its TLS settings, nil without TLS.
func insecurity(conn net.Conn, settings *tls.Config) string {
	addr, remote := conn.RemoteAddr().(*net.TCPAddr)
	if !remote || addr.IP.IsLoopback() { // within this machine
		return ""
	}
	line, encrypted := conn.(*tls.Conn)
	switch {
	case !encrypted:
		return "the connection to the server is not encrypted: set sslmode=verify-full"
	case len(line.ConnectionState().VerifiedChains) > 0:
		return ""
	case settings != nil && (settings.VerifyPeerCertificate != nil || settings.VerifyConnection != nil):
		return "" // the settings verify by themselves, as with sslmode=verify-ca
	}
	return "the server's certificate is not verified, so that another server can stand in its place: " +
		"set sslmode=verify-full"
}
