package filter

import (
	"math"
	"math/big"
	"strconv"
	"strings"
)

// number is a number of a word, with which those in parameters are compared.
type number struct {
	exact *big.Rat
	near  float64 // the float next to exact
}

// Numbers are exact, and the time and the memory that they take grow with their digits and with the power of ten.
const (
	maxDigits = 400
	maxPower  = 400
)

// parseNumber reads a number as JSON writes it: a sign, digits, a point and a power of ten. It refuses others,
// and those that no float is next to.
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

// numbersOf gives the numbers among values.
func numbersOf(values []pattern) (numbers []number) {
	for _, p := range values {
		text, whole := p.exact()
		if n, ok := parseNumber(text); ok && whole {
			numbers = append(numbers, n)
		}
	}
	return numbers
}

// rational reads a number of which maxDigits and maxPower are not exceeded.
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

// compare gives the order of a number in parameters and this one: below 0 where it is less. It reports false
// where the text is none, or one that would take too long to compare.
func (n *number) compare(text string) (order int, ok bool) {
	is, err := strconv.ParseFloat(text, 64)
	switch {
	case err == nil && (math.IsNaN(is) || math.IsInf(is, 0)): // those of MessagePack
		return 0, false
	case is < n.near: // which rounding does not turn round
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
