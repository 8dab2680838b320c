//go:build synctests

package engine

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// wire stands between the members and the embedded broker: it reads every request and every answer, and spoils those that its
// trouble is about. It knows no request by name: where an answer can carry an error code is found by reflection.
type wire struct {
	kfake.VirtualNetwork
	heard    func(client string, req kmsg.Request)                     // every request, before the broker gets it
	answered func(client string, req kmsg.Request, resp kmsg.Response) // every answer that reaches a client whole, as it reads it

	mu      sync.Mutex
	trouble trouble
	armed   bool
	hits    int
	refuse  map[string]bool // requests that the broker is to refuse, as they are written
	places  map[place]bool  // where members' answers had room for an error code while armed
}

// manner is how the broker misbehaves.
type manner string

const (
	refuses manner = "refuses" // the request is not carried out, and the answer carries an error
	denies  manner = "denies"  // it is carried out, and the answer carries an error all the same
	unheard manner = "unheard" // it is not carried out and never answered, nor is what follows on the connection
	silent  manner = "silent"  // it is carried out and never answered, nor is what follows on the connection
	hangsUp manner = "hangs up"
	cuts    manner = "cuts" // the connection is closed half way through the answer
)

// place is where an error code can stand: a kind of request, and the path to the code in its answer.
type place struct {
	key  kmsg.Key
	path string
}

// trouble is what is wrong with the broker.
type trouble struct {
	place
	manner
	code *kerr.Error // of those who refuse or deny
	one  bool        // only partition 0, or the first of what the answer lists
	who  string      // only this client; empty = every member
	left int         // how often; negative = for ever
}

func (t *trouble) concerns(client string, key int16) bool {
	return t.left != 0 && int16(t.key) == key && strings.HasPrefix(client, memberClient) && (t.who == "" || t.who == client)
}

func (w *wire) arm(t trouble) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.trouble, w.armed = t, true
}

func (w *wire) heal() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.trouble.left = 0
}

func (w *wire) struck() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.hits
}

// refuses makes the broker itself refuse what the wire has marked.
func (w *wire) refuses(c *kfake.Cluster, t trouble) {
	f := kfake.Fault{
		Keys: []kmsg.Key{t.key}, Err: t.code, Count: -1, TopLevel: !strings.Contains(t.path, "."),
		When: func(req kmsg.Request) bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.refuse[string(req.AppendTo(nil))]
		},
	}
	if t.one && strings.Contains(t.path, "Partitions.") {
		f.Partitions = []int32{0}
	}
	c.Fault(f)
}

func (w *wire) Listen(network, address string) (net.Listener, error) {
	l, err := w.VirtualNetwork.Listen(network, address)
	return &tappedListener{l, w}, err
}

type tappedListener struct {
	net.Listener
	w *wire
}

func (l *tappedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &tap{Conn: c, w: l.w, out: map[int32]*exchange{}}, nil
}

// exchange is a request that waits for its answer.
type exchange struct {
	client string
	req    kmsg.Request
	marked string // in wire.refuse
}

// tap is the broker's end of a connection.
type tap struct {
	net.Conn
	w  *wire
	in []byte // read, and not yet given to the broker

	mu   sync.Mutex
	out  map[int32]*exchange
	mute bool
}

var errHungUp = errors.New("hung up")

func (c *tap) Read(p []byte) (int, error) {
	for len(c.in) == 0 {
		frame := make([]byte, 4)
		if _, err := io.ReadFull(c.Conn, frame); err != nil {
			return 0, err
		}
		frame = append(frame, make([]byte, binary.BigEndian.Uint32(frame))...)
		if _, err := io.ReadFull(c.Conn, frame[4:]); err != nil {
			return 0, err
		}
		pass, err := c.request(frame)
		if err != nil {
			c.Close()
			return 0, err
		}
		if pass {
			c.in = frame
		}
	}
	n := copy(p, c.in)
	c.in = c.in[n:]
	return n, nil
}

