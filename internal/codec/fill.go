package codec

import (
	"math"
	"reflect"
	"time"
)

// fillDepth bounds recursive types.
const fillDepth = 8

// Fill sets a value and all values inside it that can be set, in the same way each time. Unsigned integers
// and keys get their highest value, so that a narrower type cannot decode them. Signed integers get their
// part of integer, which is the highest or the lowest int64. Values that encode themselves stay as they are.
func Fill(v reflect.Value, integer int64) { fill(v, integer, 0) }

func fill(v reflect.Value, integer int64, depth int) {
	switch {
	case depth > fillDepth || !v.CanSet():
		return
	case v.Type() == timeType:
		v.Set(reflect.ValueOf(time.Date(2026, 3, 1, 12, 30, 15, 0, time.UTC)))
		return
	case v.Kind() != reflect.Pointer && EncodesItself(v.Type()):
		return
	}
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(integer >> (64 - v.Type().Bits()))
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		v.SetUint(math.MaxUint64 >> (64 - v.Type().Bits()))
	case reflect.Float32, reflect.Float64:
		v.SetFloat(1.5)
	case reflect.String:
		v.SetString("text")
	case reflect.Interface:
		if v.NumMethod() == 0 {
			v.Set(reflect.ValueOf("text"))
		}
	default:
		fillInside(v, integer, depth+1)
	}
}

// fillInside fills a value that holds other values.
func fillInside(v reflect.Value, integer int64, depth int) {
	switch v.Kind() {
	case reflect.Pointer:
		if depth <= fillDepth {
			v.Set(reflect.New(v.Type().Elem()))
			fill(v.Elem(), integer, depth)
			if shapeOf(MessagePack, v.Type()).mayFade(MessagePack) && v.Elem().IsNil() {
				v.SetZero() // an encoding refuses a pointer to nil
			}
		}
	case reflect.Slice:
		if depth <= fillDepth {
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
			fill(v.Index(0), integer, depth)
		}
	case reflect.Array:
		for i := range v.Len() {
			fill(v.Index(i), integer, depth)
		}
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key, math.MaxInt64, depth)
		fill(value, integer, depth)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), integer, depth)
		}
	default: // functions and channels are no parameters
	}
}
