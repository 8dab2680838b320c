package settings

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Bytes is a size: 1048576, 512k, 1MiB. The units are powers of 1,024, as they are in Kafka's own documentation.
type Bytes int64

var byteUnits = []struct {
	suffix string
	factor int64
}{
	{"kib", 1 << 10}, {"mib", 1 << 20}, {"gib", 1 << 30}, {"kb", 1 << 10}, {"mb", 1 << 20}, {"gb", 1 << 30},
	{"k", 1 << 10}, {"m", 1 << 20}, {"g", 1 << 30}, {"b", 1},
}

// Set parses s.
func (b *Bytes) Set(s string) error {
	number, factor := strings.ToLower(strings.TrimSpace(s)), int64(1)
	for _, u := range byteUnits {
		if rest, ok := strings.CutSuffix(number, u.suffix); ok {
			number, factor = strings.TrimSpace(rest), u.factor
			break
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64/factor {
		return fmt.Errorf("is not a size; write for example 65536, 512KiB or 32MiB")
	}
	*b = Bytes(n * factor)
	return nil
}

func (b *Bytes) String() string {
	n := int64(*b)
	for _, u := range []string{"GiB", "MiB", "KiB"} {
		f := map[string]int64{"GiB": 1 << 30, "MiB": 1 << 20, "KiB": 1 << 10}[u]
		if n >= f && n%f == 0 {
			return strconv.FormatInt(n/f, 10) + u
		}
	}
	return strconv.FormatInt(n, 10)
}

// Type names the value in the help.
func (b *Bytes) Type() string { return "size" }

// Duration is a time span: 250ms, 1m30s, and also 14d, which retention times are given in.
type Duration time.Duration

// Set parses s.
func (d *Duration) Set(s string) error {
	v, err := ParseDuration(s)
	*d = Duration(v)
	return err
}

func (d *Duration) String() string {
	v := time.Duration(*d)
	if day := 24 * time.Hour; v >= day && v%day == 0 {
		return strconv.Itoa(int(v/day)) + "d"
	}
	return v.String()
}

// Type names the value in the help.
func (d *Duration) Type() string { return "duration" }

// ParseDuration is time.ParseDuration that knows whole days.
func ParseDuration(s string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(s, "d"); ok {
		if n, err := strconv.ParseInt(days, 10, 32); err == nil && n <= 100_000 && n >= 0 {
			return time.Duration(n) * 24 * time.Hour, nil
		}
	}
	v, err := time.ParseDuration(s)
	if err != nil || v < 0 {
		return 0, fmt.Errorf("is not a time span; write for example 250ms, 30s, 5m, 12h or 14d")
	}
	return v, nil
}

// OneOf is a string with few allowed values.
type OneOf struct {
	Value   string
	Allowed []string
}

// Set checks s.
func (o *OneOf) Set(s string) error {
	for _, a := range o.Allowed {
		if s == a {
			o.Value = s
			return nil
		}
	}
	return fmt.Errorf("is not one of %s", strings.Join(o.Allowed, ", "))
}

func (o *OneOf) String() string { return o.Value }

// Type names the value in the help.
func (o *OneOf) Type() string { return strings.Join(o.Allowed, "|") }