func (c *tap) request(frame []byte) (pass bool, err error) {
	r := kbin.Reader{Src: frame[4:]}
	key, version, id := r.Int16(), r.Int16(), r.Int32()
	x := &exchange{}
	if s := r.NullableString(); s != nil {
		x.client = *s
	}
	x.req = kmsg.RequestForKey(key)
	x.req.SetVersion(version)
	if x.req.IsFlexible() {
		kmsg.SkipTags(&r)
	}
	if err := x.req.ReadFrom(r.Src); err != nil {
		return false, err
	}
	if c.w.heard != nil {
		c.w.heard(x.client, x.req)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.out[id] = x
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	if t := &c.w.trouble; t.concerns(x.client, key) {
		switch t.manner {
		case unheard:
			c.w.strike()
			c.mute = true
		case hangsUp:
			c.w.strike()
			return false, errHungUp
		case refuses:
			t.left-- // given back where the broker finds nothing to refuse in it
			x.marked = string(x.req.AppendTo(nil))
			if c.w.refuse == nil {
				c.w.refuse = map[string]bool{}
			}
			c.w.refuse[x.marked] = true
		}
	}
	return !c.mute, nil
}

func (w *wire) strike() {
	w.trouble.left--
	w.hits++
}

// latency is what each answer takes. Without any, a client that asks again at once would never let the virtual time pass.
const latency = time.Millisecond

// Write gets an answer whole: the broker writes each at once.
func (c *tap) Write(frame []byte) (int, error) {
	time.Sleep(latency)
	c.mu.Lock()
	id := int32(binary.BigEndian.Uint32(frame[4:]))
	x, mute := c.out[id], c.mute
	delete(c.out, id)
	c.mu.Unlock()
	if mute {
		return len(frame), nil
	}
	out, then := c.spoil(x, frame)
	switch then {
	case silent:
		c.mu.Lock()
		c.mute = true
		c.mu.Unlock()
		return len(frame), nil
	case cuts:
		_, _ = c.Conn.Write(frame[:len(frame)/2])
		c.Close()
		return 0, errHungUp
	}
	if _, err := c.Conn.Write(out); err != nil {
		return 0, err
	}
	return len(frame), nil
}

// spoil returns what the client gets instead of the broker's answer.
func (c *tap) spoil(x *exchange, frame []byte) (out []byte, then manner) {
	body := 8
	if x.req.IsFlexible() && x.req.Key() != int16(kmsg.ApiVersions) {
		body++
	}
	resp := x.req.ResponseKind()
	if err := resp.ReadFrom(frame[body:]); err != nil {
		panic(err)
	}
	w := c.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if t := &w.trouble; x.marked != "" {
		delete(w.refuse, x.marked)
		if carries(reflect.ValueOf(resp), t.code.Code) {
			w.hits++
		} else {
			t.left++
		}
	} else if t.concerns(x.client, x.req.Key()) {
		switch t.manner {
		case silent, cuts:
			w.strike()
			return nil, t.manner
		case denies:
			var spoiled bool
			if frame, spoiled = withCode(x, frame, body, t.path, t.code.Code, t.one); spoiled {
				w.strike()
			}
		}
	}
	if w.armed && strings.HasPrefix(x.client, memberClient) {
		w.note(x, frame, body)
	}
	if err := resp.ReadFrom(frame[body:]); err != nil {
		panic(err)
	}
	if w.answered != nil {
		w.answered(x.client, x.req, resp)
	}
	if v, ok := resp.(*kmsg.ApiVersionsResponse); ok && v.ErrorCode == kerr.UnsupportedVersion.Code {
		v.SetVersion(0) // the one that every client can read, as brokers do
		frame = framed(frame[:body], v)
	}
	return frame, ""
}

// framed is an answer behind its header.
func framed(header []byte, resp kmsg.Response) []byte {
	frame := resp.AppendTo(bytes.Clone(header))
	binary.BigEndian.PutUint32(frame, uint32(len(frame)-4))
	return frame
}

// withCode returns the answer with an error code at a path, where this version of the protocol has room for one there.
func withCode(x *exchange, frame []byte, body int, path string, code int16, one bool) ([]byte, bool) {
	resp := x.req.ResponseKind()
	if err := resp.ReadFrom(frame[body:]); err != nil {
		panic(err)
	}
	setCodes(reflect.ValueOf(resp), strings.Split(path, "."), code, one)
	spoiled := framed(frame[:body], resp)
	resp = x.req.ResponseKind()
	if err := resp.ReadFrom(spoiled[body:]); err != nil {
		panic(err)
	}
	if !carries(reflect.ValueOf(resp), code) {
		return frame, false
	}
	return spoiled, true
}

// note remembers where this answer has room for an error code.
func (w *wire) note(x *exchange, frame []byte, body int) {
	if w.places == nil {
		return
	}
	for _, path := range codePaths(reflect.TypeOf(x.req.ResponseKind()).Elem()) {
		at := place{kmsg.Key(x.req.Key()), path}
		if _, room := withCode(x, frame, body, path, kerr.UnknownServerError.Code, false); room {
			w.places[at] = true
		}
	}
}

// codePaths are the paths to the error codes of a type of answer.
func codePaths(t reflect.Type) (paths []string) {
	for i := range t.NumField() {
		f := t.Field(i)
		ft := f.Type
		for ft.Kind() == reflect.Slice || ft.Kind() == reflect.Pointer {
			ft = ft.Elem()
		}
		switch {
		case f.Name == "ErrorCode" && ft.Kind() == reflect.Int16:
			paths = append(paths, f.Name)
		case ft.Kind() == reflect.Struct:
			for _, p := range codePaths(ft) {
				paths = append(paths, f.Name+"."+p)
			}
		}
	}
	return paths
}

// setCodes sets the error codes at a path. What an answer lists beside an error of its own is taken away, as brokers do.
func setCodes(v reflect.Value, path []string, code int16, one bool) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			setCodes(v.Elem(), path, code, one)
		}
	case reflect.Slice:
		for i := range v.Len() {
			if !one || isFirst(v.Index(i), i) {
				setCodes(v.Index(i), path, code, one)
			}
		}
	case reflect.Struct:
		if len(path) > 1 {
			setCodes(v.FieldByName(path[0]), path[1:], code, one)
			return
		}
		for i := range v.NumField() {
			if f := v.Field(i); f.Kind() == reflect.Slice || f.Kind() == reflect.Pointer && f.Type().Elem().Kind() == reflect.Struct {
				f.SetZero()
			}
		}
		v.FieldByName(path[0]).SetInt(int64(code))
	}
}

// isFirst says whether this is the one of several that trouble with one is about.
func isFirst(v reflect.Value, i int) bool {
	if p := v.FieldByName("Partition"); p.IsValid() {
		return p.Int() == 0
	}
	return i == 0
}

// carries says whether an answer carries a code anywhere.
func carries(v reflect.Value, code int16) bool {
	switch v.Kind() {
	case reflect.Pointer:
		return !v.IsNil() && carries(v.Elem(), code)
	case reflect.Slice:
		for i := range v.Len() {
			if carries(v.Index(i), code) {
				return true
			}
		}
	case reflect.Struct:
		for i := range v.NumField() {
			f := v.Field(i)
			if v.Type().Field(i).Name == "ErrorCode" && f.Int() == int64(code) || carries(f, code) {
				return true
			}
		}
	}
	return false
}
