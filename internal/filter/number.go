package filter

import (
	"math"
	"math/big"
	"strconv"
	"strings"
)

// number is a number in a filter, with which numbers in parameters are compared.
type number struct {
	exact *big.Rat
	near  float64 // the nearest float to exact
}

// Comparisons are exact. Their time and memory grow with the digits of a number and with its power of ten, so
// both are bounded.
const (
	maxDigits = 400
	maxPower  = 400
)

// parseNumber reads a number as JSON writes it: a sign, digits, a point and a power of ten. It reports false
// for any other text, and for a number beyond the largest float.
func parseNumber(text string) (n number, ok bool) {
	if strings.Trim(text, "+-.eE0123456789") != "" {
		return n, false
	}
	if n.exact, ok = rational(text); !ok {
		return n, false
	}
	n.near, _ = n.exact.Float64()
	return n, !math.IsInf(n.near, 0)
}

// numbersOf returns the numbers among values.
func numbersOf(values []pattern) (numbers []number) {
	for _, p := range values {
		text, whole := p.exact()
		if n, ok := parseNumber(text); ok && whole {
			numbers = append(numbers, n)
		}
	}
	return numbers
}

// rational reads a number of at most maxDigits digits and a power of ten of at most maxPower.
func rational(text string) (*big.Rat, bool) {
	if len(text) > maxDigits {
		return nil, false
	}
	if at := strings.IndexAny(text, "eE"); at >= 0 {
		if power, err := strconv.Atoi(text[at+1:]); err != nil || max(power, -power) > maxPower {
			return nil, false
		}
	}
	return new(big.Rat).SetString(text)
}

// compare compares the number in text with n, and returns -1, 0 or 1 as [cmp.Compare] does. The text must be
// a number. The nearest floats decide most comparisons, because rounding never reverses an order. If they are
// equal and the digits would take too long to compare, compare reports false. It also does so for NaN and
// infinities.
func (n *number) compare(text string) (order int, ok bool) {
	is, err := strconv.ParseFloat(text, 64)
	switch {
	case err == nil && (math.IsNaN(is) || math.IsInf(is, 0)): // MessagePack has these
		return 0, false
	case is < n.near:
		return -1, true
	case is > n.near:
		return 1, true
	}
	exact, ok := rational(text)
	if !ok {
		return 0, false
	}
	return exact.Cmp(n.exact), true
}
