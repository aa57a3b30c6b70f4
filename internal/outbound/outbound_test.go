package outbound

import (
	"crypto/tls"
	"net/netip"
	"testing"
)

func TestEachFormOfAnAddressHasItsClass(t *testing.T) {
	for class, addresses := range map[Class][]string{
		Public: {
			"1.1.1.1", "203.0.113.7", "11.0.0.1", "172.15.255.255", "172.32.0.0", "192.167.1.1", "100.63.255.255",
			"100.128.0.0", "192.0.1.1", "198.17.0.1", "198.20.0.1", "223.255.255.255", "2001:db8::7", "2606:4700::1",
			"3fff:ffff::1", "::ffff:1.1.1.1", "64:ff9b::1.1.1.1", "2002:0101:0101::1",
		},
		Private: {
			"10.0.0.1", "10.255.255.255", "172.16.0.1", "172.31.255.255", "192.168.0.1", "100.64.0.1", "100.127.255.255",
			"fc00::1", "fd12:3456::1", "::ffff:10.0.0.1", "64:ff9b::10.0.0.1", "2002:0a00:0001::1", "2002:c0a8:0101::",
		},
		Machine: {
			"127.0.0.1", "127.9.9.9", "0.0.0.0", "0.1.2.3", "::1", "::", "::ffff:127.0.0.1", "::ffff:0.0.0.0",
			"64:ff9b::127.0.0.1", "2002:7f00:0001::",
		},
		Link: {"169.254.0.1", "fe80::1", "fe80::1%eth0", "febf::1", "::ffff:169.254.1.1"},
		Cloud: {
			"169.254.169.254", "169.254.170.2", "169.254.170.23", "168.63.129.16", "100.100.100.200", "192.0.0.192",
			"fd00:ec2::254", "fd00:ec2::254%eth0", "fd20:ce::254", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe",
			"2002:a9fe:a9fe::",
		},
		Reserved: {
			"224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255", "198.18.0.1", "198.19.255.255", "192.0.0.8",
			"ff02::1", "ff0e::1", "fec0::1", "::127.0.0.1", "::ffff:0:127.0.0.1", "64:ff9b:1::10.0.0.1", "2001::1",
			"100::1", "5f00::1", "4000::1",
		},
	} {
		for _, address := range addresses {
			if got := ClassOf(netip.MustParseAddr(address)); got != class {
				t.Errorf("%s is %s, want %s", address, got, class)
			}
		}
	}
}

func TestAPrefixNamesItsAddresses(t *testing.T) {
	for _, c := range []struct {
		prefix, address string
		want            bool
	}{
		{"10.0.0.0/8", "10.1.2.3", true},
		{"10.0.0.0/8", "::ffff:10.1.2.3", true},
		{"10.0.0.0/8", "64:ff9b::10.1.2.3", true},
		{"10.0.0.0/8", "11.1.2.3", false},
		{"::1/128", "::1", true},
		{"fe80::/10", "fe80::1%eth0", true},
		{"0.0.0.0/0", "169.254.169.254", false},
		{"169.254.0.0/16", "169.254.169.254", false},
		{"169.254.169.254/32", "169.254.169.254", true},
		{"169.254.169.254/32", "::ffff:169.254.169.254", true},
		{"fd00::/8", "fd00:ec2::254", false},
		{"fd00:ec2::254/128", "fd00:ec2::254", true},
	} {
		got := Named(netip.MustParseAddr(c.address), []netip.Prefix{netip.MustParsePrefix(c.prefix)})
		if got != c.want {
			t.Errorf("%s names %s: %t, want %t", c.prefix, c.address, got, c.want)
		}
	}
	if Named(netip.MustParseAddr("1.1.1.1"), nil) {
		t.Error("no prefix names an address")
	}
}

func TestAPrefixHasAnAddress(t *testing.T) {
	for _, p := range []netip.Prefix{
		{},
		netip.MustParsePrefix("::ffff:10.0.0.0/104"), netip.MustParsePrefix("64:ff9b::10.0.0.0/104"),
		netip.MustParsePrefix("64:ff9b::/96"), netip.MustParsePrefix("2002:a00::/24"),
	} {
		if CheckPrefix("--allow", p) == nil {
			t.Errorf("%v: got nil, want an error", p)
		}
	}
	if err := CheckPrefix("--allow", netip.MustParsePrefix("10.0.0.0/8")); err != nil {
		t.Error(err)
	}
}

// TestATransportUsesNoProxy checks the transport itself, because the standard library never uses a proxy for
// a host of this machine.
func TestATransportUsesNoProxy(t *testing.T) {
	c := NewTransport(func(netip.Addr) error { return nil }, nil)
	if c.Proxy != nil || !c.DisableKeepAlives || c.TLSClientConfig.MinVersion != tls.VersionTLS12 {
		t.Errorf("got %+v", c)
	}
}
