// Package outbound connects to hosts that a user has chosen, such as those of webhooks and callbacks. The
// address of a connection is checked when the connection is made, because a name can mean another address at
// each look-up, and a public name can mean an address inside the network of the program.
package outbound

import (
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"github.com/midgehq/midge/storage"
)

// A Class describes an address in words for an error.
type Class string

// An address is of one of these classes.
const (
	Public   Class = "a public address"
	Private  Class = "a private address"
	Machine  Class = "an address of this machine"
	Link     Class = "a link-local address"
	Cloud    Class = "an address of a cloud's own services"
	Reserved Class = "a reserved address"
)

// cloud are the addresses at which clouds hand out credentials and settings to their machines.
var cloud = []netip.Addr{
	netip.MustParseAddr("169.254.169.254"), netip.MustParseAddr("169.254.170.2"),
	netip.MustParseAddr("169.254.170.23"), netip.MustParseAddr("168.63.129.16"),
	netip.MustParseAddr("100.100.100.200"), netip.MustParseAddr("192.0.0.192"),
	netip.MustParseAddr("fd00:ec2::254"), netip.MustParseAddr("fd00:ec2::23"),
	netip.MustParseAddr("fd20:ce::254"),
}

// networks are the networks of the other classes, by the registries of RFC 6890. The first one that contains
// an address counts, so that only the allocated part of IPv6 is public.
var networks = []struct {
	prefix netip.Prefix
	class  Class
}{
	{netip.MustParsePrefix("0.0.0.0/8"), Machine}, // Linux connects 0.0.0.0 to the machine itself
	{netip.MustParsePrefix("127.0.0.0/8"), Machine},
	{netip.MustParsePrefix("10.0.0.0/8"), Private},
	{netip.MustParsePrefix("172.16.0.0/12"), Private},
	{netip.MustParsePrefix("192.168.0.0/16"), Private},
	{netip.MustParsePrefix("100.64.0.0/10"), Private}, // behind the NAT of a carrier or a cloud
	{netip.MustParsePrefix("169.254.0.0/16"), Link},
	{netip.MustParsePrefix("192.0.0.0/24"), Reserved},
	{netip.MustParsePrefix("198.18.0.0/15"), Reserved}, // benchmarks
	{netip.MustParsePrefix("224.0.0.0/3"), Reserved},   // multicast, future use, broadcast
	{netip.MustParsePrefix("0.0.0.0/0"), Public},
	{netip.MustParsePrefix("::/127"), Machine},
	{netip.MustParsePrefix("fc00::/7"), Private},
	{netip.MustParsePrefix("fe80::/10"), Link},
	{netip.MustParsePrefix("2001::/32"), Reserved}, // Teredo, which holds IPv4 addresses of others
	{netip.MustParsePrefix("2000::/3"), Public},
}

// These prefixes are of IPv6 addresses that hold an IPv4 address: NAT64 (RFC 6052) and 6to4 (RFC 3056).
var (
	translated = netip.MustParsePrefix("64:ff9b::/96")
	sixToFour  = netip.MustParsePrefix("2002::/16")
)

// meant returns the address to which a connection to ip leads: the IPv4 address that an IPv6 address holds,
// or ip without its zone.
func meant(ip netip.Addr) netip.Addr {
	ip = ip.Unmap().WithZone("")
	all := ip.As16()
	switch {
	case translated.Contains(ip):
		return netip.AddrFrom4([4]byte(all[12:]))
	case sixToFour.Contains(ip):
		return netip.AddrFrom4([4]byte(all[2:6]))
	}
	return ip
}

// ClassOf returns the class of an address.
func ClassOf(ip netip.Addr) Class {
	ip = meant(ip)
	if slices.Contains(cloud, ip) {
		return Cloud
	}
	for _, n := range networks {
		if n.prefix.Contains(ip) {
			return n.class
		}
	}
	return Reserved
}

// Named reports whether one of the prefixes names an address. An address of a cloud's own services is named
// only by a prefix that holds nothing else, because whoever allows a wide network does not think of it.
func Named(ip netip.Addr, prefixes []netip.Prefix) bool {
	ip = meant(ip)
	special := slices.Contains(cloud, ip)
	return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool {
		return p.Contains(ip) && (!special || p.IsSingleIP())
	})
}

// CheckPrefix returns an error for a prefix that names no address. what names the place of the prefix.
func CheckPrefix(what string, p netip.Prefix) error {
	if !p.IsValid() || meant(p.Addr()) != p.Addr() {
		return storage.Invalid(what, p, "a network such as 10.0.0.0/8 or fd12:3456::/32; an IPv4 network in its own form")
	}
	return nil
}

// dialTime bounds the making of a connection, and the handshake of TLS.
const dialTime = 10 * time.Second

// NewTransport returns a transport of HTTP whose connections go only to the addresses for which permit
// returns nil. The errors of permit are in those of the transport. It uses no proxy of the environment,
// because that would not be checked. Each request has a connection of its own, so that each is checked, and
// none is left over. resolver looks up the names of hosts; nil means the usual one.
func NewTransport(permit func(ip netip.Addr) error, resolver *net.Resolver) *http.Transport {
	dialer := net.Dialer{
		Timeout: dialTime, Resolver: resolver,
		Control: func(_, address string, _ syscall.RawConn) error {
			to, err := netip.ParseAddrPort(address)
			if err != nil {
				return storage.Invalid("address", address, "one of a network")
			}
			return permit(to.Addr())
		},
	}
	return &http.Transport{
		DialContext: dialer.DialContext, DisableKeepAlives: true, DisableCompression: true,
		TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12}, TLSHandshakeTimeout: dialTime,
		MaxResponseHeaderBytes: 64 << 10,
	}
}
